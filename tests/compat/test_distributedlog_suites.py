"""Apache DistributedLog's own tests of its core, on our bookies as on BookKeeper's, class by class in turn.

Classes of its core that write to bookies or read from them. `pytest -s` shows what became of each class on each side:

    .venv/bin/pytest -q -s tests/compat/test_distributedlog_suites.py
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.compat.bookies import Bookies, Kind
from tests.compat.distributedlog_tests import compile_runner, run_class
from tools.fetch_bookkeeper import FetchError

_CLASS_S_MAX = 900
pytestmark = [pytest.mark.compat, pytest.mark.timeout(4 * _CLASS_S_MAX)]

_QUICK = ("TestLogSegmentsZK", "TestTxnId")
_SLOW = (
    "TestAppendOnlyStreamReader",
    "TestAppendOnlyStreamWriter",
    "TestAsyncBulkWrite",
    "TestAsyncReaderLock",
    "TestAsyncReaderWriter",
    "TestBKDistributedLogManager",
    "TestBKDistributedLogNamespace",
    "TestBKLogReadHandler",
    "TestBKLogSegmentWriter",
    "TestBKLogWriteHandler",
    "TestBKSyncLogReader",
    "TestCancelledRead",
    "TestInterleavedReaders",
    "TestLogSegmentCreation",
    "TestNonBlockingReadsMultiReader",
    "TestReadAheadEntryReader",
    "TestReadUtils",
    "TestRollLogSegments",
    "TestSequenceID",
    "TestTruncate",
    "admin.TestDLCK",
    "bk.TestLedgerAllocator",
    "bk.TestLedgerAllocatorPool",
    "impl.logsegment.TestBKLogSegmentEntryReader",
    "tools.TestDistributedLogTool",
)
_LOCKING = frozenset({"TestBKDistributedLogNamespace", "tools.TestDistributedLogTool"})
"""They lock the root of what DistributedLog keeps in ZooKeeper: each has a cluster of its own."""
_KINDS: tuple[Kind, ...] = ("ours", "java")
_BOOKIES = 3
_TRIES = 2
"""Their tests wait for seconds that a busy machine does not have: what fails, fails twice."""

_RACE = "a race of its own: some runs fail, on Java's bookies too"
_FAILS_ANYWHERE = {"TestTruncate": {"testExplicitTruncation": _RACE, "testTruncation": _RACE}}
"""Tests that fail, or may fail, whosever the bookies are; and why."""


@contextmanager
def _both_sides(folder: Path, java_jars: Path) -> Iterator[dict[Kind, Bookies]]:
    """Three bookies of each kind, with a ZooKeeper for each kind: DistributedLog's tests want `/ledgers` in it."""
    clusters: list[DevCluster] = []
    found: dict[Kind, Bookies] = {}
    try:
        for kind in _KINDS:
            cluster = DevCluster(folder / f"zookeeper-{kind}", bookie_count=0)
            cluster.start()
            clusters.append(cluster)
            found[kind] = Bookies(cluster.zookeeper, "/ledgers", folder / kind, java_jars)
            found[kind].start(*[kind] * _BOOKIES)
        yield found
    finally:
        for bookies in found.values():
            bookies.stop_all()
        for cluster in clusters:
            cluster.stop()


@pytest.fixture(scope="module")
def shared_sides(java_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Bookies]]:
    try:
        compile_runner()
    except FetchError as error:
        pytest.fail(f"DistributedLog's tests cannot run here: {error}", pytrace=False)
    with _both_sides(tmp_path_factory.mktemp("distributedlog"), java_jars) as found:
        yield found


@pytest.fixture
def sides(
    name: str, shared_sides: dict[Kind, Bookies], java_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Kind, Bookies]]:
    """Bookies of each kind for a class of tests."""
    if name not in _LOCKING:
        yield shared_sides
        return
    with _both_sides(tmp_path_factory.mktemp("locking"), java_jars) as found:
        yield found


@pytest.mark.parametrize("name", [*_QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW)])
def test_distributedlogs_own_tests_pass_on_our_bookies_as_on_javas(
    name: str, sides: dict[Kind, Bookies], tmp_path: Path
) -> None:
    is_first_ours = (*_QUICK, *_SLOW).index(name) % 2 == 0
    excused = _FAILS_ANYWHERE.get(name, {}).keys()
    tried: dict[Kind, set[str]] = {}
    failed: dict[Kind, dict[str, str]] = {}
    for kind in _KINDS if is_first_ours else _KINDS[::-1]:
        for number in range(_TRIES):
            run = run_class(name, sides[kind], kind, tmp_path / f"{kind}.log", timeout_s=_CLASS_S_MAX)
            print(f"\n{name}, bookies {kind}: {run.summary()}", end="")
            again = {test: why for test, why in run.failed.items() if test not in excused}
            # What fails for want of time fails now here, now there.
            failed[kind] = {test: why for test, why in again.items() if not number or test in failed[kind]}
            tried[kind] = run.passed | run.failed.keys()
            if not failed[kind]:
                break
    assert not any(failed.values()), failed
    assert tried["ours"] == tried["java"] != set()
