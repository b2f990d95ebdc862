"""Rules of a machine's description: by one that keeps them, anybody can fold its log. Pure."""

from __future__ import annotations

from rsm_spark.core.column_types import column_type
from rsm_spark.core.machine import Field, FieldType, Fold, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.records import MACHINE_TYPE_FIRST
from rsm_spark.errors import InvalidDescriptionError

_DECIMAL_DIGITS_MAX = 38  # Of Spark, Arrow and Delta.
_NO_KEYS = (FieldType.JSON, FieldType.LIST)


def check_description(description: MachineDescription) -> None:
    """Check that a description can be folded by.

    Raises:
        InvalidDescriptionError: It cannot; the message names table or record, and what is wrong.

    """
    tables = {table.name: table for table in description.tables}
    if len(tables) != len(description.tables):
        raise InvalidDescriptionError(f"machine {description.name!r}: two tables have the same name")
    for table in description.tables:
        if not table.name or table.name.startswith("_"):
            raise InvalidDescriptionError(f"table {table.name!r}: names beginning with '_' are the kernel's")
        columns = [field.name for field in table.key + table.row]
        if not table.key or len(set(columns)) != len(columns):
            raise InvalidDescriptionError(f"table {table.name!r}: it needs a key, and columns of different names")
        for column in table.key + table.row:
            _check_column(f"table {table.name!r}", column, is_key=column in table.key)
    numbers = [record.type for record in description.records]
    if len(set(numbers)) != len(numbers) or min(numbers, default=MACHINE_TYPE_FIRST) < MACHINE_TYPE_FIRST:
        raise InvalidDescriptionError(
            f"machine {description.name!r}: its record types are {numbers}: use different numbers from "
            f"{MACHINE_TYPE_FIRST} on, those below are the kernel's"
        )
    for record in description.records:
        _check_record(record, tables)


def _check_column(at: str, column: Field, *, is_key: bool) -> None:
    if is_key and (column.nullable or column.dropped or column.default is not None):
        raise InvalidDescriptionError(f"{at}: key column {column.name!r}: a key is always there, and never None")
    _check_type(at, column)
    if is_key and column.type in _NO_KEYS:
        raise InvalidDescriptionError(f"{at}: key column {column.name!r} is {column.type_name}: this cannot be a key")
    if column.default is not None:
        _check_default(at, column)
    if column.dropped and not column.nullable:
        raise InvalidDescriptionError(f"{at}: column {column.name!r} is dropped: say nullable=True too")


def _check_type(at: str, column: Field) -> None:
    column_at = f"{at}: column {column.name!r}"
    if (column.items is not None) is not (column.type is FieldType.LIST) or column.items in _NO_KEYS:
        raise InvalidDescriptionError(
            f"{column_at}: a list, and nothing else, has items=…, the type of its elements: any but json and list"
        )
    is_decimal = FieldType.DECIMAL in (column.type, column.items)
    if is_decimal and not (1 <= column.precision <= _DECIMAL_DIGITS_MAX and 0 <= column.scale <= column.precision):
        raise InvalidDescriptionError(
            f"{column_at}: a decimal has precision=1…{_DECIMAL_DIGITS_MAX} and scale=0…precision, not "
            f"{column.precision} and {column.scale}"
        )
    if not is_decimal and (column.precision or column.scale):
        raise InvalidDescriptionError(f"{column_at} is {column.type_name}: only decimals have precision and scale")


def _check_default(at: str, column: Field) -> None:
    if column.type in _NO_KEYS:
        raise InvalidDescriptionError(
            f"{at}: column {column.name!r} is {column.type_name}: it can have no default, say nullable=True"
        )
    kind = column_type(column)
    said = ""
    if type(column.default) is not kind.given:
        said = f"it is of type {type(column.default).__name__}"
    elif kind.to_log is not None:
        try:
            kind.to_log(column.default)
        except ValueError as error:
            said = str(error)
    if said:
        raise InvalidDescriptionError(
            f"{at}: column {column.name!r} is {column.type_name}, its default {column.default!r} is not: {said}"
        )


def _check_record(record: RecordDescription, tables: dict[str, TableDescription]) -> None:
    at = f"record {record.name!r} (type {record.type})"
    for field in record.fields:
        _check_type(at, field)
    fields = {field.name: field.type_name for field in record.fields}
    if len(fields) != len(record.fields):
        raise InvalidDescriptionError(f"{at}: two fields have the same name")
    if record.fold is Fold.NONE:
        return
    table = tables.get(record.table)
    if table is None:
        raise InvalidDescriptionError(f"{at}: there is no table {record.table!r}")
    row = table.row if record.fold is Fold.UPSERT else ()
    for what, names, columns in (("key", record.key, table.key), ("row", record.row, row)):
        given = [fields.get(name) for name in names]
        if given != [column.type_name for column in columns]:
            raise InvalidDescriptionError(
                f"{at}: its {what} {names} has the types {given}, that of table {table.name!r} is "
                f"{[f'{column.name}: {column.type_name}' for column in columns]}"
            )
