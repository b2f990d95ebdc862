from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.logs_source import LogsSource
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from connectors.source.tasks import LedgerPartition
from rsm_spark.errors import NoSuchLogError
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory

ALL = MicroBatchLimits()


@pytest.fixture
def cluster() -> ClusterInMemory:
    return ClusterInMemory()


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("followed_log._LOOK_FRESH_S", "logs_source._NAMES_FRESH_S"):
        monkeypatch.setattr(f"connectors.source.{place}", -1.0)


def source(cluster: ClusterInMemory, *, is_stream: bool = True, **options: str) -> LogsSource:
    if "logPattern" not in options:
        options["log"] = "orders"
    return LogsSource(parse_options(options, is_stream=is_stream), cluster)


def offset(**positions: tuple[int, int, int]) -> dict[str, Any]:
    by_log = {
        log: {"ledger": ledger_id, "entry": entry_id, "revision": revision}
        for log, (ledger_id, entry_id, revision) in sorted(positions.items())
    }
    return {"version": 1, "log": by_log}


def ranges(parts: list[Any]) -> list[tuple[str | None, int, int, int]]:
    assert all(isinstance(part, LedgerPartition) for part in parts)
    return [(part.log, part.ledger_id, part.first_entry_id, part.last_entry_id) for part in parts]


def drained(reader: LogsSource, start: dict[str, Any], limits: MicroBatchLimits = ALL) -> list[dict[str, Any]]:
    """Offsets of all micro-batches until nothing is new."""
    found = []
    while (end := reader.following(start, limits, None)) != start:
        found.append(start := end)
    return found


def test_a_pattern_reads_all_logs_that_match_whole_names(cluster: ClusterInMemory) -> None:
    for name in ("orders-1", "orders-2", "old-orders-1"):
        cluster.make_log(name).fill(2)
    reader = source(cluster, logPattern="orders-.*", startingOffsets="earliest")
    start = reader.bound(is_start=True)
    assert start == offset(**{"orders-1": (3, 0, 1), "orders-2": (4, 0, 1)})
    end = reader.following(start, ALL, None)
    assert end == offset(**{"orders-1": (3, 2, 21), "orders-2": (4, 2, 21)})
    assert list(end["log"]) == ["orders-1", "orders-2"]
    assert ranges(reader.partitions(start, end)) == [("orders-1", 3, 0, 1), ("orders-2", 4, 0, 1)]
    assert reader.backlog(start)[:2] == (40, sum(e[-1].length for i, e in cluster.entries.items() if i in {3, 4}))


def test_a_log_that_appears_is_written_into_the_offsets_before_it_is_read(cluster: ClusterInMemory) -> None:
    cluster.make_log("a").fill(1)
    reader = source(cluster, logPattern="[ab]", startingOffsets="latest")
    start = reader.bound(is_start=True)
    cluster.make_log("b").fill(3)
    first, second = drained(reader, start)
    assert first == offset(a=(3, 1, 11), b=(4, 0, 1))
    assert reader.partitions(start, first) == []
    assert second == offset(a=(3, 1, 11), b=(4, 3, 31)), "from its first record on, though the query began at latest"
    assert ranges(reader.partitions(first, second)) == [("b", 4, 0, 2)]


def test_available_now_takes_no_log_that_came_later(cluster: ClusterInMemory) -> None:
    cluster.make_log("a").fill(1)
    reader = source(cluster, logPattern="[ab]", startingOffsets="earliest")
    start, target = reader.bound(is_start=True), reader.end()
    cluster.make_log("b").fill(1)
    end = reader.following(start, ALL, target)
    assert end == offset(a=(3, 1, 11))
    assert reader.following(end, ALL, target) is end


def test_a_stream_may_begin_with_no_log_at_all_a_batch_may_not(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders")
    reader = source(cluster, logPattern="bills.*")
    start = reader.bound(is_start=True)
    assert start == {"version": 1, "log": {}}
    assert reader.following(start, ALL, None) is start
    batch = source(cluster, is_stream=False, logPattern="bills.*")
    batch.bound(is_start=True)
    with pytest.raises(NoSuchLogError, match=r"no log matches logPattern 'bills\.\*' \(known: orders\)"):
        batch.bound(is_start=False)


def test_logs_share_a_limit_by_what_each_has_waiting(cluster: ClusterInMemory) -> None:
    cluster.make_log("a").fill(90)
    cluster.make_log("b").fill(10)
    reader = source(cluster, logPattern="[ab]", startingOffsets="earliest")
    start = reader.bound(is_start=True)
    assert reader.following(start, MicroBatchLimits(offsets_max=100), None) == offset(a=(3, 9, 91), b=(4, 1, 11))
    size = cluster.entries[3][0].length
    by_bytes = reader.following(start, MicroBatchLimits(bytes_max=20 * size), None)
    assert by_bytes == offset(a=(3, 18, 181), b=(4, 2, 21))
    batches = drained(reader, start, MicroBatchLimits(offsets_max=100))
    assert batches[-1] == offset(a=(3, 90, 901), b=(4, 10, 101))
    assert len(batches) == 10


def test_json_starts_some_logs_of_a_pattern_elsewhere(cluster: ClusterInMemory) -> None:
    cluster.make_log("a").fill(3)
    cluster.make_log("b").fill(3)
    reader = source(cluster, logPattern="[ab]", startingOffsets='{"a": 15}')
    assert reader.bound(is_start=True) == offset(a=(3, 1, 15), b=(4, 3, 31))
    with pytest.raises(NoSuchLogError):
        source(cluster, logPattern="[abc]", startingOffsets='{"c": 1}').bound(is_start=True)


def test_a_time_starts_each_log_where_it_was_then(cluster: ClusterInMemory) -> None:
    for name, at_ms in (("a", 1_000), ("b", 1_015)):
        log = cluster.make_log(name)
        log.now_ms = at_ms
        log.fill(3)
    reader = source(cluster, logPattern="[ab]", startingTimestamp="1015")
    assert reader.bound(is_start=True) == offset(a=(3, 2, 21), b=(4, 0, 1))


def test_a_time_that_has_not_come_is_an_error_or_the_latest(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(3)
    with pytest.raises(SparkOffsetError, match=r"at or after startingTimestamp 5000 .*newest entry is of 1020.*latest"):
        source(cluster, startingTimestamp="5000").bound(is_start=True)
    reader = source(cluster, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert reader.bound(is_start=True) == offset(orders=(3, 3, 31))


def test_a_batch_ends_before_a_time_and_inside_an_entry(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(5)
    batch = source(cluster, is_stream=False, endingTimestamp="1015")
    assert batch.bound(is_start=False) == offset(orders=(3, 2, 21))
    batch = source(cluster, is_stream=False, endingTimestamp="9999")
    assert batch.bound(is_start=False) == offset(orders=(3, 5, 51))
    batch = source(cluster, is_stream=False, endingOffsets='{"orders": 25}')
    assert batch.bound(is_start=False) == offset(orders=(3, 3, 25))


def test_a_trimmed_position_is_an_error_with_the_range_and_the_choices(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.fill(2)
    start = offset(orders=(3, 1, 11))
    log.trim(1)
    reader = source(cluster)
    for attempt in (lambda: reader.following(start, ALL, None), lambda: reader.partitions(start, reader.end())):
        with pytest.raises(
            StartGoneError, match="records 11 to 30 have been trimmed; the first that is left is 31"
        ) as e:
            attempt()
        for choice in ("startingOffsets=earliest", "startingOffsets=snapshot", "failOnDataLoss=false"):
            assert choice in str(e.value)


def test_a_checkpoint_goes_on_under_the_new_name_of_its_log(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(4)
    cluster.make_log("strange").fill(1)
    before = offset(bills=(3, 2, 21))
    with pytest.raises(SparkOffsetError, match="goes on where this one stands") as refused:
        source(cluster, startingOffsets="earliest").following(before, ALL, None)
    assert 'startingOffsets={"orders": {"revision": 21}}' in str(refused.value)
    cluster.renamed["bills"] = "orders"
    reader = source(cluster, startingOffsets="earliest")
    end = reader.following(before, ALL, None)
    assert end == offset(orders=(3, 4, 41))
    assert ranges(reader.partitions(before, end)) == [("orders", 3, 2, 3)]
    assert ranges(reader.partitions(offset(bills=(3, 0, 1)), before)) == [("orders", 3, 0, 1)], "a planned micro-batch"
    assert reader.backlog(before)[0] == 20
    assert reader.following(offset(bills=(3, 4, 41)), ALL, None) == offset(orders=(3, 4, 41))
    cluster.renamed["bills"] = "strange"
    with pytest.raises(SparkOffsetError, match="the checkpoint reads logs bills, the query log orders"):
        source(cluster, startingOffsets="earliest").following(before, ALL, None)


def test_a_query_goes_on_in_the_copy_of_the_ledger_where_it_stood(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(4)
    log.roll()
    log.fill(2)
    reader = source(cluster, startingOffsets="earliest")
    start = reader.bound(is_start=True)
    planned = reader.following(start, MicroBatchLimits(offsets_max=20), None)
    assert planned == offset(orders=(3, 2, 21))
    log.copy(0)
    assert ranges(reader.partitions(start, planned)) == [("orders", 5, 0, 1)], "a planned batch reads the same entries"
    end = reader.following(planned, ALL, None)
    assert end == offset(orders=(4, 2, 61))
    assert ranges(reader.partitions(planned, end)) == [("orders", 5, 2, 3), ("orders", 4, 0, 1)]
    cut = reader.following(planned, MicroBatchLimits(offsets_max=10), None)
    assert cut == offset(orders=(5, 3, 31))
    assert reader.backlog(planned)[0] == 40
    assert reader.following(offset(orders=(3, 4, 41)), ALL, offset(orders=(3, 4, 41))) == offset(orders=(5, 4, 41))
    restarted = source(cluster, startingOffsets="earliest")
    assert ranges(restarted.partitions(planned, end)) == [("orders", 5, 2, 3), ("orders", 4, 0, 1)]
    assert not reader.losses()


def test_a_trimmed_position_is_passed_over_and_told(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.fill(2)
    start = offset(orders=(3, 1, 11))
    log.trim(1)
    reader = source(cluster, failOnDataLoss="false")
    end = reader.following(start, ALL, None)
    assert ranges(reader.partitions(start, end)) == [("orders", 4, 0, 1)]
    assert reader.following(end, ALL, None) is end
    assert reader.losses() == [{"log": "orders", "from": 11, "to": 30, "count": 20}]
    assert reader.backlog(start).records == 20


def test_a_limited_batch_behind_a_gap_counts_from_what_is_left(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.fill(5)
    log.trim(1)
    reader = source(cluster, failOnDataLoss="false")
    assert reader.following(offset(orders=(3, 1, 11)), MicroBatchLimits(offsets_max=20), None) == offset(
        orders=(4, 2, 51)
    )


def test_a_gap_before_nothing_is_told_once(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.trim(1)
    reader = source(cluster, failOnDataLoss="false")
    start = offset(orders=(3, 1, 11))
    (end,) = drained(reader, start)
    assert end == offset(orders=(4, 0, 31))
    assert reader.partitions(start, end) == []
    assert reader.losses() == [{"log": "orders", "from": 11, "to": 30, "count": 20}]


def test_a_planned_batch_whose_range_is_gone_is_empty(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.fill(3)
    log.trim(1)
    reader = source(cluster, failOnDataLoss="false")
    assert reader.partitions(offset(orders=(3, 1, 11)), offset(orders=(3, 2, 21))) == []
    assert ranges(reader.partitions(offset(orders=(3, 1, 11)), offset(orders=(4, 1, 41)))) == [("orders", 4, 0, 0)]


def test_a_start_that_was_trimmed_is_an_error_or_the_first_that_is_left(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(3)
    log.roll()
    log.fill(3)
    log.trim(1)
    for start, told in (
        ('{"orders": 7}', {"log": "orders", "from": 7, "to": 30, "count": 24}),
        ('{"orders": {"ledger": 3, "entry": 1}}', {"log": "orders", "from": None, "to": 30, "count": None}),
    ):
        with pytest.raises(StartGoneError, match="trimmed"):
            source(cluster, startingOffsets=start).bound(is_start=True)
        reader = source(cluster, startingOffsets=start, failOnDataLoss="false")
        assert reader.bound(is_start=True) == offset(orders=(4, 0, 31))
        assert reader.losses() == [told]
    batch = source(cluster, is_stream=False, endingOffsets='{"orders": 20}', failOnDataLoss="false")
    assert batch.partitions(batch.bound(is_start=True), batch.bound(is_start=False)) == []


def test_a_position_that_the_log_never_had_is_one_of_another_log(cluster: ClusterInMemory) -> None:
    cluster.make_ledger()
    cluster.make_log("orders").fill(9)
    start = offset(orders=(3, 4, 41))
    with pytest.raises(StartGoneError, match="records from 41 on: the log was deleted and made anew"):
        source(cluster).following(start, ALL, None)
    reader = source(cluster, failOnDataLoss="false")
    assert reader.following(start, ALL, None) == offset(orders=(4, 9, 91))
    assert reader.losses() == [{"log": "orders", "from": 41, "to": None, "count": None}]


def test_a_log_made_anew_while_a_query_runs_is_an_error_or_read_from_its_begin(cluster: ClusterInMemory) -> None:
    for flag in ("true", "false"):
        log = cluster.make_log("orders")
        log.fill(5)
        reader = source(cluster, startingOffsets="earliest", failOnDataLoss=flag)
        start = reader.bound(is_start=True)
        middle = reader.following(start, MicroBatchLimits(offsets_max=20), None)
        log.delete()
        log = cluster.make_log("orders", log_id=b"another log, 16b")
        log.fill(6)
        if flag == "true":
            with pytest.raises(StartGoneError, match="made anew while this query ran; the old one was seen up to"):
                reader.following(middle, ALL, None)
            continue
        end = reader.following(middle, ALL, None)
        assert end["log"]["orders"]["revision"] == 61
        assert [part[2:] for part in ranges(reader.partitions(middle, end))] == [(0, 5)]
        assert reader.losses() == [{"log": "orders", "from": 21, "to": 50, "count": 30}]
        log.roll()
        log.fill(1)
        log.trim(1)
        assert reader.following(end, ALL, None)["log"]["orders"]["revision"] == 71
        assert len(reader.losses()) == 1, "all of the new log had been read"


def test_a_log_that_vanishes_is_an_error_or_leaves_the_offsets_of_a_pattern(cluster: ClusterInMemory) -> None:
    for name in ("a", "b"):
        cluster.make_log(name).fill(4)
    strict = source(cluster, logPattern="[ab]", startingOffsets="earliest")
    lax = source(cluster, logPattern="[ab]", startingOffsets="earliest", failOnDataLoss="false")
    start = strict.bound(is_start=True)
    lax.bound(is_start=True)
    del cluster.chains["b"]
    with pytest.raises(StartGoneError, match="log b is gone: the query stands before record 1 of it"):
        strict.following(start, ALL, None)
    end = lax.following(start, ALL, None)
    assert end == offset(a=(3, 4, 41))
    assert ranges(lax.partitions(start, end)) == [("a", 3, 0, 3)]
    assert lax.losses() == [{"log": "b", "from": 1, "to": 40, "count": 40}]
    cluster.make_log("b", log_id=b"another log, 16b").fill(1)
    assert drained(lax, end)[-1] == offset(a=(3, 4, 41), b=(5, 1, 11)), "a new log of that name is read from its begin"


def test_the_only_log_may_vanish_and_come_again(cluster: ClusterInMemory) -> None:
    log = cluster.make_log("orders")
    log.fill(4)
    reader = source(cluster, startingOffsets="earliest", failOnDataLoss="false")
    (end,) = drained(reader, reader.bound(is_start=True))
    log.delete()
    assert reader.following(end, ALL, None) is end
    assert reader.end() == {"version": 1, "log": {}}
    cluster.make_log("orders", log_id=b"another log, 16b").fill(1)
    assert drained(reader, end) == [offset(orders=(4, 1, 11))]
    assert reader.losses() == [], "all of the old log had been read"


def test_a_checkpoint_of_something_else_is_refused(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(1)
    with pytest.raises(SparkOffsetError, match="the checkpoint reads logs bills, the query log orders"):
        source(cluster).following(offset(bills=(3, 0, 1)), ALL, None)
    with pytest.raises(SparkOffsetError, match=r"the checkpoint reads logs bills, the query logPattern 'o\.\*'"):
        source(cluster, logPattern="o.*").following(offset(bills=(3, 0, 1), orders=(3, 0, 1)), ALL, None)
    with pytest.raises(SparkOffsetError, match="the query reads logs"):
        source(cluster).following({"version": 1, "ledgers": {"3": 0}}, ALL, None)


def test_a_query_of_one_log_goes_on_as_one_of_a_pattern(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(2)
    end = source(cluster).bound(is_start=True)
    assert source(cluster, logPattern="ord.*").following(end, ALL, None) is end


def test_tasks_get_no_password(cluster: ClusterInMemory) -> None:
    cluster.make_log("orders").fill(1)
    reader = source(cluster, startingOffsets="earliest")
    (part,) = reader.partitions(reader.bound(is_start=True), reader.end())
    assert isinstance(part, LedgerPartition)
    assert part.metadata.password == b""
