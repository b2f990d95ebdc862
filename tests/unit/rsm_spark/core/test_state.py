"""The replicated state takes only the entry that follows, and says what is wrong with any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rsm_spark.core.envelope import HEADER_BYTES, Envelope, decode_envelope, encode_envelope, entry_hash
from rsm_spark.core.machine import Row, encode_description
from rsm_spark.core.records import KernelRecord, Record, encode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, ForkedLogError, StateDivergedError
from rsm_spark.testing.counter_map import COUNTED, CounterMap

LOG_ID = b"l" * 16


def _entry(state: ReplicatedState, records: Sequence[tuple[int, tuple[Any, ...]]], **changes: Any) -> bytes:
    envelope = Envelope(
        state.log_id, state.leader_epoch, state.revision + 1, state.revision, state.logged_ms, len(records),
        state.prefix_hash,
    )  # fmt: skip
    body = encode_records([Record(kind, None, fields) for kind, fields in records])
    return encode_envelope(msgspec.structs.replace(envelope, **changes), body)


@pytest.fixture
def state() -> ReplicatedState:
    state = ReplicatedState(CounterMap(), LOG_ID)
    state.apply_entry(_entry(state, [(COUNTED, ("k", 1)), (COUNTED, ("l", 2))], leader_epoch=2, logged_ms=50))
    return state


def test_entry_moves_revision_hash_epoch_and_time(state: ReplicatedState) -> None:
    payload = _entry(state, [(COUNTED, ("k", 2))], leader_epoch=3, logged_ms=60)
    state.apply_entry(payload)
    tip = state.tip
    assert (tip.revision, tip.leader_epoch, tip.logged_ms) == (3, 3, 60)
    assert tip.prefix_hash == entry_hash(payload)


@pytest.mark.parametrize(("changes", "error", "message"), [
    ({"log_id": b"m" * 16}, ForkedLogError, "of log"),
    ({"prefix_hash": bytes(32)}, ForkedLogError, "different histories"),
    ({"first_revision": 4}, CorruptLogError, "revision 3 must follow"),
    ({"first_revision": 2}, CorruptLogError, "revision 3 must follow"),
    ({"leader_epoch": 1}, CorruptLogError, "after epoch 2"),
    ({"logged_ms": 49}, CorruptLogError, "logged time 49"),
    ({"record_count": 2}, CorruptLogError, "names 2 records and holds 1"),
])  # fmt: skip
def test_entry_that_does_not_follow_is_refused_and_changes_nothing(
    state: ReplicatedState, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = (state.tip, state.digest)
    with pytest.raises(error, match=message):
        state.apply_entry(_entry(state, [(COUNTED, ("k", 2))], **changes))
    assert (state.tip, state.digest) == before


def test_kernel_record_of_a_later_version_asks_for_an_upgrade(state: ReplicatedState) -> None:
    with pytest.raises(CorruptLogError, match="type 11.*upgrade"):
        state.apply_entry(_entry(state, [(11, ())]))


def test_log_of_another_machine_is_refused(state: ReplicatedState) -> None:
    other = msgspec.structs.replace(CounterMap().description, name="map")
    with pytest.raises(CorruptLogError, match="one of machine 'map'"):
        state.apply_entry(_entry(state, [(KernelRecord.MACHINE_DESCRIBED, (encode_description(other),))]))


def test_checkpoint_that_agrees_is_noted_and_one_that_differs_stops_the_replica(state: ReplicatedState) -> None:
    digest = state.digest.to_bytes(16, "big")
    state.apply_entry(_entry(state, [(KernelRecord.CHECKPOINT_LOGGED, (2, digest, 2))]))
    assert state.checkpoint_revision == 3
    for fields in ((3, digest, 3), (3, bytes(16), 2), (2, digest, 2)):
        with pytest.raises(StateDivergedError, match="Its state is wrong"):
            state.apply_entry(_entry(state, [(KernelRecord.CHECKPOINT_LOGGED, fields)]))


def test_row_that_changed_many_times_counts_once_and_one_that_came_back_not_at_all(state: ReplicatedState) -> None:
    before = state.digest
    state.apply_entry(_entry(state, [(COUNTED, ("k", 7)), (COUNTED, ("k", 1)), (COUNTED, ("n", 1)), (17, ("n",))]))
    assert [len(changes) for changes in state._unsettled.values()] == [2]
    assert state.digest == before
    state.validate()


def test_restored_state_goes_on_as_the_original(state: ReplicatedState) -> None:
    state.apply_entry(_entry(state, [(KernelRecord.SESSION_OPENED, (b"s" * 16,))]))
    other = ReplicatedState(CounterMap(), LOG_ID)
    other.restore(state.rows(), state.tip, None)
    assert (other.digest, other.row_count) == (state.digest, state.row_count)
    payload = _entry(state, [(COUNTED, ("k", 9)), (KernelRecord.SESSION_EXPIRED, (b"s" * 16,))])
    assert state.apply_entry(payload) == other.apply_entry(payload) == decode_envelope(payload)
    assert (other.digest, other.tip) == (state.digest, state.tip)
    other.validate()


def test_snapshot_with_a_table_of_a_later_kernel_is_refused(state: ReplicatedState) -> None:
    with pytest.raises(CorruptSnapshotError, match="_later"):
        state.restore([Row("_later", b"", b"", 1)], state.tip, None)


def test_body_that_is_no_array_of_records_is_refused(state: ReplicatedState) -> None:
    payload = _entry(state, [(COUNTED, ("k", 1))])
    with pytest.raises(CorruptLogError, match="no array of records"):
        state.apply_entry(payload[: HEADER_BYTES + 1])
