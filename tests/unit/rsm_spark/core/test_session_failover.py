"""Sessions across leaders: each rule of a session holds whoever leads, because its table is part of the state."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.testing.counter_map import CounterMap, command, unpack

S, T = bytes(16), b"\x01" * 16
TTL_MS = 1000


class Log:
    """A log without ledgers: one leader after another, each with the state of all entries before."""

    composer: Composer

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.epoch = 0
        self.now_ms = 0
        self.lead()

    def lead(self, *, from_snapshot: bool = False) -> None:
        """Let a replica lead that has followed so far, or that boots from the last one's snapshot."""
        state = ReplicatedState(CounterMap(), bytes(16))
        if from_snapshot:
            state.restore(self.composer.state.rows(), self.composer.state.tip, self.composer.state.description)
        else:
            for payload in self.payloads:
                state.apply_entry(payload)
        state.validate()
        self.epoch += 1
        self.composer = Composer(
            state,
            BatchLimits(64 * 1024, 1000, 10),
            leader_epoch=self.epoch,
            promoted_ms=self.now_ms,
            session_ttl_ms=TTL_MS,
            checkpoint_records=10**9,
        )

    def ask(self, *requests: Request) -> Sequence[Answer]:
        queue, submission = RequestQueue(), Submission(requests, None)
        queue.add(submission)
        batch: Batch = self.composer.compose(queue, self.now_ms)
        self.payloads.append(batch.payload)
        return submission.answers

    def expired(self) -> list[bytes]:
        """Compose an entry of nothing but what is due; return the sessions that it ends."""
        self.ask()
        records = decode_records(self.payloads[-1][HEADER_BYTES:])
        return [record.fields[0] for record in records if record.type == KernelRecord.SESSION_EXPIRED]


def _add(sequence: int, answered_up_to: int = 0, session: bytes = S) -> Command:
    return Command(session, sequence, answered_up_to, command("add", "k", 1))


@pytest.fixture
def log() -> Log:
    log = Log()
    log.ask(OpenSession(S))
    return log


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_command_sent_again_to_the_next_leader_gets_its_first_reply(log: Log, *, from_snapshot: bool) -> None:
    (first,) = log.ask(_add(1))
    log.lead(from_snapshot=from_snapshot)
    again, value = log.ask(_add(1), Query(command("k")))
    assert again.payload == first.payload
    assert unpack(value.payload) == 1


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_command_given_up_under_one_leader_is_not_executed_under_the_next(log: Log, *, from_snapshot: bool) -> None:
    log.ask(_add(4, answered_up_to=3))
    log.lead(from_snapshot=from_snapshot)
    late, value = log.ask(_add(2, answered_up_to=1), Query(command("k")))
    assert late.status is AnswerStatus.OUTCOME_UNKNOWN
    assert unpack(value.payload) == 1


def test_command_whose_predecessor_was_lost_waits_for_it(log: Log) -> None:
    assert [answer.status for answer in log.ask(_add(2), _add(1), _add(2))] == [
        AnswerStatus.SEQUENCE_GAP,
        AnswerStatus.OK,
        AnswerStatus.OK,
    ]
    assert unpack(log.ask(Query(command("k")))[0].payload) == 2


def test_new_leader_gives_every_session_its_full_time_again(log: Log) -> None:
    log.now_ms = TTL_MS - 1
    log.ask(OpenSession(T))
    log.lead()
    log.now_ms = 2 * TTL_MS - 2
    assert log.expired() == []
    log.now_ms = 2 * TTL_MS - 1
    assert log.expired() == [S, T]
    assert [a.status for a in log.ask(_add(1))] == [AnswerStatus.SESSION_EXPIRED]


def test_leader_after_leader_never_ends_a_session_that_none_of_them_saw_idle_for_its_time(log: Log) -> None:
    for _ in range(10):
        log.now_ms += TTL_MS - 1
        assert log.expired() == []
        log.lead()
    log.now_ms += TTL_MS
    assert log.expired() == [S]


def test_session_that_sends_commands_lives_on(log: Log) -> None:
    for sequence in range(1, 6):
        log.now_ms += TTL_MS - 1
        assert log.ask(_add(sequence, sequence - 1))[0].status is AnswerStatus.OK


def test_expired_session_stays_expired_under_the_next_leader_and_its_commands_are_not_executed(log: Log) -> None:
    log.ask(_add(1))
    log.now_ms = TTL_MS
    assert log.expired() == [S]
    log.lead()
    answers = log.ask(_add(1), _add(2), Query(command("k")))
    assert [answer.status for answer in answers[:2]] == [AnswerStatus.SESSION_EXPIRED] * 2
    assert unpack(answers[2].payload) == 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_lost_repeated_or_given_up_each_command_counts_at_most_once(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    told: dict[int, bytes] = {}
    sequence, answered_up_to, given_up = 1, 0, set()
    for _ in range(300):
        if rng.random() < 0.1:
            log.lead(from_snapshot=rng.random() < 0.5)
        sent = [_add(number, answered_up_to) for number in range(answered_up_to + 1, sequence + rng.randrange(3))]
        stale = [_add(rng.randrange(1, sequence + 1), max(0, answered_up_to - rng.randrange(4)))]
        arriving = [one for one in stale + sent if rng.random() < 0.8]
        if rng.random() < 0.2:
            rng.shuffle(arriving)
        for request, answer in zip(arriving, log.ask(*arriving), strict=True):
            if answer.status is AnswerStatus.OK:
                assert told.setdefault(request.sequence, answer.payload) == answer.payload
                assert request.sequence not in given_up
        while sequence in told:
            sequence += 1
        if rng.random() < 0.1:  # It gives up what it has not heard of, and goes on behind it.
            given_up.update(set(range(answered_up_to + 1, sequence + 1)) - set(told))
            answered_up_to, sequence = sequence, sequence + 1
            log.ask(_add(sequence, answered_up_to))
            told[sequence] = log.ask(_add(sequence, answered_up_to))[0].payload
        elif rng.random() < 0.3:
            answered_up_to = rng.randrange(answered_up_to, sequence)
    assert len(set(told.values())) == len(told), "no two commands made the same value"
