"""Group commit: requests become entries, in order, whole commands in each."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.core.batching import AUDIT_CHARS_MAX, Batch, BatchLimits, Composer
from rsm_spark.core.commands import Answer, AnswerStatus, Audited, Command, CommandColumn, OpenSession, Query, Request
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.records import AUDIT_LEVEL, KernelRecord, decode_records, encode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.testing.counter_map import CounterMap, command, unpack

S = bytes(16)
LIMIT = 64 * 1024


def _composer(state: ReplicatedState, **changes: int) -> Composer:
    limits = BatchLimits(LIMIT, changes.pop("commands", 1000), changes.pop("sessions", 10))
    options = {"leader_epoch": 1, "promoted_ms": 0, "session_ttl_ms": 1000, "checkpoint_records": 10**9}
    return Composer(state, limits, **(options | changes))


class Leader:
    """A leader without a log, and a follower that applies what it composes."""

    def __init__(self, **changes: int) -> None:
        self.state = ReplicatedState(CounterMap(), bytes(16))
        self.follower = ReplicatedState(CounterMap(), bytes(16))
        self.composer = _composer(self.state, **changes)
        self.queue = RequestQueue()
        self.now_ms = 0

    def submit(self, *requests: Request) -> Submission:
        submission = Submission(requests, None)
        self.queue.add(submission)
        return submission

    def batch(self) -> Batch:
        batch = self.composer.compose(self.queue, self.now_ms)
        batch.confirm()
        self.follower.apply_entry(batch.payload)
        assert self.follower.tip == self.state.tip
        assert (self.follower.digest, self.follower.row_count) == (self.state.digest, self.state.row_count)
        self.state.validate()
        self.follower.validate()
        return batch


def _add(sequence: int, key: str = "k", amount: int = 1, answered: int = 0) -> Command:
    return Command(S, sequence, answered, command("add", key, amount))


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.submit(OpenSession(S))
    leader.batch()
    return leader


def _values(submission: Submission) -> list[object]:
    return [unpack(answer.payload) for answer in submission.answers]


def test_commands_of_a_batch_see_each_other_and_queries_see_what_stands_before_them(leader: Leader) -> None:
    submission = leader.submit(_add(1), Query(command("k")), _add(2), Query(command("k")))
    batch = leader.batch()
    assert _values(submission) == [1, 1, 2, 2]
    assert batch.envelope.record_count == 2


def test_queries_alone_make_an_entry_without_records(leader: Leader) -> None:
    leader.submit(Query(command("k")))
    batch = leader.batch()
    assert batch.envelope.record_count == 0
    assert batch.envelope.last_revision == batch.envelope.first_revision - 1
    assert batch.payload[HEADER_BYTES:] == encode_records([])


def test_negative_reply_is_logged_with_its_command(leader: Leader) -> None:
    submission = leader.submit(Command(S, 1, 0, command("add_if_odd", "k")))
    (record,) = decode_records(leader.batch().payload[HEADER_BYTES:])
    assert record.type == KernelRecord.COMMAND_ANSWERED
    assert record.command is not None
    assert record.command.reply == submission.answers[0].payload


def test_command_sent_again_in_the_same_batch_or_later_gets_its_first_reply(leader: Leader) -> None:
    both = leader.submit(_add(1), _add(1))
    assert leader.batch().envelope.record_count == 1
    again = leader.submit(_add(1))
    batch = leader.batch()
    assert batch.envelope.record_count == 0
    assert _values(both) + _values(again) == [1, 1, 1]


def test_repeat_of_a_refused_command_is_refused_though_it_would_succeed_by_now(leader: Leader) -> None:
    first = leader.submit(Command(S, 1, 0, command("add_if_odd", "k")))
    leader.submit(_add(2))
    again = leader.submit(Command(S, 1, 0, command("add_if_odd", "k")))
    leader.batch()
    assert _values(first) == _values(again) == [None]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (_add(2), AnswerStatus.SEQUENCE_GAP),
        (Command(b"x" * 16, 1, 0, command("add", "k", 1)), AnswerStatus.SESSION_EXPIRED),
        (Command(S, 1, 0, command("chatter", 4097)), AnswerStatus.TOO_LARGE),
        (Command(S, 1, 0, command("blob", LIMIT)), AnswerStatus.TOO_LARGE),
    ],
)
def test_command_that_cannot_be_executed_is_refused_and_changes_nothing(
    leader: Leader, request_: Command, status: AnswerStatus
) -> None:
    submission = leader.submit(request_)
    leader.batch()
    assert submission.answers[0].status is status
    assert leader.state.machine.query(command("k"), 0) == b"\x00"


def test_too_large_is_final_and_the_session_goes_on(leader: Leader) -> None:
    leader.submit(Command(S, 1, 0, command("blob", LIMIT)))
    again = leader.submit(Command(S, 1, 0, command("blob", LIMIT)), _add(2))
    leader.batch()
    assert [answer.status for answer in again.answers] == [AnswerStatus.TOO_LARGE, AnswerStatus.OK]


def test_what_does_not_fit_stays_queued_whole_and_comes_next(leader: Leader) -> None:
    blobs = [Command(S, i + 1, 0, command("blob", LIMIT // 3)) for i in range(5)]
    submission = leader.submit(*blobs)
    last = leader.submit(_add(6))
    sizes = []
    while leader.queue.request_count:
        sizes.append(len(leader.batch().payload))
    assert len(sizes) == 3
    assert max(sizes) <= LIMIT
    assert [a.status for a in (*submission.answers, *last.answers)] == [AnswerStatus.OK] * 6


def test_records_of_one_command_are_in_one_entry(leader: Leader) -> None:
    for sequence in range(1, 30):
        leader.submit(Command(S, sequence, sequence - 1, command("burst", "k" * 20, 200)))
    while leader.queue.request_count:
        batch = leader.batch()
        records = decode_records(batch.payload[HEADER_BYTES:])
        heads = [i for i, record in enumerate(records) if record.command is not None]
        assert heads == [i * 200 for i in range(len(heads))]
        assert len(records) == 200 * len(heads)


def test_answers_are_final_only_as_far_as_their_entry_is_confirmed(leader: Leader) -> None:
    blobs = [Command(S, i + 1, 0, command("blob", LIMIT // 2)) for i in range(3)]
    submission = leader.submit(*blobs)
    leader.batch()
    assert submission.confirmed == 1
    leader.composer.compose(leader.queue, 0)
    answers = submission.give_up(5, applied_never=False)
    assert [a.status for a in answers] == [
        AnswerStatus.OK, AnswerStatus.OUTCOME_UNKNOWN, AnswerStatus.NOT_LEADER,
    ]  # fmt: skip


def test_batch_whose_end_is_known_is_denied_and_queries_are_always(leader: Leader) -> None:
    submission = leader.submit(_add(1), Query(command("k")))
    leader.composer.compose(leader.queue, 0)
    unknown = Submission(submission.requests, None)
    unknown.answers += submission.answers
    assert [a.status for a in unknown.give_up(1, applied_never=False)] == [
        AnswerStatus.OUTCOME_UNKNOWN, AnswerStatus.NOT_LEADER,
    ]  # fmt: skip
    assert {a.status for a in submission.give_up(1, applied_never=True)} == {AnswerStatus.NOT_LEADER}


def test_entry_of_many_small_records_takes_no_further_command(leader: Leader) -> None:
    leader.submit(*[Command(S, i + 1, i, command("burst", "k", 600)) for i in range(20)])
    counts = []
    while leader.queue.request_count:
        counts.append(leader.batch().envelope.record_count)
    assert counts == [5400, 5400, 1200]


def test_owners_take_turns_within_an_entry_and_between_entries_each_in_its_own_order() -> None:
    leader = Leader(commands=100)
    flood, victim = b"f" * 16, b"v" * 16
    leader.submit(OpenSession(flood), OpenSession(victim))
    leader.batch()

    def submit(session: bytes, first: int, count: int) -> Submission:
        name = session[:1].decode()
        commands = [Command(session, first + at, 0, command("add", name, 1)) for at in range(count)]
        submission = Submission([*commands, Query(command(name))], None, name)
        leader.queue.add(submission)
        return submission

    floods = [submit(flood, 1 + 500 * number, 500) for number in range(2)]
    few = [submit(victim, 1, 10), submit(victim, 11, 10)]
    batch = leader.batch()
    assert set(batch.submissions) == {floods[0], *few}, "a thousand before them do not keep them out"
    assert [answer.status for one in few for answer in one.answers] == [AnswerStatus.OK] * 22
    assert _values(few[1])[-1] == 20
    many = submit(victim, 21, 150)
    decided = [floods[0].decided]
    while leader.queue.request_count:
        leader.batch()
        decided.append(floods[0].decided + floods[1].decided)
    assert all(1 <= after - before <= 100 for before, after in itertools.pairwise(decided)), "nobody is kept out"
    assert _values(many)[-1] == 170
    assert [_values(one)[-1] for one in floods] == [500, 1000]


def test_small_commands_do_not_wait_for_a_large_one_behind_them() -> None:
    composer, queue = _composer(ReplicatedState(CounterMap(), bytes(16))), RequestQueue()
    composer.limits = BatchLimits(16 * LIMIT, 1000, 10)
    large = [Command(S, number, 0, command("add", "x" * 100_000, 1)) for number in (2, 3)]
    first, second = Submission([OpenSession(S), _add(1)], None), Submission([large[0]], None)
    third = Submission([large[1], _add(4)], None)
    for submission in (first, second, third):
        queue.add(submission)
    assert list(composer.compose(queue, 0).submissions) == [first]
    assert list(composer.compose(queue, 0).submissions) == [second, third], "what comes behind it goes along"
    assert not queue.request_count


def test_entry_takes_no_more_requests_than_its_limit() -> None:
    leader = Leader(commands=7)
    submission = leader.submit(*[Query(command("k"))] * 20)
    counts = []
    while leader.queue.request_count:
        before = len(submission.answers)
        leader.batch()
        counts.append(len(submission.answers) - before)
    assert counts == [7, 7, 6]


def test_sessions_are_bounded_and_reopening_is_answered_alike() -> None:
    leader = Leader(sessions=1)
    submission = leader.submit(OpenSession(S), OpenSession(S), OpenSession(b"x" * 16))
    assert leader.batch().envelope.record_count == 1
    assert [a.status for a in submission.answers] == [AnswerStatus.OK, AnswerStatus.OK, AnswerStatus.OVERLOADED]


def test_idle_session_expires_by_a_logged_record(leader: Leader) -> None:
    leader.now_ms = 1000
    submission = leader.submit(_add(1))
    records = decode_records(leader.batch().payload[HEADER_BYTES:])
    assert [record.type for record in records] == [KernelRecord.SESSION_EXPIRED]
    assert submission.answers[0].status is AnswerStatus.SESSION_EXPIRED


def test_checkpoint_is_logged_after_so_many_records_and_checked_by_who_applies() -> None:
    leader = Leader(checkpoint_records=10)
    leader.submit(OpenSession(S))
    seen = 0
    for sequence in range(1, 40):
        leader.submit(_add(sequence))
        records = decode_records(leader.batch().payload[HEADER_BYTES:])
        seen += sum(record.type == KernelRecord.CHECKPOINT_LOGGED for record in records)
    assert 3 <= seen <= 5


_request = st.one_of(
    st.builds(lambda k, a: ("add", k, a), st.sampled_from("abc"), st.integers(-5, 5)),
    st.builds(lambda k: ("add_if_odd", k), st.sampled_from("abc")),
    st.builds(lambda k: ("drop", k), st.sampled_from("abc")),
    st.builds(lambda n: ("blob", n), st.integers(0, LIMIT // 2)),
    st.builds(lambda k, n: ("burst", k, n), st.sampled_from("abc"), st.integers(1, 50)),
)


@settings(max_examples=60, deadline=None)
@given(commands=st.lists(_request, max_size=25), cuts=st.lists(st.integers(1, 6), max_size=8), repeats=st.randoms())
def test_any_cut_into_batches_gives_the_same_replies_and_followers_agree(commands, cuts, repeats) -> None:
    whole, cut = Leader(), Leader(commands=3)
    requests = [Command(S, i + 1, 0, command(*c)) for i, c in enumerate(commands)]
    expected = whole.submit(OpenSession(S), *requests)
    while whole.queue.request_count:
        whole.batch()
    got: dict[int, set[bytes]] = {}
    cut.submit(OpenSession(S))
    position = 0
    for size in [*cuts, len(requests)]:
        chunk = requests[max(0, position - repeats.randrange(3)) : position + size]
        submission = cut.submit(*chunk)
        position += size
        while cut.queue.request_count:
            cut.batch()
        for request, answer in zip(chunk, submission.answers, strict=True):
            got.setdefault(request.sequence, set()).add(answer.payload)
    assert [got[i + 1] for i in range(len(requests))] == [{a.payload} for a in expected.answers[1:]]


_sent = st.tuples(
    st.sampled_from([S, S, S, b"t" * 16, b"x" * 16]),  # The last session is not open.
    st.integers(-2, 1),  # What its first sequence is beyond the next: sent again, or behind a gap.
    st.integers(0, 2),  # How far behind its answers are taken.
    st.lists(_request | st.just(("chatter", 4_097)) | st.just(("blob", LIMIT)), min_size=1, max_size=6),
    st.lists(st.sampled_from("abc"), max_size=2),  # Queries behind the commands.
    st.sampled_from(["", "ann", "bob"]),
)


@settings(max_examples=60, deadline=None)
@given(messages=st.lists(_sent, max_size=8), commands=st.sampled_from([3, 1_000]), at_once=st.integers(1, 4))
def test_a_column_of_commands_makes_the_entries_and_answers_that_one_object_each_makes(
    messages, commands, at_once
) -> None:
    listed, columns = Leader(commands=commands), Leader(commands=commands)
    sent: list[tuple[Submission, Submission]] = []
    for leader in (listed, columns):
        leader.submit(OpenSession(S), OpenSession(b"t" * 16))
        leader.batch()
    last: dict[bytes, int] = {}
    for number, (session, beyond, behind, calls, queries, owner) in enumerate(messages, 1):
        first = max(1, last.get(session, 0) + 1 + beyond)
        answered_up_to = max(0, first - 1 - behind)
        sequences = list(range(first, first + len(calls)))
        last[session] = max(last.get(session, 0), sequences[-1]) if beyond <= 0 else last.get(session, 0)
        payloads = [command(*call) for call in calls] + [command(key) for key in queries]
        column = CommandColumn(session, answered_up_to, sequences, payloads)
        pair = Submission(list(column), None, owner), Submission(column, None, owner)
        sent.append(pair)
        for leader, submission in zip((listed, columns), pair, strict=True):
            leader.queue.add(submission)
        while number % at_once == 0 and listed.queue.request_count:
            assert listed.batch().payload == columns.batch().payload
    while listed.queue.request_count:
        assert listed.batch().payload == columns.batch().payload
    assert not columns.queue.request_count
    assert all(one.answers == other.answers for one, other in sent)
    assert all(len(one.answers) == len(one.requests) for one, _ in sent)


def test_answer_struct_is_shared_by_denied_requests() -> None:
    submission = Submission([Query(b""), Query(b"")], None)
    assert list(submission.give_up(3, applied_never=True)) == [Answer(AnswerStatus.NOT_LEADER, 3, b"")] * 2


def test_an_audit_is_a_record_of_the_log_before_what_comes_behind_it(leader: Leader) -> None:
    leader.composer.format_level = AUDIT_LEVEL
    audited = Audited("ann", "operator", "10.0.0.7", "PUT /holds", "tenant evil", "asked")
    submission = leader.submit(audited, _add(1))
    batch = leader.batch()
    assert [answer.status for answer in submission.answers] == [AnswerStatus.OK] * 2
    first, second = decode_records(batch.payload[HEADER_BYTES:])
    assert (first.type, first.command) == (KernelRecord.AUDITED, None)
    assert first.fields == ("ann", "operator", "10.0.0.7", "PUT /holds", "tenant evil", "asked")
    assert second.command is not None


def test_a_log_of_a_level_without_audits_refuses_them_and_logs_nothing(leader: Leader) -> None:
    submission = leader.submit(Audited("ann", "operator", "", "x", "y", "asked"))
    batch = leader.batch()
    (answer,) = submission.answers
    assert answer.status is AnswerStatus.REFUSED
    assert b"format level" in answer.payload
    assert batch.envelope.record_count == 0


def test_a_long_name_in_an_audit_is_cut(leader: Leader) -> None:
    leader.composer.format_level = AUDIT_LEVEL
    leader.submit(Audited("a" * 100_000, "", "", "x", "y", "asked"))
    (record,) = decode_records(leader.batch().payload[HEADER_BYTES:])
    assert record.fields[0] == "a" * AUDIT_CHARS_MAX
