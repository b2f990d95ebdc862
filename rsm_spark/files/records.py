"""Tables and records of the file store, as its log describes them.

* entries: (parent, name) -> what lies there. A directory is known by its number: what lies in it stays when it is
  renamed. The root has the number 0; what is being purged lies in directory -1.
* parts: (file, number) -> bytes: the content of a file, in the order of the numbers.
* uploads: number -> a file that is being sent in parts, and is nowhere yet. When all have come, `entries` names it
  under that number; when nothing comes for a while, it goes. Since version 2. Since version 3 its content may lie in a
  ledger of its own, the one in column `ledger`; -1 = it lies in `parts`.
* contents: file -> the ledger that holds its content, or the beginning of it: `parts` come behind. Since version 3.
* freed: ledger -> whose content it held: nothing names it any more. It goes, and then this row, once no older state can
  be had that does; at once where `was_named` is False. Since version 3.
* quotas: directory -> how many names, and how many bytes, all below it may have; -1 = any.
"""

from __future__ import annotations

from rsm_spark.core.contents import (
    CONTENT_FREED,
    CONTENT_GONE,
    CONTENT_NAMED,
    CONTENT_UNNAMED,
    CONTENTS_TABLE,
    FREED_TABLE,
)
from rsm_spark.core.machine import Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.table_machine import delete, upsert

ENTRIES_TABLE, PARTS_TABLE, QUOTAS_TABLE, UPLOADS_TABLE = "entries", "parts", "quotas", "uploads"

ENTERED, REMOVED, PART_WRITTEN, PART_ERASED, QUOTA_SET, QUOTA_CLEARED, UPLOADED, UPLOAD_ENDED = range(16, 24)
LEDGER_NAMED, LEDGER_UNNAMED, LEDGER_FREED, LEDGER_GONE = CONTENT_NAMED, CONTENT_UNNAMED, CONTENT_FREED, CONTENT_GONE

ROOT, TRASH = 0, -1
NO_LEDGER = -1

_ENTRIES = TableDescription(
    ENTRIES_TABLE,
    (Field("parent", FieldType.INT), Field("name", FieldType.STR)),
    (
        Field("number", FieldType.INT),
        Field("is_directory", FieldType.BOOL),
        Field("size", FieldType.INT),
        Field("part_count", FieldType.INT),
        Field("modified_ms", FieldType.INT),
        Field("accessed_ms", FieldType.INT),
        Field("owner", FieldType.STR),
        Field("permission", FieldType.INT),
    ),
)
_PARTS = TableDescription(
    PARTS_TABLE,
    (Field("file", FieldType.INT), Field("number", FieldType.INT)),
    (Field("content", FieldType.BYTES),),
)
_QUOTAS = TableDescription(
    QUOTAS_TABLE,
    (Field("directory", FieldType.INT),),
    (Field("names_max", FieldType.INT), Field("bytes_max", FieldType.INT)),
)

_UPLOADS = TableDescription(
    UPLOADS_TABLE,
    (Field("number", FieldType.INT),),
    (
        Field("path", FieldType.STR),
        Field("owner", FieldType.STR),
        Field("permission", FieldType.INT),
        Field("overwrite", FieldType.BOOL),
        Field("size", FieldType.INT),
        Field("part_count", FieldType.INT),
        Field("since_ms", FieldType.INT),
        Field("ledger", FieldType.INT, default=NO_LEDGER),
    ),
)
_CONTENTS = TableDescription(
    CONTENTS_TABLE,
    (Field("file", FieldType.INT),),
    (
        Field("ledger", FieldType.INT),
        Field("size", FieldType.INT),
        Field("chunk_count", FieldType.INT),
        Field("digest", FieldType.BYTES),
    ),
)
_FREED = TableDescription(
    FREED_TABLE,
    (Field("ledger", FieldType.INT),),
    (Field("file", FieldType.INT), Field("was_named", FieldType.BOOL)),
)

FILES_DESCRIPTION = MachineDescription(
    "files",
    3,
    (_ENTRIES, _PARTS, _QUOTAS, _UPLOADS, _CONTENTS, _FREED),
    (
        upsert(ENTERED, "entered", _ENTRIES),
        delete(REMOVED, "removed", _ENTRIES),
        upsert(PART_WRITTEN, "part_written", _PARTS),
        delete(PART_ERASED, "part_erased", _PARTS),
        upsert(QUOTA_SET, "quota_set", _QUOTAS),
        delete(QUOTA_CLEARED, "quota_cleared", _QUOTAS),
        upsert(UPLOADED, "uploaded", _UPLOADS),
        delete(UPLOAD_ENDED, "upload_ended", _UPLOADS),
        upsert(LEDGER_NAMED, "ledger_named", _CONTENTS),
        delete(LEDGER_UNNAMED, "ledger_unnamed", _CONTENTS),
        upsert(LEDGER_FREED, "ledger_freed", _FREED),
        delete(LEDGER_GONE, "ledger_gone", _FREED),
    ),
)
