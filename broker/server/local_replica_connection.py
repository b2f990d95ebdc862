"""Commands of the broker's own callers to the replica in its process, each applied once.

A client of the log's sessions like any other: numbers, repeats and expiry are those of `rsm_spark.core.sessions`, and
what `rsm_spark.client.replica_connection` does over the network is done here by calls.

What is submitted in one turn of the event loop reaches the replica as one submission. What is to be sent, when, and
what an answer means is decided in `rsm_spark.client.command_stream`, as for clients over the network. When this
replica is deposed, what was certainly not applied ends at once; what may have been waits until the log tells (see
`rsm_spark.runtime.command_outcomes`), or until this replica leads again and is asked again, or until its caller's time
is over.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Iterable, Sequence

from ledger.telemetry.tracing import current_context, tracer, use_context
from rsm_spark.client.command_stream import CommandStream
from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, AnswerStatus, Command, CommandColumn, OpenSession, Request
from rsm_spark.core.operation import (
    Ending,
    Message,
    Operation,
    StreamLimits,
    payloads_of,
    sequences_of,
    taken_apart,
)
from rsm_spark.core.outcome_errors import AskedReplica, error_of_operation
from rsm_spark.errors import OverloadedError, RsmError
from rsm_spark.runtime.command_outcomes import CommandOutcomes
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.transport.codec import SESSION_BYTES

_LIMITS = StreamLimits(messages_in_flight_max=256, waiting_operations_max=50_000)
"""Messages cost nothing here: more of them in flight spare a command the wait for the one before last."""
_WAITING_BYTES_MAX = 256 * 1024 * 1024
_TICK_S = 0.5
_PAUSE_S = 0.02
_ADVICE = ", or send it with a request key"

OnEnd = Callable[[Operation], None]


class LocalReplicaConnection:
    """Commands of one process to its own replica. For the replica's event loop.

    Args:
        replica: Decides them while it leads.

    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._fates = CommandOutcomes.of(replica)
        self._stream = CommandStream(_new_session, _LIMITS, follows_leader=False)
        self._loop = asyncio.get_running_loop()
        self._is_send_due = False
        self._is_closed = False
        self._waiting_bytes = 0
        self._epoch = 0  # Under which commands were last sent.
        self._tick: asyncio.TimerHandle | None = None
        replica.on_role(self._on_role)
        replica.on_applied(self._on_applied)

    # ---- for callers

    async def execute(self, payload: bytes, timeout_s: float) -> bytes:
        """Have a command decided; return its confirmed reply.

        Raises:
            NotLeaderError: This replica does not lead; the command was certainly not applied.
            OverloadedError: Too much waits; it was not applied.
            OutcomeUnknownError: It may have been applied.
            InvalidCommandError: It was refused for good: too large, or the machine failed on it.

        """
        ended: asyncio.Future[Operation] = self._loop.create_future()

        def _on_end(operation: Operation) -> None:
            if not ended.done():
                ended.set_result(operation)

        self.submit(payload, timeout_s, _on_end)
        operation = await ended
        if operation.outcome is not Ending.ANSWERED:
            raise self._error_of(operation)
        return operation.payload

    def submit(self, payload: bytes, timeout_s: float, on_end: OnEnd) -> None:
        """Queue a command; `on_end` gets it when it has ended, never before this returns.

        Raises:
            NotLeaderError: This replica does not lead.
            OverloadedError: Too much waits.

        """
        if self._is_closed or self._replica.role is not ReplicaRole.LEADER:
            refused = Operation(payload, 0.0, None)
            refused.outcome = Ending.NOT_LEADER
            raise self._error_of(refused)
        size = len(payload)
        if not self._stream.has_room(1) or (self._waiting_bytes and self._waiting_bytes + size > _WAITING_BYTES_MAX):
            raise OverloadedError("too many commands wait for the log: send less, or later; this one was not applied")
        self._waiting_bytes += size
        operation = Operation(payload, self._loop.time() + timeout_s, (on_end, size))
        if tracer() is not None:
            operation.trace = current_context()
        self._stream.submit(operation)
        self._send_soon()
        if self._tick is None:
            self._tick = self._loop.call_later(_TICK_S, self._on_tick)

    def close(self) -> None:
        """Give up what has no answer; take nothing more."""
        self._is_closed = True
        self._end(self._stream.close())
        if self._tick is not None:
            self._tick.cancel()

    # ---- sending

    def _send_soon(self) -> None:
        if not self._is_send_due:
            self._is_send_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Hand over all that has gathered."""
        self._is_send_due = False
        if self._stream.refusal is not None and not self._stream.is_in_flight:
            self._recover()
        while (message := self._stream.compose()) is not None:
            if self._replica.role is ReplicaRole.LEADER:
                self._epoch = self._replica.leader_epoch
            future = self._submit(message)
            future.add_done_callback(functools.partial(self._on_answered, message.message_id))

    def _submit(self, message: Message) -> asyncio.Future[Sequence[Answer]]:
        if tracer() is None:
            return self._replica.submit(_requests(message))
        traces = [one.trace for one in message.commands if type(one) is Operation and one.trace is not None]
        told = next((trace for trace in traces if trace.is_sampled), None)
        with use_context(told):  # An entry belongs to one trace: to that of the first that is told.
            return self._replica.submit(_requests(message))

    def _on_answered(self, message_id: int, future: asyncio.Future[Sequence[Answer]]) -> None:
        self._take(message_id, future.result())
        if self._stream.refusal is not None:
            if not self._stream.is_in_flight:
                self._recover()
        elif self._stream.has_unsent:
            self._send_soon()

    def _take(self, message_id: int, answers: Sequence[Answer]) -> None:
        column = AnswerColumn.of(answers)
        self._end(self._stream.on_answers(message_id, column.statuses, column.revisions, column.payloads))

    # ---- when it was refused

    def _recover(self) -> None:
        """Deal with the reason why sending pauses; nothing is in flight."""
        stream = self._stream
        match stream.refusal:
            case AnswerStatus.SESSION_EXPIRED | AnswerStatus.SEQUENCE_GAP:
                self._resume()
            case AnswerStatus.OVERLOADED:
                self._loop.call_later(_PAUSE_S, self._resume)
            case AnswerStatus.NOT_LEADER | AnswerStatus.OUTCOME_UNKNOWN:
                if self._replica.role is ReplicaRole.LEADER and self._replica.leader_epoch > self._epoch:
                    self._resume()
                    return
                self._end(stream.turn_away())
                self._learn()
            case _:
                self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._is_closed and self._stream.refusal is not None and not self._stream.is_in_flight:
            self._end(self._stream.resume())
            self._send_soon()

    def _learn(self) -> None:
        """End what may have been applied, if the log says by now whether it was."""
        stream = self._stream
        if stream.refusal is None or stream.is_in_flight or not stream.has_unsent:
            return
        if self._replica.role is not ReplicaRole.FOLLOWER or not self._fates.are_known(self._epoch):
            return  # Who is about to lead asks again.
        self._end(stream.resume())
        while (message := stream.compose()) is not None:
            if message.opens_session:
                self._take(message.message_id, [Answer(AnswerStatus.NOT_LEADER, 0, b"")])
                continue
            answers = [self._fate(command, message) for command in taken_apart(message.commands)]
            self._take(message.message_id, answers)

    def _fate(self, operation: Operation, message: Message) -> Answer:
        answer = self._fates.of_command(
            Command(message.session, operation.sequence, message.answered_up_to, operation.payload)
        )
        if answer.status is AnswerStatus.NOT_LEADER:
            operation.is_unsure = False  # No attempt is left that could be applied.
        elif answer.status is AnswerStatus.OUTCOME_UNKNOWN:
            operation.is_unsure, answer = True, Answer(AnswerStatus.NOT_LEADER, answer.revision, b"")
        return answer

    def _on_role(self, role: ReplicaRole) -> None:
        if role is ReplicaRole.LEADER:
            self._send_soon()
        elif self._stream.refusal is None and self._stream.has_work:
            self._send_soon()  # Whatever is sent now is refused, and told so.

    def _on_applied(self, _revision: int) -> None:
        if self._stream.refusal is not None:
            self._learn()

    def _on_tick(self) -> None:
        self._end(self._stream.expire(self._loop.time()))
        self._tick = self._loop.call_later(_TICK_S, self._on_tick) if self._stream.has_work else None

    # ---- ending

    def _end(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            on_end, size = operation.ticket
            self._waiting_bytes -= size
            on_end(operation)

    def _error_of(self, operation: Operation) -> RsmError:
        leader = self._replica.leader_address or ""
        return error_of_operation(operation, AskedReplica("this broker", leader=leader, advice=_ADVICE))


def _requests(message: Message) -> Sequence[Request]:
    if message.opens_session:
        return [OpenSession(message.session)]
    commands = message.commands
    return CommandColumn(message.session, message.answered_up_to, sequences_of(commands), payloads_of(commands))


def _new_session() -> bytes:
    return os.urandom(SESSION_BYTES)
