"""Finds where a fork ends: in which ledger of its origin, and behind which entry."""

from __future__ import annotations

import asyncio

from ledger.client.client import LedgerClient
from ledger.core.metadata import NO_ENTRY
from rsm_spark.backup.manifest import BackupError
from rsm_spark.backup.restoring import RestoreRequest
from rsm_spark.core.chain import ChainLedger, LogChain
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

    """

    def __init__(self, client: LedgerClient, chains: ChainStore, target: RestoreRequest, chain: LogChain) -> None:
        self.place = -1
        self._client = client
        self._chains = chains
        self._target = target
        self._chain = chain
        self._known = {ledger.ledger_id for ledger in chain.ledgers}
        self._last = LogPosition(-1, NO_ENTRY)  # Where the origin ended when the fork began.

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
            first = await self._first_entry(chain.ledgers[self.place])
            if first is not None and not self.is_late(first):
                return
            self.place -= 1
        raise BackupError(
            f"log {name}: no entry of it ends by then: it begins with revision {chain.ledgers[0].first_revision}"
        )

    def reader(self, ledger: ChainLedger, entries_max: int = _ENTRIES_MAX) -> LogReader:
        """Return a reader that begins with a ledger."""
        return LogReader(
            self._client,
            self._chains,
            password=None,
            keys=self._target.keys,
            position=LogPosition(ledger.ledger_id, NO_ENTRY),
            revision=ledger.first_revision - 1,
            poll_s=POLL_S,
            entries_max=entries_max,
        )

    def is_late(self, entry: LogEntry) -> bool:
        """Return whether an entry comes behind the end."""
        target, envelope, place = self._target, entry.envelope, entry.position
        if target.revision is not None and envelope.last_revision > target.revision:
            return True
        if target.time_ms is not None and envelope.logged_ms > target.time_ms:
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

    async def _last_place(self, ledger: ChainLedger) -> LogPosition:
        handle = await self._client.open_no_recovery(ledger.ledger_id, password=None)
        try:
            if handle.is_closed:
                return LogPosition(ledger.ledger_id, handle.metadata.last_entry_id)
            said = await handle.read_lac()
            return LogPosition(ledger.ledger_id, max(said.last_add_confirmed, said.explicit_lac))
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
