from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.ledgers_source import LedgersSource
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory

ALL = MicroBatchLimits()


@pytest.fixture
def cluster() -> ClusterInMemory:
    """Ledgers 3 and 4 with 10 entries of 100 bytes each."""
    made = ClusterInMemory()
    for ledger_id in (made.make_ledger(), made.make_ledger()):
        for _ in range(10):
            made.append(ledger_id, bytes(100))
    return made


def source(cluster: ClusterInMemory, *, is_stream: bool = True, **options: str) -> LedgersSource:
    return LedgersSource(parse_options({"ledgers": "3,4", **options}, is_stream=is_stream), cluster)


def offset(**entries: int) -> dict[str, Any]:
    return {"version": 1, "ledgers": {name.removeprefix("l"): entry for name, entry in entries.items()}}


def ranges(parts: list[Any]) -> list[tuple[int, int, int]]:
    return [(part.ledger_id, part.first_entry_id, part.last_entry_id) for part in parts]


def test_numbers_words_and_entries_start_ledgers(cluster: ClusterInMemory) -> None:
    for text, start in (
        ("earliest", offset(l3=0, l4=0)),
        ("latest", offset(l3=10, l4=10)),
        ("latest-4", offset(l3=6, l4=6)),
        ('{"3": -2, "4": -1}', offset(l3=0, l4=10)),
        ('{"3": 7, "4": "latest-100"}', offset(l3=7, l4=0)),
    ):
        assert source(cluster, startingOffsets=text).bound(is_start=True) == start
    with pytest.raises(SparkOffsetError, match="ledger 3 can be read up to entry 9, not 11"):
        source(cluster, startingOffsets='{"3": 11, "4": 0}').bound(is_start=True)


def test_ledgers_share_a_limit_in_entries_and_in_bytes(cluster: ClusterInMemory) -> None:
    reader = source(cluster)
    assert reader.following(offset(l3=0, l4=8), MicroBatchLimits(offsets_max=6), None) == offset(l3=5, l4=9)
    assert reader.following(offset(l3=0, l4=8), MicroBatchLimits(bytes_max=600), None) == offset(l3=5, l4=9)
    assert reader.backlog(offset(l3=4, l4=8)) == (8, 800, None)


def test_a_deleted_ledger_is_an_error_that_says_how_far_it_went(cluster: ClusterInMemory) -> None:
    reader = source(cluster)
    reader.end()
    cluster.delete(3)
    with pytest.raises(StartGoneError, match=r"ledger 3 does not exist .*up to entry 9.*failOnDataLoss=false"):
        reader.following(offset(l3=4, l4=8), ALL, None)


def test_a_deleted_ledger_is_passed_over_and_told(cluster: ClusterInMemory) -> None:
    reader = source(cluster, failOnDataLoss="false")
    reader.end()
    cluster.delete(3)
    start = offset(l3=4, l4=8)
    end = reader.following(start, ALL, None)
    assert end == offset(l3=10, l4=10)
    assert ranges(reader.partitions(start, end)) == [(4, 8, 9)]
    assert reader.following(end, ALL, None) == end
    assert reader.losses() == [{"ledger": 3, "from": 4, "to": 9, "count": 6}]


def test_a_ledger_that_was_read_whole_may_be_deleted(cluster: ClusterInMemory) -> None:
    cluster.is_closed[3] = True
    reader = source(cluster)
    reader.end()
    cluster.delete(3)
    assert reader.following(offset(l3=10, l4=8), ALL, None) == offset(l3=10, l4=10)
    lax = source(cluster, failOnDataLoss="false")
    lax.following(offset(l3=10, l4=10), ALL, None)
    assert lax.losses() == [{"ledger": 3, "from": 10, "to": None, "count": None}], "a new process cannot know"


def test_a_planned_batch_of_a_deleted_ledger_is_read_without_it(cluster: ClusterInMemory) -> None:
    cluster.delete(3)
    start, end = offset(l3=4, l4=8), offset(l3=7, l4=10)
    reader = source(cluster, failOnDataLoss="false")
    assert ranges(reader.partitions(start, end)) == [(4, 8, 9)]
    assert reader.following(end, ALL, None) == end
    assert reader.losses() == [{"ledger": 3, "from": 4, "to": None, "count": None}]
    with pytest.raises(StartGoneError, match="ledger 3 does not exist"):
        source(cluster).partitions(start, end)


def test_a_start_in_a_deleted_ledger_is_told(cluster: ClusterInMemory) -> None:
    cluster.delete(3)
    reader = source(cluster, is_stream=False, failOnDataLoss="false")
    start, end = reader.bound(is_start=True), reader.bound(is_start=False)
    assert ranges(reader.partitions(start, end)) == [(4, 0, 9)]
    assert reader.losses() == [{"ledger": 3, "from": 0, "to": None, "count": None}]


def test_a_checkpoint_of_other_ledgers_is_refused(cluster: ClusterInMemory) -> None:
    with pytest.raises(SparkOffsetError, match="the checkpoint reads ledgers 9, option ledgers does not name them"):
        source(cluster).following({"version": 1, "ledgers": {"9": 0}}, ALL, None)
