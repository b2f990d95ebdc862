"""Partitioned logs of a query: their partitions in the offsets, and the order of keys over a growth."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from connectors.errors import OptionError, StartGoneError
from connectors.source.layouts import PartitionPlace
from connectors.source.logs_source import LogsSource
from connectors.source.offsets import decode_log_offsets
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from rsm_spark.core.partition_layout import PartitionLayout
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory, LogInMemory

ALL = MicroBatchLimits()


@pytest.fixture
def cluster() -> ClusterInMemory:
    return ClusterInMemory()


@pytest.fixture
def parts(cluster: ClusterInMemory) -> list[LogInMemory]:
    """Two partitions of the log `clicks`, with 20 and 30 records."""
    logs = cluster.make_partitioned("clicks", 2)
    logs[0].fill(2)
    logs[1].fill(3)
    return logs


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("followed_log._LOOK_FRESH_S", "logs_source._NAMES_FRESH_S"):
        monkeypatch.setattr(f"connectors.source.{place}", -1.0)


def source(cluster: ClusterInMemory, *, is_stream: bool = True, **options: str) -> LogsSource:
    if "logPattern" not in options:
        options["log"] = "clicks"
    return LogsSource(parse_options(options, is_stream=is_stream), cluster)


def revisions(offset: dict[str, Any]) -> dict[int | str, int]:
    """Return the next revision by partition, and by the names of other logs."""
    found: dict[int | str, int] = {}
    for log, position in decode_log_offsets(offset).items():
        found[int(log.removeprefix("clicks.p")) if log.startswith("clicks.p") else log] = position.revision
    return found


def batches(reader: LogsSource, start: dict[str, Any], limits: MicroBatchLimits = ALL) -> list[dict[int | str, int]]:
    found = []
    while (end := reader.following(start, limits, None)) != start:
        found.append(revisions(start := end))
    return found


def test_the_name_of_a_partitioned_log_stands_for_its_partitions(
    cluster: ClusterInMemory, parts: list[LogInMemory]
) -> None:
    reader = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    end = reader.following(start, ALL, None)
    assert revisions(start) == {0: 1, 1: 1}
    assert revisions(end) == {0: 21, 1: 31}
    read = reader.partitions(start, end)
    assert [part.place for part in read] == [PartitionPlace("clicks", 0), PartitionPlace("clicks", 1)]  # type: ignore[attr-defined]
    assert reader.backlog(start).records == 50
    pieces = source(cluster, logPattern=r"clicks\.p.*", startingOffsets="earliest")
    assert [part.place for part in pieces.partitions(start, end)] == [None, None]  # type: ignore[attr-defined]
    assert pieces.following(start, ALL, None) == end, "a checkpoint of one goes on as that of the other"


def test_partitions_are_picked_up_and_keys_keep_their_order_over_a_growth(
    cluster: ClusterInMemory, parts: list[LogInMemory]
) -> None:
    reader = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    cluster.grow("clicks", parts, 4)
    for log in parts:
        log.fill(1)
    # Partitions 2 and 3 have keys that 0 and 1 had; what 0 and 1 have is theirs, before and behind the growth.
    assert batches(reader, start) == [{0: 31, 1: 41, 2: 1, 3: 1}, {0: 31, 1: 41, 2: 11, 3: 11}]


def test_a_partition_waits_behind_those_before_it_whatever_the_limits(
    cluster: ClusterInMemory, parts: list[LogInMemory]
) -> None:
    reader = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    cluster.grow("clicks", parts, 3)  # With no divisor in common: every partition waits for every other.
    for log in parts:
        log.fill(1)
    found = batches(reader, start, MicroBatchLimits(offsets_max=20))
    for before, after in pairwise([revisions(start), *found]):
        if after[0] > 21 or after[1] > 31 or after[2] > 1:
            assert before[0] >= 21
            assert before[1] >= 31
    assert found[-1] == {0: 31, 1: 41, 2: 11}


def test_two_growths_between_two_looks(cluster: ClusterInMemory, parts: list[LogInMemory]) -> None:
    reader = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    for count in (3, 5):
        cluster.grow("clicks", parts, count)
        for log in parts:
            log.fill(1)
    found = batches(reader, start)
    assert found == [
        {0: 21, 1: 31, 2: 1, 3: 1, 4: 1},
        {0: 31, 1: 41, 2: 11, 3: 1, 4: 1},
        {0: 41, 1: 51, 2: 21, 3: 11, 4: 11},
    ]


def test_a_growth_while_the_ends_are_looked_for(
    cluster: ClusterInMemory, parts: list[LogInMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, batch = source(cluster, startingOffsets="earliest"), source(cluster, is_stream=False)
    start = reader.bound(is_start=True)
    assert batch.bound(is_start=True) == start
    read, looks = cluster.layout, iter(range(100))

    def growing(log: str) -> PartitionLayout | None:
        if next(looks) in (1, 5):  # Behind the names of the partitions and their ends.
            cluster.grow("clicks", parts, len(parts) + 1)
            for part in parts:
                part.fill(1)
        return read(log)

    monkeypatch.setattr(cluster, "layout", growing)
    assert revisions(reader.following(start, ALL, None)) == {0: 21, 1: 31, 2: 1}, "the rest comes in later ones"
    assert revisions(batch.bound(is_start=False)) == {0: 31, 1: 41, 2: 1, 3: 1}, "it did not begin with 2"


def test_a_batch_has_no_record_of_a_key_without_those_before_it(
    cluster: ClusterInMemory, parts: list[LogInMemory]
) -> None:
    cluster.grow("clicks", parts, 3)
    for log in parts:
        log.fill(1)
    batch = source(cluster, is_stream=False)
    batch.bound(is_start=True)
    assert revisions(batch.bound(is_start=False)) == {0: 31, 1: 41, 2: 11}
    layouts = batch._layouts
    # Partition 1 was looked at before the growth, and had not all of its records then.
    began, read = {"clicks.p0": 0, "clicks.p1": 0, "clicks.p2": 0}, {"clicks.p0": 30, "clicks.p1": 25, "clicks.p2": 10}
    assert layouts.closed_ends(began, read) == {"clicks.p0": 20, "clicks.p2": 0}
    assert layouts.closed_ends(began, {**read, "clicks.p1": 30}) == {}


def test_json_names_partitions(cluster: ClusterInMemory, parts: list[LogInMemory]) -> None:
    reader = source(cluster, startingOffsets='{"clicks.p1": 15}')
    assert revisions(reader.bound(is_start=True)) == {0: 21, 1: 15}, "the other one begins at the latest"
    reader = source(cluster, startingOffsets='{"clicks": "earliest", "clicks.p1": "latest"}')
    assert revisions(reader.bound(is_start=True)) == {0: 1, 1: 31}
    with pytest.raises(OptionError, match=r'partitioned: name one in each partition, like \{"clicks.p0": 1234\}'):
        source(cluster, startingOffsets='{"clicks": 15}').bound(is_start=True)
    with pytest.raises(OptionError, match=r"not asked for other\.p1"):
        source(cluster, startingOffsets='{"other.p1": 15}')
    cluster.make_log("plain").fill(1)
    plain = LogsSource(parse_options({"log": "plain", "startingOffsets": '{"plain.p1": 5}'}, is_stream=True), cluster)
    with pytest.raises(OptionError, match=r"names plain\.p1: log plain is not partitioned"):
        plain.bound(is_start=True)


def test_a_pattern_matches_partitioned_logs_by_their_names(cluster: ClusterInMemory, parts: list[LogInMemory]) -> None:
    cluster.make_log("orders").fill(1)
    cluster.make_log("clicks.p9").fill(1)  # Somebody else's, named like a partition.
    reader = source(cluster, logPattern="clicks|orders", startingOffsets="earliest")
    start = reader.bound(is_start=True)
    assert revisions(start) == {0: 1, 1: 1, "orders": 1}
    cluster.grow("clicks", parts, 3)
    parts[2].fill(1)
    assert batches(reader, start)[-1] == {0: 21, 1: 31, 2: 11, "orders": 11}


def test_a_deleted_log_is_a_loss_of_each_partition(cluster: ClusterInMemory, parts: list[LogInMemory]) -> None:
    reader = source(cluster, startingOffsets="earliest", failOnDataLoss="false")
    strict = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    assert strict.bound(is_start=True) == start
    for log in parts:
        log.delete()
    del cluster.layouts["clicks"]
    with pytest.raises(StartGoneError, match=r"log clicks\.p0 is gone"):
        strict.following(start, ALL, None)
    gone = reader.following(start, ALL, None)
    assert revisions(gone) == {}
    assert [loss["log"] for loss in reader.losses()] == ["clicks.p0", "clicks.p1"]
    again = cluster.make_partitioned("clicks", 2)
    again[1].fill(1)
    assert batches(reader, gone) == [{0: 1, 1: 1}, {0: 1, 1: 11}]
