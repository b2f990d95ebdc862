"""Tables and records of replicated SQL: the description by which anybody folds its log. Pure.

Key and image of a row are msgpack arrays. The key is ``[rowid]``, or the primary key of a table WITHOUT ROWID. The
image has the other stored columns in the order of the table; trailing ones with their constant default are left out.

From version 2 on records of rows say what the row was. Of a changed one: ``[place, value, place, value, ...]``, the
columns of its image that were another value, by their places in the whole image. Why not all of them:
docs/decisions/0047-rows-of-the-log-say-what-they-were.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from rsm_spark.core.machine import Field, FieldType, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.table_machine import delete, note, upsert

CATALOG = "catalog"
ROWS = "rows"
SEQUENCES = "sequences"
"""Tables of the description. Sorted by name the catalog is first: rows are restored into tables that are there."""

MACHINE = "sql"

_CATALOG = TableDescription(
    CATALOG,
    (Field("name", FieldType.STR),),
    (
        Field("kind", FieldType.STR),
        Field("owner", FieldType.STR),
        Field("sql", FieldType.STR),
        Field("number", FieldType.INT),
        Field("place", FieldType.INT),
    ),
)
_ROWS = TableDescription(
    ROWS, (Field("number", FieldType.INT), Field("key", FieldType.BYTES)), (Field("image", FieldType.BYTES),)
)
_SEQUENCES = TableDescription(SEQUENCES, (Field("number", FieldType.INT),), (Field("value", FieldType.INT),))


class SqlRecord(IntEnum):
    """Record types, with their fields.

    STATEMENT_RUN ``[sql]``: a statement that changed the schema; what it changed stands behind it.
    OBJECT_PUT ``[name, kind, owner, sql, number, place]``, OBJECT_GONE ``[name]``: a table, index, view or trigger.
    ROW_PUT ``[number, key, image]``, ROW_GONE ``[number, key]``: a row of the table with that number.
    SEQUENCE_PUT ``[number, value]``, SEQUENCE_GONE ``[number]``: the highest id that AUTOINCREMENT gave.
    ROW_CHANGED ``[number, key, image, old]``: as ROW_PUT; `old` has what was another value, None = there was no row.
    ROW_REMOVED ``[number, key, old]``: as ROW_GONE; `old` is its image. None = it makes room, and comes back in the
    same transaction by a ROW_CHANGED that tells of both.
    """

    STATEMENT_RUN = 16
    OBJECT_PUT = 17
    OBJECT_GONE = 18
    ROW_PUT = 19
    ROW_GONE = 20
    SEQUENCE_PUT = 21
    SEQUENCE_GONE = 22
    ROW_CHANGED = 23
    ROW_REMOVED = 24


OLD_IMAGES_VERSION = 2
"""Version from which on records of rows say what the row was."""

_OLD = Field("old", FieldType.BYTES, nullable=True)

FIRST_DESCRIPTION = MachineDescription(
    MACHINE,
    1,
    (_CATALOG, _ROWS, _SEQUENCES),
    (
        note(SqlRecord.STATEMENT_RUN, "statement_run", Field("sql", FieldType.STR)),
        upsert(SqlRecord.OBJECT_PUT, "object_put", _CATALOG),
        delete(SqlRecord.OBJECT_GONE, "object_gone", _CATALOG),
        upsert(SqlRecord.ROW_PUT, "row_put", _ROWS),
        delete(SqlRecord.ROW_GONE, "row_gone", _ROWS),
        upsert(SqlRecord.SEQUENCE_PUT, "sequence_put", _SEQUENCES),
        delete(SqlRecord.SEQUENCE_GONE, "sequence_gone", _SEQUENCES),
    ),
)
"""As logs of before are described."""


def _with_old(record: RecordDescription) -> RecordDescription:
    return msgspec.structs.replace(record, fields=(*record.fields, _OLD))


DESCRIPTION = MachineDescription(
    MACHINE,
    OLD_IMAGES_VERSION,
    FIRST_DESCRIPTION.tables,
    (
        *FIRST_DESCRIPTION.records,
        _with_old(upsert(SqlRecord.ROW_CHANGED, "row_changed", _ROWS)),
        _with_old(delete(SqlRecord.ROW_REMOVED, "row_removed", _ROWS)),
    ),
)


class CatalogRow(NamedTuple):
    """A table, index, view or trigger.

    Attributes:
        kind: "table", "index", "view", "trigger".
        owner: Table or view that it belongs to; its own name for a table or a view.
        sql: That makes it.
        number: Of a table, for ever; 0 of others.
        place: In the order in which they were made.

    """

    kind: str
    owner: str
    sql: str
    number: int
    place: int
