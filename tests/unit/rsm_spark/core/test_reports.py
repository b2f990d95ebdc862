"""Reports to a leader: what is verified becomes a row of the state, what contradicts a checkpoint is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import (
    Answer,
    AnswerStatus,
    Command,
    OpenSession,
    ReportDiverged,
    ReportVerified,
    ReportWithdrawn,
    Request,
)
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.kernel_tables import Checkpoint, peek_checkpoint
from rsm_spark.core.records import FORMAT_LEVEL, VERIFIED_TABLE, KernelRecord, decode_records, pack
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.errors import CorruptLogError
from rsm_spark.testing.counter_map import CounterMap, command

S = bytes(16)


class Leader:
    """A leader without a log, and a follower that applies what it composes."""

    def __init__(self) -> None:
        self.state, self.follower = (ReplicatedState(CounterMap(), bytes(16)) for _ in range(2))
        self.composer = Composer(
            self.state,
            BatchLimits(64 * 1024, 1000, 10),
            leader_epoch=1,
            promoted_ms=0,
            session_ttl_ms=10**9,
            checkpoint_records=10**9,
        )
        self.payload = b""
        self.ask(OpenSession(S))
        self.sequence = 0

    def ask(self, *requests: Request) -> Sequence[Answer]:
        queue, submission = RequestQueue(), Submission(requests, None)
        queue.add(submission)
        self.payload = self.composer.compose(queue, 0).payload
        self.follower.apply_entry(self.payload)
        assert (self.follower.tip, self.follower.digest) == (self.state.tip, self.state.digest)
        self.state.validate()
        self.follower.validate()
        return submission.answers

    def add(self) -> None:
        self.sequence += 1
        self.ask(Command(S, self.sequence, self.sequence - 1, command("add", "k", 1)))

    def checkpoint(self) -> Checkpoint:
        """Change something, log a checkpoint, return it."""
        self.add()
        revision = self.state.revision
        self.composer.checkpoint_wanted = True
        self.ask()
        found = self.state.checkpoints.get(revision)
        assert found is not None
        return found

    def types(self) -> list[int]:
        return [record.type for record in decode_records(self.payload[HEADER_BYTES:])]


def _verified(checkpoint: Checkpoint, place: str = "replica:a", **changes: Any) -> ReportVerified:
    report = ReportVerified(
        place, place, checkpoint.revision, checkpoint.digest, checkpoint.prefix_hash, checkpoint.row_count, "b"
    )
    return msgspec.structs.replace(report, **changes)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_snapshot_that_agrees_with_its_checkpoint_becomes_a_row_on_every_replica(leader: Leader) -> None:
    checkpoint = leader.checkpoint()
    (answer,) = leader.ask(_verified(checkpoint))
    assert answer.status is AnswerStatus.OK
    for state in (leader.state, leader.follower):
        assert state.verified["replica:a"].revision == checkpoint.revision
    assert [row.key for row in leader.follower.rows() if row.table == VERIFIED_TABLE] == [pack(("replica:a",))]


def test_verifying_again_is_answered_ok_and_logged_once(leader: Leader) -> None:
    checkpoint = leader.checkpoint()
    leader.ask(_verified(checkpoint))
    (answer,) = leader.ask(_verified(checkpoint, by="c"))
    assert answer.status is AnswerStatus.OK
    assert leader.types() == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"digest": bytes(16)}, "found digest 0000"),
        ({"row_count": 77}, "found row count 77"),
        ({"prefix_hash": bytes(32)}, "found prefix hash 0000"),
        ({"revision": 1}, "no checkpoint of that revision"),
        ({"digest": b"short"}, "16 bytes"),
        ({"place": ""}, "1 to 512 characters"),
        ({"by": "b" * 513}, "1 to 512 characters"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_snapshot_that_contradicts_is_refused_and_nothing_is_logged(
    leader: Leader, changes: dict[str, Any], reason: str, *, is_known: bool
) -> None:
    checkpoint = leader.checkpoint()
    if is_known:
        leader.ask(_verified(checkpoint))
    before = leader.state.revision
    (answer,) = leader.ask(_verified(checkpoint, **changes))
    assert answer.status is AnswerStatus.REFUSED
    assert reason in answer.payload.decode() or (is_known and "verified there already" in answer.payload.decode())
    assert leader.state.revision == before


def test_older_snapshot_never_takes_the_place_of_a_newer_one_until_that_is_withdrawn(leader: Leader) -> None:
    older, newer = leader.checkpoint(), leader.checkpoint()
    leader.ask(_verified(newer))
    (answer,) = leader.ask(_verified(older))
    assert answer.status is AnswerStatus.REFUSED
    assert [a.status for a in leader.ask(ReportWithdrawn("replica:a", "b", "gone"), _verified(older))] == [
        AnswerStatus.OK,
        AnswerStatus.OK,
    ]
    assert leader.follower.verified["replica:a"].revision == older.revision


def test_withdrawing_what_is_not_there_is_ok_and_not_logged(leader: Leader) -> None:
    (answer,) = leader.ask(ReportWithdrawn("lake", "b", "gone"))
    assert (answer.status, leader.types()) == (AnswerStatus.OK, [])


def test_replicas_that_differ_contradict_the_leader_each_once(leader: Leader) -> None:
    checkpoint = leader.checkpoint()
    for by in ("b", "b", "c"):
        (answer,) = leader.ask(ReportDiverged(checkpoint.revision, bytes(16), by))
        assert answer.status is AnswerStatus.OK
        assert leader.types() == []
    assert sorted(leader.composer.contradictions) == ["b", "c"]


def test_divergence_that_is_none_or_cannot_be_judged_is_refused(leader: Leader) -> None:
    checkpoint = leader.checkpoint()
    reports = (ReportDiverged(checkpoint.revision, checkpoint.digest, "b"), ReportDiverged(1, bytes(16), "b"))
    assert [answer.status for answer in leader.ask(*reports)] == [AnswerStatus.REFUSED] * 2
    assert leader.composer.contradictions == {}


def test_verified_snapshots_survive_a_snapshot_and_its_restore(leader: Leader) -> None:
    leader.ask(_verified(leader.checkpoint()), _verified(leader.checkpoint(), "lake"))
    other = ReplicatedState(CounterMap(), bytes(16))
    other.restore(leader.state.rows(), leader.state.tip, None)
    other.validate()
    assert (other.digest, other.verified) == (leader.state.digest, leader.state.verified)
    assert len(other.checkpoints) == 0, "a checkpoint counts only where it was checked"


def test_checkpoint_is_the_first_record_of_its_entry_and_names_the_state_before_it(leader: Leader) -> None:
    leader.add()
    tip, digest = leader.follower.tip, leader.follower.digest
    leader.composer.checkpoint_wanted = True
    leader.add()
    assert leader.types()[0] == KernelRecord.CHECKPOINT_LOGGED
    found = peek_checkpoint(leader.payload)
    assert found is not None
    assert (found.revision, found.prefix_hash, found.digest) == (tip.revision, tip.prefix_hash, digest.to_bytes(16))
    assert found == leader.follower.checkpoints.get(tip.revision)


def test_checkpoint_behind_a_description_names_the_state_before_the_entry_too(leader: Leader) -> None:
    leader.add()
    revision = leader.state.revision
    leader.composer.checkpoint_wanted = leader.composer.describe_wanted = True
    leader.add()
    assert leader.types()[:2] == [KernelRecord.MACHINE_DESCRIBED, KernelRecord.CHECKPOINT_LOGGED]
    assert leader.follower.description == CounterMap().description
    found = peek_checkpoint(leader.payload)
    assert found is not None
    assert found.revision == revision
    leader.add()
    assert peek_checkpoint(leader.payload) is None


def test_format_that_this_version_does_not_know_asks_for_an_upgrade(leader: Leader) -> None:
    leader.composer.wanted.append((KernelRecord.FORMAT_RAISED, (1,)))
    leader.add()
    assert leader.follower.format_level == 1
    with pytest.raises(CorruptLogError, match=f"level {FORMAT_LEVEL + 1}, this version knows {FORMAT_LEVEL}: upgrade"):
        leader.state.fold(KernelRecord.FORMAT_RAISED, None, (FORMAT_LEVEL + 1,), 0)
