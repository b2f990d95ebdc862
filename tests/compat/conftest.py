"""Fixtures with Apache BookKeeper in them. Without Java or its JARs, `compat` tests fail and the others are skipped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger.zookeeper_server.errors import JavaError
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient, compile_driver
from tools.fetch_bookkeeper import FetchError, ensure_jars

_JAVA_FIXTURES = {"java_jars", "java_client", "java_bookkeeper"}


@functools.cache
def _jars_or_reason() -> Path | str:
    try:
        jars = ensure_jars()
        compile_driver(jars)
    except (FetchError, JavaError) as error:
        return f"Apache BookKeeper cannot run here: {error}"
    return jars


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not _JAVA_FIXTURES & set(getattr(item, "fixturenames", ())):
        return
    reason = _jars_or_reason()
    if isinstance(reason, str):
        if item.get_closest_marker("compat") is not None:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def java_jars() -> Path:
    """Folder with the JARs of Apache BookKeeper, fetched into the cache when a test first asks."""
    jars = _jars_or_reason()
    assert isinstance(jars, Path), jars
    return jars


@pytest.fixture(scope="session")
def java_client(java_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """Apache BookKeeper's client, one virtual machine for all tests of this process."""
    client = JavaClient(java_jars, tmp_path_factory.mktemp("java-client") / "log")
    yield client
    client.close()


@pytest.fixture(scope="session")
def java_bookkeeper(
    zookeeper: str, java_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Bookies]]:
    """Start clusters: `java_bookkeeper("java", "java", "ours")` has two Java bookies and one of ours.

    Further arguments are those of `Bookies`. Each cluster has a root of its own in the shared ZooKeeper; all of them
    end with the session.
    """
    clusters: list[Bookies] = []

    def start(
        *kinds: Kind,
        our_arguments: Sequence[str] = (),
        java_lines: Sequence[str] = (),
        **more: Any,
    ) -> Bookies:
        folder = tmp_path_factory.mktemp("bookies")
        root = f"/compat-{len(clusters) + 1}/ledgers"
        cluster = Bookies(
            zookeeper,
            root,
            folder,
            java_jars,
            our_arguments=our_arguments,
            java_lines=java_lines,
            **more,
        )
        clusters.append(cluster)
        cluster.start(*kinds)
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop_all()
