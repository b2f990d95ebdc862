"""Records of a log as named fields, by the log's own description of its machine."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.column_types import text_of
from rsm_spark.core.envelope import body_of
from rsm_spark.core.kernel_tables import KERNEL_RECORDS
from rsm_spark.core.machine import Field, FieldType, MachineDescription, RecordDescription, decode_description
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, Record, decode_records
from rsm_spark.errors import MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader

_KERNEL_RECORDS: dict[int, RecordDescription] = {record.type: record for record in KERNEL_RECORDS}

_WAIT_S = 1.0
_DESCRIBED_WITHIN = 2
"""Entries of a ledger: one that a failed ledger left over may stand before the description."""


class RecordNames:
    """Names records and their fields; learns from the MACHINE_DESCRIBED records that pass.

    Args:
        description: The machine's, as of where reading begins; None = not known.

    """

    def __init__(self, description: MachineDescription | None = None) -> None:
        self._records: dict[int, RecordDescription] = {}
        if description is not None:
            self._learn(description)

    def _learn(self, description: MachineDescription) -> None:
        self._records = {record.type: record for record in description.records}

    def rows(self, entry: LogEntry, from_revision: int) -> list[dict[str, Any]]:
        """Return the records of an entry from a revision on, ready for JSON except that bytes are bytes.

        Raises:
            CorruptLogError: The entry holds no records.

        """
        rows: list[dict[str, Any]] = []
        for revision, record in enumerate(decode_records(body_of(entry.payload)), entry.envelope.first_revision):
            if record.type == KernelRecord.MACHINE_DESCRIBED:
                (description,) = record.fields
                self._learn(decode_description(description))
            if revision >= from_revision:
                rows.append(self._row(entry, revision, record))
        return rows

    def _row(self, entry: LogEntry, revision: int, record: Record) -> dict[str, Any]:
        name, fields = self._named(record)
        row: dict[str, Any] = {
            "revision": revision,
            "type": name,
            "fields": {f.name: text_of(f, value) for f, value in zip(fields, record.fields, strict=False)},
            "logged_ms": entry.envelope.logged_ms,
            "leader_epoch": entry.envelope.leader_epoch,
            "ledger_id": entry.position.ledger_id,
            "entry_id": entry.position.entry_id,
        }
        head = record.command
        if head is not None:
            row["command"] = {"session": head.session.hex(), "sequence": head.sequence}
        for field in ("session", "digest", "prefix_hash"):
            if isinstance(row["fields"].get(field), bytes):
                row["fields"][field] = row["fields"][field].hex()
        return row

    def _named(self, record: Record) -> tuple[str, tuple[Field, ...]]:
        known = self._records.get(record.type) or _KERNEL_RECORDS.get(record.type)
        if known is not None:
            return known.name, known.fields
        unknown = (Field(f"field_{place}", FieldType.BYTES) for place in range(len(record.fields)))
        return f"type-{record.type}", tuple(unknown)


def reader_from(client: LedgerClient, chains: ChainStore, chain: LogChain, revision: int) -> LogReader:
    """Return a reader that begins at or shortly before a revision.

    Raises:
        MissingLogError: That part of the log has been trimmed.

    """
    ledger = _ledger_of(chain, revision)
    if ledger is None:
        if not chain.ledgers:
            return LogReader(client, chains)
        first = chain.ledgers[0].first_revision
        raise MissingLogError(
            f"log {chains.log_name}: revision {revision} has left the log, which begins with revision {first} now: "
            f"use --from {first}",
            first_revision=revision,
            last_revision=first - 1,
        )
    before = LogPosition(ledger.ledger_id, -1)
    return LogReader(client, chains, position=before, revision=ledger.first_revision - 1)


def _ledger_of(chain: LogChain, revision: int) -> ChainLedger | None:
    found = None
    for ledger in chain.ledgers:
        if ledger.first_revision <= max(revision, 1):
            found = ledger
    return found


async def first_description(client: LedgerClient, chains: ChainStore, chain: LogChain) -> MachineDescription | None:
    """Return how the machine described itself where the log begins now, or None if it does not say."""
    if not chain.ledgers:
        return None
    reader = reader_from(client, chains, chain, chain.ledgers[0].first_revision)
    try:
        # Every ledger is described among its first entries: those before it may be trimmed.
        for entry in (await reader.read())[:_DESCRIBED_WITHIN]:
            for record in decode_records(body_of(entry.payload)):
                if record.type == KernelRecord.MACHINE_DESCRIBED:
                    (description,) = record.fields
                    return decode_description(description)
    finally:
        await reader.close()
    return None


async def log_rows(
    client: LedgerClient, log: str, rsm_root: str, from_revision: int, *, follow: bool, limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    """Yield the committed records of a log, as `RecordNames.rows` has them.

    Args:
        client: Connected.
        log: Name of the log.
        rsm_root: Where logs are registered.
        from_revision: First record.
        follow: Whether to go on as records are committed.
        limit: Most records; None = no limit.

    Raises:
        NoSuchLogError: There is no such log.
        MissingLogError: Its beginning has been trimmed beyond `from_revision`.

    """
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    names = RecordNames(await first_description(client, chains, chain))
    reader = reader_from(client, chains, chain, from_revision)
    left = limit
    try:
        while left != 0:
            entries = await reader.read()
            for entry in entries:
                for row in names.rows(entry, from_revision):
                    if left == 0:
                        return
                    yield row
                    left = None if left is None else left - 1
            if not entries and reader.ledgers_ahead == 0:
                if not follow:
                    return
                sys.stdout.flush()
                await reader.wait(_WAIT_S)
    finally:
        await reader.close()
