"""Sans-IO client of one replicated state machine: operations and answers in, messages and outcomes out.

1. A command keeps its (session, sequence) until it has an answer, whatever breaks meanwhile: it is applied once.
2. No command is sent before the session is known to be open, and it is never opened again: one that had expired
   meanwhile would begin anew, and a command sent again would be applied again.
3. Commands are numbered when they are first sent and always sent in the order of their numbers.
4. An operation ends exactly once: answered, refused for good, or given up at its time limit.
5. "Not applied" is said only when no attempt is left that could have been: see `Operation.is_unsure`.
6. Operations that one caller waits for together travel as parts of their column while all goes well. Whatever else
   becomes of a message, its parts are taken apart first, and each operation goes its own way.

    waiting    never sent                          -> `_waiting_commands`, `_waiting_queries`
    returned   sent before, has to be sent again   -> `_returned`, ascending by sequence
    in flight  in a message without an answer      -> `_messages`
    ended      has its outcome                     -> nowhere; `Operation.outcome` is set
"""

# Longer than 400 lines: what a message's end means for an operation is decided where it was sent.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.freshness import LINEARIZABLE, Freshness, ReadKind, at_least
from rsm_spark.core.operation import (
    ColumnPart,
    Ending,
    Message,
    Operation,
    OperationColumn,
    SeenRevision,
    Sent,
    StreamLimits,
    count_of,
    taken_apart,
)

_ENDINGS_OF_ONE_REPLICA = {
    AnswerStatus.NOT_LEADER: Ending.NOT_LEADER,
    AnswerStatus.TOO_STALE: Ending.TOO_STALE,
    AnswerStatus.NOT_READY: Ending.NOT_READY,
}


class CommandStream:
    """Everything that decides whether, when and as what a command is sent.

    Args:
        new_session: Returns 16 fresh random bytes.
        limits: Of messages.
        follows_leader: False = everything goes to one replica; NOT_LEADER, TOO_STALE and NOT_READY end it.
        seen: Shared with other streams of the same client.

    Attributes:
        seen: Highest revision that an answer named.
        refusal: Why sending pauses, or None. The shell waits or finds the leader, then calls `resume`.

    """

    def __init__(
        self,
        new_session: Callable[[], bytes],
        limits: StreamLimits | None = None,
        *,
        follows_leader: bool = True,
        seen: SeenRevision | None = None,
    ) -> None:
        self._new_session = new_session
        self._limits = limits or StreamLimits()
        self._messages_max = self._limits.messages_in_flight_max
        self._follows_leader = follows_leader
        self.refusal: AnswerStatus | None = None
        self.seen = seen if seen is not None else SeenRevision()
        self._open_count = 0
        self._waiting_commands: deque[Operation | OperationColumn] = deque()
        self._waiting_queries: deque[Operation | OperationColumn] = deque()
        self._returned: deque[Operation] = deque()
        self._messages: dict[int, Message] = {}
        self._message_id = 0
        self._begin_session()

    def _begin_session(self) -> None:
        self._session = self._new_session()
        self._is_open = False
        # The present session is over; a new one begins at `resume`, when nothing of the old one is in flight.
        self._is_expired = False
        self._last_sequence = 0
        # Every command up to here is answered or given up. Invariant: answered_up_to <= last_sequence, and
        # answered_up_to + 1 has not ended.
        self._answered_up_to = 0
        # Commands above `_answered_up_to` that have ended.
        self._ended: set[int] = set()
        # Those of them that were given up: the leader may never have seen them, so no later command may be sent before
        # `_answered_up_to` says that they will not come.
        self._given_up: set[int] = set()
        self._is_doubtful = False  # Some command of it may have been applied or not.

    @property
    def session(self) -> bytes:
        """The present session."""
        return self._session

    def go_on(self, session: bytes, number: int) -> None:
        """Use a session that is open; commands of it up to this number are given up, or answered to somebody else.

        No command may have been submitted yet.
        """
        assert not self._is_open
        assert not self._last_sequence
        assert not self._waiting_commands
        assert not any(message.opens_session for message in self._messages.values())
        self._session, self._is_open = session, True
        self._last_sequence = self._answered_up_to = number

    @property
    def kept(self) -> tuple[bytes, int] | None:
        """An open session and its last number, for `go_on`; None if there is none, or a command has no known end."""
        return (self._session, self._last_sequence) if self._is_open and not self._is_doubtful else None

    @property
    def has_work(self) -> bool:
        """True if any operation has not ended."""
        return bool(self._waiting_commands or self._waiting_queries or self._returned or self._messages)

    @property
    def has_unsent(self) -> bool:
        """True if an operation waits to be sent, now or at the end of a pause."""
        return bool(self._waiting_commands or self._waiting_queries or self._returned)

    @property
    def is_in_flight(self) -> bool:
        """True if a message has no answer yet."""
        return bool(self._messages)

    @property
    def open_count(self) -> int:
        """Number of operations that have not ended."""
        return self._open_count

    def has_room(self, count: int) -> bool:
        """Return whether so many operations more may wait."""
        return self._open_count + count <= self._limits.waiting_operations_max

    def limit_messages(self, messages_max: int | None) -> None:
        """Have so many messages in flight at once from now on, None = as the limits say; none may be in flight."""
        assert not self._messages
        self._messages_max = self._limits.messages_in_flight_max if messages_max is None else messages_max

    def submit(self, operation: Operation) -> None:
        """Queue an operation behind the others of its kind."""
        self._open_count += 1
        (self._waiting_queries if operation.is_query else self._waiting_commands).append(operation)

    def submit_column(self, column: OperationColumn) -> None:
        """Queue operations of one caller behind the others of their kind."""
        self._open_count += column.left
        (self._waiting_queries if column.is_query else self._waiting_commands).append(column)

    def compose(self) -> Message | None:
        """Return the next message, or None if there is nothing to send, too much is in flight, or sending pauses."""
        if self.refusal is not None or len(self._messages) >= self._messages_max:
            return None
        room, room_bytes = self._limits.message_operations_max, self._limits.message_bytes_max
        commands: list[Sent] = []
        opens = False
        if self._is_open:
            commands, room, room_bytes = self._take_commands(room, room_bytes)
        elif self._waiting_commands:
            opens = not any(message.opens_session for message in self._messages.values())
        queries, freshness = self._take_queries(room, room_bytes, has_some=bool(commands))
        if not commands and not queries and not opens:
            return None
        self._message_id += 1
        message = Message(self._message_id, self._session, opens, self._answered_up_to, commands, queries, freshness)
        self._messages[self._message_id] = message
        return message

    def _take_commands(self, room: int, room_bytes: int) -> tuple[list[Sent], int, int]:
        commands, room, room_bytes = self._take(self._returned, room, room_bytes, has_some=False)
        if self._returned or self._given_up:
            return commands, room, room_bytes
        fresh, room, room_bytes = self._take(self._waiting_commands, room, room_bytes, bool(commands))
        last = self._last_sequence
        for one in fresh:
            one.sequence = last + 1
            last += len(one) if type(one) is ColumnPart else 1
        self._last_sequence = last
        commands += fresh
        return commands, room, room_bytes

    def _take_queries(self, room: int, room_bytes: int, *, has_some: bool) -> tuple[list[Sent], Freshness]:
        """Take queries that are to be equally fresh."""
        queue = self._waiting_queries
        if not queue:
            return [], LINEARIZABLE
        freshness = queue[0].freshness
        queries, _, _ = self._take(queue, room, room_bytes, has_some, freshness)
        if freshness.kind is ReadKind.SESSION and not freshness.min_revision:
            freshness = at_least(self.seen.revision)
        return queries, freshness

    def _take(
        self,
        queue: deque[Operation] | deque[Operation | OperationColumn],
        room: int,
        room_bytes: int,
        has_some: bool,
        freshness: Freshness = LINEARIZABLE,
    ) -> tuple[list[Sent], int, int]:
        """Take from the front of a queue; return it, and the room that is left."""
        taken: list[Sent] = []
        barrier = min(self._given_up, default=None) if self._given_up else None
        while queue and room > 0:
            operation = queue[0]
            if isinstance(operation, OperationColumn):
                if operation.freshness != freshness:
                    break
                part, size = operation.take(room, room_bytes, has_some=has_some or bool(taken))
                if part is None:
                    break
                room -= len(part)
                room_bytes -= size
                taken.append(part)
                if operation.taken < len(operation.payloads):
                    break
            elif operation.outcome is None:
                if barrier is not None and operation.sequence > barrier:
                    break
                if operation.freshness is not freshness and operation.freshness != freshness:
                    break
                size = len(operation.payload)
                if size > room_bytes and (has_some or taken):
                    break
                room -= 1
                room_bytes -= size
                taken.append(operation)
            queue.popleft()
        return taken, room, room_bytes

    def on_answers(
        self, message_id: int, statuses: Sequence[int], revisions: Sequence[int], payloads: Sequence[bytes]
    ) -> list[Operation]:
        """Take the answers to a message.

        Args:
            message_id: Of the message.
            statuses: `AnswerStatus` per answer; empty = all OK.
            revisions: Per answer.
            payloads: Per answer.

        Returns:
            The operations that ended; of a column it is told itself.

        Raises:
            ValueError: There is no such message in flight, or the answers do not fit it.

        """
        message = self._messages.get(message_id)
        if message is None:
            raise ValueError(f"answers to message {message_id}, which is not in flight")
        sent = message.commands + message.queries if message.commands else message.queries
        opens = int(message.opens_session)
        _check_answers(count_of(sent) + opens, statuses, revisions, payloads)
        del self._messages[message_id]
        self.seen.revision = max(self.seen.revision, max(revisions, default=0))
        ended: list[Operation] = self._on_opened(statuses[0] if statuses else 0) if opens else []
        if not statuses:
            return ended + self._on_answered(sent, revisions[opens:], payloads[opens:])
        returned: list[Operation] = []
        for index, operation in enumerate(taken_apart(sent), opens):
            if operation.outcome is not None:
                continue
            status = statuses[index]
            if status == AnswerStatus.OK:
                operation.payload = payloads[index]
                operation.revision = revisions[index]
                ended.append(self._end(operation, Ending.ANSWERED))
                continue
            ending = self._on_refused(operation, status, payloads[index])
            if ending is None:
                returned.append(operation)
            else:
                ended.append(self._end(operation, ending))
        self._return(returned)
        return ended

    def _on_answered(
        self, sent: Sequence[Sent], revisions: Sequence[int], payloads: Sequence[bytes]
    ) -> list[Operation]:
        """End all of a message's operations that are open: nearly all messages are answered so."""
        ended: list[Operation] = []
        answered = Ending.ANSWERED
        behind = 0
        for operation in sent:
            at = behind
            if type(operation) is ColumnPart:
                behind += len(operation)
                self._end_part(operation, revisions[at:behind], payloads[at:behind])
                continue
            behind += 1
            assert type(operation) is Operation
            if operation.outcome is None:
                operation.payload, operation.revision = payloads[at], revisions[at]
                if operation.sequence:
                    self._end(operation, answered)
                else:
                    operation.outcome = answered
                    self._open_count -= 1
                ended.append(operation)
        return ended

    def _end_part(self, part: ColumnPart, revisions: Sequence[int], payloads: Sequence[bytes]) -> None:
        """End the operations of a part: none of them had an end before, or it would have been taken apart."""
        count = len(part)
        self._open_count -= count
        if part.sequence:
            if part.sequence == self._answered_up_to + 1:
                self._answered_up_to += count
                if self._ended:
                    self._advance()
            else:
                self._ended.update(part.sequences)
        part.column.answered(part, revisions, payloads)

    def _on_opened(self, status: int) -> list[Operation]:
        if status == AnswerStatus.OK:
            self._is_open = True
        elif status == AnswerStatus.NOT_LEADER and not self._follows_leader:
            refused = _emptied(self._waiting_commands)
            return [self._end(operation, Ending.NOT_LEADER) for operation in refused]
        else:
            self._pause(status)
        return []

    def _on_refused(self, operation: Operation, status: int, reason: bytes) -> Ending | None:
        """Return how the operation ended, or None: it has to be sent again, once the reason is dealt with."""
        operation.refusal, operation.reason = AnswerStatus(status), reason
        if status == AnswerStatus.TOO_LARGE:
            return Ending.TOO_LARGE
        if status == AnswerStatus.REFUSED:
            # Rights may have changed between two attempts: whether the first was applied is not told then.
            return Ending.UNKNOWN if operation.is_unsure else Ending.REFUSED
        if not self._follows_leader and status in _ENDINGS_OF_ONE_REPLICA:
            return Ending.UNKNOWN if operation.is_unsure else _ENDINGS_OF_ONE_REPLICA[AnswerStatus(status)]
        if status == AnswerStatus.SESSION_EXPIRED:
            self._is_expired = True
        elif status == AnswerStatus.OUTCOME_UNKNOWN and not operation.is_query:
            operation.is_unsure = True
        self._pause(status)
        return None

    def _pause(self, status: int) -> None:
        """Stop sending. Who leads matters more than the rest, which the next leader will say again."""
        if self.refusal is None or status == AnswerStatus.NOT_LEADER:
            self.refusal = AnswerStatus(status)

    def on_denied(self) -> None:
        """Take note that the connection was refused: nothing of what was in flight was executed."""
        messages, self._messages = self._messages, {}
        for message in messages.values():
            self._return(taken_apart(message.commands + message.queries))

    def on_lost(self) -> None:
        """Take note that the connection is gone: what was in flight may or may not have been executed."""
        messages, self._messages = self._messages, {}
        for message in messages.values():
            commands = taken_apart(message.commands)
            for operation in commands:
                operation.is_unsure = True
            self._return(commands + taken_apart(message.queries))

    def _return(self, operations: Iterable[Operation]) -> None:
        """Put operations back that have to be sent again."""
        commands: list[Operation] = []
        queries: list[Operation] = []
        for operation in operations:
            if operation.outcome is None:
                (queries if operation.is_query else commands).append(operation)
        self._waiting_queries.extendleft(reversed(queries))
        if commands:
            self._returned = deque(sorted([*self._returned, *commands], key=lambda operation: operation.sequence))

    def resume(self) -> list[Operation]:
        """Send again: the reason of the pause has been dealt with, nothing is in flight.

        Returns:
            The operations that ended: commands that an expired session may have executed. The others go on in a new
            session, in the order that they had.

        """
        assert not self._messages
        self.refusal = None
        if not self._is_expired:
            return []
        orphans = [operation for operation in self._returned if operation.outcome is None]
        self._returned.clear()
        ended = [self._end(operation, Ending.UNKNOWN) for operation in orphans if operation.is_unsure]
        fresh = [operation for operation in orphans if operation.outcome is None]
        for operation in fresh:
            operation.sequence = 0
        self._waiting_commands.extendleft(reversed(fresh))
        self._begin_session()
        return ended

    def withdraw_queries(self) -> list[Operation]:
        """Take back the queries that are not in flight: they are sent elsewhere."""
        withdrawn = _emptied(self._waiting_queries)
        self._open_count -= len(withdrawn)
        return withdrawn

    def expire(self, now_s: float) -> list[Operation]:
        """Give up every operation whose time limit has passed."""
        return self._give_up(lambda one: one.deadline_s <= now_s)

    def close(self) -> list[Operation]:
        """Give everything up."""
        return self._give_up(lambda _operation: True)

    def deny(self) -> list[Operation]:
        """Give everything up, because the replica serves no calls of this client; nothing may be in flight."""
        assert not self._messages
        return self._give_up(lambda _operation: True, Ending.DENIED)

    def turn_away(self) -> list[Operation]:
        """Give up all that was certainly not applied: the one replica does not lead; nothing may be in flight."""
        assert not self._messages
        return self._give_up(lambda one: isinstance(one, OperationColumn) or not one.is_unsure, Ending.NOT_LEADER)

    def _give_up(
        self, is_due: Callable[[Operation | OperationColumn], bool], sure: Ending = Ending.NEVER_APPLIED
    ) -> list[Operation]:
        ended: list[Operation] = []
        for message in self._messages.values():
            for sent in (message.commands, message.queries):
                if any(type(one) is ColumnPart and is_due(one.column) for one in sent):
                    sent[:] = taken_apart(sent)
                for operation in sent:
                    if type(operation) is Operation and operation.outcome is None and is_due(operation):
                        operation.is_unsure = not operation.is_query
                        ended.append(self._end(operation, _given_up(operation, sure)))
        returned = [operation for operation in self._returned if operation.outcome is None]
        ended += [self._end(operation, _given_up(operation, sure)) for operation in returned if is_due(operation)]
        self._returned = deque(operation for operation in returned if operation.outcome is None)
        for queue in (self._waiting_commands, self._waiting_queries):
            due: deque[Operation | OperationColumn] = deque()
            kept: list[Operation | OperationColumn] = []
            for one in queue:
                if isinstance(one, OperationColumn) or one.outcome is None:
                    (due if is_due(one) else kept).append(one)
            if due:
                queue.clear()
                queue.extend(kept)
                ended += [self._end(operation, _given_up(operation, sure)) for operation in _emptied(due)]
        return ended

    def _end(self, operation: Operation, outcome: Ending) -> Operation:
        operation.outcome = outcome
        self._open_count -= 1
        if outcome is Ending.UNKNOWN:
            self._is_doubtful = True
        sequence = operation.sequence
        if sequence:
            if sequence == self._answered_up_to + 1:
                self._answered_up_to = sequence
                if self._ended:
                    self._advance()
            else:
                self._ended.add(sequence)
                if outcome not in {Ending.ANSWERED, Ending.TOO_LARGE}:
                    self._given_up.add(sequence)
        return operation

    def _advance(self) -> None:
        ended = self._ended
        while self._answered_up_to + 1 in ended:
            self._answered_up_to += 1
            ended.discard(self._answered_up_to)
            self._given_up.discard(self._answered_up_to)

    def validate(self) -> None:
        """Check the invariants; tests call this after every event."""
        queues = (self._waiting_commands, self._waiting_queries, self._returned)
        flying_all = [one for message in self._messages.values() for one in (*message.commands, *message.queries)]
        waiting_all = [one for queue in queues for one in queue]
        assert self._open_count == sum(map(_open_in, (*flying_all, *waiting_all)))
        assert 0 <= self._answered_up_to <= self._last_sequence
        assert self._answered_up_to + 1 not in self._ended
        assert self._given_up <= self._ended
        sequences = [operation.sequence for operation in self._returned]
        assert sequences == sorted(set(sequences))
        assert all(one.sequence == 0 for one in self._waiting_commands if type(one) is Operation)
        assert all(0 < len(one.payloads) - one.taken <= one.left for one in waiting_all if type(one) is OperationColumn)
        assert len(self._messages) <= self._messages_max
        live: set[int] = set()
        for one in (*(one for message in self._messages.values() for one in message.commands), *self._returned):
            if type(one) is ColumnPart:
                live.update(one.sequences)
            elif type(one) is Operation and one.outcome is None:
                live.add(one.sequence)
        assert live | self._ended == set(range(self._answered_up_to + 1, self._last_sequence + 1))
        assert not live & self._ended


def _emptied(queue: deque[Operation | OperationColumn]) -> list[Operation]:
    """Take all out of a queue, and return what has not ended as operations."""
    found: list[Operation] = []
    for one in queue:
        if type(one) is OperationColumn:
            found += one.take_rest_apart()
        elif type(one) is Operation and one.outcome is None:
            found.append(one)
    queue.clear()
    return found


def _open_in(one: Sent | OperationColumn) -> int:
    """Return how many operations without an end these are, of those that are where this stands."""
    if type(one) is OperationColumn:
        return len(one.payloads) - one.taken
    if type(one) is ColumnPart:
        return len(one)
    assert type(one) is Operation
    return int(one.outcome is None)


def _given_up(operation: Operation, sure: Ending) -> Ending:
    return Ending.UNKNOWN if operation.is_unsure else sure


def _check_answers(count: int, statuses: Sequence[int], revisions: Sequence[int], payloads: Sequence[bytes]) -> None:
    if not len(revisions) == len(payloads) == count or len(statuses) not in {0, count}:
        raise ValueError(
            f"{len(payloads)} payloads, {len(revisions)} revisions, {len(statuses)} statuses for {count} requests"
        )
    for status in statuses:
        AnswerStatus(status)  # A ValueError of its own: the server is newer than this client.
