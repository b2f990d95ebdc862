"""A follower asks its leader what follows its last entry, and is told as soon as something that does is confirmed.

The log decides, as before: what does not follow is not taken, and a leader that tells nothing is not waited for. Then
the bookies are read, and the leader is asked again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from rsm_spark.core.confirmed_tail import TailStatus, ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ConnectionLostError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.entry_telling import TELL_S_MAX

_LOGGER = logging.getLogger(__name__)
_ANSWER_S_MAX = TELL_S_MAX + 1.0
_PAUSE_S = 0.05
_PAUSE_S_MAX = 5.0


class TailPeers(Protocol):
    """Connection to the leader for its confirmed entries. The kernel decides, whoever wires it connects."""

    async def entries_after(self, address: str, framed: str, position: LogPosition) -> ToldEntries:
        """Ask the replica at an address, as the leader, for confirmed entries.

        Args:
            address: Its own word, "host:port".
            framed: The same of its framed port; "" = it has none.
            position: Last entry that the caller has.

        Raises:
            ConnectionLostError: It is gone, or does not tell.

        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class LeaderTail:
    """The questions of one follower.

    Args:
        context: Of the replica.
        peers: Where to ask.

    """

    def __init__(self, context: ReplicaContext, peers: TailPeers) -> None:
        self._context = context
        self._peers = peers
        self._asking: asyncio.Task[ToldEntries | None] | None = None
        self._asked: str | None = None  # Process that `_asking` is about.
        self._not_before = float("-inf")
        self._pause_s = _PAUSE_S

    def ask(self, position: LogPosition | None) -> asyncio.Task[ToldEntries | None] | None:
        """Return the question that is under way, asked now if there was none; None = the leader is not asked now."""
        leader, address = self._context.leader, self._context.leader_address
        if self._asking is not None and (leader is None or leader.incarnation != self._asked):
            self._asking.cancel()
            self._asking = None
        loop = asyncio.get_running_loop()
        if self._asking is None:
            if leader is None or not address or position is None or loop.time() < self._not_before:
                return None
            self._asked = leader.incarnation
            self._asking = loop.create_task(self._ask(address, position), name="rsm-leader-tail")
        return self._asking

    def take(self) -> ToldEntries | None:
        """Return what was told, once; None if nothing was."""
        if self._asking is None or not self._asking.done():
            return None
        asking, self._asking = self._asking, None
        told = None if asking.cancelled() else asking.result()
        if told is not None and told.status is TailStatus.TOLD:
            return told if told.entries else None
        self._leave_alone()
        return None

    def taken(self) -> None:
        """Take note that what was told was of use."""
        self._pause_s = _PAUSE_S

    def refuse(self, fault: str) -> None:
        """Take note that something of what was told was not taken, and why."""
        _LOGGER.info("not taken from the leader: %s", fault, extra=self._context.log_extra)
        self._leave_alone()

    def stop(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _leave_alone(self) -> None:
        """Read the log for a while."""
        spread = self._context.rng.uniform(0.5, 1.0)
        self._not_before = asyncio.get_running_loop().time() + spread * self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)

    async def _ask(self, address: str, position: LogPosition) -> ToldEntries | None:
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                return await self._peers.entries_after(address, self._context.leader_framed, position)
        except (ConnectionLostError, TimeoutError) as error:
            _LOGGER.debug("the leader tells nothing: %s", error, extra=self._context.log_extra)
            return None
