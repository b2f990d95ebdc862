"""Reads on followers: one connection to each, in turn; what one of them cannot answer goes to another, then the leader.

A message's worth of reads goes to one follower, the next to the next. A follower that is gone, silent for a second,
overloaded or not ready is left alone for a while; one that is not fresh enough for some reads still gets others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from ledger.errors import UsageError
from rsm_spark.client.command_stream import CommandStream
from rsm_spark.client.leader_finder import FollowerFinder
from rsm_spark.core.operation import Ending, Message, Operation, SeenRevision, StreamLimits
from rsm_spark.errors import ConnectionLostError
from rsm_spark.transport.codec import ReceivedAnswers
from rsm_spark.transport.replica_stream import ReplicaStream, attach
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport

_ANSWER_S_MAX = 1.0
"""A follower answers within its wait for a session read's revision, a quarter of a second, or it hangs."""
_TICK_S = 0.1
_REST_S = 2.0
"""Time for which a follower that failed gets no reads."""
_LOOK_S = 5.0
_SENT_ELSEWHERE = frozenset({Ending.TOO_STALE, Ending.NOT_READY, Ending.NOT_LEADER})

_LOGGER = logging.getLogger(__name__)


class _Lane:
    """The connection to one follower.

    Args:
        address: Of it.
        lanes: Hears what ends and what has to go elsewhere.

    Attributes:
        rests_until_s: It has failed; not to be used before.

    """

    def __init__(self, address: str, lanes: FollowerReads) -> None:
        self.address = address
        self.rests_until_s = 0.0
        self._lanes = lanes
        self.stream = CommandStream(bytes, lanes.limits, follows_leader=False, seen=lanes.seen)
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._asked_s = 0.0
        self._exchange: ReplicaStream | None = None
        self._served: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(self._run(), name=f"rsm-read-lane-{address}")

    def submit(self, operation: Operation) -> None:
        """Queue a read."""
        self.stream.submit(operation)
        if not self._asked_s:
            self._asked_s = self._loop.time()
        self._wake.set()
        if self._exchange is not None:
            self._exchange.ready(self)

    async def close(self) -> None:
        """Disconnect; what has no answer goes elsewhere."""
        exchange = self._exchange
        self._task.cancel()
        await asyncio.wait([self._task])
        if exchange is not None:
            await exchange.wait_closed()
        self._give_back()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if not self.stream.has_work:
                await self._wake.wait()
                continue
            try:
                await self._serve()
            except (ConnectionLostError, UsageError) as error:
                _LOGGER.info("reads go elsewhere: %s", error)
            self.rests_until_s = self._loop.time() + _REST_S
            self._give_back()

    def _give_back(self) -> None:
        self.stream.on_lost()
        withdrawn = self.stream.withdraw_queries()
        self.stream.resume()
        self._lanes.take_back(self, withdrawn)

    async def _serve(self) -> None:
        """Exchange messages until the follower fails or refuses for a reason of its own."""
        ended = self._served = self._loop.create_future()
        lanes = self._lanes
        framed = await lanes.find_framed(self.address)
        exchange = self._exchange = attach(self, self.address, lanes.log, lanes.security, framed=framed)
        watch = self._loop.create_task(self._watch())
        hangs = True
        try:
            exchange.ready(self)
            await ended
            hangs = False
        finally:
            self._exchange = None
            self._asked_s = 0.0
            exchange.detach(self, is_suspect=hangs)
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self) -> None:
        """Break off when answers do not come."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._asked_s and self._loop.time() - self._asked_s > _ANSWER_S_MAX:
                self.on_lost(ConnectionLostError(f"{self.address}: no answer for {_ANSWER_S_MAX:g} s"))
                return

    def compose(self) -> Message | None:
        """See `ExchangeUser`."""
        message = self.stream.compose()
        if message is not None:
            self._lanes.on_message(self)
        return message

    def on_answers(self, received: ReceivedAnswers) -> None:
        """See `ExchangeUser`."""
        stream = self.stream
        try:
            ended = stream.on_answers(received.message_id, received.statuses, received.revisions, received.payloads)
        except ValueError as error:
            self.on_lost(ConnectionLostError(f"{self.address}: {error}"))
            return
        self._asked_s = self._loop.time() if stream.has_work else 0.0
        self._lanes.on_ended(self, ended)
        if stream.refusal is not None:
            if not self._served.done():
                self._served.set_result(None)
        elif self._exchange is not None and stream.has_unsent:
            self._exchange.ready(self)

    def on_lost(self, error: ConnectionLostError) -> None:
        """See `ExchangeUser`."""
        if not self._served.done():
            self._served.set_exception(error)


class FollowerReads:
    """Spreads reads over the followers of one log.

    Args:
        finder: Names them.
        log: Name of the log.
        security: TLS and token.
        seen: Shared with the connection to the leader.
        limits: Of messages, per follower.
        transport: See `Transport`.
        on_ended: Called with reads that have ended.
        on_left_over: Called with reads that no follower answered: for the leader.

    Attributes:
        answered: Reads that followers have answered.

    """

    def __init__(
        self,
        finder: FollowerFinder,
        log: str,
        *,
        security: Security,
        seen: SeenRevision,
        limits: StreamLimits | None,
        transport: Transport = "framed",
        on_ended: Callable[[Iterable[Operation]], None],
        on_left_over: Callable[[Iterable[Operation]], None],
    ) -> None:
        self.log = log
        self.security = security
        self.seen = seen
        self.limits = limits or StreamLimits()
        self.answered = 0
        self._finder = finder
        self._transport = transport
        self._on_ended = on_ended
        self._on_left_over = on_left_over
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[str, _Lane] = {}
        self._current: _Lane | None = None
        self._changed = asyncio.Event()
        self._is_closed = False
        self._look = self._loop.create_task(self._keep_looking(), name=f"rsm-read-lanes-{log}")

    async def find_framed(self, address: str) -> str:
        """Return the framed port of a follower; "" = it has none, or it is not to be used."""
        return await self._finder.find_framed(address) if self._transport == "framed" else ""

    async def close(self) -> None:
        """Disconnect; what has no answer is left over."""
        self._is_closed = True
        self._look.cancel()
        await asyncio.wait([self._look])
        for lane in list(self._lanes.values()):
            await lane.close()

    def submit(self, operation: Operation) -> bool:
        """Queue a read on a follower; False if there is none to ask."""
        lane = self._current
        if lane is None or lane.rests_until_s or not lane.stream.has_room(1):
            lane = self._current = self._next(lane)
        if lane is None:
            return False
        operation.tries += 1
        lane.submit(operation)
        return True

    def expire(self, now_s: float) -> list[Operation]:
        """Give up every read whose time limit has passed."""
        return [operation for lane in self._lanes.values() for operation in lane.stream.expire(now_s)]

    @property
    def has_work(self) -> bool:
        """True if any read has not ended."""
        return any(lane.stream.has_work for lane in self._lanes.values())

    def on_message(self, lane: _Lane) -> None:
        """Take note that a lane has sent what waited: the next reads go to the next one."""
        if lane is self._current:
            self._current = None if len(self._lanes) > 1 else lane
            if self._current is None:
                self._current = self._next(lane)

    def on_ended(self, lane: _Lane, ended: list[Operation]) -> None:
        """Tell the callers, or ask somebody else."""
        sent_elsewhere = [operation for operation in ended if operation.outcome in _SENT_ELSEWHERE]
        if not sent_elsewhere:
            self.answered += len(ended)
            self._on_ended(ended)
            return
        if any(operation.outcome is Ending.NOT_READY for operation in sent_elsewhere):
            lane.rests_until_s = self._loop.time() + _REST_S
        self._on_ended(operation for operation in ended if operation.outcome not in _SENT_ELSEWHERE)
        for operation in sent_elsewhere:
            operation.reopen()
        # Not fresh enough here is hardly fresher elsewhere: the leader is.
        self._on_left_over(sent_elsewhere)

    def take_back(self, lane: _Lane, operations: list[Operation]) -> None:
        """Ask somebody else."""
        if self._current is lane:
            self._current = None
        if self._is_closed:
            self._on_left_over(operations)
            return
        tries_max = len(self._lanes)
        self._on_left_over([one for one in operations if one.tries >= tries_max or not self.submit(one)])

    def _next(self, lane: _Lane | None) -> _Lane | None:
        """Return the lane after this one that may be used."""
        lanes = list(self._lanes.values())
        first = lanes.index(lane) + 1 if lane in lanes else 0
        now_s = self._loop.time()
        for candidate in lanes[first:] + lanes[:first]:
            if candidate.rests_until_s <= now_s and candidate.stream.has_room(1):
                candidate.rests_until_s = 0.0
                return candidate
        return None

    async def _keep_looking(self) -> None:
        """Keep one lane per follower."""
        while True:
            self._changed.clear()
            addresses = await self._finder.find_followers(self._changed.set)
            for address in addresses:
                if address not in self._lanes:
                    self._lanes[address] = _Lane(address, self)
            for address in [address for address in self._lanes if address not in addresses]:
                lane = self._lanes.pop(address)
                await lane.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
