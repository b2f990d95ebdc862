"""All rows of the file, as a snapshot has them: out of it as of one commit, and into an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptSnapshotError, NoRoomError
from rsm_spark.sql.engine.catalog import SqlCatalog
from rsm_spark.sql.engine.connections import open_reader
from rsm_spark.sql.engine.faults import is_full
from rsm_spark.sql.engine.sequences import SequenceTable
from rsm_spark.sql.engine.writer import MARK_TABLE, SqlWriter
from rsm_spark.sql.records import CATALOG, ROWS, SEQUENCES, CatalogRow, SqlRecord

_decode = msgspec.msgpack.decode
_PART_BYTES = 64 * 1024 * 1024
"""So many bytes of rows are written in one transaction: SQLite's WAL has as many, not as many as the tables."""


def committed_rows(path: Path, cache_mib: int) -> Iterator[Row]:
    """Iterate over all rows as of the last commit, on a connection of its own; any thread may consume.

    The revision of each is that of the commit: the file does not know which record wrote a row last.
    """
    connection = open_reader(path, cache_mib)
    connection.execute("BEGIN")
    # The first read is what fixes the commit that is seen.
    found: Any = connection.execute(f"SELECT revision FROM {MARK_TABLE}").fetchall()
    return _rows(connection, found[0][0] if found else 0)


def _rows(connection: apsw.Connection, revision: int) -> Iterator[Row]:
    try:
        catalog = SqlCatalog(connection.execute)
        catalog.load()
        sequences = SequenceTable(connection.execute, catalog)
        sequences.load()
        for name, row in catalog.objects.items():
            yield Row(CATALOG, pack((name,)), pack(row), revision)
        for number in sorted(catalog.tables):
            shape = catalog.shape_of(number)
            width = len(shape.key)
            for values in connection.execute(shape.scan):
                key, image = pack(values[:width]), shape.image(values[width:])
                yield Row(ROWS, pack((number, key)), pack((image,)), revision)
        for number, value in sorted(sequences.values.items()):
            yield Row(SEQUENCES, pack((number,)), pack((value,)), revision)
    finally:
        connection.close()


def restore_rows(writer: SqlWriter, rows: Iterable[Row]) -> None:
    """Replace all by these rows, in parts; the state that they make is kept with the next commit.

    Indexes, views and triggers are made when the rows are there. What was there before is gone from the first part on,
    and its mark first: it was asked before, and the log does not go on from there.

    Raises:
        CorruptSnapshotError: They are none of SQL tables; the file is of no use until other rows are restored.
        NoRoomError: The disk is full; the same holds.

    """
    writer.clear()
    try:
        _restore(writer, rows)
    except (apsw.Error, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        writer.rollback()
        if is_full(error):
            raise NoRoomError(f"the snapshot has no room on the disk as tables: {error}. Make room") from error
        raise CorruptSnapshotError(f"a row of the snapshot cannot be written into SQLite's file: {error}") from error
    except BaseException:
        writer.rollback()
        raise


def _restore(writer: SqlWriter, rows: Iterable[Row]) -> None:
    objects: dict[str, CatalogRow] = {}
    are_tables_made = False
    sequences: list[tuple[Any, ...]] = []
    size = 0
    for table, key, row, _ in rows:
        if table == CATALOG:
            if are_tables_made:
                raise CorruptSnapshotError("rows of the catalog stand behind rows of tables")
            objects[_decode(key)[0]] = CatalogRow(*_decode(row))
            continue
        if not are_tables_made:
            _make(writer, objects, only_tables=True)
            are_tables_made = True
        if table == ROWS:
            number, row_key = _decode(key)
            writer.insert(number, row_key, _decode(row)[0])
            size += len(row)
            if size >= _PART_BYTES:
                writer.keep_part()
                size = 0
        elif table == SEQUENCES:
            sequences.append((*_decode(key), *_decode(row)))
        else:
            raise CorruptSnapshotError(f"SQL tables have no rows in {table!r}")
    if not are_tables_made:
        _make(writer, objects, only_tables=True)
    writer.keep_part()
    _make(writer, objects, only_tables=False)
    writer.hold_sequences()
    for one in sequences:
        writer.fold(SqlRecord.SEQUENCE_PUT, one)
    writer.forget_folded()


def _make(writer: SqlWriter, objects: dict[str, CatalogRow], *, only_tables: bool) -> None:
    for name, row in sorted(objects.items(), key=lambda item: item[1].place):
        if (row.kind == "table") is only_tables:
            writer.fold(SqlRecord.STATEMENT_RUN, (row.sql,))
            writer.fold(SqlRecord.OBJECT_PUT, (name, *row))
    writer.forget_folded()
