"""Records in the columns of Spark's Kafka source: see `connectors.source.schema` for what becomes of what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.source.arrow import FALSE, arrow_schema, column_of, repeated, scalar_of
from connectors.source.layouts import PartitionPlace
from connectors.source.packed import unpack_all
from connectors.source.schema import ERROR_COLUMN, KAFKA_HEADERS, RECORD_COLUMNS, RowColumn
from rsm_spark.core.machine import Field, FieldType, MachineDescription
from rsm_spark.core.records import MACHINE_TYPE_FIRST

_LOG_APPEND_TIME: Final = 1
_PLAIN: Final = (FieldType.BYTES, FieldType.STR)
_ONE_COLUMN: Final = (Field("value", FieldType.BYTES),)
_NEEDED: Final = {
    "key": ("key", "table_name"),
    "value": ("row", "table_name", "fields", "fold"),
    "topic": ("log",),
    "offset": ("revision",),
    "timestamp": ("logged_at",),
    KAFKA_HEADERS.name: ("name", "table_name", "fold"),
    ERROR_COLUMN.name: (ERROR_COLUMN.name,),
}


def kafka_needs(columns: Sequence[RowColumn]) -> tuple[RowColumn, ...]:
    """Return which columns of records these are made of."""
    names = {"type"} | {needed for column in columns for needed in _NEEDED.get(column.name, ())}
    return tuple(column for column in (*RECORD_COLUMNS, ERROR_COLUMN) if column.name in names)


def kafka_batch(
    records: pa.RecordBatch,
    columns: Sequence[RowColumn],
    description: MachineDescription | None,
    part: PartitionPlace | None = None,
) -> pa.RecordBatch:
    """Return the rows of the machine's records; the kernel's own are left out.

    Args:
        records: The columns that `kafka_needs` names; without a type where a row is an error, or of a snapshot.
        columns: Of `schema.KAFKA_COLUMNS`, the headers and the error column.
        description: Of the machine that wrote the records.
        part: Topic and partition, of a partitioned log; None = the log is the topic, and has partition 0 alone.

    """
    is_own: Any = pc.less(records.column("type"), scalar_of(MACHINE_TYPE_FIRST, pa.int32()))
    kept = records.filter(pc.invert(is_own.fill_null(FALSE)))
    schema = arrow_schema(columns)
    arrays = []
    for field in schema:
        made = _column(field.name, kept, description, part)
        arrays.append(made if isinstance(made, pa.Array) else column_of(made, field.type))
    return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def _column(
    name: str, records: pa.RecordBatch, description: MachineDescription | None, part: PartitionPlace | None
) -> Any:
    count = records.num_rows
    match name:
        case "key":
            fields = {table.name: table.key for table in description.tables} if description else {}
            return _plain(records, "key", fields)
        case "value":
            fields = {table.name: table.row for table in description.tables} if description else {}
            rows = _plain(records, "row", fields)
            # What has no table says all that it has to say in its fields.
            has_none = [table is None for table in records.column("table_name").to_pylist()]
            everything: list[Any] = records.column("fields").to_pylist()
            return [whole if lacks else row for whole, lacks, row in zip(everything, has_none, rows, strict=True)]
        case "topic":
            return records.column("log") if part is None else repeated(part.log, count)
        case "partition":
            return np.full(count, 0 if part is None else part.partition, dtype=np.int32)
        case "offset":
            return records.column("revision")
        case "timestamp":
            return records.column("logged_at")
        case "timestampType":
            return np.full(count, _LOG_APPEND_TIME, dtype=np.int32)
        case KAFKA_HEADERS.name:
            return _headers(records)
        case _:
            return records.column(ERROR_COLUMN.name)


def _plain(records: pa.RecordBatch, name: str, fields: dict[str, tuple[Field, ...]]) -> list[bytes | None]:
    """Return keys or rows; as plain bytes those of tables where it is one column of bytes or text.

    A value that is nil stays a msgpack array: no value at all is a delete.
    """
    packed: list[Any] = records.column(name).to_pylist()
    plain = {table for table, described in fields.items() if len(described) == 1 and described[0].type in _PLAIN}
    tables: list[Any] = records.column("table_name").to_pylist()
    places = [place for place, table in enumerate(tables) if table in plain and packed[place] is not None]
    values = unpack_all([packed[place] for place in places], _ONE_COLUMN, lambda _place, _said: None)
    for place, value in zip(places, values, strict=True):
        match value:
            case [bytes() as plain_bytes]:
                packed[place] = plain_bytes
            case [str() as text]:
                packed[place] = text.encode()
    return packed


def _headers(records: pa.RecordBatch) -> list[list[dict[str, Any]]]:
    columns = [records.column(name).to_pylist() for name in ("name", "table_name", "fold")]
    return [
        [
            {"key": key, "value": value.encode()}
            for key, value in zip(("name", "table", "fold"), row, strict=True)
            if value is not None
        ]
        for row in zip(*columns, strict=True)
    ]
