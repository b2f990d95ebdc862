"""Entries to Arrow, by the plan of the query: which module makes which kind of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from connectors.source.kafka_rows import kafka_batch, kafka_needs
from connectors.source.layouts import PartitionPlace
from connectors.source.link import LogLink
from connectors.source.options import Rows
from connectors.source.raw_rows import raw_batches
from connectors.source.record_rows import RecordSlice, SlicesOf, record_batches
from connectors.source.row_plan import RowPlan
from connectors.source.schema import RowColumn
from connectors.source.seals import LedgerSeals, leave_out
from connectors.source.table_rows import table_batch, table_needs
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.machine import MachineDescription


class StoredEntry(NamedTuple):
    """One entry as the bookies hold it.

    Attributes:
        entry_id: Its id.
        length: Payload bytes of the ledger up to here.
        payload: Its bytes.

    """

    entry_id: int
    length: int
    payload: bytes


class HashedBlock(NamedTuple):
    """Entries of one ledger that follow each other, with the prefix hash after each."""

    ledger_id: int
    entries: EntryBlock
    hashes: list[bytes]


def needed_columns(plan: RowPlan) -> tuple[RowColumn, ...]:
    """Return which columns of records the rows of a plan are made of."""
    columns = tuple(RowColumn(*column) for column in plan.columns)
    match plan.rows:
        case Rows.KAFKA:
            return kafka_needs(columns)
        case Rows.TABLE:
            return table_needs(columns)
        case _:
            return columns


def shape_records(
    records: pa.RecordBatch,
    plan: RowPlan,
    description: MachineDescription | None,
    place: str,
    part: PartitionPlace | None = None,
) -> pa.RecordBatch:
    """Return the rows of a plan, of records or of the rows of a snapshot.

    Args:
        records: The columns that `needed_columns` names, in their order.
        plan: Of the query.
        description: Of the machine that wrote them.
        place: Where they are, for errors.
        part: Partition of a partitioned log that they are of; None = of no such log.

    Raises:
        CorruptLogError: A record does not fit its description, and the plan has no place for errors.

    """
    columns = tuple(RowColumn(*column) for column in plan.columns)
    match plan.rows:
        case Rows.KAFKA:
            return kafka_batch(records, columns, description, part)
        case Rows.TABLE:
            return table_batch(records, columns, plan.table, description, place, part)
        case _:
            return records


def decode_log(
    blocks: Iterable[EntryBlock],
    plan: RowPlan,
    span: RecordSlice,
    log_id: bytes,
    seals: LedgerSeals = LedgerSeals(),  # noqa: B008 - frozen
    slices_of: SlicesOf | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of a log.

    Args:
        blocks: Of one ledger, ascending.
        plan: Of the query.
        span: What is read.
        log_id: Id of the log.
        seals: What is known of the ledger's entries.
        slices_of: See `record_batches`.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`; or records cannot be read.

    """
    link = LogLink(span.log, log_id, span.ledger_id, keeps_bad=plan.keeps_bad, seals=seals)
    blocks = _counted(blocks, span, seals)
    if plan.rows == Rows.RAW:
        yield from raw_batches(blocks, plan, ledger_id=span.ledger_id, log=span.log, link=link, bounds=span.bounds)
        return
    place = f"log {span.log}: ledger {span.ledger_id}"
    columns = needed_columns(plan)
    found = record_batches(blocks, columns, span, link, keeps_bad=plan.keeps_bad, slices_of=slices_of)
    for records, description in found:
        rows = shape_records(records, plan, description, place, span.place)
        if rows.num_rows:
            yield rows


def hash_log(
    blocks: Iterable[EntryBlock], span: RecordSlice, log_id: bytes, seals: LedgerSeals
) -> Iterator[HashedBlock]:
    """Yield the entries of a range of a log as they are.

    Args:
        blocks: As for `decode_log`.
        span: What is read; the whole entries of it.
        log_id: Id of the log.
        seals: What is known of the ledger's entries.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`.

    """
    link = LogLink(span.log, log_id, span.ledger_id, seals=seals)
    for block in _counted(blocks, span, seals):
        yield HashedBlock(span.ledger_id, block, link.follow(block).hashes)


def _counted(blocks: Iterable[EntryBlock], span: RecordSlice, seals: LedgerSeals) -> Iterable[EntryBlock]:
    """Return blocks without the entries that are set aside."""
    return leave_out(blocks, seals.aside, f"log {span.log}: ledger {span.ledger_id}") if seals.aside else blocks
