"""The client's decisions, with no network: each command once, whatever breaks, and never a wrong "not applied"."""

# Longer than 400 lines: what one client decides, move by move and by seeds, with the same stand-ins.

from __future__ import annotations

import random
from typing import Any

import pytest

from rsm_spark.client.command_stream import CommandStream
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.operation import (
    Ending,
    Message,
    Operation,
    OperationColumn,
    StreamLimits,
    count_of,
    payloads_of,
    sequences_of,
    taken_apart,
)
from rsm_spark.map import messages as m
from tests.unit.rsm_spark.client.replica_double import Group


def stream(limits: StreamLimits | None = None, **options: Any) -> CommandStream:
    """Return a client whose session is open."""
    rng = random.Random(1)
    client = CommandStream(lambda: rng.randbytes(16), limits, **options)
    client.submit(put(0))
    message = client.compose()
    assert message is not None
    client.on_answers(message.message_id, [], [1], [b""])
    first = client.compose()
    assert first is not None
    client.on_answers(first.message_id, [], [1], [b""])
    return client


def put(number: int, deadline_s: float = 100.0) -> Operation:
    return Operation(m.encode(m.Put(b"k%d" % number, b"%d" % number)), deadline_s, number)


def composed(client: CommandStream) -> Message:
    message = client.compose()
    assert message is not None
    client.validate()
    return message


def answer(client: CommandStream, message: Message, status: AnswerStatus = AnswerStatus.OK) -> list[Operation]:
    count = message.opens_session + count_of(message.commands) + count_of(message.queries)
    ended = client.on_answers(message.message_id, [int(status)] * count, [1] * count, [b"r"] * count)
    client.validate()
    return ended


def test_a_session_is_opened_before_its_first_command_and_commands_that_waited_go_together() -> None:
    rng = random.Random(1)
    client = CommandStream(lambda: rng.randbytes(16))
    for number in range(3):
        client.submit(put(number))
    opening = composed(client)
    assert (opening.opens_session, opening.commands) == (True, [])
    assert client.compose() is None
    client.on_lost()
    client.resume()
    answer(client, composed(client))
    message = composed(client)
    assert message.session == opening.session
    assert [operation.sequence for operation in message.commands] == [1, 2, 3]
    ended = answer(client, message)
    assert [operation.outcome for operation in ended] == [Ending.ANSWERED] * 3
    client.submit(put(4))
    following = composed(client)
    assert (following.opens_session, following.answered_up_to) == (False, 3)


def test_no_more_messages_are_in_flight_than_allowed() -> None:
    client = stream(StreamLimits(message_operations_max=1))
    for number in range(3):
        client.submit(put(number))
    first = composed(client)
    composed(client)
    assert client.compose() is None
    answer(client, first)
    assert composed(client).commands[0].sequence == 4


def test_a_lost_connection_sends_the_same_sequences_again_in_order() -> None:
    client = stream(StreamLimits(message_operations_max=2))
    for number in range(5):
        client.submit(put(number))
    session = composed(client).session
    composed(client)
    client.on_lost()
    client.validate()
    client.resume()
    again = composed(client)
    assert [operation.sequence for operation in again.commands] == [2, 3]
    assert again.session == session
    assert [operation.sequence for operation in composed(client).commands] == [4, 5]


@pytest.mark.parametrize(
    ("status", "is_unsure"),
    [
        (AnswerStatus.NOT_LEADER, False),
        (AnswerStatus.OVERLOADED, False),
        (AnswerStatus.SEQUENCE_GAP, False),
        (AnswerStatus.OUTCOME_UNKNOWN, True),
    ],
)
def test_a_refused_command_pauses_sending_and_its_end_depends_on_whether_it_may_have_run(
    status: AnswerStatus, is_unsure: bool
) -> None:
    client = stream()
    client.submit(put(1, deadline_s=10))
    assert answer(client, composed(client), status) == []
    assert client.refusal == status
    assert client.compose() is None
    (ended,) = client.expire(10)
    assert ended.outcome is (Ending.UNKNOWN if is_unsure else Ending.NEVER_APPLIED)


def test_not_leader_after_a_lost_attempt_is_no_proof_that_it_was_not_applied() -> None:
    client = stream()
    client.submit(put(1, deadline_s=10))
    composed(client)
    client.on_lost()
    client.resume()
    answer(client, composed(client), AnswerStatus.NOT_LEADER)
    (ended,) = client.expire(10)
    assert ended.outcome is Ending.UNKNOWN


def test_a_command_given_up_is_named_before_a_later_one_is_sent() -> None:
    client = stream(StreamLimits(message_operations_max=1))
    client.submit(put(1))
    client.submit(put(2, deadline_s=5))
    first, _second = composed(client), composed(client)
    client.expire(5)
    client.validate()
    client.on_lost()
    client.resume()
    client.submit(put(3))
    again = composed(client)
    assert [operation.sequence for operation in again.commands] == [2]
    assert client.compose() is None, "4 must not be sent while 3 is missing and 2 is not answered"
    answer(client, again)
    last = composed(client)
    assert (last.commands[0].sequence, last.answered_up_to) == (4, 3)
    assert first.message_id != again.message_id


def test_an_expired_session_moves_what_never_ran_and_ends_what_may_have() -> None:
    client = stream(StreamLimits(message_operations_max=1))
    client.submit(put(1))
    lost = composed(client)
    client.on_lost()
    client.resume()
    client.submit(put(2))
    unsure, sure = composed(client), composed(client)
    assert unsure.commands == lost.commands
    assert answer(client, unsure, AnswerStatus.SESSION_EXPIRED) == []
    assert answer(client, sure, AnswerStatus.SESSION_EXPIRED) == []
    (ended,) = client.resume()
    assert (ended.ticket, ended.outcome) == (1, Ending.UNKNOWN)
    opening = composed(client)
    assert opening.session != lost.session
    answer(client, opening)
    moved = composed(client)
    assert [operation.sequence for operation in moved.commands] == [1]
    assert [one.ticket for one in taken_apart(moved.commands)] == [2]


def test_too_large_is_final_and_the_next_goes_on() -> None:
    client = stream()
    client.submit(put(1))
    (ended,) = answer(client, composed(client), AnswerStatus.TOO_LARGE)
    assert ended.outcome is Ending.TOO_LARGE
    assert client.refusal is None


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refusal_says_that_nothing_was_changed_only_if_no_attempt_was_before(is_first: bool) -> None:
    client = stream()
    client.submit(put(1))
    if not is_first:
        composed(client)
        client.on_lost()
        client.resume()
    (ended,) = answer(client, composed(client), AnswerStatus.REFUSED)
    assert ended.outcome is (Ending.REFUSED if is_first else Ending.UNKNOWN)


def test_one_replica_that_does_not_lead_ends_a_command_at_once() -> None:
    client = stream(follows_leader=False)
    client.submit(put(1))
    message = composed(client)
    answer(client, message, AnswerStatus.NOT_LEADER)
    assert taken_apart(message.commands)[0].outcome is Ending.NOT_LEADER


def test_one_replica_that_does_not_lead_ends_commands_before_they_are_sent() -> None:
    client = CommandStream(lambda: bytes(16), follows_leader=False)
    client.submit(put(1))
    (ended,) = answer(client, composed(client), AnswerStatus.NOT_LEADER)
    assert ended.outcome is Ending.NOT_LEADER
    assert not client.has_work


@pytest.mark.parametrize(
    ("message_id", "statuses", "payload_count"), [(9, [], 2), (3, [], 1), (3, [0], 2), (3, [0, 99], 2)]
)
def test_answers_that_fit_no_message_change_nothing(message_id: int, statuses: list[int], payload_count: int) -> None:
    client = stream()
    client.submit(put(1))
    client.submit(put(2))
    composed(client)
    with pytest.raises(ValueError):
        client.on_answers(message_id, statuses, [0] * payload_count, [b""] * payload_count)
    assert client.is_in_flight


class World:
    """A client, a leader that may change, and a network that may break, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.group = Group()
        self.client = CommandStream(
            lambda: self.rng.randbytes(16), StreamLimits(message_operations_max=self.rng.choice([1, 3, 50]))
        )
        self.now_s = 0.0
        self.network: list[Message] = []
        self.count = 0
        self.operations: list[Operation] = []
        self.ended: list[Operation] = []
        self.columns: list[OperationColumn] = []
        self.ended_columns: list[OperationColumn] = []
        self.said: dict[bytes, set[bytes]] = {}

    def step(self) -> None:
        choice = self.rng.random()
        self.now_s += self.rng.random() * 0.2
        if choice < 0.35:
            self.submit()
        elif choice < 0.7:
            message = self.client.compose()
            if message is not None:
                self.network.append(message)
        elif choice < 0.9:
            self.deliver()
        elif choice < 0.95:
            self.lose()
        elif choice < 0.97 and self.group.executed:
            session = self.group.executed[-1][0]
            if self.group.sessions.get(session) is not None:
                self.group.sessions.expire(session, self.group.revision)
        else:
            self.end(self.client.expire(self.now_s))
        if self.client.refusal is not None and not self.client.is_in_flight:
            self.end(self.client.resume())
        self.client.validate()

    def submit(self) -> None:
        is_query = self.rng.random() < 0.2
        deadline_s = self.now_s + self.rng.choice([1.0, 5.0, 50.0])
        if self.rng.random() < 0.3:
            payloads = [self.payload(is_query=is_query) for _ in range(self.rng.randint(1, 9))]
            column = OperationColumn(payloads, deadline_s, lambda: self.ended_columns.append(column), is_query=is_query)
            self.columns.append(column)
            self.client.submit_column(column)
            return
        payload = self.payload(is_query=is_query)
        operation = Operation(payload, deadline_s, payload, is_query=is_query)
        self.operations.append(operation)
        self.client.submit(operation)

    def payload(self, *, is_query: bool) -> bytes:
        self.count += 1
        key = b"k%d" % self.count
        return m.encode(m.Get(key) if is_query else m.Put(key, b""))

    def end(self, ended: list[Operation]) -> None:
        """Tell those who wait."""
        for operation in ended:
            if isinstance(operation.ticket, OperationColumn):
                operation.ticket.ended()
            else:
                self.ended.append(operation)

    def deliver(self) -> None:
        if not self.network:
            return
        message = self.network.pop(0)
        refusal = self.rng.choice([None] * 6 + [AnswerStatus.NOT_LEADER, AnswerStatus.OVERLOADED])
        answers = self.execute(message, refusal)
        if self.rng.random() < 0.15:
            self.network.insert(0, message)
            self.lose()  # Executed, and the answer was lost.
            return
        statuses = [int(answer.status) for answer in answers]
        self.end(
            self.client.on_answers(
                message.message_id,
                statuses if any(statuses) else [],
                [answer.revision for answer in answers],
                [answer.payload for answer in answers],
            )
        )

    def execute(self, message: Message, refusal: AnswerStatus | None) -> list[Answer]:
        requests: list[OpenSession | Command | Query] = [OpenSession(message.session)] if message.opens_session else []
        numbered = zip(sequences_of(message.commands), payloads_of(message.commands), strict=True)
        requests += [Command(message.session, sequence, message.answered_up_to, sent) for sequence, sent in numbered]
        requests += map(Query, payloads_of(message.queries))
        if refusal is not None:
            return [Answer(refusal, 0, b"") for _ in requests]
        answers = [
            Answer(AnswerStatus.OUTCOME_UNKNOWN, 0, b"") if self.rng.random() < 0.03 else self.group.execute(request)
            for request in requests
        ]
        for request, answer in zip(requests, answers, strict=True):
            if not isinstance(request, OpenSession) and answer.status is AnswerStatus.OK:
                self.said.setdefault(request.payload, set()).add(answer.payload)
        return answers

    def lose(self) -> None:
        """Break the connection; part of what was on its way arrives first."""
        for message in self.network:
            if self.rng.random() < 0.5:
                self.execute(message, None)
            else:
                break
        self.network.clear()
        self.client.on_lost()

    def finish(self) -> None:
        for _ in range(400):
            message = self.client.compose()
            if message is not None:
                answers = self.execute(message, None)
                self.end(
                    self.client.on_answers(
                        message.message_id,
                        [int(answer.status) for answer in answers],
                        [answer.revision for answer in answers],
                        [answer.payload for answer in answers],
                    )
                )
            elif self.client.refusal is not None:
                self.end(self.client.resume())
            self.client.validate()


@pytest.mark.parametrize("seed", range(150))
def test_every_command_is_applied_once_or_reported_as_it_was(seed: int) -> None:
    world = World(seed)
    for _ in range(300):
        world.step()
    world.lose()
    world.end(world.client.resume())
    world.finish()
    assert not world.client.has_work, "an operation never ended"
    assert sorted(map(id, world.ended)) == sorted(map(id, world.operations)), "not ended exactly once"
    applied: dict[bytes, int] = {}
    for _, _, payload in world.group.executed:
        applied[payload] = applied.get(payload, 0) + 1
    assert set(applied.values()) <= {1}, "applied twice"
    assert sorted(map(id, world.ended_columns)) == sorted(map(id, world.columns)), "not ended exactly once"
    ends = [(one.is_query, one.outcome, one.ticket, one.payload) for one in world.operations]
    for column in world.columns:
        for place, payload in enumerate(column.payloads):
            operation = column.operations.get(place)
            outcome = Ending.ANSWERED if operation is None else operation.outcome
            ends.append((column.is_query, outcome, payload, column.answers[place]))
    for is_query, outcome, sent, said in ends:
        if outcome is Ending.ANSWERED:
            assert said in world.said[sent], "answered otherwise than the leader did"
        if not is_query and outcome is Ending.ANSWERED:
            assert applied[sent] == 1, "answered, and not applied"
        if not is_query and outcome is Ending.NEVER_APPLIED:
            assert sent not in applied, "said not applied, and it was"


def test_what_was_certainly_not_applied_ends_when_its_replica_is_deposed_and_the_rest_is_asked_again() -> None:
    client = stream(follows_leader=False)
    for number in range(1, 3):
        client.submit(put(number))
    first = composed(client)
    client.submit(put(3))
    assert answer(client, first, AnswerStatus.OUTCOME_UNKNOWN) == []
    assert [(one.ticket, one.outcome) for one in client.turn_away()] == [(3, Ending.NOT_LEADER)]
    client.validate()
    assert client.resume() == []
    again = composed(client)
    assert [one.ticket for one in taken_apart(again.commands)] == [1, 2]
    assert [one.outcome for one in answer(client, again)] == [Ending.ANSWERED] * 2


def column_of(ended: list[OperationColumn], *numbers: int, is_query: bool = False) -> OperationColumn:
    payloads = [m.encode(m.Get(b"k%d" % number) if is_query else m.Put(b"k%d" % number, b"")) for number in numbers]
    column = OperationColumn(payloads, 100.0, lambda: ended.append(column), is_query=is_query)
    return column


def test_a_column_travels_in_parts_with_what_else_waits_and_ends_when_its_last_part_is_answered() -> None:
    client = stream(StreamLimits(message_operations_max=3))
    ended: list[OperationColumn] = []
    column = column_of(ended, 2, 3, 4, 5)
    queries = column_of(ended, 9, is_query=True)
    client.submit(put(1))
    client.submit_column(column)
    client.submit(put(6))
    client.submit_column(queries)
    first, second = composed(client), composed(client)
    assert [sequences_of(message.commands) for message in (first, second)] == [[2, 3, 4], [5, 6, 7]]
    assert payloads_of(first.commands)[1:] == column.payloads[:2]
    assert client.on_answers(second.message_id, [], [15, 16, 17], [b"4", b"5", b"6"])[0].ticket == 6
    assert (ended, column.left) == ([], 2)
    client.validate()
    assert client.on_answers(first.message_id, [], [12, 13, 14], [b"1", b"2", b"3"])[0].ticket == 1
    assert ended == [column]
    assert (column.answers, column.revisions) == ([b"2", b"3", b"4", b"5"], [13, 14, 15, 16])
    assert column.operations == {}, "an object for each was made"
    third = composed(client)
    assert (third.answered_up_to, payloads_of(third.queries)) == (7, queries.payloads)
    assert client.on_answers(third.message_id, [], [18], [b"9"]) == []
    assert (ended, queries.answers) == ([column, queries], [b"9"])
    assert not client.has_work
    assert not client.has_room(StreamLimits().waiting_operations_max + 1)


def test_of_a_column_each_operation_is_refused_and_sent_again_by_itself() -> None:
    client = stream()
    ended: list[OperationColumn] = []
    column = column_of(ended, 1, 2, 3, 4)
    client.submit_column(column)
    message = composed(client)
    statuses = [AnswerStatus.OK, AnswerStatus.TOO_LARGE, AnswerStatus.OVERLOADED, AnswerStatus.OUTCOME_UNKNOWN]
    told = client.on_answers(message.message_id, [int(one) for one in statuses], [5] * 4, [b"a", b"", b"", b""])
    client.validate()
    assert [(one.sequence, one.outcome) for one in told] == [(2, Ending.ANSWERED), (3, Ending.TOO_LARGE)]
    for one in told:
        one.ticket.ended()
    assert client.resume() == []
    again = composed(client)
    assert sequences_of(again.commands) == [4, 5]
    assert payloads_of(again.commands) == column.payloads[2:]
    for one in client.on_answers(again.message_id, [], [7, 8], [b"c", b"d"]):
        one.ticket.ended()
    assert ended == [column]
    assert (column.answers, column.revisions) == ([b"a", b"", b"c", b"d"], [5, 0, 7, 8])
    assert [column.operations[place].is_unsure for place in range(4)] == [False, False, False, True]


def test_a_column_is_given_up_at_its_time_limit_where_it_stands() -> None:
    client = stream(StreamLimits(message_operations_max=2, messages_in_flight_max=1))
    ended: list[OperationColumn] = []
    column, later = column_of(ended, 1, 2, 3), column_of(ended, 4)
    column.deadline_s = 1.0
    client.submit_column(column)
    client.submit_column(later)
    message = composed(client)
    assert client.expire(0.5) == []
    told = client.expire(2.0)
    client.validate()
    assert [(one.sequence, one.outcome) for one in told] == [
        (2, Ending.UNKNOWN), (3, Ending.UNKNOWN), (0, Ending.NEVER_APPLIED),
    ]  # fmt: skip
    for one in told:
        one.ticket.ended()
    assert ended == [column]
    assert client.on_answers(message.message_id, [], [7, 8], [b"a", b"b"]) == []
    assert column.answers == [b""] * 3, "what was given up has no answer"
    assert client.on_answers(composed(client).message_id, [], [9], [b"c"]) == []
    assert (ended, later.answers) == ([column, later], [b"c"])


def test_a_part_holds_what_fits_and_one_operation_at_least() -> None:
    sizes = [10, 10, 50, 10]
    column = OperationColumn([bytes(size) for size in sizes], 1.0, lambda: None)
    assert column.take(9, 5, has_some=True) == (None, 0)
    taken = [column.take(9, 25, has_some=False), column.take(9, 25, has_some=False), column.take(9, 25, has_some=True)]
    assert [(part.first, part.end, size) for part, size in taken if part is not None] == [
        (0, 2, 20), (2, 3, 50), (3, 4, 10),
    ]  # fmt: skip


def test_answers_without_statuses_end_what_is_still_open() -> None:
    client = stream()
    for operation in (put(1, deadline_s=1.0), put(2), put(3)):
        client.submit(operation)
    message = composed(client)
    assert [one.ticket for one in client.expire(2.0)] == [1]
    ended = client.on_answers(message.message_id, [], [5, 6, 7], [b"a", b"b", b"c"])
    client.validate()
    assert [(one.ticket, one.outcome, one.revision, one.payload) for one in ended] == [
        (2, Ending.ANSWERED, 6, b"b"),
        (3, Ending.ANSWERED, 7, b"c"),
    ]
    assert client.seen.revision == 7
    assert not client.has_work
