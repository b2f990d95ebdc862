"""Records about a ledger that lie between its entries, in the journal and in segments, with negative ids.

Layout: ledger id (8), record id (8, negative), then the record's own bytes; numbers and layouts are those of
BookKeeper's journal, but for DELETED, which is ours.
"""

from __future__ import annotations

import struct
from enum import IntEnum

ENTRY_HEADER_BYTES = 32
"""Ledger id, entry id, last add confirmed, length: 8 bytes each, at the head of every entry."""

_RECORD = struct.Struct(">qq")
_LENGTH = struct.Struct(">i")
_TIME = struct.Struct(">Q")


class RecordId(IntEnum):
    """Entry ids that stand for a record about the ledger."""

    KEY = -0x1000
    FENCE = -0x2000
    EXPLICIT_LAC = -0x8000
    DELETED = -0x10000


def key_record(ledger_id: int, master_key: bytes) -> bytes:
    """Encode the birth of a ledger on this bookie: its master key, for ever."""
    return _RECORD.pack(ledger_id, RecordId.KEY) + _LENGTH.pack(len(master_key)) + master_key


def fence_record(ledger_id: int) -> bytes:
    """Encode the fencing of a ledger."""
    return _RECORD.pack(ledger_id, RecordId.FENCE)


def explicit_lac_record(ledger_id: int, body: bytes) -> bytes:
    """Encode an explicit LAC: the body as its writer sealed it (ledger id, LAC, digest)."""
    return _RECORD.pack(ledger_id, RecordId.EXPLICIT_LAC) + _LENGTH.pack(len(body)) + body


def deleted_record(ledger_id: int, deleted_at_ms: int) -> bytes:
    """Encode that the collector found a ledger deleted, and when (wall clock): it refuses adds from now on."""
    return _RECORD.pack(ledger_id, RecordId.DELETED) + _TIME.pack(deleted_at_ms)


def parse_key(record: bytes | memoryview) -> bytes:
    """Return the master key of a key record."""
    return bytes(record[20 : 20 + _LENGTH.unpack_from(record, 16)[0]])


def parse_explicit_lac(record: bytes | memoryview) -> bytes:
    """Return the sealed body of an explicit LAC record."""
    return bytes(record[20 : 20 + _LENGTH.unpack_from(record, 16)[0]])


def parse_deleted_at_ms(record: bytes | memoryview) -> int:
    """Return when a ledger was deleted."""
    return int(_TIME.unpack_from(record, 16)[0])


def entry_place(content: bytes | memoryview) -> tuple[int, int] | None:
    """Return (ledger id, entry id or record id) that stored bytes name themselves; None if they are too short."""
    return _RECORD.unpack_from(content) if len(content) >= _RECORD.size else None
