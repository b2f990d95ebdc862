"""A replica that does not lead: applies what is committed, as soon as it may."""

from __future__ import annotations

import asyncio
import logging

from ledger.errors import LedgerError
from rsm_spark.core.chain import LogChain
from rsm_spark.log.commit_log import LogReader
from rsm_spark.runtime.admission import check
from rsm_spark.runtime.context import ReplicaContext

_LOGGER = logging.getLogger(__name__)
_BUSY_S_MAX = 0.01


class Follower:
    """Tails the log into the state.

    Args:
        context: Of the replica.

    Attributes:
        is_near: Set while the state is within one ledger of the end of the log: fit to lead.

    """

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
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
                    else:
                        await reader.wait(context.settings.poll_s)
                except LedgerError as error:
                    _LOGGER.info("following is waiting: %s", error, extra=context.log_extra)
                    await asyncio.sleep(context.settings.retry_s)
        finally:
            await reader.close()

    async def _apply_some(self, reader: LogReader) -> int:
        loop = asyncio.get_running_loop()
        entries = await reader.read()
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
        if chain.leader is not None:
            member = await context.discovery.member(chain.leader.replica_id)
            if member is not None and member.incarnation == chain.leader.incarnation:
                context.leader_address, context.leader_http = member.address, member.http
                context.leader_http_is_tls = member.http_is_tls
