"""A query that begins in a snapshot: which one, in which order, and how it goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.logs_source import LogsSource
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from connectors.source.snapshot_phase import SnapshotPart, SnapshotPhase, SnapshotTask
from connectors.source.snapshot_rows import SnapshotPartition
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import SnapshotError
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory, LogInMemory

ALL = MicroBatchLimits()
MACHINE = MachineDescription("map", 1, (), ())


class LakeInMemory:
    """Implements `LakePort`: each snapshot has two files, of two row groups of 10 rows and of one of 5."""

    place = "/lake/orders"

    def __init__(self) -> None:
        self.found: list[tuple[int, SnapshotManifest]] = []
        self.damage: dict[int, str] = {}
        self.scrubbed: list[int] = []

    def add(self, cluster: ClusterInMemory, log: LogInMemory, ledger_id: int, entry_id: int, **more: Any) -> None:
        """Take a snapshot after an entry; entries hold 10 records."""
        entry = cluster.entries[ledger_id][entry_id]
        first = next(ledger.first_revision for ledger in log.ledgers if ledger.ledger_id == ledger_id)
        manifest = SnapshotManifest(
            log.name,
            log.log_id.hex(),
            first + 10 * (entry_id + 1) - 1,
            ledger_id,
            entry_id,
            entry_hash(entry.payload).hex(),
            "00" * 16,
            25,
            1,
            5_000,
            5_000,
            MACHINE,
        )
        self.found.insert(0, (len(self.found), msgspec.structs.replace(manifest, **more)))

    def snapshots(self) -> list[tuple[int, SnapshotManifest]]:
        return self.found

    def damaged(self) -> list[SnapshotDamage]:
        return []

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        self.scrubbed.append(manifest.revision)
        reason = self.damage.get(manifest.revision)
        return SnapshotDamage(self.place, reason) if reason else None

    def parts(self, version: int) -> list[SnapshotPart]:
        return [SnapshotPart("a", 0, 10, 100), SnapshotPart("a", 1, 10, 100), SnapshotPart("b", 0, 5, 50)]


@pytest.fixture
def cluster() -> ClusterInMemory:
    """A log of two ledgers with 10 entries each, 10 records an entry."""
    made = ClusterInMemory()
    log = made.make_log("orders")
    log.fill(10)
    log.roll()
    log.fill(10)
    return made


@pytest.fixture
def log(cluster: ClusterInMemory) -> LogInMemory:
    found = LogInMemory(cluster, "orders", bytes.fromhex(cluster.chains["orders"].log_id))
    found.ledgers = list(cluster.chains["orders"].ledgers)
    return found


@pytest.fixture
def lake(cluster: ClusterInMemory, log: LogInMemory) -> LakeInMemory:
    """Snapshots at revisions 50 and 120."""
    made = LakeInMemory()
    made.add(cluster, log, 3, 4)
    made.add(cluster, log, 4, 1)
    return made


def source(cluster: ClusterInMemory, lake: LakeInMemory, *, is_stream: bool = True, **options: str) -> LogsSource:
    given = {"log": "orders", "startingOffsets": "snapshot", "lake": "/lake", **options}
    return LogsSource(parse_options(given, is_stream=is_stream), cluster, lambda _: lake)


def in_snapshot(version: int, revision: int, row: int) -> dict[str, Any]:
    position = {"version": version, "revision": revision, "row": row}
    return {"version": 1, "log": {"orders": {"snapshot": position}}}


def in_log(ledger_id: int, entry_id: int, revision: int) -> dict[str, Any]:
    return {"version": 1, "log": {"orders": {"ledger": ledger_id, "entry": entry_id, "revision": revision}}}


def test_a_stream_begins_with_the_newest_snapshot_and_goes_on_right_behind_it(
    cluster: ClusterInMemory, lake: LakeInMemory
) -> None:
    reader = source(cluster, lake)
    start = reader.bound(is_start=True)
    assert start == in_snapshot(1, 120, 0)
    assert lake.scrubbed == [120], "every row of it was read and its digest compared"
    middle = reader.following(start, ALL, None)
    assert middle == in_log(4, 2, 121), "a micro-batch never holds rows of both"
    parts = reader.partitions(start, middle)
    assert all(isinstance(part, SnapshotPartition) for part in parts)
    assert reader.following(middle, ALL, None) == in_log(4, 10, 201)
    assert reader.backlog(start).records == 25 + 80


def test_limits_hold_in_a_snapshot_by_row_groups(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    for limits, rows in (
        (MicroBatchLimits(offsets_max=1), [10, 20, None]),
        (MicroBatchLimits(offsets_max=11), [20, None]),
        (MicroBatchLimits(bytes_max=101), [20, None]),
        (MicroBatchLimits(offsets_max=1, bytes_max=1_000), [10, 20, None]),
    ):
        reader = source(cluster, lake)
        position, found = reader.bound(is_start=True), []
        while "snapshot" in position["log"]["orders"]:
            before, position = position, reader.following(position, limits, None)
            found.append(position["log"]["orders"].get("snapshot", {}).get("row"))
            assert [(p.file, p.groups) for p in reader.partitions(before, position) if isinstance(p, SnapshotPartition)]
        assert found == rows


def test_a_restarted_query_goes_on_inside_its_snapshot_though_there_is_a_newer_one(
    cluster: ClusterInMemory, log: LogInMemory, lake: LakeInMemory
) -> None:
    lake.add(cluster, log, 4, 5)
    reader = source(cluster, lake)
    (part,) = reader.partitions(in_snapshot(1, 120, 10), in_snapshot(1, 120, 20))
    assert isinstance(part, SnapshotPartition)
    assert (part.file, part.groups, part.revision) == ("a", (1,), 120)
    assert reader.following(in_snapshot(1, 120, 20), ALL, None) == in_log(4, 2, 121)


def test_a_snapshot_that_vanished_is_an_error_that_names_it(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    del lake.found[0]
    for flag in ("true", "false"):
        with pytest.raises(StartGoneError, match=r"row 10 of the snapshot at revision 120 .*there are: 50"):
            source(cluster, lake, failOnDataLoss=flag).following(in_snapshot(1, 120, 10), ALL, None)
    given = {"log": "orders", "startingOffsets": "latest"}
    without = LogsSource(parse_options(given, is_stream=True), cluster)
    with pytest.raises(SparkOffsetError, match="option lake must say where it lies"):
        without.following(in_snapshot(1, 120, 10), ALL, None)


def test_a_batch_reads_the_rows_and_the_tail_at_once(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    reader = source(cluster, lake, is_stream=False)
    parts = reader.partitions(reader.bound(is_start=True), reader.bound(is_start=False))
    rows = [(part.file, part.groups) for part in parts if isinstance(part, SnapshotPartition)]
    assert rows == [("a", (0, 1)), ("b", (0,))]
    tail: list[Any] = [part for part in parts if not isinstance(part, SnapshotPartition)]
    assert [(part.ledger_id, part.first_entry_id, part.last_entry_id) for part in tail] == [(4, 2, 9)]


def test_a_batch_begins_with_a_snapshot_before_its_end(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    reader = source(cluster, lake, is_stream=False, endingOffsets='{"orders": 101}')
    assert reader.bound(is_start=True) == in_snapshot(0, 50, 0)
    at_its_end = source(cluster, lake, is_stream=False, endingOffsets='{"orders": 121}')
    start, end = at_its_end.bound(is_start=True), at_its_end.bound(is_start=False)
    assert start == in_snapshot(1, 120, 0)
    assert all(isinstance(part, SnapshotPartition) for part in at_its_end.partitions(start, end))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix_hash": "ab" * 32},
        {"log_id": "cd" * 16},
        {"contradiction": "the fold says otherwise"},
        {"row_count": 26},
    ],
)
def test_a_snapshot_that_does_not_fit_is_left_for_an_older_one(
    cluster: ClusterInMemory, lake: LakeInMemory, wrong: dict[str, Any]
) -> None:
    version, manifest = lake.found[0]
    lake.found[0] = (version, msgspec.structs.replace(manifest, **wrong))
    assert source(cluster, lake).bound(is_start=True) == in_snapshot(0, 50, 0)


def test_a_snapshot_with_wrong_rows_is_left_for_an_older_one(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    lake.damage[120] = "has another digest"
    assert source(cluster, lake).bound(is_start=True) == in_snapshot(0, 50, 0)


def test_without_a_snapshot_a_whole_log_is_read_from_its_first_record(cluster: ClusterInMemory) -> None:
    assert source(cluster, LakeInMemory()).bound(is_start=True) == in_log(3, 0, 1)


def test_a_trimmed_log_needs_a_snapshot_behind_the_gap(
    cluster: ClusterInMemory, log: LogInMemory, lake: LakeInMemory
) -> None:
    newest = lake.found.pop(0)
    log.trim(1)
    with pytest.raises(SnapshotError, match=r"revision 50: records 51 to 100 behind it have been trimmed"):
        source(cluster, lake).bound(is_start=True)
    with pytest.raises(SnapshotError, match=r"there is none.*begins with record 101"):
        source(cluster, LakeInMemory()).bound(is_start=True)
    lake.found.insert(0, newest)
    assert source(cluster, lake).bound(is_start=True) == in_snapshot(1, 120, 0)


def test_a_snapshot_at_the_end_of_a_trimmed_ledger_is_followed_by_the_next_one(
    cluster: ClusterInMemory, log: LogInMemory
) -> None:
    lake = LakeInMemory()
    lake.add(cluster, log, 3, 9)
    log.trim(1)
    reader = source(cluster, lake)
    middle = reader.following(reader.bound(is_start=True), ALL, None)
    assert middle == in_log(3, 10, 101)
    end = reader.following(middle, ALL, None)
    parts: list[Any] = list(reader.partitions(middle, end))
    assert [(part.ledger_id, part.first_entry_id, part.last_entry_id) for part in parts] == [(4, 0, 9)]


def test_a_tail_that_is_trimmed_while_the_snapshot_is_read_is_a_loss(
    cluster: ClusterInMemory, log: LogInMemory, lake: LakeInMemory
) -> None:
    del lake.found[0]
    reader = source(cluster, lake, failOnDataLoss="false")
    middle = reader.following(reader.bound(is_start=True), ALL, None)
    log.trim(1)
    assert reader.following(middle, ALL, None) == in_log(4, 10, 201)
    assert reader.losses() == [{"log": "orders", "from": 51, "to": 100, "count": 50}]


def test_available_now_reads_the_snapshot_and_what_was_there(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    reader = source(cluster, lake)
    position, target = reader.bound(is_start=True), reader.end()
    found = []
    while (end := reader.following(position, MicroBatchLimits(offsets_max=50), target)) != position:
        found.append(position := end)
    assert found == [in_log(4, 2, 121), in_log(4, 7, 171), in_log(4, 10, 201)]


def test_a_snapshot_without_rows_is_passed_at_once(cluster: ClusterInMemory, lake: LakeInMemory) -> None:
    version, manifest = lake.found[0]
    phase = SnapshotPhase(version, msgspec.structs.replace(manifest, row_count=0), ())
    assert phase.begin == phase.tail


def test_tasks_read_row_groups_of_one_file_each(lake: LakeInMemory) -> None:
    phase = SnapshotPhase(1, lake.found[0][1], tuple(lake.parts(1)))
    assert phase.tasks(0, 25, None) == [SnapshotTask("a", (0, 1)), SnapshotTask("b", (0,))]
    assert phase.tasks(0, 25, 3) == [SnapshotTask("a", (0,)), SnapshotTask("a", (1,)), SnapshotTask("b", (0,))]
    large = SnapshotPhase(1, lake.found[0][1], tuple(part._replace(byte_count=20 << 20) for part in lake.parts(1)))
    assert len(large.tasks(0, 25, None)) == 3
