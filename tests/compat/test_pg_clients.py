"""Foreign clients of PostgreSQL's protocol on replicas of SQL tables. Skipped where their registries have no answer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_JAVA = Path(__file__).parent / "java" / "pgjdbc"
_NODE = Path(__file__).parent / "node" / "pg"


@pytest.fixture
def at(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where a follower of two replicas is found."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        places = [place(serve(replicas, name, "--command-s-max", "60")) for name in "ab"]

        def ask() -> None:
            with psycopg.connect(**places[1], user="ann") as connection:
                connection.execute("SELECT 1")

        until_led(ask)
        yield places[1]


def test_pgjdbc_works(at: dict[str, Any], tmp_path: Path) -> None:
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None or shutil.which("javac") is None:
        pytest.skip("there is no Maven, or no JDK")
    paths = tmp_path / "class-path"
    got = subprocess.run(
        [maven, "-q", "-B", "-f", _JAVA / "pom.xml", "dependency:build-classpath", f"-Dmdep.outputFile={paths}"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if got.returncode != 0:
        pytest.skip(f"Maven cannot get pgjdbc: {got.stdout[-300:]}")
    jars = paths.read_text()
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path, _JAVA / "Pgjdbc.java"], check=True, timeout=120)
    place = f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}"
    done = subprocess.run(
        [java, "-cp", f"{tmp_path}:{jars}", "Pgjdbc", place], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]


def test_pg_of_node_works(at: dict[str, Any], tmp_path: Path) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no Node.js")
    shutil.copy(_NODE / "package.json", tmp_path)
    shutil.copy(_NODE / "clients.mjs", tmp_path)
    got = subprocess.run(
        [npm, "install", "--silent", "--no-audit", "--no-fund"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if got.returncode != 0:
        pytest.skip(f"npm cannot get pg: {got.stderr[-300:]}")
    done = subprocess.run(
        [node, "clients.mjs", f"postgresql://ann@{at['host']}:{at['port']}/{at['dbname']}"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]
