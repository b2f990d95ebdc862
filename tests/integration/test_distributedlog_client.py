"""Java's client of BookKeeper, as DistributedLog uses it, on our bookies: one of DistributedLog's own classes of tests.

`tests/compat/test_distributedlog_suites.py` runs the others, on Java's bookies too. Skipped where the JARs are not had.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.zookeeper_server.errors import JavaError
from tests.compat.bookies import Bookies
from tests.compat.distributedlog_tests import compile_runner, run_class
from tools.fetch_bookkeeper import FetchError

_TRIES = 2


def test_distributedlog_rolls_and_reads_the_segments_of_its_logs(tmp_path: Path) -> None:
    try:
        compile_runner()
    except (FetchError, JavaError) as error:
        pytest.skip(f"DistributedLog's tests cannot run here: {error}")
    with DevCluster(tmp_path / "zookeeper", bookie_count=0) as cluster:
        bookies = Bookies(cluster.zookeeper, "/ledgers", tmp_path / "bookies", Path())
        try:
            bookies.start("ours", "ours", "ours")
            for _ in range(_TRIES):  # They wait for seconds that a busy machine does not have.
                run = run_class("TestLogSegmentsZK", bookies, "ours", tmp_path / "log", timeout_s=120)
                if not run.failed:
                    break
        finally:
            bookies.stop_all()
    assert not run.failed, run.failed
    assert run.passed
