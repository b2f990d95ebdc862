"""Versions of a machine: the rules of what may follow, and records of one version as those of another. Pure.

A column never changes its place in a table, its type, or its table. What a later version may do: add columns at the
end that are nullable or have a default, rename columns (`Field.was`), allow None, drop columns (`Field.dropped`), add
tables and record types. So every reader of the log, Spark too, reads rows of all versions by the newest description.

A decision that the log's version cannot hold yet is a `NewFieldError`, here and in `TableMachine` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rsm_spark.core.machine import FIRST_TYPES, Field, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.records import TYPES_LEVEL
from rsm_spark.errors import InvalidDescriptionError

Narrow = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Makes a record's fields those of an older version."""


def check_evolution(old: MachineDescription, new: MachineDescription) -> None:
    """Check that a description may follow another one.

    Raises:
        InvalidDescriptionError: It may not; the message names the table, the column and the rule.

    """
    reason = _reason(old, new)
    if reason:
        raise InvalidDescriptionError(
            f"machine {new.name!r}: version {new.version} cannot follow version {old.version} of its log: {reason}"
        )


def _reason(old: MachineDescription, new: MachineDescription) -> str:
    if new.name != old.name:
        return f"the log is one of machine {old.name!r}"
    if new.version < old.version:
        return "it is older"
    if new.version == old.version:
        return "" if new == old else "it describes other tables or records: give it a higher version"
    tables = {table.name: table for table in new.tables}
    for table in old.tables:
        later = tables.get(table.name)
        reason = f"table {table.name!r} is gone" if later is None else _table_reason(table, later)
        if reason:
            return reason
    records = {record.type: record for record in new.records}
    for record in old.records:
        now = records.get(record.type)
        if now is not None and (now.table, now.fold) != (record.table, record.fold):
            return (
                f"record type {record.type} was {record.name!r} ({record.fold} of {record.table!r}) and is now "
                f"{now.name!r} ({now.fold} of {now.table!r}): give the new one a number of its own"
            )
    return ""


def _table_reason(old: TableDescription, new: TableDescription) -> str:
    at = f"table {old.name!r}"
    if [(f.name, f.type_name) for f in new.key] != [(f.name, f.type_name) for f in old.key]:
        return f"{at} has another key: it is what rows are found by, make a new table"
    for number, column in enumerate(old.row):
        if number >= len(new.row):
            return f"{at}: column {column.name!r} is gone: keep it in its place, with dropped=True"
        later = new.row[number]
        if not later.is_same(column):
            return (
                f"{at}: in place of column {column.name!r} stands {later.name!r}: a column keeps its place; if it was "
                f"renamed say was=({column.name!r},)"
            )
        if later.type_name != column.type_name:
            return f"{at}: column {column.name!r} was {column.type_name} and is now {later.type_name}: add a new column"
        if column.nullable and not later.nullable:
            return f"{at}: column {column.name!r} is nullable and may hold None: it must stay nullable"
        if column.dropped and not later.dropped:
            return f"{at}: column {column.name!r} was dropped, its values are gone: add a new column"
    for added in new.row[len(old.row) :]:
        if not added.fills:
            return f"{at}: new column {added.name!r} needs a default, or nullable=True: rows of before do not have it"
    return ""


def changes_between(old: MachineDescription, new: MachineDescription) -> list[str]:
    """Return in words what a later version changes, one change a line; see `check_evolution` for whether it may."""
    changes: list[str] = []
    before = {table.name: table for table in old.tables}
    for table in new.tables:
        earlier = before.get(table.name)
        if earlier is None:
            changes.append(f"table {table.name}: new")
        else:
            changes += [f"table {table.name}: {change}" for change in _column_changes(earlier.row, table.row)]
    known = {record.type: record for record in old.records}
    now = {record.type: record for record in new.records}
    changes += [f"record {one.name} (type {number}): new" for number, one in now.items() if number not in known]
    changes += [f"record {one.name} (type {number}): gone" for number, one in known.items() if number not in now]
    return changes


def _column_changes(old: tuple[Field, ...], new: tuple[Field, ...]) -> list[str]:
    changes = []
    for earlier, later in zip(old, new, strict=False):
        if later.name != earlier.name:
            changes.append(f"column {earlier.name} is renamed to {later.name}")
        if later.dropped and not earlier.dropped:
            changes.append(f"column {later.name} is dropped: its values are no longer read")
        elif later.nullable and not earlier.nullable:
            changes.append(f"column {later.name} may be None")
    return changes + [
        f"column {added.name} ({added.type_name}) is added: rows of before read {added.default!r}"
        for added in new[len(old) :]
    ]


def level_needed(description: MachineDescription) -> int:
    """Return the format level of a log that may hold a description: replicas of a lower one could not read it."""
    tables = (field for table in description.tables for field in (*table.key, *table.row))
    records = (field for record in description.records for field in record.fields)
    are_first = all(field.type in FIRST_TYPES for fields in (tables, records) for field in fields)
    return 1 if are_first else TYPES_LEVEL


class NewFieldError(Exception):
    """A record that the log's version of the machine cannot hold; the message says what it is."""


def narrowing(own: RecordDescription, logged: RecordDescription | None) -> Narrow:
    """Return what makes the fields of a record those of the version that the log is of.

    Args:
        own: As the code describes the record.
        logged: As the log does, an older version; None = it has no such record.

    Returns:
        A function that raises `NewFieldError` where something would be lost.

    """
    if logged is None:

        def _refuse(_: tuple[Any, ...]) -> tuple[Any, ...]:
            raise NewFieldError(f"record {own.name!r} (type {own.type}) is new")

        return _refuse
    places = [_place_of(field, own.fields) for field in logged.fields]
    kept = {place for place in places if place is not None}
    extra = [(place, field) for place, field in enumerate(own.fields) if place not in kept]
    nullable = [field.nullable for field in logged.fields]

    def _narrow(fields: tuple[Any, ...]) -> tuple[Any, ...]:
        for place, field in extra:
            if fields[place] != field.default:
                raise NewFieldError(f"field {field.name!r} of record {own.name!r} is new")
        values = tuple(None if place is None else fields[place] for place in places)
        for value, may_be_null, field in zip(values, nullable, logged.fields, strict=True):
            if value is None and not may_be_null:
                raise NewFieldError(f"field {field.name!r} of record {own.name!r} could not be None before")
        return values

    return _narrow


def _place_of(older: Field, fields: Sequence[Field]) -> int | None:
    return next((place for place, field in enumerate(fields) if field.is_same(older)), None)


def readable(row: tuple[Any, ...], columns: tuple[Field, ...]) -> tuple[Any, ...]:
    """Return the columns of a row as a version describes them: what it lacks is filled, what is more is cut.

    Args:
        row: As whichever version wrote it; values as the machine sees them.
        columns: Of the version that reads.

    """
    if len(row) != len(columns):
        row = row[: len(columns)] + tuple(column.default for column in columns[len(row) :])
    if any(column.dropped for column in columns):
        row = tuple(None if column.dropped else value for value, column in zip(row, columns, strict=True))
    return row
