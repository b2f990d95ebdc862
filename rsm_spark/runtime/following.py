"""A replica that does not lead: applies what is committed, as soon as it may."""

from __future__ import annotations

import asyncio
import logging

from ledger.errors import LedgerError
from rsm_spark.core.chain import LogChain
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.runtime.admission import check
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.leader_tail import LeaderTail, TailPeers

_LOGGER = logging.getLogger(__name__)
_BUSY_S_MAX = 0.01


class Follower:
    """Tails the log into the state.

    Args:
        context: Of the replica.
        tails: Where the leader is asked for confirmed entries; None = bookies alone are read.

    Attributes:
        is_near: Set while the state is within one ledger of the end of the log: fit to lead.

    """

    def __init__(self, context: ReplicaContext, tails: TailPeers | None = None) -> None:
        self._context = context
        self._tail = None if tails is None else LeaderTail(context, tails)
        self._seen: LogChain | None = None
        self._looked_at = float("-inf")
        self.is_near = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            RsmError: The log or the state is damaged, the place in the log has been trimmed, or this process must not
                take part in the log any more.

        """
        context = self._context
        reader = context.reader()
        try:
            while True:
                try:
                    found = await self._apply_some(reader)
                    await self._look_for_leader(reader)
                    if found >= context.settings.tail_entries_max // 2:
                        continue  # It is behind: catch up.
                    if found:
                        # A busy leader writes hundreds of entries a second: to fetch each on its own would cost the
                        # bookies more than the writing, and nobody waits for a follower.
                        await asyncio.sleep(context.settings.tail_pause_s)
                    if found == 0 or self._tail is not None:
                        await self._wait(reader, is_idle=found == 0)
                except LedgerError as error:
                    _LOGGER.info("following is waiting: %s", error, extra=context.log_extra)
                    if self._tail is not None:
                        self._tail.ask(reader.position)  # It may reach the leader, and no bookie.
                    await asyncio.sleep(context.settings.retry_s)
        finally:
            if self._tail is not None:
                self._tail.stop()
            await reader.close()

    async def _wait(self, reader: LogReader, *, is_idle: bool) -> None:
        """Wait for what follows: for the leader's word, or until the bookies have more."""
        told = None if self._tail is None else self._tail.ask(reader.position)
        if told is not None or is_idle:
            await reader.wait(self._context.settings.poll_s, told=told)

    async def _next_entries(self, reader: LogReader) -> list[LogEntry]:
        """Return the next confirmed entries: those that the leader has told, else those that bookies have."""
        tail, context = self._tail, self._context
        told = None if tail is None else tail.take()
        if tail is not None and told is not None:
            taken = await reader.take_told(told, context.tip)
            if taken.fault:
                tail.refuse(taken.fault)
            if taken.entries:
                tail.taken()
                context.entries_told += len(taken.entries)
                return taken.entries
        entries = await reader.read()
        context.entries_read += len(entries)
        return entries

    async def _apply_some(self, reader: LogReader) -> int:
        loop = asyncio.get_running_loop()
        entries = await self._next_entries(reader)
        self._context.known_revision = reader.known_revision
        began = loop.time()
        for entry in entries:
            self._context.apply(entry)
            # Reads of clients share this loop: a long catch-up must not hold them up.
            if loop.time() - began > _BUSY_S_MAX:
                await asyncio.sleep(0)
                began = loop.time()
        self._context.state.settle()
        if reader.chain is not None and (reader.ledgers_ahead <= 1 or not reader.chain.ledgers):
            self.is_near.set()
        return len(entries)

    async def _look_for_leader(self, reader: LogReader) -> None:
        """Keep the leader's name and address as the chain and the member nodes say."""
        context, chain = self._context, reader.chain
        now = asyncio.get_running_loop().time()
        is_fresh = context.leader_address is not None or now - self._looked_at < context.settings.poll_s
        if chain is None or (chain is self._seen and is_fresh):
            return
        if chain is not self._seen:
            check(context, chain)
        self._seen, self._looked_at = chain, now
        context.leader = chain.leader
        context.leader_address = context.leader_http = None
        context.leader_framed = ""
        if chain.leader is not None:
            member = await context.discovery.member(chain.leader.replica_id)
            if member is not None and member.incarnation == chain.leader.incarnation:
                context.leader_address, context.leader_http = member.address, member.http
                context.leader_http_is_tls = member.http_is_tls
                context.leader_framed = member.framed
