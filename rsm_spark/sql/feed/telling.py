"""Records of the log as changes of tables: names and columns by the catalog of the moment. No IO.

An entry is told change by change: what is in memory of one that is read slowly are its records, as in any reader of the
log, and one slice of changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rsm_spark.core.records import Record
from rsm_spark.errors import CorruptLogError
from rsm_spark.sql.engine.past_tables import PastTable, past_table, tables_of, values_before
from rsm_spark.sql.feed.events import SchemaObject, SqlChange
from rsm_spark.sql.records import CatalogRow, SqlRecord
from rsm_spark.sql.table_rights import TableRights

_ROWS = frozenset({SqlRecord.ROW_PUT, SqlRecord.ROW_GONE, SqlRecord.ROW_CHANGED, SqlRecord.ROW_REMOVED})
_OBJECTS = frozenset({SqlRecord.OBJECT_PUT, SqlRecord.OBJECT_GONE})


class ToldTables:
    """Tells the changes of entries that follow each other.

    Args:
        objects: The catalog as it was before the first of them; changed by what is told.
        tables: Names of tables, in whatever case; () = all.
        rights: Tables that the reader has; None = all. Of others nothing is told.

    """

    def __init__(
        self, objects: Mapping[str, CatalogRow], tables: Sequence[str] = (), rights: TableRights | None = None
    ) -> None:
        self._objects = dict(objects)
        self._names = tables_of(objects)
        self._wanted = frozenset(name.lower() for name in tables)
        self._rights = rights

    def tell(self, records: Sequence[Record], first_revision: int, logged_ms: int, begin: int) -> Iterator[SqlChange]:
        """Iterate over the changes of an entry; to its end, before the next one is told.

        Args:
            records: Of the entry.
            first_revision: Of its first record.
            logged_ms: Of all of them.
            begin: First revision wanted.

        Raises:
            CorruptLogError: A record is none of SQL tables.

        """
        waiting: SqlChange | None = None  # Until it is known whether it is the last of its transaction.
        for change in self._changes(records, first_revision, logged_ms):
            if change.revision < begin:
                continue
            if waiting is not None:
                is_last = waiting.transaction != change.transaction
                yield waiting if is_last else msgspec.structs.replace(waiting, is_last=False)
            waiting = change
        if waiting is not None:
            yield waiting

    def _changes(self, records: Sequence[Record], first_revision: int, logged_ms: int) -> Iterator[SqlChange]:
        transaction = 0
        for place, record in enumerate(records):
            revision = first_revision + place
            if record.command is not None:
                transaction = revision + record.command.record_count - 1
            told = max(transaction, revision)
            try:
                if record.type in _ROWS:
                    change = self._row(record, revision, told, logged_ms)
                elif record.type == SqlRecord.STATEMENT_RUN:
                    change = self._schema(records, place, revision, told, logged_ms)
                else:
                    change = None
                    if record.type in _OBJECTS:
                        self._fold(record)
            except (msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
                raise CorruptLogError(f"revision {revision}: a record of type {record.type}: {error}") from error
            if change is not None:
                yield change

    def _is_wanted(self, *names: str) -> bool:
        if self._rights is not None:
            names = tuple(name for name in names if self._rights.may_read(name))
            if not names:
                return False
        return not self._wanted or any(name.lower() in self._wanted for name in names)

    def _row(self, record: Record, revision: int, transaction: int, logged_ms: int) -> SqlChange | None:
        number, key, *more = record.fields
        name = self._names.get(number)
        if name is None:
            raise CorruptLogError(f"revision {revision}: there is no table with the number {number}")
        if not self._is_wanted(name):
            return None
        table = past_table(name, number, self._objects[name].sql)
        at = (revision, transaction, logged_ms)
        match record.type:
            case SqlRecord.ROW_PUT:
                new = table.row_of(key, table.values_of(more[0]))
                return SqlChange(*at, "put", name, table.key_of(key), new, is_old_known=False)
            case SqlRecord.ROW_GONE:
                return SqlChange(*at, "delete", name, table.key_of(key), is_old_known=False)
            case SqlRecord.ROW_REMOVED:
                if more[0] is None:
                    return None  # It makes room, and comes back.
                old = table.row_of(key, table.values_of(more[0]))
                return SqlChange(*at, "delete", name, table.key_of(key), None, old)
        return self._changed(table, key, more, at)

    @staticmethod
    def _changed(table: PastTable, key: bytes, more: list[Any], at: tuple[int, int, int]) -> SqlChange:
        image, told, *_ = more
        values = table.values_of(image)
        new = table.row_of(key, values)
        if told is None:
            return SqlChange(*at, "insert", table.name, table.key_of(key), new)
        old = table.row_of(key, values_before(values, told))
        return SqlChange(*at, "update", table.name, table.key_of(key), new, old)

    def _schema(
        self, records: Sequence[Record], place: int, revision: int, transaction: int, logged_ms: int
    ) -> SqlChange | None:
        """Tell of a statement, with what the records behind it say that it concerns."""
        objects: dict[tuple[str, str], bool] = {}
        names: list[str] = []  # Of tables and views.
        for record in records[place + 1 :]:
            if record.type not in _OBJECTS:
                break
            name = record.fields[0]
            if record.type == SqlRecord.OBJECT_PUT:
                row = CatalogRow(*record.fields[1:])
                objects[row.kind, name] = True
                before = self._objects.get(name)
            else:
                row = before = self._objects[name]
                objects[row.kind, name] = False
            names += [row.owner] + ([before.owner] if before is not None else [])
        if not self._is_wanted(*names):
            return None
        (sql,) = records[place].fields
        listed: tuple[SchemaObject, ...] = tuple((kind, name, is_there) for (kind, name), is_there in objects.items())
        table = next((name for name in names if self._is_wanted(name)), next(iter(names), ""))
        return SqlChange(revision, transaction, logged_ms, "schema", table, sql=sql, objects=listed)

    def _fold(self, record: Record) -> None:
        name = record.fields[0]
        old = self._objects.pop(name, None)
        if old is not None and self._names.get(old.number) == name:
            del self._names[old.number]
        if record.type == SqlRecord.OBJECT_PUT:
            row = self._objects[name] = CatalogRow(*record.fields[1:])
            if row.kind == "table":
                self._names[row.number] = name
