"""Finds where a fork ends: in which ledger of its origin, and behind which entry."""

from __future__ import annotations

import asyncio

from ledger.client.client import LedgerClient
from ledger.core.metadata import NO_ENTRY
from rsm_spark.backup.manifest import BackupError
from rsm_spark.backup.restoring import RestoreRequest
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.core.envelope import Envelope, decode_envelope, entry_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader

POLL_S = 0.1
PATIENCE_S = 2.0
"""So long an entry is waited for that is there, and not yet known to be committed."""

_ENTRIES_MAX = 128


class ForkEnd:
    """End of a fork in the log that it is made of.

    Args:
        client: Connected ledger client.
        chains: Of the origin.
        target: What is to be made; it says up to which revision or time.
        chain: Of the origin.

    Attributes:
        place: In the chain, of the ledger in which the fork ends: those before it are taken whole. -1 before `find`.
        entry: Last one of the fork, where that ledger is closed: it can be shared up to there.
        closed: End of the fork in that ledger.
        open_bytes: Payload of the open ledger in which the fork ends; 0 = it is closed.
        is_cut: The origin goes on behind it, with what was not wanted.

    """

    def __init__(self, client: LedgerClient, chains: ChainStore, target: RestoreRequest, chain: LogChain) -> None:
        self.place = -1
        self.entry: LogEntry | None = None
        self.closed: ClosedEnd | None = None
        self.is_cut = False
        self.open_bytes = 0
        self._client = client
        self._chains = chains
        self._target = target
        self._chain = chain
        self._known = {ledger.ledger_id for ledger in chain.ledgers}
        self._last = LogPosition(-1, NO_ENTRY)  # Where the origin ended when the fork began.
        self._last_length = 0

    async def find(self) -> None:
        """Find the ledger that holds the last entry that is wanted.

        Raises:
            BackupError: There is none.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        chain, name = self._chain, self._chains.log_name
        if not chain.ledgers:
            raise BackupError(f"log {name}: it is empty: there is nothing to make a fork of. Begin a new log")
        self._last = await self._last_place(chain.ledgers[-1])
        self.place = self._latest()
        while self.place >= 0:
            ledger = chain.ledgers[self.place]
            if ledger.closed is not None:
                if await self._found_in(ledger, ledger.closed):
                    return
            else:
                first = await self._first_entry(ledger)
                if first is not None and not self.is_late(first):
                    self.open_bytes = self._last_length
                    return
            self.place -= 1
        raise BackupError(
            f"log {name}: no entry of it ends by then: it begins with revision {chain.ledgers[0].first_revision}"
        )

    def reader(self, ledger: ChainLedger, entries_max: int = _ENTRIES_MAX, after: int = NO_ENTRY) -> LogReader:
        """Return a reader that begins in a ledger, behind one of its entries."""
        return LogReader(
            self._client,
            self._chains,
            password=None,
            keys=self._target.keys,
            position=LogPosition(ledger.ledger_id, after),
            revision=ledger.first_revision - 1,
            poll_s=POLL_S,
            entries_max=entries_max,
        )

    def is_late(self, entry: LogEntry) -> bool:
        """Return whether an entry comes behind the end."""
        target, place = self._target, entry.position
        if self._is_unwanted(entry.envelope):
            return True
        if place.ledger_id == self._last.ledger_id:
            # What came meanwhile is left out, but for a revision that was asked for.
            return target.revision is None and place.entry_id > self._last.entry_id
        return place.ledger_id not in self._known

    def is_reached(self, reader: LogReader) -> bool:
        """Return whether a reader that has nothing more has come to the end: waiting would bring what is behind it."""
        if self._target.revision is not None:
            return reader.revision >= self._target.revision
        is_last_empty = self._last.entry_id == NO_ENTRY and reader.ledgers_ahead == 0
        return reader.is_at_end or is_last_empty or reader.position == self._last

    def _is_unwanted(self, envelope: Envelope) -> bool:
        target = self._target
        is_beyond = target.revision is not None and envelope.last_revision > target.revision
        is_beyond = is_beyond or (target.time_ms is not None and envelope.logged_ms > target.time_ms)
        self.is_cut = self.is_cut or is_beyond
        return is_beyond

    async def _found_in(self, ledger: ChainLedger, end: ClosedEnd) -> bool:
        """Search a closed ledger for the last entry that is wanted; return whether there is one that has records."""
        aside = {entry.entry_id for entry in self._chain.quarantined if entry.ledger_id == ledger.ledger_id}
        there = [entry_id for entry_id in range(end.last_entry_id + 1) if entry_id not in aside]
        handle = await self._client.open_no_recovery(ledger.ledger_id, password=None)
        try:
            low, high = 0, len(there)  # Revisions and times rise: the first one that is not wanted is in [low, high].
            while low < high:
                middle = (low + high) // 2
                (entry,) = await handle.read(there[middle], there[middle])
                if self._is_unwanted(decode_envelope(entry.payload)):
                    high = middle
                else:
                    low = middle + 1
            for entry_id in reversed(there[:low]):
                (entry,) = await handle.read(entry_id, entry_id)
                if decode_envelope(entry.payload).record_count:
                    break
            else:
                return False
        finally:
            await handle.close()
        # Once more, as every reader reads it: sealed with the log's key, if that was given.
        reader = self.reader(ledger, entries_max=1, after=entry_id - 1)
        try:
            (found,) = await reader.read()
        finally:
            await reader.close()
        envelope, prefix_hash = found.envelope, found.prefix_hash or entry_hash(found.payload)
        self.entry = found
        self.closed = ClosedEnd(entry_id, envelope.last_revision, envelope.logged_ms, entry.length, prefix_hash.hex())
        return True

    async def _last_place(self, ledger: ChainLedger) -> LogPosition:
        handle = await self._client.open_no_recovery(ledger.ledger_id, password=None)
        try:
            if handle.is_closed:
                return LogPosition(ledger.ledger_id, handle.metadata.last_entry_id)
            said = await handle.read_lac()
            last = LogPosition(ledger.ledger_id, max(said.last_add_confirmed, said.explicit_lac))
            if last.entry_id != NO_ENTRY:
                (entry,) = await handle.read(last.entry_id, last.entry_id)
                self._last_length = entry.length
            return last
        finally:
            await handle.close()

    def _latest(self) -> int:
        """Return the last ledger that may hold an entry that is wanted, as the chain says."""
        target, ledgers = self._target, self._chain.ledgers
        index = len(ledgers) - 1
        while index > 0:
            before = ledgers[index - 1].closed
            is_beyond = target.revision is not None and ledgers[index].first_revision > target.revision
            if target.time_ms is not None and before is not None and before.last_entry_ms > target.time_ms:
                is_beyond = True
            if not is_beyond:
                break
            index -= 1
        return index

    async def _first_entry(self, ledger: ChainLedger) -> LogEntry | None:
        """Return the first entry of a ledger that has records; None if there is none."""
        reader = self.reader(ledger, entries_max=4)
        wanted = self._target.revision or 0
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    entries = await reader.read()
                    for entry in entries:
                        if entry.position.ledger_id != ledger.ledger_id:
                            return None
                        if entry.envelope.record_count:
                            return entry
                    if not entries:
                        is_awaited = max(reader.known_revision, wanted) >= ledger.first_revision
                        if not is_awaited or ledger is not self._chain.ledgers[-1]:
                            return None
                        await reader.wait(POLL_S)
        except TimeoutError:
            return None
        finally:
            await reader.close()
