"""Writes entries of another log, byte for byte, into ledgers of a log that is being made of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, NoSuchLedgerError, NotEnoughBookiesError
from rsm_spark.backup.manifest import BackupLedger
from rsm_spark.core.chain import ChainLedger, ClosedEnd
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.core.position import LogPosition
from rsm_spark.core.seal import KeyRing
from rsm_spark.log.commit_log import LogEntry

STEP_BYTES = 4 << 20
"""So much is read, and written, at a time."""


class CopiedLedgers:
    """Ledgers of a log that is being made, one for each that entries came from.

    Args:
        client: Connected ledger client.
        name, log_id: Of the log that is being made.
        keys: Of the log that the entries came from.
        password: Of the ledgers that have no key.
        quorum: Ensemble, write quorum, ack quorum.
        wanted: Prefix hashes whose places are to be noted.
        on_created: Told of each ledger before anything is written to it.

    Attributes:
        ledgers: As the chain is to name them; complete after `end`.
        last: Last entry written; None before the first.
        prefix_hash: Hash after it, hex.
        places: By wanted prefix hash: where the entry lies in the new log.
        entries, bytes: How many were written.

    """

    def __init__(
        self,
        client: LedgerClient,
        name: str,
        log_id: str,
        *,
        keys: KeyRing | None,
        password: bytes,
        quorum: tuple[int, int, int],
        wanted: Collection[str] = (),
        on_created: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.ledgers: list[ChainLedger] = []
        self.last: LogEntry | None = None
        self.prefix_hash = ""
        self.places: dict[str, LogPosition] = {}
        self.entries = self.bytes = 0
        self._client = client
        self._name = name
        self._log_id = log_id
        self._keys = keys
        self._password = password
        self._quorum = quorum
        self._wanted = frozenset(wanted)
        self._on_created = on_created
        self._created: list[int] = []
        self._handle: WriteHandle | None = None
        self._source: BackupLedger | ChainLedger | None = None  # Ledger that the entries being written came from.
        self._first_revision = self._next_entry_id = 0
        self._waiting: list[tuple[LogEntry, BackupLedger | ChainLedger]] = []
        self._written: asyncio.Future[int] | None = None

    async def write(self, entries: Iterable[tuple[LogEntry, BackupLedger | ChainLedger]]) -> None:
        """Write entries, each with the ledger that it came from; some may still be under way afterwards.

        One without records belongs to the log only if one with records follows.
        """
        for entry, source in entries:
            self._waiting.append((entry, source))
            if entry.envelope.record_count:
                for one in self._waiting:
                    await self._write(*one)
                self._waiting.clear()
        if self._handle is not None:
            await self._handle.drain()

    async def end(self) -> None:
        """Close the ledger being written, and note it for the chain."""
        handle, last, source = self._handle, self.last, self._source
        if handle is None:
            return
        assert last is not None, "a ledger is created for an entry"
        assert source is not None, "likewise"
        assert self._written is not None, "likewise"
        await self._written
        last_entry_id = await handle.close()
        self._handle = None
        end = ClosedEnd(
            last_entry_id,
            last.envelope.last_revision,
            last.envelope.logged_ms,
            handle.metadata.length,
            self.prefix_hash,
        )
        now_ms = time.time_ns() // 1_000_000
        self.ledgers.append(
            ChainLedger(handle.ledger_id, now_ms, source.leader_epoch, self._first_revision, end, source.key_id)
        )

    async def forget(self) -> bool:
        """Delete what was written, for a log that does not come to be; return whether all of it is gone."""
        if self._handle is not None:
            self._handle.abandon()
        left = len(self._created)
        for ledger_id in self._created:
            with contextlib.suppress(LedgerError):
                with contextlib.suppress(NoSuchLedgerError):
                    await self._client.delete(ledger_id)
                left -= 1
        return not left

    async def _write(self, entry: LogEntry, source: BackupLedger | ChainLedger) -> None:
        if self._source is None or source.ledger_id != self._source.ledger_id:
            await self.end()
            self._source = source
            self._first_revision = entry.envelope.first_revision
            self._handle = await self._create(source)
            self._next_entry_id = 0
        assert self._handle is not None
        self._written = self._handle.append(entry.payload)
        self._written.add_done_callback(_look_at)
        self.prefix_hash = (entry.prefix_hash or entry_hash(entry.payload)).hex()
        if self.prefix_hash in self._wanted:
            self.places[self.prefix_hash] = LogPosition(self._handle.ledger_id, self._next_entry_id)
        self._next_entry_id += 1
        self.entries += 1
        self.bytes += len(entry.payload)
        self.last = entry
        if self._handle.in_flight_bytes > STEP_BYTES:
            await self._handle.drain()

    async def _create(self, source: BackupLedger | ChainLedger) -> WriteHandle:
        password = self._password
        if source.key_id:
            assert self._keys is not None, "checked before"
            password = self._keys.password(source.key_id, self._log_id)
        previous = self.ledgers[-1].ledger_id if self.ledgers else -1
        custom = custom_metadata(self._name, self._log_id, source.leader_epoch, previous, source.key_id)
        handle = await create_ledger(self._client, self._quorum, password, custom)
        self._created.append(handle.ledger_id)
        if self._on_created is not None:
            await self._on_created(handle.ledger_id)
        return handle


async def create_ledger(
    client: LedgerClient, quorum: tuple[int, int, int], password: bytes, custom: Mapping[str, bytes]
) -> WriteHandle:
    """Create a ledger on as many bookies as there are, at least the ack quorum.

    Args:
        client: Connected ledger client.
        quorum: Ensemble, write quorum, ack quorum.
        password: Of the ledger.
        custom: What it says of itself.

    Raises:
        NotEnoughBookiesError: There are fewer.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    ensemble_size, write_quorum, ack_quorum = quorum
    while True:
        try:
            return await client.create(
                ensemble_size=ensemble_size,
                write_quorum=min(write_quorum, ensemble_size),
                ack_quorum=ack_quorum,
                password=password,
                custom=custom,
            )
        except NotEnoughBookiesError:
            if ensemble_size <= ack_quorum:
                raise
            ensemble_size -= 1


def _look_at(written: asyncio.Future[int]) -> None:
    if not written.cancelled():
        written.exception()  # The last one of the ledger is waited for.
