"""Columns of `connectors.spark.schema` as Arrow schemas: Spark refuses a batch whose names, types or order differ."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["RAW_ARROW", "RECORDS_ARROW"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")

_RAW_FIELDS: list[pa.Field[Any]] = [
    pa.field("log", pa.string()),
    pa.field("ledger_id", pa.int64()),
    pa.field("entry_id", pa.int64()),
    pa.field("length", pa.int64()),
    pa.field("revision", pa.int64()),
    pa.field("record_count", pa.int32()),
    pa.field("leader_epoch", pa.int64()),
    pa.field("logged_at", _TIMESTAMP),
    pa.field("payload", pa.binary()),
]
RAW_ARROW = pa.schema(_RAW_FIELDS)
"""`rows=raw`."""

_RECORDS_FIELDS: list[pa.Field[Any]] = [
    pa.field("log", pa.string()),
    pa.field("ledger_id", pa.int64()),
    pa.field("entry_id", pa.int64()),
    pa.field("revision", pa.int64()),
    pa.field("leader_epoch", pa.int64()),
    pa.field("logged_at", _TIMESTAMP),
    pa.field("type", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("session", pa.binary()),
    pa.field("sequence", pa.int64()),
    pa.field("answered_up_to", pa.int64()),
    pa.field("reply", pa.binary()),
    pa.field("table_name", pa.string()),
    pa.field("fold", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("row", pa.binary()),
    pa.field("fields", pa.binary()),
    pa.field("entry_hash", pa.binary()),
]
RECORDS_ARROW = pa.schema(_RECORDS_FIELDS)
"""`rows=records`."""
