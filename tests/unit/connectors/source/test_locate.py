from __future__ import annotations

import pytest

from connectors.errors import SparkOffsetError
from connectors.source.bounds import SNAPSHOT, Bound, BoundKind
from connectors.source.locate import locate_bound, locate_time
from connectors.source.look import LogLook
from connectors.source.offsets import LogOffset
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory


def looked() -> tuple[ClusterInMemory, LogLook]:
    """Three ledgers of 20 entries of 10 records, logged at 1000, 1010, … ms; ledger 3 is the first."""
    cluster = ClusterInMemory()
    log = cluster.make_log("orders")
    for _ in range(2):
        log.fill(20)
        log.roll()
    log.fill(20)
    return cluster, LogLook("orders", cluster)


@pytest.mark.parametrize(
    ("timestamp_ms", "position"),
    [
        (0, LogOffset(3, 0, 1)),
        (1_000, LogOffset(3, 0, 1)),
        (1_001, LogOffset(3, 1, 11)),
        (1_010, LogOffset(3, 1, 11)),
        (1_190, LogOffset(3, 19, 191)),
        (1_191, LogOffset(4, 0, 201)),
        (1_590, LogOffset(5, 19, 591)),
        (1_591, None),
    ],
)
def test_a_time_is_found_to_the_entry(timestamp_ms: int, position: LogOffset | None) -> None:
    _, look = looked()
    assert locate_time(look.look(), timestamp_ms, look.head_at) == position


def test_a_time_is_found_with_few_reads() -> None:
    cluster = ClusterInMemory()
    log = cluster.make_log("orders")
    for _ in range(20):
        log.fill(500, records_per_entry=1)
        log.roll()
    look = LogLook("orders", cluster)
    view = look.look()
    cluster.reads = 0
    position = locate_time(view, 1_000 + 7_777 * 10, look.head_at)
    assert position is not None
    assert position.revision == 7_778
    assert cluster.reads <= 30


def test_entries_of_one_time_are_all_read() -> None:
    cluster = ClusterInMemory()
    log = cluster.make_log("orders")
    log.fill(5)
    log.step_ms = 0
    log.fill(30)
    log.roll()
    log.fill(30)
    look = LogLook("orders", cluster)
    assert locate_time(look.look(), 1_050, look.head_at) == LogOffset(3, 5, 51)


def test_a_log_without_entries_has_no_time() -> None:
    cluster = ClusterInMemory()
    cluster.make_log("orders")
    look = LogLook("orders", cluster)
    assert locate_time(look.look(), 0, look.head_at) is None


def test_words_revisions_and_places_mean_positions() -> None:
    _, look = looked()
    view = look.look()
    for bound, position in (
        (Bound(BoundKind.EARLIEST), LogOffset(3, 0, 1)),
        (Bound(BoundKind.LATEST), LogOffset(5, 20, 601)),
        (Bound(BoundKind.BEFORE_LATEST, count=15), LogOffset(5, 18, 586)),
        (Bound(BoundKind.BEFORE_LATEST, count=10_000), LogOffset(3, 0, 1)),
        (Bound(BoundKind.REVISION, revision=201), LogOffset(4, 0, 201)),
        (Bound(BoundKind.POSITION, ledger_id=4, entry_id=2), LogOffset(4, 2, 221)),
        (Bound(BoundKind.TIMESTAMP, timestamp_ms=1_395), LogOffset(5, 0, 401)),
    ):
        assert locate_bound(view, bound, look.head_at) == position
    with pytest.raises(SparkOffsetError, match="snapshot is no place"):
        locate_bound(view, SNAPSHOT, look.head_at)
