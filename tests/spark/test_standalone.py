"""The guide's standalone cluster, on loopback: master, worker, and an application that counts a log's rows there."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.children import CHILD_S, child_environment
from tests.spark.conftest import WrittenLog
from tests.spark.standalone import DOCUMENTED, PROGRAM, SUBMIT, standalone_cluster

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """Return the address of a cluster's master."""
    with standalone_cluster(tmp_path) as address:
        yield address


@pytest.mark.timeout(900)
def test_the_guides_application_counts_rows_on_a_standalone_cluster(
    servers: str, log: WrittenLog, tmp_path: Path
) -> None:
    log.fill(20, records_per_entry=5)
    (tmp_path / "count_orders.py").write_text(PROGRAM)
    submit, *words = shlex.split(SUBMIT.replace(DOCUMENTED, servers))
    words[-1] = log.name
    done = subprocess.run(
        [str(Path(sys.executable).with_name(submit)), "--conf", "spark.ui.enabled=false", *words],
        cwd=tmp_path,
        env=child_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT), RSM_METADATA_URI=log.metadata_uri),
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"100 spark://{servers}"
    assert list((tmp_path / "work").glob("app-*/0/stderr")), "an executor of the cluster has run it"
