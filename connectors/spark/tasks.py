"""What a Spark task does: read a range of entries from bookies, hand over Arrow batches. No metadata store, no driver.

One connection pool per Python worker process serves all tasks that run in it one after the other: a micro-batch of a
stream does not pay for connecting.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors.spark.decode import LogLink, StoredEntry, decode_raw, decode_records
from connectors.spark.loop import LoopThread
from connectors.spark.options import Rows
from ledger.client.pool import ConnectionPool
from ledger.client.read_handle import ReadHandle
from ledger.client.settings import ClientSettings
from ledger.core.metadata import LedgerMetadata
from ledger.errors import BookieUnavailableError
from rsm_spark.core.machine import decode_description

__all__ = ["LedgerPartition", "read_partition"]

_CHUNK_BYTES = 4 * 1024 * 1024
_CHUNK_ENTRIES_FIRST = 64
_CHUNK_ENTRIES_MAX = 4096


@dataclass(frozen=True)
class LedgerPartition(InputPartition):
    """A range of entries and all that a task needs to read it.

    Attributes:
        ledger_id: Of this ledger,
        first_entry_id: from this entry
        last_entry_id: to this one, inclusive.
        first_revision: Records before it are left out,
        end_revision: as are this one and those after it; 0 = none.
        metadata: Of the ledger; without its password unless the digest needs it.
        addresses: Host and port by bookie id.
        rows: What a row is.
        log: Name of the log, or None.
        log_id: Its id; empty without a log.
        description: The machine's self-description at the first entry (JSON), or None.

    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    first_revision: int
    end_revision: int
    metadata: LedgerMetadata
    addresses: dict[str, tuple[str, int]]
    rows: str
    log: str | None = None
    log_id: bytes = b""
    description: bytes | None = None


def read_partition(partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input partition.

    Raises:
        LedgerError: Entries cannot be read.
        CorruptLogError, ForkedLogError: They are not those of the log.

    """
    entries = _TaskBookies.of_process().entries(partition)
    link = LogLink(partition.log, partition.log_id, partition.ledger_id) if partition.log else None
    if link is None or partition.log is None or partition.rows == Rows.RAW:
        yield from decode_raw(entries, ledger_id=partition.ledger_id, log=partition.log, link=link)
        return
    yield from decode_records(
        entries,
        ledger_id=partition.ledger_id,
        log=partition.log,
        link=link,
        first_revision=partition.first_revision,
        end_revision=partition.end_revision,
        description=decode_description(partition.description) if partition.description else None,
    )


class _TaskBookies:
    """The connections to bookies of one Python worker process."""

    _present: _TaskBookies | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._addresses: dict[str, tuple[str, int]] = {}
        self._thread = LoopThread("ledger-task")
        self._pool = self._thread.run(self._make_pool())

    @classmethod
    def of_process(cls) -> _TaskBookies:
        """Return those of this process; a forked child has none of its parent's threads and makes its own."""
        if cls._present is None or cls._present._pid != os.getpid():
            cls._present = cls()
        return cls._present

    async def _make_pool(self) -> ConnectionPool:
        rng = random.Random()  # noqa: S311 - jitter of reconnects
        return ConnectionPool(self._resolve, rng, ClientSettings.from_environment())

    async def _resolve(self, bookie_id: str) -> tuple[str, int]:
        try:
            return self._addresses[bookie_id]
        except KeyError:
            raise BookieUnavailableError(f"bookie {bookie_id}: the driver gave no address for it") from None

    def entries(self, partition: LedgerPartition) -> Iterator[StoredEntry]:
        """Yield the entries in order; the next chunk is on its way while one is decoded."""
        self._addresses.update(partition.addresses)
        # Reading what the driver has proved to be confirmed needs no metadata store.
        handle = ReadHandle(partition.ledger_id, partition.metadata, None, self._pool)
        first, last = partition.first_entry_id, partition.last_entry_id
        count = _CHUNK_ENTRIES_FIRST
        waiting = self._thread.start(handle.read_unconfirmed(first, min(first + count - 1, last)))
        while True:
            chunk = waiting.result()
            first = chunk[-1].entry_id + 1
            if first <= last:
                size = sum(len(entry.payload) for entry in chunk) // len(chunk) + 1
                count = max(1, min(_CHUNK_ENTRIES_MAX, _CHUNK_BYTES // size))
                waiting = self._thread.start(handle.read_unconfirmed(first, min(first + count - 1, last)))
            for entry in chunk:
                yield StoredEntry(entry.entry_id, entry.length, entry.payload)
            if first > last:
                return
