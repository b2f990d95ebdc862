"""Durable machines: what the kernel has them keep, and how it goes on from there."""

import pytest

from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import Command, OpenSession, ReportVerified
from rsm_spark.core.durable import DurableMachine, StateMark
from rsm_spark.core.kernel_tables import Checkpoint
from rsm_spark.core.machine import Row
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.testing.counter_map import CounterMap, command

LOG_ID = bytes(range(16))


class KeptCounters(CounterMap):
    """Counters that are kept in memory which outlives the object."""

    def __init__(self, disk):
        super().__init__()
        self.disk = disk

    def resume(self):
        super().restore(self.disk.get("rows", ()))
        return self.disk.get("mark")

    def kernel_rows(self):
        return iter(self.disk.get("kernel", {}).values())

    def restore(self, rows):
        self.disk.clear()
        super().restore(rows)

    def commit(self, mark, changes):
        kernel = self.disk.setdefault("kernel", {})
        for table, key, row in changes:
            if row is None:
                del kernel[table, key]
            else:
                kernel[table, key] = row
        self.disk.update(mark=mark, rows=list(self.rows()))


def composer(state):
    limits = BatchLimits(1 << 20, 100, 100)
    return Composer(state, limits, leader_epoch=1, promoted_ms=0, session_ttl_ms=50, checkpoint_records=1 << 30)


def entry(composing, logged_ms, *requests):
    queue = RequestQueue()
    queue.add(Submission(requests, None))
    return composing.compose(queue, logged_ms)


def begun():
    disk = {}
    state = ReplicatedState(KeptCounters(disk), LOG_ID)
    composing = composer(state)
    entry(composing, 1, OpenSession(b"a" * 16), OpenSession(b"b" * 16))
    entry(composing, 2, Command(b"a" * 16, 1, 0, command("add", "x", 5)))
    state.keep(LogPosition(7, 2))
    return disk, state, composing


def resumed(disk):
    machine = KeptCounters(disk)
    state = ReplicatedState(machine, LOG_ID)
    state.resume(machine.resume())
    return state


def test_a_machine_without_the_three_calls_is_not_durable():
    assert not isinstance(CounterMap(), DurableMachine)
    assert isinstance(KeptCounters({}), DurableMachine)
    ReplicatedState(CounterMap(), LOG_ID).keep(None)  # Nothing happens.


def test_a_kept_state_goes_on_where_it_was():
    disk, state, _ = begun()
    again = resumed(disk)
    assert again.tip == state.tip
    assert (again.digest, again.row_count) == (state.digest, state.row_count)
    assert list(again.sessions.rows()) == list(state.sessions.rows())
    again.validate()
    mark = disk["mark"]
    assert isinstance(mark, StateMark)
    assert (mark.position, mark.log_id) == (LogPosition(7, 2), LOG_ID.hex())


def test_what_was_folded_behind_the_mark_is_folded_again():
    disk, state, composing = begun()
    before = state.digest
    batch = entry(composing, 3, Command(b"a" * 16, 2, 1, command("add", "x", 7)))
    again = resumed(disk)
    assert again.digest == before
    again.apply_entry(batch.payload)
    assert again.digest == state.digest
    again.validate()


def test_kernel_rows_that_go_are_kept_too():
    disk, state, composing = begun()
    entry(composing, 1_000)  # Both sessions end.
    state.keep(LogPosition(7, 3))
    assert disk["kernel"] == {}
    assert len(resumed(disk).sessions) == 0


def test_verified_snapshots_are_kept():
    disk, state, composing = begun()
    checkpoint = Checkpoint(state.revision, state.digest.to_bytes(16, "big"), state.row_count, state.prefix_hash)
    state.checkpoints.add(checkpoint)
    report = ReportVerified("lake", "lake", *checkpoint[:2], checkpoint.prefix_hash, checkpoint.row_count, "me")
    entry(composing, 4, report)
    state.keep(LogPosition(7, 3))
    assert resumed(disk).verified == state.verified != {}


def test_a_restored_state_is_kept_whole():
    _, state, _ = begun()
    disk = {}
    other = ReplicatedState(KeptCounters(disk), LOG_ID)
    other.restore(state.rows(), state.tip, state.description)
    assert "mark" not in disk
    other.keep(LogPosition(7, 2))
    assert resumed(disk).digest == state.digest
    assert len(disk["kernel"]) == 2


def test_rows_of_a_machine_among_the_kernels_are_damage():
    disk, _, _ = begun()
    disk["kernel"]["counters", b"k"] = Row("counters", b"k", b"r", 1)
    machine = KeptCounters(disk)
    with pytest.raises(CorruptSnapshotError, match="among the kernel's"):
        ReplicatedState(machine, LOG_ID).resume(machine.resume())
