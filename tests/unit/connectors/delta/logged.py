"""Micro-batches as the source hands them over, and followers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from connectors.delta.follower import FollowerTable
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Field, FieldType, MachineDescription, TableDescription, encode_description
from rsm_spark.core.records import pack

LOG_ID = "ab" * 16
MAP = TableDescription("map", (Field("key", FieldType.BYTES),), (Field("value", FieldType.BYTES),))
PAIRS = TableDescription(
    "pairs",
    (Field("left", FieldType.STR), Field("right", FieldType.INT)),
    (Field("weight", FieldType.FLOAT), Field("is_on", FieldType.BOOL)),
)
# As the source delivers them: see `fold.RECORD_COLUMNS`.
_COLUMNS: Any = [
    ("revision", pa.int64()),
    ("ledger_id", pa.int64()),
    ("entry_id", pa.int64()),
    ("logged_at", pa.timestamp("us", "UTC")),
    ("type", pa.int32()),
    ("table_name", pa.string()),
    ("fold", pa.string()),
    ("key", pa.binary()),
    ("row", pa.binary()),
    ("fields", pa.binary()),
    ("entry_hash", pa.binary()),
]
RECORDS_ARROW = pa.schema(_COLUMNS)
Change = tuple[tuple[Any, ...], tuple[Any, ...] | None]


class In(NamedTuple):
    """A change of a named table."""

    table: str
    change: Change


Logged = Change | In | MachineDescription | None
"""A change of the default table, of a named one, a description, or another record of the kernel."""


def records(changes: Sequence[Logged], first_revision: int = 1, table: str = "map", ends: int = 1) -> pa.Table:
    """Return `ends` records an entry."""
    rows = []
    for revision, change in enumerate(changes, first_revision):
        is_last = revision % ends == 0 or revision == first_revision + len(changes) - 1
        row: dict[str, Any] = dict.fromkeys(RECORDS_ARROW.names)
        row |= {
            "revision": revision,
            "ledger_id": 3,
            "entry_id": (revision - 1) // ends,
            "logged_at": revision * 1000,
            "type": 4 if change is None else 16,
            "entry_hash": bytes([revision % 256]) * 32 if is_last else None,
        }
        if isinstance(change, MachineDescription):
            row |= {"type": 0, "fields": pack((encode_description(change),))}
        elif change is not None:
            name, (key, value) = change if isinstance(change, In) else (table, change)
            row |= {"table_name": name, "key": pack(key), "fold": "delete" if value is None else "upsert"}
            row["row"] = None if value is None else pack(value)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=RECORDS_ARROW)


def machine(*tables: TableDescription) -> MachineDescription:
    return MachineDescription("orders", 1, tables, ())


def wider(table: TableDescription, *names: str) -> TableDescription:
    """Return a table with more columns of numbers."""
    added = tuple(Field(name, FieldType.INT) for name in names)
    return TableDescription(table.name, table.key, (*table.row, *added))


def state_of(changes: Sequence[Logged], table: str = "map") -> dict[bytes, bytes]:
    """Return what a plain dict makes of the changes of a table."""
    state: dict[bytes, bytes] = {}
    for change in changes:
        name, one = change if isinstance(change, In) else ("map", change)
        if one is None or isinstance(one, MachineDescription) or name != table:
            continue
        key, value = one
        if value is None:
            state.pop(pack(key), None)
        else:
            state[pack(key)] = pack(value)
    return state


def digest_of(state: Mapping[bytes, bytes], table: str = "map") -> str:
    """Return the machine's digest over these rows."""
    terms = [row_term(table_prefix(table), key, row) for key, row in state.items()]
    return digest_bytes(sum(terms) % DIGEST_MODULUS).hex()


def unpack(packed: bytes) -> tuple[Any, ...]:
    return tuple(msgspec.msgpack.decode(packed))


def put(key: bytes, value: bytes) -> Change:
    return ((key,), (value,))


def gone(key: bytes) -> Change:
    return ((key,), None)


def follower(place: Path, table: TableDescription = MAP, log_id: str = LOG_ID, **more: Any) -> FollowerTable:
    more = {"position_interval_s": 0, "log": "orders", **more}
    return FollowerTable(str(place), log_id=log_id, table=table, **more)


def content(place: Path) -> dict[Any, Any]:
    return {
        row["key"]: (row["value"], row["_revision"]) for row in DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    }
