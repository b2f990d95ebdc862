"""What writers send is applied once, or refused in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rsm_spark.core.machine import Row
from rsm_spark.core.records import WRITERS_LEVEL, WRITERS_TABLE, KernelRecord, pack
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.core.writer_marks import DIGEST_BYTES, MarkedStatus, MarkKind, WriterMark, digest_after
from rsm_spark.core.writers import FORMER_RUNS_MAX, WriterTable
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError
from rsm_spark.map.machine import MapMachine
from tests.unit.rsm_spark.core.marked_leader import MarkedLeader, chunk, end, rows_of

APPLIED, DONE, REFUSED = MarkedStatus.APPLIED, MarkedStatus.DONE, MarkedStatus.REFUSED
A, B = rows_of((b"a", b"1")), rows_of((b"b", b"1"))


@pytest.fixture
def leader() -> MarkedLeader:
    return MarkedLeader()


def test_a_repeated_chunk_is_done_and_changes_nothing(leader: MarkedLeader) -> None:
    assert leader.status(chunk(A)) is APPLIED
    assert leader.status(chunk(A)) is DONE
    assert leader.status(chunk(B, 1)) is APPLIED
    assert leader.status(chunk(A)) is DONE
    assert leader.map_rows() == {b"a": 1, b"b": 1}


def test_an_older_batch_and_one_that_has_ended_are_done(leader: MarkedLeader) -> None:
    assert leader.status(chunk(A, batch=3)) is APPLIED
    assert leader.status(end((0, 1), batch=3)) is APPLIED
    assert leader.status(chunk(B, 1, batch=3)) is DONE
    assert leader.status(end((0, 1), batch=3)) is DONE
    assert leader.status(chunk(A, batch=2)) is DONE
    assert leader.status(chunk(A, batch=4)) is APPLIED
    assert leader.map_rows() == {b"a": 2}


def test_a_batch_in_one_command_is_written_once(leader: MarkedLeader) -> None:
    whole = end(kind=MarkKind.WHOLE, payload=A)
    assert [leader.status(whole), leader.status(whole)] == [APPLIED, DONE]
    assert leader.map_rows() == {b"a": 1}
    own = leader.follower.writers.get("w")
    assert own is not None
    assert (own.batch, own.is_ended, own.row_count) == (0, True, 1)


def test_a_chunk_with_other_rows_is_refused_unless_rows_may_be_written_twice(leader: MarkedLeader) -> None:
    leader.send(chunk(A))
    refused = leader.send(chunk(B))
    assert refused.status is REFUSED
    assert "was applied with other rows" in refused.reason
    assert leader.map_rows() == {b"a": 1}
    assert leader.status(chunk(B, is_repeatable=True)) is APPLIED
    assert leader.map_rows() == {b"a": 1, b"b": 1}


def test_a_chunk_before_its_turn_is_refused(leader: MarkedLeader) -> None:
    assert "chunk 1 comes before chunk 0" in leader.send(chunk(A, 1)).reason


def test_the_next_batch_waits_for_the_end_of_this_one(leader: MarkedLeader) -> None:
    leader.send(chunk(A))
    assert "batch 0 has begun and has not ended, batch 1 cannot begin" in leader.send(chunk(B, batch=1)).reason


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (((0, 2),), "its end names 2 chunks of part 0, 1 were applied"),
        (((0, 1), (1, 1)), "its end names 1 chunks of part 1, 0 were applied"),
        ((), "part 0 was applied when the batch was run before"),
    ],
)
def test_an_end_that_does_not_fit_what_was_applied_is_refused(
    leader: MarkedLeader, parts: tuple[tuple[int, int], ...], reason: str
) -> None:
    leader.send(chunk(A))
    assert reason in leader.send(end(*parts)).reason
    own = leader.state.writers.get("w")
    assert own is not None
    assert not own.is_ended


def test_parts_of_a_former_run_may_be_left_over_where_rows_may_be_written_twice(leader: MarkedLeader) -> None:
    for part in (0, 1):
        leader.send(chunk(A, part=part, is_repeatable=True))
    assert leader.status(end((0, 1), is_repeatable=True)) is APPLIED


def test_another_checkpoint_is_refused_until_it_takes_over(leader: MarkedLeader) -> None:
    leader.send(end(kind=MarkKind.WHOLE, payload=A, batch=7))
    refused = leader.send(end(kind=MarkKind.WHOLE, payload=B, checkpoint="d"))
    assert refused.status is REFUSED
    assert "takeOver=c" in refused.reason
    taken = end(kind=MarkKind.WHOLE, payload=B, checkpoint="d", takes_over_from="c")
    assert [leader.status(taken), leader.status(taken)] == [APPLIED, DONE]
    assert leader.status(end(kind=MarkKind.WHOLE, payload=A, batch=8)) is REFUSED


def test_a_run_that_was_taken_over_from_is_refused(leader: MarkedLeader) -> None:
    leader.send(chunk(A))
    assert leader.status(chunk(A, run="r2")) is DONE, "nothing changes: the claim comes with what it applies"
    assert leader.status(chunk(B, 1, run="r2")) is APPLIED
    refused = leader.send(chunk(B, 2))
    assert refused.status is REFUSED
    assert "two drivers write as one writer" in refused.reason
    assert leader.status(end((0, 2), run="r2")) is APPLIED


def test_so_many_former_runs_are_remembered(leader: MarkedLeader) -> None:
    for number in range(FORMER_RUNS_MAX + 2):
        leader.send(end(kind=MarkKind.WHOLE, payload=A, batch=number, run=f"run {number}"))
    own = leader.state.writers.get("w")
    assert own is not None
    assert len(own.former_runs) == FORMER_RUNS_MAX * 8
    assert leader.status(end(kind=MarkKind.WHOLE, payload=A, batch=99, run="run 2")) is REFUSED


def test_a_passing_writer_begins_first_and_is_forgotten_when_it_ends(leader: MarkedLeader) -> None:
    assert leader.status(chunk(A, is_passing=True)) is MarkedStatus.GONE
    assert leader.status(end(kind=MarkKind.BEGIN, is_passing=True)) is APPLIED
    assert leader.status(chunk(A, is_passing=True)) is APPLIED
    assert leader.status(end((0, 1), is_passing=True)) is APPLIED
    assert leader.follower.writers.names() == []
    assert leader.status(chunk(A, is_passing=True)) is MarkedStatus.GONE
    assert leader.map_rows() == {b"a": 1}


def test_what_the_machine_refuses_is_not_marked(leader: MarkedLeader) -> None:
    refused = leader.send(chunk(rows_of((b"", b"1"))))
    assert refused.status is MarkedStatus.DECLINED
    assert leader.state.writers.names() == []
    assert leader.status(chunk(A)) is APPLIED


def test_a_log_of_an_older_level_asks_for_the_next() -> None:
    leader = MarkedLeader(format_level=WRITERS_LEVEL - 1)
    assert leader.status(chunk(A)) is MarkedStatus.WAITING
    assert leader.composer.level_wanted == WRITERS_LEVEL
    leader.composer.format_level = WRITERS_LEVEL
    assert leader.status(chunk(A)) is APPLIED


def test_writers_survive_a_snapshot_and_the_end_of_the_session(leader: MarkedLeader) -> None:
    leader.send(chunk(A))
    booted = ReplicatedState(MapMachine(), bytes(16))
    booted.restore(list(leader.state.rows()), StateTip(leader.state.revision, bytes(32), 1, 0), None)
    booted.validate()
    assert booted.digest == leader.state.digest
    assert booted.writers.parts("w") == leader.state.writers.parts("w")


def test_forgetting_removes_all_rows_and_handing_over_none(leader: MarkedLeader) -> None:
    leader.send(chunk(A))
    writers = leader.state.writers
    assert writers.handing_over("none", "d") == writers.forgetting("none") == ()
    leader.composer.wanted += writers.handing_over("w", "d")
    leader.compose()
    assert leader.status(chunk(B, checkpoint="d", run="r2")) is APPLIED
    leader.composer.wanted += writers.forgetting("w")
    leader.compose()
    assert [row for row in leader.follower.rows() if row.table == WRITERS_TABLE] == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"writer": ""}, "the name of a writer"),
        ({"run": "x" * 201}, "the name of a run"),
        ({"checkpoint": "\n"}, "the name of a checkpoint"),
        ({"batch": -1}, "both are numbers from 0"),
        ({"part": 10_000}, "a batch has 10000 parts"),
    ],
)
def test_a_mark_that_is_none_is_refused_in_words(leader: MarkedLeader, changes: dict[str, Any], reason: str) -> None:
    refused = leader.send(chunk(A, **changes))
    assert refused.status is REFUSED
    assert reason in refused.reason


def test_records_and_rows_that_are_none_are_told() -> None:
    table = WriterTable()
    with pytest.raises(CorruptLogError, match="record of a writer"):
        table.fold(KernelRecord.WRITER_MARKED, ("w", 0, 1), 1)
    with pytest.raises(CorruptSnapshotError, match="no writer's"):
        table.restore([Row(WRITERS_TABLE, pack(("w", 0)), pack((1,)), 1)])


def _calls(*payloads: bytes, first: int = 0, before: tuple[bytes, ...] = ()) -> list[WriterMark]:
    digest = bytes(DIGEST_BYTES)
    for payload in before:
        digest = digest_after(digest, payload)
    marks: list[WriterMark] = []
    for number, payload in enumerate(payloads, first):
        marks.append(chunk(payload, number, digest=digest, is_call=True))
        digest = digest_after(digest, payload)
    return marks


def test_calls_are_made_once_and_the_state_has_one_digest_of_them(leader: MarkedLeader) -> None:
    calls = _calls(A, B, A)
    assert [leader.status(call) for call in calls] == [APPLIED] * 3
    assert [leader.status(call) for call in calls] == [DONE] * 3
    assert leader.map_rows() == {b"a": 2, b"b": 1}
    assert len(leader.follower.writers.parts("w")[0].digests) == DIGEST_BYTES
    assert leader.status(end((0, 3))) is APPLIED


def test_a_call_that_the_machine_refuses_is_over(leader: MarkedLeader) -> None:
    bad = rows_of((b"", b""))
    calls = _calls(A, bad, B)
    assert [leader.status(call) for call in calls] == [APPLIED, MarkedStatus.DECLINED, APPLIED]
    assert [leader.status(call) for call in calls] == [DONE] * 3
    assert leader.map_rows() == {b"a": 1, b"b": 1}


def test_a_call_follows_exactly_those_that_were_made(leader: MarkedLeader) -> None:
    for call in _calls(A, B):
        assert leader.status(call) is APPLIED
    assert "comes before chunk 2" in leader.send(*_calls(A, first=3, before=(A, B, A))).reason
    for other in (_calls(A, first=1, before=(A,)), _calls(A, first=2, before=(A, A))):
        assert "other calls were made" in leader.send(*other).reason
    assert leader.status(*_calls(A, first=2, before=(A, B))) is APPLIED
    assert "names 2 chunks of part 0, 3 were applied" in leader.send(end((0, 2))).reason


def test_a_call_is_a_chunk_that_is_never_made_twice(leader: MarkedLeader) -> None:
    (call,) = _calls(A)
    for fault in ({"is_repeatable": True}, {"kind": MarkKind.WHOLE}):
        assert "a call is a chunk" in leader.send(msgspec.structs.replace(call, **fault)).reason
