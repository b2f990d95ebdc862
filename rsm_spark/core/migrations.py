"""Migrations: rows of before a version are changed by a function, once, as ordinary records of the log. Pure.

When the log's version is raised, the same entry says from which revision on rows are of the new form (MIGRATED). A row
whose last record is older has still to be changed. The leader logs what becomes of such rows, some in each entry, and
then that it is done. Meanwhile every read of such a row goes through the function: commands see new rows alone. Which
rows are left is told by their revisions, so that another leader goes on, and no row is changed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import convert, msgpack_decoder
from rsm_spark.core.column_types import Converts, converted, converts_of
from rsm_spark.core.machine import Field, Fold, MachineDescription, Row, RowChange
from rsm_spark.core.records import MIGRATIONS_TABLE, pack
from rsm_spark.core.table_rows import TableRows
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidDescriptionError

Change = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Function of a row by names of columns, also earlier names, of the key and dropped ones; it returns what changes."""

_COLUMNS: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(tuple[Any, ...])


class Migration(NamedTuple):
    """A change of all rows of a table; made by `migrate`."""

    version: int
    table: str
    change: Change


def migrate(version: int, table: str, change: Change) -> Migration:
    """Declare how rows of before a version become rows of it.

    Args:
        version: Of the machine; `change` is for rows that were written before the log was of it.
        table: Its name.
        change: A pure function: of the row by column names, to those columns that change; None = none does.

    """
    return Migration(version, table, change)


class RunningMigration(NamedTuple):
    """A migration that a log is in.

    Attributes:
        version: To which version.
        from_version: Of the log before.
        began: Revision of the record that began it: older rows have still to be changed.

    """

    version: int
    from_version: int
    began: int


class _MigrationRow(NamedTuple):
    running: RunningMigration
    ended: int
    packed: bytes
    revision: int


class MigrationTable:
    """The kernel's table of migrations: key ``[version]``, row ``[from_version, began, ended]``; `ended` 0: it runs."""

    def __init__(self) -> None:
        self._rows: dict[int, _MigrationRow] = {}

    @property
    def running(self) -> RunningMigration | None:
        """The one that has not ended, or None; there is at most one."""
        return next((row.running for row in self._rows.values() if not row.ended), None)

    def fold(self, fields: Sequence[Any], revision: int) -> RowChange:
        """Fold MIGRATED.

        Raises:
            CorruptLogError: The fields are not those of the record.

        """
        try:
            version, from_version, began, ended = convert(fields, tuple[int, int, int, int])
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"revision {revision}: migration record with the fields {fields!r}") from error
        if (ended or began) != revision:
            raise CorruptLogError(f"revision {revision}: migration record of revision {ended or began}")
        old = self._rows.get(version)
        row = pack(fields[1:])
        self._rows[version] = _MigrationRow(RunningMigration(version, from_version, began), ended, row, revision)
        return RowChange(MIGRATIONS_TABLE, pack((version,)), None if old is None else old.packed, row)

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume."""
        frozen = list(self._rows.items())
        return (Row(MIGRATIONS_TABLE, pack((version,)), row.packed, row.revision) for version, row in frozen)

    def restore(self, rows: Sequence[Row]) -> None:
        """Replace all by these rows.

        Raises:
            CorruptSnapshotError: A row is none of this table.

        """
        self._rows = {}
        for row in rows:
            try:
                (version,) = msgpack_decoder(tuple[int]).decode(row.key)
                from_version, began, ended = msgpack_decoder(tuple[int, int, int]).decode(row.row)
            except (msgspec.MsgspecError, TypeError) as error:
                raise CorruptSnapshotError(f"row of {MIGRATIONS_TABLE} is no migration: {error}") from error
            running = RunningMigration(version, from_version, began)
            self._rows[version] = _MigrationRow(running, ended, row.row, row.revision)


class _Table(NamedTuple):
    """Table that a migration changes."""

    changes: tuple[Change, ...]
    key: tuple[Field, ...]
    columns: tuple[Field, ...]
    key_from_log: Converts | None
    from_log: Converts | None
    record_type: int
    order: tuple[str, ...]


def steps_between(migrations: Sequence[Migration], older: int, newer: int) -> list[Migration]:
    """Return the migrations that a log needs which is raised from one version to another, in their order."""
    return sorted((one for one in migrations if older < one.version <= newer), key=lambda one: one.version)


class RowMigration:
    """Rows of before a version, as its code sees them.

    Args:
        description: Of the code.
        migrations: Of the code.
        running: Which of them.

    Raises:
        InvalidDescriptionError: One names a table that there is not, or whose rows no record can write.

    """

    def __init__(
        self, description: MachineDescription, migrations: Sequence[Migration], running: RunningMigration
    ) -> None:
        self.running = running
        self._name = f"machine {description.name!r}: migration to version {running.version}"
        self._tables: dict[str, _Table] = {}
        for step in steps_between(migrations, running.from_version, running.version):
            table = self._tables.get(step.table) or self._table(description, step.table)
            self._tables[step.table] = table._replace(changes=(*table.changes, step.change))

    def _table(self, description: MachineDescription, name: str) -> _Table:
        table = next((one for one in description.tables if one.name == name), None)
        if table is None:
            raise InvalidDescriptionError(f"{self._name}: there is no table {name!r}")
        width = len(table.key) + len(table.row)
        for record in description.records:
            if record.table == name and record.fold is Fold.UPSERT and len(record.fields) == width:
                by_name = dict(zip((*record.key, *record.row), (*table.key, *table.row), strict=True))
                order = tuple(by_name[field.name].name for field in record.fields)
                return _Table(
                    (), table.key, table.row, converts_of(table.key, to_log=False),
                    converts_of(table.row, to_log=False), record.type, order,
                )  # fmt: skip
        raise InvalidDescriptionError(
            f"{self._name}: no record writes whole rows of table {name!r} and nothing else: describe one by `upsert`"
        )

    def is_due(self, table: str, revision: int) -> bool:
        """Return whether a row has still to be changed: its table, the revision of its last record."""
        return revision < self.running.began and table in self._tables

    def migrated(self, table: str, key: bytes, row: bytes) -> tuple[Any, ...]:
        """Return the columns of a row of before.

        Raises:
            InvalidDescriptionError: The function fails on it; the message names the row.

        """
        plan = self._tables[table]
        values, _ = self._apply(table, plan, key, row)
        return tuple(None if column.dropped else values[column.name] for column in plan.columns)

    def _apply(self, table: str, plan: _Table, key: bytes, row: bytes) -> tuple[dict[str, Any], bool]:
        """Return a row by name, and whether it has changed."""
        keys, columns = _COLUMNS.decode(key), _COLUMNS.decode(row)
        keys = keys if plan.key_from_log is None else converted(keys, plan.key_from_log)
        columns = columns if plan.from_log is None else converted(columns, plan.from_log)
        names = {column.name for column in plan.columns}
        values = dict(zip((field.name for field in plan.key), keys, strict=True))
        filled = columns + tuple(column.default for column in plan.columns[len(columns) :])
        for column, value in zip(plan.columns, filled, strict=False):
            values |= dict.fromkeys(column.was, value)
            values[column.name] = value
        is_changed = False
        for change in plan.changes:
            try:
                changed = change(dict(values)) or {}
                strange = sorted(changed.keys() - names)
            except Exception as error:  # whatever it is, it is the machine's
                raise InvalidDescriptionError(
                    f"{self._name}: table {table!r}, row {keys!r}: {type(error).__name__}: {error}"
                ) from error
            if strange:
                raise InvalidDescriptionError(
                    f"{self._name}: table {table!r}, row {keys!r}: it changes {', '.join(map(repr, strange))}: columns "
                    f"behind the key are {', '.join(sorted(names))}"
                )
            is_changed = is_changed or any(changed[name] != values[name] for name in changed)
            for column in plan.columns:
                if column.name in changed:
                    values |= dict.fromkeys((column.name, *column.was), changed[column.name])
        return values, is_changed

    def rows(self, tables: Mapping[str, TableRows]) -> Iterator[tuple[str, bytes]]:
        """Iterate over table and key of the rows that may still have to be changed, while they change."""
        for name in self._tables:
            for key in tuple(tables[name].entries):
                yield name, key

    def record(self, tables: Mapping[str, TableRows], table: str, key: bytes) -> tuple[int, tuple[Any, ...]] | None:
        """Return the record that changes a row; None if it is gone, has been written since, or stays as it is.

        Raises:
            InvalidDescriptionError: The function fails on it; the message names the row.

        """
        found = tables[table].entries.get(key)
        if found is None or not self.is_due(table, found.revision):
            return None
        plan = self._tables[table]
        values, is_changed = self._apply(table, plan, key, found.row)
        if not is_changed:
            return None
        dropped = {column.name for column in plan.columns if column.dropped}
        return plan.record_type, tuple(None if column in dropped else values[column] for column in plan.order)


class MigrationWork:
    """A leader's work on migrations: some rows an entry, until all have been looked at.

    A row on which the function fails stays as it is, and the migration does not end: its error is told once, the next
    leadership tries again.

    Args:
        migration: Returns how rows are read now; None = there is no migration.
        tables: Rows by table.

    """

    def __init__(self, migration: Callable[[], RowMigration | None], tables: Mapping[str, TableRows]) -> None:
        self._migration, self._tables = migration, tables
        self._of: RunningMigration | None = None
        self._rows: Iterator[tuple[str, bytes]] = iter(())
        self._failed = self._is_over = False
        self._due_ms = 0

    @property
    def has_ended(self) -> bool:
        """Return whether every row has been looked at, and none failed."""
        return self._is_over and not self._failed

    def next_due_ms(self, other_ms: int | None) -> int | None:
        """Return the logged time of the next entry that has something to do, beside what is due otherwise."""
        migration = self._migration()
        is_new = migration is not None and migration.running != self._of
        if self._is_over and not is_new:
            return other_ms
        return 0 if is_new else self._due_ms if other_ms is None else min(self._due_ms, other_ms)

    def records(
        self, logged_ms: int, limit: int, tell: Callable[[InvalidDescriptionError], None]
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield records of rows that change; each has to be applied before the next is asked for.

        Args:
            logged_ms: Of the entry.
            limit: Rows that are looked at, at most.
            tell: Told of the first row on which the function fails.

        """
        migration = self._migration()
        assert migration is not None, "the log is in one"
        if migration.running != self._of:
            self._of, self._rows = migration.running, migration.rows(self._tables)
            self._failed = self._is_over = False
        self._due_ms = logged_ms + 1  # Where no row of this slice changes: an entry without records is not repeated.
        for _ in range(limit):
            step = next(self._rows, None)
            if step is None:
                self._is_over = True
                return
            try:
                record = migration.record(self._tables, *step)
            except InvalidDescriptionError as error:
                self.fail(error, tell)
                continue
            if record is not None:
                self._due_ms = 0
                yield record

    def fail(self, error: InvalidDescriptionError, tell: Callable[[InvalidDescriptionError], None]) -> None:
        """Take note that a row could not be changed."""
        if not self._failed:
            self._failed = True
            tell(error)
