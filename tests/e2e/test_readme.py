"""The code of the README runs as it stands there, on a cluster of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
README_URI = "zk+hierarchical://127.0.0.1:2181/ledgers"
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
LEDGER_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ledger.md").read_text(), re.DOTALL)
STORE_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "store.md").read_text(), re.DOTALL)
SPARK_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def orders(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Run a replica of the map `orders`, as the README starts it."""
    with stores(cluster.metadata_uri, "orders", tmp_path_factory.mktemp("readme")) as replicas:
        replicas.start("r1")
        yield cluster


def _run(block: str, cluster: DevCluster) -> str:
    done = subprocess.run(
        [sys.executable, "-c", block.replace(README_URI, cluster.metadata_uri)],
        cwd=ROOT,
        env={**os.environ, "RSM_METADATA_URI": cluster.metadata_uri},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_the_map_and_spark() -> None:
    assert len(BLOCKS) == 2


def test_the_map_in_ten_lines_runs(orders: DevCluster) -> None:
    printed = _run(BLOCKS[0], orders)
    assert "CompareResult(succeeded=True" in printed
    assert "value=b'paid'" in printed
    assert "[b'order/1']" in printed


def test_the_commands_on_a_running_replica_do_what_they_say(orders: DevCluster) -> None:
    lines = re.findall(r"^\.venv/bin/rsm ((?:map|log|status) .*)$", README, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "rsm_spark", *line.split()],
            cwd=ROOT,
            env={**os.environ, "RSM_METADATA_URI": orders.metadata_uri},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.spark
def test_spark_in_six_lines_runs(orders: DevCluster) -> None:
    printed = _run(BLOCKS[1], orders)
    assert "Batch: 0" in printed
    assert "leader_started" in printed


@pytest.mark.spark
@pytest.mark.slow
def test_the_first_lines_of_the_spark_page_run(orders: DevCluster) -> None:
    _run(BLOCKS[0], orders)  # Some rows, at revision 5.
    first, *_, past = SPARK_BLOCKS  # That of history views is run by test_history_views.py.
    printed = _run(f"{first}print(rows.columns)\n{past}", orders).splitlines()
    assert "entry_hash" in printed[0]
    assert int(printed[1]) == int(printed[2]) > 0


def test_the_first_lines_of_the_ledger_page_run(cluster: DevCluster) -> None:
    (block,) = LEDGER_BLOCKS
    printed = _run(block, cluster).splitlines()
    assert printed[:2] == ["0 1000 1000", "1000"]
    assert printed[2].endswith("b'hello'")


def test_the_first_lines_of_the_store_page_run(orders: DevCluster) -> None:
    (block,) = STORE_BLOCKS
    printed = _run(block, orders).splitlines()
    assert printed[0].startswith("True False MapValue(value=b'to ann'")
    assert printed[1] == "put b'stock/7'"
    assert printed[-1] == "expired b'worker/1'"
