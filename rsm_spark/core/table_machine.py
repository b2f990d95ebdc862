"""A state machine of which only the description and the decisions have to be written.

    COUNTERS = TableDescription("counters", (Field("name", FieldType.STR),), (Field("value", FieldType.INT),))

    class Counters(TableMachine):
        description = MachineDescription("counters", 1, (COUNTERS,), (upsert(16, "counted", COUNTERS),))

        def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
            name = command.decode()
            (value,) = self.get("counters", name) or (0,)
            return Decision([(16, (name, value + 1))], b"%d" % (value + 1))

        def query(self, query: bytes, revision: int) -> bytes:
            (value,) = self.get("counters", query.decode()) or (0,)
            return b"%d" % value

Its tables are kept as the description says: a record upserts or deletes the row of its key, by the same rules by which
Spark folds the log. So a machine cannot disagree with its own description.
"""

# Longer than 400 lines: what a sub-class reads, what it may log, and how records are folded need the same plans.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec

from rsm_spark.core.column_types import Converts, column_type, converted, converts_of
from rsm_spark.core.description_rules import check_description
from rsm_spark.core.evolution import Narrow, NewFieldError, check_evolution, narrowing, readable
from rsm_spark.core.machine import (
    Decision,
    Field,
    Fold,
    MachineDescription,
    RecordDescription,
    Row,
    RowChange,
    TableDescription,
)
from rsm_spark.core.migrations import Migration, RowMigration, RunningMigration
from rsm_spark.core.records import FORMAT_LEVEL, pack
from rsm_spark.core.table_rows import StoredRow, TableRows
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidDescriptionError

_SHOWN_MAX = 60
_COLUMNS: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(tuple[Any, ...])


def upsert(number: int, name: str, table: TableDescription) -> RecordDescription:
    """Describe the record that writes a row: its fields are the table's key and its other columns."""
    key, row = tuple(f.name for f in table.key), tuple(f.name for f in table.row)
    return RecordDescription(number, name, table.key + table.row, table.name, Fold.UPSERT, key, row)


def delete(number: int, name: str, table: TableDescription) -> RecordDescription:
    """Describe the record that removes a row: its fields are the table's key."""
    return RecordDescription(number, name, table.key, table.name, Fold.DELETE, tuple(f.name for f in table.key))


def note(number: int, name: str, *fields: Field) -> RecordDescription:
    """Describe a record that is only told: it changes no row."""
    return RecordDescription(number, name, fields)


class _Table(NamedTuple):
    """Form of the rows of a table, as this version reads them.

    Attributes:
        columns: Behind the key.
        plain_width: Rows of so many columns are read as they are; -1 = none is: some are dropped, or of another form
            in the log.
        key_to_log, key_from_log, from_log: Conversions of key and columns; None = they are the same in the log.

    """

    columns: tuple[Field, ...]
    plain_width: int
    key_to_log: Converts | None
    key_from_log: Converts | None
    from_log: Converts | None

    def key_of(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return key if self.key_from_log is None else converted(key, self.key_from_log)

    def columns_of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return readable(row if self.from_log is None else converted(row, self.from_log), self.columns)


class _Plan(NamedTuple):
    """Plan of the fold of one record type.

    Attributes:
        types: Of the fields in the log.
        to_log: Makes what a decision gives to what the log holds; None = it is the same for all fields.

    """

    name: str
    fields: tuple[Field, ...]
    types: tuple[type, ...]
    nullable: tuple[bool, ...]
    to_log: Converts | None
    table: str
    rows: TableRows | None
    key: Any
    row: Any


class TableMachine:
    """Base of a state machine whose whole state is its described tables.

    A sub-class sets `description` and writes `decide`; `query` if there is anything to read. Neither may change
    anything: what is to change is said by the records of the decision.

    It folds by the description that the log has in force, whatever its own version: rows of an older one are filled
    with defaults as they are read, and until the log's version is raised its decisions are logged as that one would.

    Attributes:
        migrations: How rows of before a version become rows of it: see `rsm_spark.core.migrations`.
        migrated_rows_max: Rows of a migration that an entry looks at: a pause for commands of some milliseconds.
        format_level: See `AdvisedMachine`.
        is_full: The same.
        is_evolving: See `EvolvingMachine`.
        heeds_levels: See `AdvisedMachine`; only asked where the machine is not evolving.
        migration: The one that the log is in; rows of before are read through it.

    Raises:
        InvalidDescriptionError: The description contradicts itself; the message names where.

    """

    description: ClassVar[MachineDescription]
    migrations: ClassVar[tuple[Migration, ...]] = ()
    migrated_rows_max: ClassVar[int] = 500
    is_evolving: ClassVar[bool] = True
    heeds_levels: ClassVar[bool] = False

    def __init__(self) -> None:
        self.format_level = FORMAT_LEVEL
        self.is_full = False
        check_description(self.description)
        for one in self.migrations:  # What is wrong with one is told here, not when the log is raised.
            RowMigration(self.description, self.migrations, RunningMigration(one.version, one.version - 1, 0))
        # Rows are kept packed: the digest needs the old row's bytes at every change.
        self._tables: dict[str, TableRows] = {}
        self._reading = {table.name: _reading(table) for table in self.description.tables}
        self._narrow: dict[int, Narrow] = {}
        self.migration: RowMigration | None = None
        self._own = {record.type: self._plan(record) for record in self.description.records}
        self._is_plain = all(plan.to_log is None for plan in self._own.values())
        self._logged = self.description
        self._plans: dict[int, _Plan] = {}
        self.follow(self.description)

    def follow(self, description: MachineDescription) -> None:
        """Fold by a description from here on; see `EvolvingMachine`.

        Raises:
            CorruptLogError: Nobody can fold by it, or neither version can follow the other.

        """
        try:
            check_description(description)
            older, newer = sorted((description, self.description), key=lambda one: one.version)
            check_evolution(older, newer)
        except InvalidDescriptionError as error:
            raise CorruptLogError(str(error)) from error
        self._logged = description
        for table in description.tables:
            self._tables.setdefault(table.name, TableRows())
        self._plans = {record.type: self._plan(record) for record in description.records}
        self._narrow = {}
        if description.version < self.description.version:
            logged = {record.type: record for record in description.records}
            self._narrow = {own.type: narrowing(own, logged.get(own.type)) for own in self.description.records}

    def follow_migration(self, running: RunningMigration | None) -> None:
        """Read rows of before through a migration from here on; see `MigratingMachine`."""
        self.migration = None if running is None else RowMigration(self.description, self.migrations, running)

    @property
    def tables(self) -> Mapping[str, TableRows]:
        """Rows by table, as they are stored."""
        return self._tables

    def _plan(self, record: RecordDescription) -> _Plan:
        at = {field.name: index for index, field in enumerate(record.fields)}
        return _Plan(
            record.name,
            record.fields,
            tuple(column_type(field).kept for field in record.fields),
            tuple(field.nullable for field in record.fields),
            converts_of(record.fields, to_log=True),
            record.table,
            self._tables.get(record.table) if record.fold is not Fold.NONE else None,
            _getter([at[name] for name in record.key]),
            _getter([at[name] for name in record.row]) if record.fold is Fold.UPSERT else None,
        )

    # ---- what a service writes

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide one command on the present state; see `StateMachine.decide`."""
        raise NotImplementedError(f"{type(self).__name__} has no `decide`: a service writes it")

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002 - for those that have something to read
        """Answer a read; see `StateMachine.query`."""
        return b""

    # ---- what it reads

    def get(self, table: str, *key: Any) -> tuple[Any, ...] | None:
        """Return the columns of a row behind its key, or None if there is no such row."""
        found = self._found(table, key)
        if found is None:
            return None
        row = _COLUMNS.decode(found.row)
        if self.migration is None and len(row) == self._reading[table].plain_width:
            return row
        return self._read(table, self._packed_key(table, key), found)

    def _found(self, table: str, key: tuple[Any, ...]) -> StoredRow | None:
        return self._rows_of(table).entries.get(self._packed_key(table, key))

    def _packed_key(self, table: str, key: tuple[Any, ...]) -> bytes:
        reading = self._reading.get(table)
        if reading is not None and reading.key_to_log is not None:
            try:
                key = converted(key, reading.key_to_log)
            except ValueError as error:
                raise InvalidDescriptionError(f"table {table!r}: there is no key {key!r}: {error}") from None
        return pack(key)

    def _rows_of(self, table: str) -> TableRows:
        """Return the rows of a table of this version; one that the log does not know yet is empty."""
        if table not in self._reading:
            raise InvalidDescriptionError(f"machine {self.description.name!r} describes no table {table!r}")
        found = self._tables.get(table)
        return TableRows() if found is None else found

    def revision_of(self, table: str, *key: Any) -> int:
        """Return the revision of the record that last wrote a row; 0 if there is no such row."""
        found = self._found(table, key)
        return 0 if found is None else found.revision

    def items(self, table: str) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Iterate over (key, other columns) of all rows of a table, in no particular order."""
        entries, reading = self._rows_of(table).entries, self._reading[table]
        return ((reading.key_of(_COLUMNS.decode(key)), self._read(table, key, one)) for key, one in entries.items())

    def _read(self, table: str, key: bytes, found: StoredRow) -> tuple[Any, ...]:
        if self.migration is not None and self.migration.is_due(table, found.revision):
            return self.migration.migrated(table, key, found.row)
        return self._reading[table].columns_of(_COLUMNS.decode(found.row))

    def key_shown(self, table: str, key: bytes) -> tuple[Any, ...]:
        """Return the columns of a canonical key, as `items` has them."""
        return self._reading[table].key_of(_COLUMNS.decode(key))

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return len(self._rows_of(table).entries)

    # ---- what the kernel calls

    def loggable(self, records: Sequence[tuple[int, tuple[Any, ...]]]) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """Return the records of a decision as the log holds them, and as its version of the machine describes them.

        Raises:
            InvalidDescriptionError: A record is not as described (a mistake in `decide`), or the log's version cannot
                hold it yet: the command is refused.

        """
        if self._is_plain and not self._narrow:
            for record_type, fields in records:
                self._kept(record_type, fields)
            return records
        try:
            return [(record_type, self._loggable(record_type, fields)) for record_type, fields in records]
        except NewFieldError as error:
            raise InvalidDescriptionError(
                f"machine {self.description.name!r}: {error} in version {self.description.version}, the log is still "
                f"of version {self._logged.version}: it is raised once every live replica runs the newer one"
            ) from None

    def _loggable(self, record_type: int, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = self._kept(record_type, fields)
        if not self._narrow:
            return kept
        fields = self._narrow[record_type](fields)
        to_log = self._plans[record_type].to_log
        return fields if to_log is None else converted(fields, to_log)

    def _kept(self, record_type: int, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check a record of a decision; return its fields as the log holds them."""
        plan = self._own.get(record_type)
        if plan is not None and plan.to_log is not None and len(fields) == len(plan.fields):
            fields = self._fields_in_log(plan, fields)
        if plan is None or (tuple(map(type, fields)) != plan.types and not _fits(plan, fields)):
            raise InvalidDescriptionError(self._fault(self._own, self.description.version, record_type, fields))
        return fields

    def _fields_in_log(self, plan: _Plan, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        assert plan.to_log is not None
        try:
            return converted(fields, plan.to_log)
        except ValueError as error:
            fault = error
        for field, value, convert in zip(plan.fields, fields, plan.to_log, strict=True):
            try:
                converted((value,), (convert,))
            except ValueError as error:
                raise InvalidDescriptionError(
                    f"machine {self.description.name!r} (version {self.description.version}): field {field.name!r} of "
                    f"record {plan.name!r} is described as {field.type_name}, this one is {_brief(value)}: {error}"
                ) from None
        raise fault

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record into its table.

        Raises:
            CorruptLogError: The record is none of the description, or its fields are not.

        """
        plan = self._plans.get(record_type)
        if plan is None or (tuple(map(type, fields)) != plan.types and not _fits(plan, fields)):
            fault = self._fault(self._plans, self._logged.version, record_type, fields)
            raise CorruptLogError(f"revision {revision}: {fault}")
        rows = plan.rows
        if rows is None:
            return None
        key = pack(plan.key(fields))
        if plan.row is None:
            return RowChange(plan.table, key, rows.remove(key), None)
        row = pack(plan.row(fields))
        return RowChange(plan.table, key, rows.put(key, row, revision), row)

    def _fault(self, plans: dict[int, _Plan], version: int, record_type: int, fields: tuple[Any, ...]) -> str:
        """Say what is wrong with a record: a decision that forgot its description, or another machine's log."""
        plan = plans.get(record_type)
        me = f"machine {self.description.name!r} (version {version})"
        if plan is None:
            return f"{me} has no record type {record_type}: a newer version wrote this log, or its `decide` is wrong"
        if len(fields) != len(plan.fields):
            return f"{me}: record {plan.name!r} has {len(plan.fields)} fields, this one {len(fields)}"
        for field, kind, value in zip(plan.fields, plan.types, fields, strict=True):
            if type(value) is not kind and not (value is None and field.nullable):
                return (
                    f"{me}: field {field.name!r} of record {plan.name!r} is described as {field.type_name}, this one "
                    f"is of type {type(value).__name__}"
                )
        raise AssertionError

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are now; any thread may, while records are applied."""
        frozen = [(name, rows.freeze()) for name, rows in self._tables.items()]
        return (Row(name, key, one.row, one.revision) for name, rows in frozen for key, one in rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state.

        Raises:
            CorruptSnapshotError: A row is none of the tables; the state is then empty.

        """
        for table in self._tables.values():
            table.clear()
        described = {table.name: table for table in self._logged.tables}
        try:
            for row in rows:
                self._check_row(row, described.get(row.table))
                self._tables[row.table].put(row.key, row.row, row.revision)
        except BaseException:
            for table in self._tables.values():
                table.clear()
            raise

    def _check_row(self, row: Row, table: TableDescription | None) -> None:
        try:
            key_width, width = len(_COLUMNS.decode(row.key)), len(_COLUMNS.decode(row.row))
        except msgspec.MsgspecError as error:
            raise CorruptSnapshotError(f"a row of table {row.table!r} cannot be decoded: {error}") from error
        if table is not None and key_width == len(table.key):
            if width == len(table.row):
                return
            if width < len(table.row) and all(column.fills for column in table.row[width:]):
                return  # An older version wrote it.
        expected = None if table is None else (len(table.key), len(table.row))
        raise CorruptSnapshotError(
            f"row of table {row.table!r} with {key_width} + {width} columns, machine {self.description.name!r} "
            f"(version {self._logged.version}) has there {expected}"
        )


def _reading(table: TableDescription) -> _Table:
    from_log = converts_of(table.row, to_log=False)
    is_plain = from_log is None and not any(column.dropped for column in table.row)
    return _Table(
        table.row,
        len(table.row) if is_plain else -1,
        converts_of(table.key, to_log=True),
        converts_of(table.key, to_log=False),
        from_log,
    )


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def _fits(plan: _Plan, fields: tuple[Any, ...]) -> bool:
    """Return whether fields that are not all of their types are so because some that may be None are."""
    return len(fields) == len(plan.types) and all(
        type(value) is kind or (value is None and may_be_null)
        for value, kind, may_be_null in zip(fields, plan.types, plan.nullable, strict=True)
    )


def _getter(places: list[int]) -> Any:
    """Return a function from fields to a tuple of some of them."""
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda fields, place=places[0]: (fields[place],)) if places else (lambda _: ())
