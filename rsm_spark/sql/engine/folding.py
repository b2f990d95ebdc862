"""Fold of records by key: on a follower, and on a leader whose transaction SQLite has rolled back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rsm_spark.core.machine import Fold, MachineDescription, RowChange
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError, MachineVersionError
from rsm_spark.sql.engine.catalog import CatalogChange, SqlCatalog
from rsm_spark.sql.engine.sequences import SequenceTable
from rsm_spark.sql.engine.shapes import Execute
from rsm_spark.sql.engine.touched import MadeRecord, decode_values, read_image, row_change
from rsm_spark.sql.records import CATALOG, DESCRIPTION, ROWS, SEQUENCES, CatalogRow, SqlRecord

_TABLES = [(table.name, len(table.row)) for table in DESCRIPTION.tables]
_OWN_TYPES = frozenset(SqlRecord)
_KINDS = {
    (CATALOG, Fold.UPSERT): SqlRecord.OBJECT_PUT,
    (CATALOG, Fold.DELETE): SqlRecord.OBJECT_GONE,
    (ROWS, Fold.UPSERT): SqlRecord.ROW_PUT,
    (ROWS, Fold.DELETE): SqlRecord.ROW_GONE,
    (SEQUENCES, Fold.UPSERT): SqlRecord.SEQUENCE_PUT,
    (SEQUENCES, Fold.DELETE): SqlRecord.SEQUENCE_GONE,
}


def _newer_version(description: MachineDescription, why: str) -> MachineVersionError:
    return MachineVersionError(
        f"the log is of version {description.version} of machine {description.name!r}, this replica runs version "
        f"{DESCRIPTION.version}, and {why}: start it with the newer one"
    )


class RecordWriter:
    """Writes records into the file. Triggers, foreign keys and checks are off: their effects are records themselves.

    Args:
        execute: Runs a statement of the replica itself.
        execute_logged: Runs a schema change of the log, as its client was allowed to.
        catalog: Of the tables.
        sequences: Of AUTOINCREMENT.

    """

    def __init__(
        self,
        execute: Execute,
        execute_logged: Callable[[str], None],
        catalog: SqlCatalog,
        sequences: SequenceTable,
    ) -> None:
        self._execute = execute
        self._execute_logged = execute_logged
        self._catalog = catalog
        self._sequences = sequences
        # Of a newer version of the machine: by type what it is here, and the places of its fields.
        self._newer: dict[int, tuple[SqlRecord, list[int]]] = {}

    def follow(self, description: MachineDescription) -> None:
        """Fold records of types that this version does not know by what the log says of them.

        Raises:
            MachineVersionError: It does not say enough.

        """
        if [(table.name, len(table.row)) for table in description.tables] != _TABLES:
            raise _newer_version(description, "it has other tables")
        self._newer = {}
        for record in description.records:
            if record.type in _OWN_TYPES:
                continue
            kind = _KINDS.get((record.table, record.fold))
            if kind is None:
                raise _newer_version(description, f"what record {record.name!r} does is not known here")
            names = [field.name for field in record.fields]
            self._newer[record.type] = kind, [names.index(name) for name in (*record.key, *record.row)]

    def write(self, record_type: int, fields: tuple[Any, ...]) -> RowChange | None:
        """Write one record.

        Raises:
            CorruptLogError: It is none of this machine, or contradicts what is there.
            apsw.Error: SQLite does not take it.

        """
        match record_type:
            case SqlRecord.ROW_PUT | SqlRecord.ROW_CHANGED:
                return self._put(*fields[:3])
            case SqlRecord.ROW_GONE | SqlRecord.ROW_REMOVED:
                return self._remove(*fields[:2])
            case SqlRecord.STATEMENT_RUN:
                (sql,) = fields
                self._execute_logged(sql)
                self._catalog.forget_shapes()
                return None
            case SqlRecord.OBJECT_PUT:
                name, *row = fields
                return self._put_object(name, CatalogRow(*row))
            case SqlRecord.OBJECT_GONE:
                (name,) = fields
                return self._remove_object(name)
            case SqlRecord.SEQUENCE_PUT:
                return self._sequences.put(*fields)
            case SqlRecord.SEQUENCE_GONE:
                return self._sequences.remove(*fields)
        if record_type in self._newer:
            kind, places = self._newer[record_type]
            return self.write(kind, tuple(fields[place] for place in places))
        raise CorruptLogError(f"SQL tables have no record type {record_type}: a newer version wrote this log")

    def _put(self, number: int, key: bytes, image: bytes) -> RowChange:
        shape = self._catalog.shape_of(number)
        old = read_image(self._execute, shape, key)
        values = decode_values(key)
        if old is not None and shape.change:
            self._execute(shape.change, (*shape.filled(decode_values(image)), *values))
            return row_change(number, key, old, image)
        if old is not None:
            self._execute(shape.remove, values)
        self._execute(shape.insert, (*values, *shape.filled(decode_values(image))))
        if shape.is_counted:
            self._sequences.hold(shape)
        return row_change(number, key, old, image)

    def _remove(self, number: int, key: bytes) -> RowChange:
        shape = self._catalog.shape_of(number)
        old = read_image(self._execute, shape, key)
        if old is None:
            raise CorruptLogError(f"table {shape.name} has no row with the key {decode_values(key)!r} that goes")
        self._execute(shape.remove, decode_values(key))
        return row_change(number, key, old, None)

    def _put_object(self, name: str, row: CatalogRow) -> RowChange:
        found = self._execute("SELECT type, tbl_name, sql FROM sqlite_schema WHERE name = ?", (name,)).fetchall()
        if found != [(row.kind, row.owner, row.sql)]:
            raise CorruptLogError(f"the log has {row.kind} {name!r} as {row.sql!r}, this file has {found!r}")
        return catalog_change(CatalogChange(name, self._catalog.put(name, row), row))

    def _remove_object(self, name: str) -> RowChange:
        return catalog_change(CatalogChange(name, self._catalog.remove(name), None))

    def note(self, change: CatalogChange) -> MadeRecord:
        """Note a change of the schema that a client's statement has made; return its record."""
        if change.new is None:
            self._catalog.remove(change.name)
            return MadeRecord(SqlRecord.OBJECT_GONE, (change.name,), catalog_change(change))
        self._catalog.put(change.name, change.new)
        return MadeRecord(SqlRecord.OBJECT_PUT, (change.name, *change.new), catalog_change(change))


def catalog_change(change: CatalogChange) -> RowChange:
    """Return a change of the catalog as the digest counts it."""
    old, new = change.old, change.new
    return RowChange(
        CATALOG, pack((change.name,)), None if old is None else pack(old), None if new is None else pack(new)
    )
