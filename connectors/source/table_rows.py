"""Rows typed by the machine's description of itself: see `connectors.source.schema` for the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import OptionError
from connectors.source.arrow import FALSE, arrow_schema, column_of, nulls, scalar_of
from connectors.source.layouts import PartitionPlace
from connectors.source.packed import Misfit, typed_column, unpack_all
from connectors.source.schema import (
    ERROR_COLUMN,
    EXTRA_COLUMN,
    FOLD_COLUMN,
    LOGGED_COLUMN,
    PARTITION_COLUMN,
    RECORD_COLUMNS,
    REVISION_COLUMN,
    RowColumn,
)
from rsm_spark.core.machine import Field, MachineDescription, TableDescription
from rsm_spark.core.records import MACHINE_TYPE_FIRST, pack
from rsm_spark.errors import CorruptLogError
from rsm_spark.snapshots.column_arrays import to_arrow

_OWN: Final = (FOLD_COLUMN.name, REVISION_COLUMN.name, LOGGED_COLUMN.name, EXTRA_COLUMN.name, ERROR_COLUMN.name)
_ALWAYS: Final = {"type", "table_name", "fold", "revision"}


def table_of(description: MachineDescription, name: str) -> TableDescription:
    """Return the table that the option `table` means.

    Args:
        description: Of the machine.
        name: Of the table; "" = its only one, or the one of the machine's name.

    Raises:
        OptionError: There is none such, or it is not clear which.

    """
    tables = {table.name: table for table in description.tables}
    if name in tables:
        return tables[name]
    if not name and (description.name in tables or len(tables) == 1):
        return tables.get(description.name) or next(iter(tables.values()))
    known = ", ".join(tables) or "none"
    if not name:
        raise OptionError(f"option rows=table needs option table: machine {description.name} has {known}")
    raise OptionError(f"option table is {name}: machine {description.name} has {known}")


def table_needs(columns: Sequence[RowColumn]) -> tuple[RowColumn, ...]:
    """Return which columns of records these are made of."""
    names = set(_ALWAYS)
    for column in columns:
        if column.name not in _OWN or column == EXTRA_COLUMN:
            names |= {"key", "row"}
        elif column == LOGGED_COLUMN:
            names.add("logged_at")
        elif column == ERROR_COLUMN:
            names |= {ERROR_COLUMN.name, "key", "row"}
    return tuple(column for column in (*RECORD_COLUMNS, ERROR_COLUMN) if column.name in names)


def table_batch(
    records: pa.RecordBatch,
    columns: Sequence[RowColumn],
    table: str,
    description: MachineDescription | None,
    place: str,
    part: PartitionPlace | None = None,
) -> pa.RecordBatch:
    """Return the changes of one table.

    Args:
        records: The columns that `table_needs` names; without a type where a row is an error, or of a snapshot.
        columns: Of the query; those that the description does not have are null.
        table: As in the option.
        description: Of the machine that wrote the records.
        place: Where they are, for errors.
        part: Partition that they are of; None = of no partitioned log.

    Raises:
        CorruptLogError: A value does not fit its column, or nobody knows any more how records are described, and
            `columns` has no place for errors.
        OptionError: It is not clear which table is meant.

    """
    if description is None:
        records = _undescribed(records, columns, place)
    elif not table:
        table = table_of(description, "").name
    is_ours: Any = pc.equal(records.column("table_name"), scalar_of(table, pa.string())).fill_null(FALSE)
    if ERROR_COLUMN in columns:
        is_ours = pc.or_(is_ours, pc.is_valid(records.column(ERROR_COLUMN.name)))
    return _TableBatch(records.filter(is_ours), columns, _known(description, table), place, part).batch()


def _known(description: MachineDescription | None, table: str) -> TableDescription:
    for known in description.tables if description else ():
        if known.name == table:
            return known
    return TableDescription(table, (), ())


def _undescribed(records: pa.RecordBatch, columns: Sequence[RowColumn], place: str) -> pa.RecordBatch:
    """Mark the machine's records, whose description has been trimmed, as unreadable."""
    first = scalar_of(MACHINE_TYPE_FIRST, pa.int32())
    is_machine: Any = pc.greater_equal(records.column("type"), first).fill_null(FALSE)
    if not pc.any(is_machine).as_py():
        return records
    said = f"{place}: how the machine describes these records has been trimmed: read rows=records, or start later"
    if ERROR_COLUMN not in columns:
        raise CorruptLogError(said)
    at = records.schema.get_field_index(ERROR_COLUMN.name)
    errors = pc.if_else(is_machine, scalar_of(said, pa.string()), records.column(at))
    return records.set_column(at, ERROR_COLUMN.name, errors)


class _TableBatch:
    """Makes the columns of one batch."""

    def __init__(
        self,
        records: pa.RecordBatch,
        columns: Sequence[RowColumn],
        table: TableDescription,
        place: str,
        part: PartitionPlace | None,
    ) -> None:
        self._records = records
        self._columns = columns
        self._table = table
        self._place = place
        self._part = part
        self._errors: list[Any] | None = None
        if ERROR_COLUMN in columns:
            self._errors = records.column(ERROR_COLUMN.name).to_pylist()
        self._values = self._decode() if "key" in records.schema.names else {}
        found = ((column.name, self._field(column)) for column in columns if self._values)
        self._described = {name: field for name, field in found if field is not None}

    def _decode(self) -> dict[str, list[Any]]:
        """Return the described columns by name, in the order of the description."""
        values: dict[str, list[Any]] = {}
        for name, fields in (("key", self._table.key), ("row", self._table.row)):
            packed: list[Any] = self._records.column(name).to_pylist()
            values |= _by_name(fields, unpack_all(packed, fields, self._misfit(name)))
        return values

    def _field(self, column: RowColumn) -> Field | None:
        """Return the described column that a column of the query is, also under an earlier or a later name."""
        fields = (*self._table.key, *self._table.row)
        is_ours = (
            lambda field: field.name == column.name,
            lambda field: field.name in column.was,
            lambda field: column.name in field.was,
        )
        return next((field for is_it in is_ours for field in fields if is_it(field)), None)

    def _misfit(self, what: str) -> Misfit:
        def take(place: int, said: str) -> None:
            revision = self._records.column("revision")[place].as_py()
            text = f"{self._place}: record {revision}: {what} of table {self._table.name} {said}"
            if self._errors is None:
                raise CorruptLogError(text)
            self._errors[place] = self._errors[place] or text

        return take

    def batch(self) -> pa.RecordBatch:
        schema = arrow_schema(self._columns)
        # The error column is made last: the others fill it.
        made = {field.name: self._column(field) for field in schema if field.name != ERROR_COLUMN.name}
        if self._errors is not None:
            made[ERROR_COLUMN.name] = column_of(self._errors, pa.string())
        return pa.RecordBatch.from_arrays([made[field.name] for field in schema], schema=schema)

    def _column(self, field: pa.Field[Any]) -> pa.Array[Any]:
        records = self._records
        match field.name:
            case FOLD_COLUMN.name:
                return records.column("fold")
            case REVISION_COLUMN.name:
                return records.column("revision")
            case LOGGED_COLUMN.name:
                return records.column("logged_at")
            case EXTRA_COLUMN.name:
                return self._extra(field.type)
            case PARTITION_COLUMN.name if self._part is not None:
                return column_of(np.full(records.num_rows, self._part.partition), field.type)
        described = self._described.get(field.name)
        if described is None:
            return nulls(records.num_rows, field.type)
        values = self._values[described.name]
        return typed_column(values, field.type, self._misfit(f"column {field.name}"), to_arrow(described))

    def _extra(self, kind: pa.DataType) -> pa.Array[Any]:
        """Return what the description has and the query has not."""
        own = {described.name for described in self._described.values()}
        later = [name for name in self._values if name not in own]
        if not later:
            return nulls(self._records.num_rows, kind)
        rows = zip(*[self._values[name] for name in later], strict=True)
        is_delete = [fold != "upsert" for fold in self._records.column("fold").to_pylist()]
        packed = [
            None if gone else [(name, pack(value)) for name, value in zip(later, row, strict=True)]
            for row, gone in zip(rows, is_delete, strict=True)
        ]
        return pa.array(packed, kind)


def _by_name(fields: Sequence[Field], rows: list[list[Any] | None]) -> dict[str, list[Any]]:
    return {field.name: [None if row is None else row[place] for row in rows] for place, field in enumerate(fields)}
