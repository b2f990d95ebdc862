"""Rows that are written into tables of a service as they are, past its commands: what Spark's sink sends. Pure.

    command  ``["?write", {"table": …, "columns": […], "rows": [[…], …], "deleted": [[…], …]}]``
    query    ``["?tables", {}]``: the tables with their columns, as a list of `TableShown`

Only a table that is declared for it, ``table(Account, writable=True)``, takes rows so. A row is one of its class, as if
a command had put it: what the annotations say of a field holds. Values are those that the log has of their columns
(`rsm_spark.core.column_types`). `columns` has all of the key; of a row that is there the other columns stay, a new one
has its defaults. `deleted` has keys. What is deleted goes first. All of a command is written, or nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ledger.decoding import json_decoder, msgpack_decoder
from rsm_spark.core.column_types import column_type
from rsm_spark.core.machine import Field
from rsm_spark.core.typed_tables import StateTable
from rsm_spark.errors import InvalidCommandError

WRITE: Final = "?write"
TABLES: Final = "?tables"
ROWS_MAX: Final = 10_000
"""Rows of one command, deleted ones among them."""
_SHOWN_MAX: Final = 80
_UNFIT: Final = (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors of conversions of values that are of another form."""


class WrittenRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the command; see the module."""

    table: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    deleted: Sequence[tuple[Any, ...]] = ()


class TableShown(msgspec.Struct, frozen=True):
    """A table of a service.

    Attributes:
        name: "accounts", or "bank.accounts" of a part.
        key: Columns of its key.
        columns: The others that are in use.
        is_writable: It takes rows as they are.

    """

    name: str
    key: tuple[Field, ...]
    columns: tuple[Field, ...]
    is_writable: bool


def shown_tables(tables: Mapping[str, StateTable[Any]]) -> list[TableShown]:
    """Return the tables of a service, by name."""
    return [
        TableShown(
            name,
            table.key_columns,
            tuple(one for one in table.columns[len(table.key_columns) :] if not one.dropped),
            table.is_writable,
        )
        for name, table in sorted(tables.items())
    ]


def write_rows(tables: Mapping[str, StateTable[Any]], raw: bytes | msgspec.Raw, *, is_json: bool) -> int:
    """Carry the command out, among the changes that are decided now; return how many rows it has.

    Args:
        tables: Of the service, by name.
        raw: Arguments of the command.
        is_json: They are JSON; else MessagePack.

    Raises:
        InvalidCommandError: There is no such table or column, or it takes no rows; or a row is none of its class: the
            message names the row by its key, and the column.

    """
    try:
        asked = (json_decoder if is_json else msgpack_decoder)(WrittenRows).decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidCommandError(f"{WRITE}: {error}") from None
    count = len(asked.rows) + len(asked.deleted)
    if count > ROWS_MAX:
        raise InvalidCommandError(f"{WRITE}: {count:,} rows in one command, {ROWS_MAX:,} go")
    table = _writable(tables, asked.table)
    key = table.key_columns
    fields = _fields(table, asked)
    for values in asked.deleted:
        table.delete(*_read(asked.table, key, values, len(key)))
    for values in asked.rows:
        read = _read(asked.table, fields, values, len(key))
        try:
            table.write_columns(dict(zip(asked.columns, read, strict=True)))
        except ValueError as error:
            raise _bad(asked.table, dict(zip(asked.columns, values, strict=True)), key, str(error)) from None
    return count


def _writable(tables: Mapping[str, StateTable[Any]], name: str) -> StateTable[Any]:
    table = tables.get(name)
    if table is None:
        raise InvalidCommandError(
            f"{WRITE}: there is no table {name!r:.80}; there are {', '.join(sorted(tables)) or 'none'}"
        )
    if not table.is_writable:
        raise InvalidCommandError(
            f"{WRITE}: table {name!r} takes no rows as they are: send commands, or declare it table(…, writable=True)"
        )
    return table


def _fields(table: StateTable[Any], asked: WrittenRows) -> list[Field]:
    """Return the columns that rows are given with."""
    known = {one.name: one for one in table.columns if not one.dropped}
    if len(set(asked.columns)) != len(asked.columns):
        raise InvalidCommandError(f"{WRITE}: table {asked.table!r}: a column is named twice")
    for name in asked.columns:
        if name not in known:
            raise InvalidCommandError(f"{WRITE}: table {asked.table!r} has no column {name!r:.80}")
    missing = [one.name for one in table.key_columns if one.name not in asked.columns]
    if missing and asked.rows:
        raise InvalidCommandError(f"{WRITE}: table {asked.table!r}: column {missing[0]!r} of the key is missing")
    return [known[name] for name in asked.columns]


def _read(table: str, fields: Sequence[Field], values: Sequence[Any], key_width: int) -> tuple[Any, ...]:
    """Return values of the log as the service sees them."""
    if len(values) != len(fields):
        raise InvalidCommandError(
            f"{WRITE}: table {table!r}: a row of {len(values)} values, there are {len(fields)} columns"
        )
    read: list[Any] = []
    for field, value in zip(fields, values, strict=True):
        if value is None:
            read.append(None)
            continue
        kind = column_type(field)
        try:
            if type(value) is not kind.kept:
                raise ValueError(f"it is of type {type(value).__name__}")
            given = value if kind.from_log is None else kind.from_log(value)
            if kind.to_log is not None:
                kind.to_log(given)  # What could not be logged is refused here, by row and column.
            read.append(given)
        except _UNFIT as error:
            fault = f"column {field.name!r} is {field.type_name}, this one is {value!r:.{_SHOWN_MAX}}: {error}"
            raise InvalidCommandError(
                f"{WRITE}: table {table!r}, row {tuple(values[:key_width])!r:.{_SHOWN_MAX}}: {fault}"
            ) from None
    return tuple(read)


def _bad(table: str, row: Mapping[str, Any], key: Sequence[Field], fault: str) -> InvalidCommandError:
    of = tuple(row[one.name] for one in key)
    return InvalidCommandError(f"{WRITE}: table {table!r}, row of key {of!r:.{_SHOWN_MAX}}: {fault}")
