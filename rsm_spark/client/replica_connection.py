"""The connection of one client to the replicas of one log: sends what `CommandStream` says, and follows the leader.

Commands, and reads that say `read=LINEARIZABLE`, go to the leader. Other reads go there too, or to the followers in
turn: with `read_from="any"` those that need not be linearizable, with `read_from="followers"` all. Whatever one of
those cannot answer, another replica is asked.

A leader that is not reached is called by way of a follower (`rsm_spark.client.detours`), where the finder names any.
One that is in this process is called without a socket (`rsm_spark.transport.near_stream`), if it was named.

One task finds the leader and stays with it; the stream to it is shared by the clients of the process, which it asks for
what they have to send. Operations that are submitted while it is busy travel in one message. What is to be sent, and
what an answer means, is decided in `rsm_spark.client.command_stream`.
"""

# Longer than 400 lines: one object holds the links to all replicas, and all that is under way on them.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from ledger.errors import UsageError
from ledger.telemetry.tracing import Span, SpanKind, begin_span, tracer
from rsm_spark.client.command_stream import CommandStream
from rsm_spark.client.detours import Detours
from rsm_spark.client.follower_reads import FollowerReads
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.leader_finder import FollowerFinder, LeaderFinder
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.freshness import INDEXED, LINEARIZABLE, STALE, Freshness, ReadKind
from rsm_spark.core.operation import Ending, Message, Operation, OperationColumn, SeenRevision, StreamLimits
from rsm_spark.core.outcome_errors import AskedReplica, error_of_operation
from rsm_spark.errors import AccessDeniedError, ConnectionLostError, NoLeaderError, OverloadedError
from rsm_spark.transport.codec import EXCHANGE_METHOD, SESSION_BYTES, ReceivedAnswers
from rsm_spark.transport.near_stream import NearReplica, NearStream
from rsm_spark.transport.relay_codec import RELAY_METHOD
from rsm_spark.transport.replica_stream import ReplicaStream, attach
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport, transport_of
from rsm_spark.transport.traced_requests import with_traces

ReadFrom = Literal["leader", "any", "followers"]
"""Replicas for reads: the leader; followers unless linearizable; followers unless `read=LINEARIZABLE` is said."""

_PAUSE_FIRST_S = 0.02
_PAUSE_GROWTH = 1.6
_PAUSE_MAX_S = 0.5
_REFUSALS_TRUSTED = 2
"""After so many refusals in a row by the replica that the metadata store names, its word on who leads is followed."""
_SILENT_S = 2.0
"""A leader that has not answered for so long is called a second time; if that fails too, it is not reached any more."""
_QUIET_S_MAX = 1.0
"""Time for what is under way by a follower to be answered, when the leader is reached again."""
_TICK_MAX_S = 1.0
_TICK_MIN_S = 0.01
_TICKS = 20
"""Within the shortest time limit, so that a call ends not much later than it says."""

_LOGGER = logging.getLogger(__name__)


class ReplicaConnection:
    """One client's connections to the replicas of one log. For one event loop.

    Args:
        finder: Names the replica to send to.
        log: Name of the log.
        is_one_replica: The finder always names the same replica, which need not lead: its refusals are final, and
            reads are stale unless they say otherwise.
        followers: Names the replicas that answer reads which need not be linearizable; None = the leader does.
        is_indexed: They answer reads that do not say how fresh they are to be, too, as fresh as the leader's are.
        limits: Of messages, and of what may wait.
        security: TLS and token; None = as the environment says.
        transport: See `Transport`; None = as the environment says.
        near: The replica of this process, which is called without a socket while it leads; None = there is none.
        owner: Whose messages these are, to that replica.

    Attributes:
        watched_replicas: Those that may tell this client of changes.

    Raises:
        UsageError: A file of `security` cannot be used, or there is no such transport.

    """

    def __init__(
        self,
        finder: LeaderFinder,
        log: str,
        *,
        is_one_replica: bool = False,
        followers: FollowerFinder | None = None,
        is_indexed: bool = False,
        limits: StreamLimits | None = None,
        security: Security | None = None,
        transport: Transport | None = None,
        near: NearReplica | None = None,
        owner: str = "",
    ) -> None:
        self._near = near
        self._owner = owner
        self._transport = transport_of(transport)
        self._security = security if security is not None else Security.from_environment()
        self._security.check_caller()
        self._seen = SeenRevision()
        self._freshness = STALE if is_one_replica else INDEXED if is_indexed else LINEARIZABLE
        self._stream = CommandStream(_new_session, limits, follows_leader=not is_one_replica, seen=self._seen)
        self.watched_replicas = WatchedReplicas(finder, followers, self._security, transport)
        self._kept: KeptSession | None = None
        self._finder = finder
        self._log = log
        self._detours: Detours | None = None
        if isinstance(finder, FollowerFinder) and not is_one_replica:
            self._detours = Detours(finder, log, self._security)
        self._by = ""  # Follower that passes on what is sent; "" = the leader itself is used.
        self._loop = asyncio.get_running_loop()
        # Set when there may be something to send, or a reason to look for the leader again.
        self._wake = asyncio.Event()
        self._exchange: ReplicaStream | NearStream | None = None
        # Done when the replica in use is to be used no more.
        self._served: asyncio.Future[None] = self._loop.create_future()
        # Who leads, by the word of a replica that refused; "" once that has been followed.
        self._hint = ""
        # Who leads, by the word of the replica that refused last; for error messages.
        self._leader_hint = ""
        # Replica that the metadata store has replaced while it was in use: not to be gone back to by a hint.
        self._left = ""
        # Replica that could not be reached last: who has just claimed the log may still name it, his predecessor.
        self._lost = ""
        self._has_answered = False
        # When the replica in use answered last, or was sent something while nothing was under way.
        self._heard_s = 0.0
        self._is_silent = False
        self._calling_again: asyncio.Task[None] | None = None
        # Set when nothing more is to be sent to the replica in use, and it has answered all.
        self._quiet: asyncio.Event | None = None
        self._is_closed = False
        self._tick: asyncio.TimerHandle | None = None
        self._tick_s = _TICK_MAX_S
        self._trouble = ""
        self._task = self._loop.create_task(self._run(), name=f"rsm-replica-connection-{log}")
        # Where reads go that need not be linearizable; None = to the leader too.
        self._lanes: FollowerReads | None = None
        if followers is not None:
            self._lanes = FollowerReads(
                followers,
                log,
                security=self._security,
                seen=self._seen,
                limits=limits,
                transport=self._transport,
                on_ended=self._resolve,
                on_left_over=self._take_over,
            )

    @property
    def address(self) -> str:
        """Address of the replica that commands go to; "" while not connected."""
        return self._exchange.address if self._exchange is not None else ""

    @property
    def is_framed(self) -> bool:
        """True if it uses the framed port of that replica."""
        return self._exchange is not None and self._exchange.is_framed

    @property
    def follower_reads(self) -> int:
        """Reads that followers have answered."""
        return self._lanes.answered if self._lanes is not None else 0

    @property
    def detour(self) -> str:
        """Address of the follower that passes commands on, since the leader is not reached; "" = there is none."""
        return self._by if self._exchange is not None else ""

    @property
    def detour_count(self) -> int:
        """Times that commands went by a follower, since the leader was not reached."""
        return self._detours.detour_count if self._detours is not None else 0

    @property
    def revision(self) -> int:
        """Highest revision that any answer has named: what a session read is at least as new as."""
        return self._seen.revision

    @property
    def steady_read(self) -> Freshness:
        """Freshness of reads that all go where commands go."""
        return self._freshness

    def keep_session(self, kept: KeptSession) -> None:
        """Send commands in a session that was kept, and keep it again at the end; before the first call."""
        self._kept = kept

    async def close(self) -> None:
        """Give up what has no answer yet, and disconnect."""
        if self._lanes is not None:
            await self._lanes.close()
        self._is_closed = True
        self._resolve(self._stream.close())
        if self._kept is not None:
            self._kept.give_back(self._stream.kept)
        if self._tick is not None:
            self._tick.cancel()
        exchange = self._exchange
        ending = [self._task] if self._calling_again is None else [self._task, self._calling_again]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        if exchange is not None:
            await exchange.wait_closed()

    def submit(
        self, payload: bytes, timeout_s: float, *, is_query: bool, freshness: Freshness | None = None
    ) -> asyncio.Future[Operation]:
        """Queue one operation; the future gets it when it has ended: then `check` it.

        Raises:
            NoLeaderError: This client is closed.
            OverloadedError: Too many operations wait.

        """
        deadline_s = self._begin(timeout_s, 1, is_query=is_query)
        future: asyncio.Future[Operation] = self._loop.create_future()
        read = (self._freshness if freshness is None else freshness) if is_query else LINEARIZABLE
        operation = Operation(payload, deadline_s, future, is_query, read)
        if tracer() is not None:
            operation.trace = self._begin_span(1, is_query=is_query)
        self._queue(operation)
        return future

    def submit_many(
        self, payloads: Sequence[bytes], timeout_s: float, *, is_query: bool, freshness: Freshness | None = None
    ) -> asyncio.Future[OperationColumn]:
        """Queue operations in order; one future gets all of them when the last has ended: see `answers_of`, `check_at`.

        Raises:
            NoLeaderError: This client is closed.
            OverloadedError: Too many operations wait.

        """
        future: asyncio.Future[OperationColumn] = self._loop.create_future()
        deadline_s = self._begin(timeout_s, len(payloads), is_query=is_query) if payloads else 0.0
        read = (self._freshness if freshness is None else freshness) if is_query else LINEARIZABLE

        def on_end() -> None:
            if column.trace is not None:
                _end_span(column.trace, *column.operations.values())
            if not future.done():
                future.set_result(column)

        column = OperationColumn(list(payloads), deadline_s, on_end, is_query=is_query, freshness=read)
        if payloads and tracer() is not None:
            column.trace = self._begin_span(len(payloads), is_query=is_query)
        if not payloads:
            on_end()
        elif self._lanes is None:
            self._stream.submit_column(column)
        else:
            for operation in column.take_rest_apart():
                self._queue(operation)
        return future

    def _begin_span(self, count: int, *, is_query: bool) -> Span | None:
        return begin_span("query" if is_query else "command", SpanKind.CLIENT, log=self._log, count=count)

    def _queue(self, operation: Operation) -> None:
        """Queue an operation: a read on a follower, if one may answer it and is there."""
        lanes = self._lanes
        if lanes is not None and operation.is_query and operation.freshness.kind is not ReadKind.LINEARIZABLE:
            if lanes.submit(operation):
                return
            _address_leader(operation)
        self._stream.submit(operation)

    def check(self, operation: Operation) -> None:
        """Raise what the end of an operation without an answer means; see `rsm_spark.errors`."""
        if operation.outcome is not Ending.ANSWERED:
            trouble = self._trouble or self._finder.trouble
            raise error_of_operation(operation, AskedReplica(log=self._log, leader=self._leader_hint, trouble=trouble))

    def check_at(self, column: OperationColumn, place: int) -> None:
        """Raise what the end of an operation of a column without an answer means."""
        operation = column.operations.get(place)
        if operation is not None:
            self.check(operation)

    def answers_of(self, column: OperationColumn) -> Iterable[bytes]:
        """Iterate over the answers to the operations of a column; at one that has none its error is raised."""
        return column.answers if not column.operations else self._checked(column)

    def _checked(self, column: OperationColumn) -> Iterator[bytes]:
        for place, answer in enumerate(column.answers):
            self.check_at(column, place)
            yield answer

    def _take_over(self, operations: Iterable[Operation]) -> None:
        """Ask the leader what followers did not answer."""
        for operation in operations:
            _address_leader(operation)
            self._stream.submit(operation)
        self._wake_up()

    def _begin(self, timeout_s: float, count: int, *, is_query: bool) -> float:
        if self._is_closed:
            raise NoLeaderError(f"log {self._log}: this client is closed")
        if not self._stream.has_room(count):
            raise OverloadedError(
                f"log {self._log}: too many operations wait for an answer already to take {count:,} more; none of them "
                "was sent: wait for earlier calls before making new ones"
            )
        if self._kept is not None and not is_query:
            found = self._kept.take()
            if found is not None:
                self._stream.go_on(*found)
        if timeout_s < _TICKS * self._tick_s:
            self._tick_s = max(_TICK_MIN_S, timeout_s / _TICKS)
        if self._tick is None:
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)
        self._wake_up()
        return self._loop.time() + timeout_s

    def _wake_up(self) -> None:
        if self._exchange is not None:
            self._exchange.ready(self)
        else:
            self._wake.set()

    def _on_tick(self) -> None:
        self._tick = None
        now_s = self._loop.time()
        self._resolve(self._stream.expire(now_s))
        if self._lanes is not None:
            self._resolve(self._lanes.expire(now_s))
        if self._stream.is_in_flight and now_s - self._heard_s > _SILENT_S:
            self._on_silence()
        if self._stream.has_work or (self._lanes is not None and self._lanes.has_work):
            self._tick = self._loop.call_later(self._tick_s, self._on_tick)

    def _on_silence(self) -> None:
        """Call the leader a second time, beside the stream that brings no answers; break that off if it fails too."""
        exchange, detours = self._exchange, self._detours
        is_calling = self._calling_again is not None and not self._calling_again.done()
        if detours is None or type(exchange) is not ReplicaStream or self._by or is_calling:
            return

        async def call_again() -> None:
            is_reached = await detours.reaches(exchange.address, await self._framed_of(exchange.address))
            self._heard_s = self._loop.time() if is_reached else self._heard_s
            if not is_reached and self._exchange is exchange and self._loop.time() - self._heard_s > _SILENT_S:
                self._is_silent = True
                self.on_lost(ConnectionLostError(f"{exchange.address}: no answer, and it takes no further call"))

        self._calling_again = self._loop.create_task(call_again(), name=f"rsm-second-call-{exchange.address}")

    async def _framed_of(self, address: str) -> str:
        return await self._finder.find_framed(address) if self._transport == "framed" else ""

    @staticmethod
    def _resolve(ended: Iterable[Operation]) -> None:
        """Tell those who wait for these operations."""
        for operation in ended:
            # The ticket has the operation from now on: keeping it would leave each pair to the garbage collector.
            ticket, operation.ticket = operation.ticket, None
            if operation.trace is not None:
                _end_span(operation.trace, operation)
                operation.trace = None
            if type(ticket) is OperationColumn:
                ticket.ended()
            elif not ticket.done():
                ticket.set_result(operation)

    async def _run(self) -> None:
        pause_s = _PAUSE_FIRST_S
        last = ""
        refusal_count = 0
        while True:
            await self._work()
            moved = asyncio.Event()
            address = await self._finder.find(self._watcher(moved))
            refusal_count = refusal_count + 1 if address == last and not self._has_answered else 0
            self._has_answered = False
            if address is not None and address != last:
                pause_s = _PAUSE_FIRST_S  # Another one claims the log: it leads within some hundredths of a second.
            last = address or ""
            is_hint_new = self._hint not in {"", self._left, self._lost}
            if is_hint_new and (address is None or refusal_count >= _REFUSALS_TRUSTED):
                # Who claims the log is named by the metadata store first; its replicas may still name the one before.
                address = self._hint
                refusal_count = 0
            self._hint = ""
            if address is not None:
                await self._attempt(address, moved)
            self._resolve(self._stream.resume())
            if self._has_answered or moved.is_set():
                pause_s = _PAUSE_FIRST_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await moved.wait()
            pause_s = min(pause_s * _PAUSE_GROWTH, _PAUSE_MAX_S)

    async def _attempt(self, address: str, moved: asyncio.Event) -> None:
        """Use the replica that leads, directly or by another one, for as long as it is of use."""
        detours = self._detours
        is_far = self._near is None or not self._near.is_at(address)
        by = self._by = await detours.way_to(address) if detours is not None and is_far else ""
        began_s = self._loop.time()
        self._is_silent = False
        try:
            await self._serve(address, moved, by)
        except AccessDeniedError as error:
            # Refused before anything was read: nothing of this attempt was executed.
            self._trouble = str(error)
            self._stream.on_denied()
            if by and detours is not None:
                detours.lost(address, by, began_s)
            else:
                self._resolve(self._stream.deny())
        except (ConnectionLostError, UsageError) as error:
            self._trouble = str(error)
            self._lost = address
            if detours is not None:
                failing_s = self._loop.time() if self._has_answered else began_s
                detours.lost(address, by, self._heard_s if self._is_silent else failing_s)
            _LOGGER.info("lost the replica: %s", error, extra={"log": self._log})
        else:
            if detours is not None and by:
                detours.lost(address, by, began_s)
            elif detours is not None:
                detours.reached("")  # It has refused.
        finally:
            self._stream.on_lost()

    async def _work(self) -> None:
        while not self._stream.has_work:
            self._wake.clear()
            await self._wake.wait()

    def _watcher(self, moved: asyncio.Event) -> Callable[[], None]:
        def _on_change() -> None:
            moved.set()
            self._wake.set()

        return _on_change

    async def _serve(self, address: str, moved: asyncio.Event, by: str) -> None:
        """Exchange messages with one replica until it refuses, breaks off, or another one leads.

        Args:
            address: Of the leader.
            moved: Set when another one may lead.
            by: Follower that is called in its stead; "" = none.

        """
        ended = self._served = self._loop.create_future()
        exchange = await self._stream_to(address, by)
        self._exchange, self._quiet, self._heard_s = exchange, None, self._loop.time()
        self._stream.limit_messages(exchange.messages_max)
        beside = [self._loop.create_task(self._look(address, moved))]
        if by:
            beside.append(self._loop.create_task(self._until_reached(address)))
        try:
            exchange.ready(self)
            await ended
        finally:
            self._exchange = None
            exchange.detach(self, is_suspect=self._is_silent)
            for task in beside:
                task.cancel()
            # Not `await look`: who catches its CancelledError may catch that of `close`, and go on for ever.
            await asyncio.wait(beside)

    async def _stream_to(self, address: str, by: str) -> ReplicaStream | NearStream:
        if self._near is not None and not by and self._near.is_at(address):
            return self._near.attach(self, self._owner)
        called = by or address
        framed = await self._framed_of(called)
        method = RELAY_METHOD if by else EXCHANGE_METHOD
        return attach(self, called, self._log, self._security, framed=framed, method=method)

    async def _until_reached(self, leader: str) -> None:
        """Leave the follower that passes on, when the leader is reached and what is under way has been answered."""
        assert self._detours is not None
        await self._detours.until_reached(leader, await self._framed_of(leader))
        self._quiet = asyncio.Event()
        if self._stream.is_in_flight:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_S_MAX):
                    await self._quiet.wait()
        self.on_lost(ConnectionLostError(f"{self._by}: left: the leader is reached again"))

    def compose(self) -> Message | None:
        """See `ExchangeUser`."""
        if self._quiet is not None:
            return None
        if not self._stream.is_in_flight:
            self._heard_s = self._loop.time()
        message = self._stream.compose()
        return message if message is None or tracer() is None else with_traces(message)

    def on_answers(self, received: ReceivedAnswers) -> None:
        """See `ExchangeUser`."""
        stream, exchange = self._stream, self._exchange
        if exchange is None:
            return
        open_before = stream.open_count
        try:
            ended = stream.on_answers(received.message_id, received.statuses, received.revisions, received.payloads)
        except ValueError as error:
            self.on_lost(ConnectionLostError(f"{exchange.address}: {error}"))
            return
        self._heard_s = self._loop.time()
        if received.leader_address and received.leader_address != exchange.address:
            self._hint = self._leader_hint = received.leader_address
        if stream.open_count < open_before:
            if self._detours is not None and not self._has_answered:
                self._detours.reached(self._by)
            self._has_answered = True
            self._trouble = self._left = ""
            self._resolve(ended)
        if stream.refusal is not None and not stream.is_in_flight and not self._deal_with_refusal():
            if not self._served.done():
                self._served.set_result(None)
        elif self._quiet is not None and not stream.is_in_flight:
            self._quiet.set()
        elif stream.has_unsent:
            exchange.ready(self)

    def on_lost(self, error: ConnectionLostError) -> None:
        """See `ExchangeUser`."""
        if not self._served.done():
            self._served.set_exception(error)

    def _deal_with_refusal(self) -> bool:
        """Return whether to go on with this replica."""
        refusal = self._stream.refusal
        if refusal == AnswerStatus.SESSION_EXPIRED:
            self._resolve(self._stream.resume())
            return True
        self._trouble = f"the replica answers {refusal.name}" if refusal is not None else ""
        return False

    async def _look(self, address: str, moved: asyncio.Event) -> None:
        """Break off when the metadata store names another leader."""
        while True:
            await moved.wait()
            moved.clear()
            found = await self._finder.find(self._watcher(moved))
            if found is not None and found != address:
                self._left = address
                self.on_lost(ConnectionLostError(f"{address}: broken off: {found} leads now"))
                return


def _end_span(span: Span, *operations: Operation) -> None:
    """End a span with what became of operations; those that went well with their column are not among them."""
    failed = [one.outcome.value for one in operations if one.outcome not in {None, Ending.ANSWERED}]
    span.set(revision=max((one.revision for one in operations), default=0))
    span.end(failed[0] if failed else "")


def _address_leader(operation: Operation) -> None:
    """Turn an indexed read into what it is to a leader: an old one knows that alone."""
    if operation.freshness is INDEXED:
        operation.freshness = LINEARIZABLE


def _new_session() -> bytes:
    return os.urandom(SESSION_BYTES)
