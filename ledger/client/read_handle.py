"""The reading end of one ledger, closed or still written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from ledger.client.lac_watch import LacInfo, LacWatch
from ledger.client.pool import ConnectionPool
from ledger.client.range_read import EntrySource
from ledger.core.entry import Entry
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import LedgerMetadata
from ledger.errors import DigestError, MetadataError, NoSuchEntryError, QuorumLostError, UsageError
from ledger.wire.digests import Digest
from ledger.zookeeper.ledgers import LedgerStore

_ALL_FAILED_PAUSE_S: Final = 0.2
_T = TypeVar("_T")


class ReadHandle:
    """A reader of one ledger. Several tasks may use it; it holds no connection of its own.

    Every method may be cancelled at any time, and called again.

    Args:
        ledger_id: The ledger.
        metadata: As the metadata store has, or had, them.
        ledgers: Where they are read again; None for a reader that is given all that it needs to know: it then never
            learns of new ensembles or of the end, and `refresh` is an error.
        pool: Connections to bookies.

    Attributes:
        ledger_id: The ledger.
        metadata: As last read.

    """

    def __init__(
        self, ledger_id: int, metadata: LedgerMetadata, ledgers: LedgerStore | None, pool: ConnectionPool
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._ledgers = ledgers
        self._pool = pool
        digest = Digest(metadata.digest_type, metadata.password)
        self._source = EntrySource(ledger_id, digest, pool)
        self._lac = LacWatch(ledger_id, digest, pool)
        self._has_changed = False
        self._refresh_count = 0
        self._take_end()

    @property
    def is_closed(self) -> bool:
        """True if the ledger's end is final, as far as `metadata` tells."""
        return self.metadata.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry known to be confirmed (the last one of a closed ledger); -1 if none is."""
        return self._lac.last_add_confirmed

    @property
    def digest_failures(self) -> dict[str, int]:
        """Number of answers that failed the digest, by bookie; other replicas were read instead."""
        return dict(self._source.digest_failures)

    async def read(self, first: int, last: int) -> list[Entry]:
        """Read the entries from `first` to `last`, both inclusive, in order.

        All of them are held in memory: for long ranges see `entries`.

        Raises:
            UsageError: The range is empty, or reaches beyond `last_add_confirmed` of an open ledger.
            NoSuchEntryError: It reaches beyond the end of a closed ledger, or no replica has an entry.
            DigestError: All replicas of an entry are damaged.
            QuorumLostError: No replica that may hold an entry answers; try again.

        """
        self._check_confirmed(last)
        return await self.read_unconfirmed(first, last)

    async def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Read as `read` does, beyond `last_add_confirmed` too: such entries may yet vanish."""
        found: list[Entry] = []
        async with aclosing(self._entries(first, last)) as batches:
            async for batch in batches:
                found += batch
        return found

    async def entries(self, first: int, last: int) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries from `first` to `last`, both inclusive, in batches, for scans of any length.

        At most `ClientSettings.read_batch_bytes` are asked for ahead of what was taken.

        Raises:
            LedgerError: As `read`; the entries before the one that it concerns were yielded.

        """
        self._check_confirmed(last)
        async with aclosing(self._entries(first, last)) as batches:
            async for batch in batches:
                yield batch

    async def blocks(self, first: int, last: int) -> AsyncGenerator[list[EntryBlock], None]:
        """Yield the entries from `first` to `last`, both inclusive, as blocks, for scans that make columns of them.

        Beyond `last_add_confirmed` too, as `read_unconfirmed`: such entries may yet vanish. At most
        `ClientSettings.read_batch_bytes` are asked for ahead of what was taken.

        Raises:
            LedgerError: As `read`; the entries before the one that it concerns were yielded.

        """
        async with aclosing(self._read(first, last, self._source.read_blocks, _end_of_blocks)) as batches:
            async for batch in batches:
                yield batch

    async def read_lac(self) -> LacInfo:
        """Ask the bookies of the last ensemble how far the ledger is confirmed.

        Raises:
            QuorumLostError: No bookie answers.

        """
        if not self.is_closed:
            try:
                await self._lac.ask(self.metadata)
            except QuorumLostError:
                if not await self._has_moved(None):
                    raise
                if not self.is_closed:
                    await self._lac.ask(self.metadata)
        return self._lac.info()

    async def wait_lac(self, previous: int, timeout_s: float) -> LacInfo:
        """Wait until an entry above `previous` is confirmed; bookies hold the question (long poll).

        Returns early, with nothing new, when the ledger's metadata change or a bookie gives up: then `refresh`, which
        finds the end or the new ensemble.
        """
        if not self.is_closed and not self._has_changed:
            await self._lac.wait(self.metadata, previous, timeout_s)
        return self._lac.info()

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata again, after a sync: a CLOSED ledger is seen as such from here on.

        Raises:
            NoSuchLedgerError: It was deleted.
            UsageError: The handle has no metadata store.

        """
        if self._ledgers is None:
            raise UsageError(
                f"ledger {self.ledger_id}: this reader was made without a metadata store and cannot look whether its "
                "metadata have changed; open the ledger with a LedgerClient",
                ledger_id=self.ledger_id,
            )
        self._has_changed = False
        metadata, _ = await self._ledgers.read(self.ledger_id, watch=self._on_change, sync=True)
        self._refresh_count += 1
        self.metadata = metadata
        self._take_end()
        return metadata

    async def tail(self, first: int = 0) -> AsyncIterator[list[Entry]]:
        """Yield confirmed entries from `first` on, in batches, as they come; end when the end of the ledger is passed.

        Raises:
            NoSuchLedgerError: The ledger was deleted meanwhile.
            LedgerError: As `read`.

        """
        await self.refresh()
        while True:
            polled = self._lac.polled_entry
            if polled is not None and polled.entry_id == first <= self.last_add_confirmed:
                first += 1
                yield [polled]
            if first <= self.last_add_confirmed:
                async with aclosing(self._entries(first, self.last_add_confirmed)) as batches:
                    async for batch in batches:
                        first = batch[-1].entry_id + 1
                        yield batch
            if self.is_closed:
                return
            before, refreshed = self.last_add_confirmed, self._refresh_count
            await self.wait_lac(before, self._pool.settings.long_poll_s)
            if self.last_add_confirmed == before:
                if self._refresh_count == refreshed:
                    await self.refresh()
                if not self.is_closed:
                    await self._try_read_lac()

    async def close(self) -> None:
        """Let go of the handle; the connections are the client's. Whoever waits returns."""
        self._lac.interrupt()

    # --- inside

    def _check_confirmed(self, last: int) -> None:
        end = self.last_add_confirmed
        if last <= end:
            return
        what = f"cannot read up to entry {last} of ledger {self.ledger_id}"
        if self.is_closed:
            raise NoSuchEntryError(f"{what}: its last entry is {end}", ledger_id=self.ledger_id)
        raise UsageError(
            f"{what}: confirmed is up to {end}; `read_lac()` asks whether more is by now, "
            "`read_unconfirmed()` reads what may never be",
            ledger_id=self.ledger_id,
        )

    def _entries(self, first: int, last: int) -> AsyncGenerator[list[Entry], None]:
        return self._read(first, last, self._source.read, _end_of_entries)

    async def _read(
        self,
        first: int,
        last: int,
        read: Callable[[LedgerMetadata, int, int], AsyncGenerator[list[_T], None]],
        end_of: Callable[[list[_T]], int],
    ) -> AsyncGenerator[list[_T], None]:
        """Yield what `read` does; where nothing can be had, look once whether it has got other bookies meanwhile."""
        if not 0 <= first <= last:
            raise UsageError(f"cannot read entries {first} to {last}: the range is empty", ledger_id=self.ledger_id)
        while first <= last:
            try:
                async with aclosing(read(self.metadata, first, last)) as batches:
                    async for batch in batches:
                        first = end_of(batch)
                        yield batch
            except (NoSuchEntryError, DigestError, QuorumLostError):
                if not await self._has_moved(first):
                    raise

    async def _has_moved(self, entry_id: int | None) -> bool:
        """Read the metadata again; whether an entry (None: the next one) is elsewhere, or the end known, since then."""
        if self._ledgers is None:
            return False
        before = self.metadata
        try:
            after = await self.refresh()
        except MetadataError:
            return False
        if entry_id is None:
            return after.segments[-1] != before.segments[-1] or after.is_closed != before.is_closed
        return after.ensemble_at(entry_id) != before.ensemble_at(entry_id)

    async def _try_read_lac(self) -> None:
        """Ask for an explicit LAC while tailing; if nobody answers, the next round asks again."""
        try:
            await self.read_lac()
        except QuorumLostError:
            await asyncio.sleep(_ALL_FAILED_PAUSE_S)

    def _take_end(self) -> None:
        if self.metadata.is_closed:
            self._lac.finish(self.metadata.last_entry_id)

    def _on_change(self) -> None:
        self._has_changed = True
        self._lac.interrupt()


def _end_of_entries(entries: list[Entry]) -> int:
    return entries[-1].entry_id + 1


def _end_of_blocks(blocks: list[EntryBlock]) -> int:
    return blocks[-1].first_entry_id + len(blocks[-1])
