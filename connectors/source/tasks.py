"""Work of a Spark task: read a range of entries from bookies, return Arrow batches. No metadata store, no driver.

One connection pool per Python worker process serves all tasks that run in it one after the other: a micro-batch of a
stream does not pay for connecting.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors.source.decode import HashedBlock, decode_log, hash_log
from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.finished_rows import BackLedger, FinishedRows
from connectors.source.layouts import PartitionPlace
from connectors.source.options import Rows
from connectors.source.raw_rows import raw_batches
from connectors.source.read_ahead import read_ahead
from connectors.source.record_rows import RecordSlice
from connectors.source.row_plan import RowPlan
from connectors.source.schema import RAW_COLUMNS, RECORD_COLUMNS
from connectors.source.seals import LedgerSeals
from ledger.client.pool import ConnectionPool
from ledger.client.read_handle import ReadHandle
from ledger.client.settings import ClientSettings
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import LedgerMetadata
from ledger.errors import BookieUnavailableError
from ledger.loop_thread import LoopThread
from rsm_spark.core.machine import decode_description


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
        row_plan: Kind and columns of the rows; None = all columns of `rows`.
        bounds: Entries outside are left out; None = nothing is.
        seals: What is known of the ledger's entries.
        place: Of which partitioned log `log` is a partition, where the query names that one; None = of none.
        behind: Ledgers before this one that may have rows of batches which end in it, the nearest first; None = batches
            are shown as they are written, finished or not.

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
    row_plan: RowPlan | None = None
    bounds: EntryBounds | None = None
    seals: LedgerSeals = LedgerSeals()  # noqa: RUF009 - frozen
    place: PartitionPlace | None = None
    behind: tuple[BackLedger, ...] | None = None


def read_partition(partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input partition.

    Raises:
        LedgerError: Entries cannot be read.
        CorruptLogError, ForkedLogError: They are not those of the log.
        StartGoneError: Rows of a finished batch are gone.

    """
    bookies = _TaskBookies.of_process()
    blocks = bookies.blocks(partition)
    plan = partition.row_plan or _plan_of(partition)
    if partition.log is None:
        yield from raw_batches(blocks, plan, ledger_id=partition.ledger_id, bounds=partition.bounds)
        return
    bounds = partition.bounds
    if bounds is not None and plan.rows != Rows.RAW:
        # The range says which records: an entry may lie across its border.
        bounds = msgspec.structs.replace(bounds, revision=Interval())
    span = RecordSlice(
        partition.log,
        partition.ledger_id,
        partition.first_revision,
        partition.end_revision,
        decode_description(partition.description) if partition.description else None,
        bounds,
        partition.place,
    )
    slices_of = None
    if partition.behind is not None:
        own = BackLedger(
            partition.ledger_id, partition.last_entry_id, partition.metadata, partition.log_id, partition.seals
        )
        slices_of = FinishedRows(span, (own, *partition.behind), bookies.read_back).slices
    yield from decode_log(blocks, plan, span, partition.log_id, partition.seals, slices_of)


def read_hashed(partition: LedgerPartition) -> Iterator[HashedBlock]:
    """Yield the entries of an input partition of a log as they are, linked to each other.

    Raises:
        LedgerError: Entries cannot be read.
        CorruptLogError, ForkedLogError: They are not those of the log.

    """
    assert partition.log is not None, "plain ledgers are not linked"
    blocks = _TaskBookies.of_process().blocks(partition)
    return hash_log(blocks, RecordSlice(partition.log, partition.ledger_id), partition.log_id, partition.seals)


def _plan_of(partition: LedgerPartition) -> RowPlan:
    """Return the plan of all columns, where no query has made one."""
    rows = Rows(partition.rows)
    columns = RAW_COLUMNS if rows == Rows.RAW else RECORD_COLUMNS
    return RowPlan(rows, tuple((name, kind, was) for name, kind, was in columns))


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

    def blocks(self, partition: LedgerPartition) -> Iterator[EntryBlock]:
        """Yield the entries in order; those that follow are on their way while one block is decoded."""
        self._addresses.update(partition.addresses)
        return self._read(partition.ledger_id, partition.metadata, partition.first_entry_id, partition.last_entry_id)

    def read_back(self, ledger: BackLedger, first: int, last: int) -> Iterator[EntryBlock]:
        """Yield entries of a ledger of the same partition, in order; see `finished_rows.ReadBack`."""
        return self._read(ledger.ledger_id, ledger.metadata, first, last)

    def _read(self, ledger_id: int, metadata: LedgerMetadata, first: int, last: int) -> Iterator[EntryBlock]:
        # Reading what the driver has proved to be confirmed needs no metadata store.
        handle = ReadHandle(ledger_id, metadata, None, self._pool)
        return read_ahead(self._thread, handle.blocks(first, last))
