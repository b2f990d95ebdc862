"""Fixtures that start the real thing, ZooKeeper and bookies as processes, and the sets of tests (`tests.sets`)."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from ledger.dev import DevCluster
from ledger.dev.process import is_alive
from tests import sets

if TYPE_CHECKING:
    from tests.integration.s3_server import Bucket, S3Server

settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
"""How long an example takes is no fault of the code: no test fails by a clock."""
gc.set_threshold(20_000, 20, 50)
"""Looking for cycles ten times as seldom as by default spares a tenth of the time of properties and most of that of
parsing: what tests make is thrown away whole."""
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Modules are compiled once for all processes of a run, also where the machine says that Python keeps nothing: tests
start it some hundred times, and compiling takes longer than most of these processes live."""
for _variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_variable, "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""Spark's JVMs live for a minute here: what the second compiler and a collector of many threads do in that time costs a
third of the processor time of such a process and gives nothing back. JVMs that a test starts by other processes have
these options too."""
os.umask(0o077)
"""Tests write keys, tokens and passwords as their owners would: files that others may read are refused."""
_counter = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    sets.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    sets.configure(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if sets.is_left_out(collection_path, config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = sets.select(items, config)
    kept = set(map(id, chosen))
    left_out = [item for item in items if id(item) not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return sets.Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    sets.bring_home(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    sets.take_home(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sets.tell(terminalreporter)


@pytest.fixture(scope="module", autouse=True)
def _earlier_modules_cost_nothing() -> None:
    """Take what earlier modules left out of the garbage collector's sight: simulations collect after every few runs."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _commands_keep_nothing_at_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What commands keep for their user stays with the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(params=["framed", "grpc"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Clients and workers that may choose go this way to replicas."""
    monkeypatch.setenv("RSM_STORE__TRANSPORT", request.param)
    return str(request.param)


class _Clusters:
    """Clusters that end together, also when a test failed; none may leave a process behind, nor its journals."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._started: list[DevCluster] = []

    def start(self, *, bookie_count: int = 3, zookeeper_address: str | None = None) -> DevCluster:
        data_dir = self._folders.mktemp("cluster")
        # Tests of auto-recovery start it themselves: else some bookie of a cluster for all tests sets its delay.
        cluster = DevCluster(
            data_dir, bookie_count=bookie_count, zookeeper_address=zookeeper_address, has_auto_recovery=False
        )
        cluster.start()
        self._started.append(cluster)
        return cluster

    def stop(self) -> None:
        for cluster in reversed(self._started):
            processes = [server.process for server in cluster.state.owned() if server.process is not None]
            cluster.stop()
            assert not [process.pid for process in processes if is_alive(process)]
            for journal in cluster.data_dir.glob("bookie-*/journal"):
                shutil.rmtree(journal)  # A third of a GiB each: a run of all tests would fill a disk.


@pytest.fixture(scope="session")
def _shared_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Clusters]:
    clusters = _Clusters(tmp_path_factory)
    yield clusters
    clusters.stop()


@pytest.fixture
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DevCluster]]:
    """Start further clusters, for tests that break one beyond repair: `start_cluster(bookie_count=4)`.

    They end with the test.
    """
    clusters = _Clusters(tmp_path_factory)
    yield clusters.start
    clusters.stop()


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Return a cluster with three bookies for one file: it has names of its own, or counts what is there."""
    clusters = _Clusters(tmp_path_factory)
    yield clusters.start(bookie_count=3)
    clusters.stop()


@pytest.fixture(scope="session")
def zookeeper(_shared_clusters: _Clusters) -> str:
    """Address (host:port) of a real ZooKeeper, empty at first, shared by the tests of this process."""
    return _shared_clusters.start(bookie_count=0).zookeeper


@pytest.fixture(scope="session")
def cluster(_shared_clusters: _Clusters) -> DevCluster:
    """Return a real ZooKeeper with three real bookies. A test that stops one starts it again (see `whole_cluster`)."""
    return _shared_clusters.start(bookie_count=3)


@pytest.fixture
def whole_cluster(cluster: DevCluster) -> Iterator[DevCluster]:
    """Lend the shared cluster to a test that kills or pauses servers; it is made whole again afterwards."""
    yield cluster
    names = cluster.pids()
    if cluster.state.zookeeper.name not in names:
        cluster.start_zookeeper()
    cluster.resume_zookeeper()
    for number, bookie in enumerate(cluster.state.bookies):
        if bookie.name not in names:
            cluster.start_bookie(number)
        cluster.resume_bookie(number)


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[S3Server]:
    """Start one real S3 server for the tests of this process."""
    from tests.integration.s3_server import S3Server  # noqa: PLC0415 - takes a second

    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def bucket(_s3_server: S3Server) -> Bucket:
    """Return an empty bucket of a real S3 server."""
    return _s3_server.bucket()


@pytest.fixture
def unique_name() -> str:
    """Name of nothing else in this session: for logs and znodes in a shared cluster."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return f"test-{worker}-{next(_counter)}"


@pytest.fixture
def unique_root(unique_name: str) -> str:
    """Path of a znode that is nobody else's."""
    return f"/{unique_name}"
