"""Requests of a take-over to metadata store and bookies; it waits out what may succeed later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledger.errors import LedgerError, NoSuchLedgerError
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import Event, Replayed, ReplayLog, Resigned
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ForkedLogError
from rsm_spark.runtime.chain_requests import ChainRequests, pause
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.logged_clock import check_clock


class TakeOver(ChainRequests):
    """The steps of one take-over; chain reads and writes go on to be made by it while it leads.

    Args:
        context: Of the replica.
        protocol: The decisions.
        resign: Ends the leadership, with a reason.

    """

    def __init__(self, context: ReplicaContext, protocol: LeaderProtocol, resign: Callable[[str], None]) -> None:
        super().__init__(context, protocol)
        self._context = context
        self._resign = resign
        self._claim_sent_ms: int | None = None  # Wall clock; None once the clock has been compared.

    async def write_chain(self, value: bytes, held_version: int) -> Event:
        """Write the chain, once; remember when the claim left."""
        if self._protocol.phase is Phase.CLAIM and self._claim_sent_ms is None:
            self._claim_sent_ms = self._context.clock_ms()
        return await super().write_chain(value, held_version)

    async def compare_clock(self) -> None:
        """Leave the log to others, before it is disturbed, if this machine's clock would spoil logged time."""
        sent_ms, self._claim_sent_ms = self._claim_sent_ms, None
        if sent_ms is not None:
            now_ms, now_s = self._context.clock_ms(), asyncio.get_running_loop().time()
            reason = await check_clock(self._context, sent_ms, now_ms, now_s)
            if reason:
                self._resign(reason)
                await asyncio.get_running_loop().create_future()  # Until `run` ends this.

    async def replay(self, effect: ReplayLog) -> Event:
        """Bring the state to the end of the log.

        Raises:
            ForkedLogError: The state is not of this log's history.
            CorruptLogError, StateDivergedError, MissingLogError: The log, or the state, is damaged, or has a gap.

        """
        context = self._context
        await self._check_place()
        reader = context.reader()
        try:
            while not reader.is_at_end:
                try:
                    entries = await reader.read()
                except LedgerError as error:
                    await pause(self._context, "replaying the log", error)
                    continue
                for entry in entries:
                    context.apply(entry)
                if reader.chain is not None and reader.chain.leader_epoch != effect.chain.leader_epoch:
                    return Resigned(f"epoch {reader.chain.leader_epoch} was claimed while replaying")
                if entries:
                    await asyncio.sleep(0)
                elif not reader.is_at_end:
                    await reader.wait(context.settings.retry_s)
        finally:
            await reader.close()
        context.state.settle()
        if context.outdated:
            return Resigned(context.outdated)
        return Replayed(context.tip, context.position)

    async def _check_place(self) -> None:
        """Compare the entry that the state stands on with what lies there.

        Where an entry follows, its prefix hash tells. Where none does, the log may have been set back with its cluster,
        and gone on or not: a leader would append to it what follows something else.
        """
        context, position, chain = self._context, self._context.position, self._protocol.chain
        if position is None:
            return
        assert chain is not None
        position = LogPosition(chain.moved.get(position.ledger_id, position.ledger_id), position.entry_id)
        while True:
            try:
                handle = await context.client.open_no_recovery(
                    position.ledger_id, password=self._password(position.ledger_id)
                )
                last, entries = handle.metadata.last_entry_id, []
                if handle.is_closed and position.entry_id <= last:
                    entries = await handle.read(position.entry_id, position.entry_id)
                await handle.close()
                if not handle.is_closed:
                    return  # It was recovered, this is an old answer: of its end nothing is known.
                break
            except NoSuchLedgerError:
                return  # Trimmed, or lost: the reader finds out which.
            except LedgerError as error:
                await pause(context, "comparing the state's place with the log", error)
        if not entries or entry_hash(entries[0].payload) != context.tip.prefix_hash:
            what = f"the log ends that ledger at entry {last}" if not entries else "there is another one in the log"
            raise ForkedLogError(
                f"log {context.log}: the state of this replica is that of entry {position.entry_id} of ledger "
                f"{position.ledger_id}, revision {context.tip.revision}; {what}: the log was set back, or the state is "
                "of another history. Keep its data directory, start the replica with an empty one"
            )
