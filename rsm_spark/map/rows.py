"""The rows of the table `map` in memory."""

from __future__ import annotations

import msgspec

from rsm_spark.core.table_rows import StoredRow


class MapEntry(StoredRow, frozen=True, gc=False):
    """A row. It is kept packed: the digest needs its old bytes at every write.

    Attributes:
        create_revision: Mod revision of the command that created the key; of a row that version 2 of the map wrote: the
            mod revision.
        version: Number of its writes since then; of such a row 1.
        mod_revision: Of the last record of the command that last wrote the key; of such a row: of the record itself.

    """

    create_revision: int
    version: int
    mod_revision: int


class MapRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Columns of a row; `create_revision` and `version` are 0 in one that version 2 of the map wrote.

    Attributes:
        mod_revision: None = the revision of the record that wrote the row.

    """

    value: bytes
    create_revision: int = 0
    version: int = 0
    mod_revision: int | None = None


_ROW = msgspec.msgpack.Decoder(MapRow)
row_of = _ROW.decode
"""Return the columns of a canonical row as they were logged.

Raises:
    MsgspecError: It is none.

"""


def value_of(packed: bytes) -> bytes:
    """Return the first column of a canonical row, or the key.

    Raises:
        MsgspecError: It is none.

    """
    return _ROW.decode(packed).value


def entry_of(packed: bytes, revision: int) -> MapEntry:
    """Return a canonical row of any version as the map holds it.

    Raises:
        MsgspecError: It is none.

    """
    row = _ROW.decode(packed)
    return MapEntry(packed, revision, row.create_revision or revision, row.version or 1, row.mod_revision or revision)


def columns_of(entry: MapEntry, *, counts: bool) -> tuple[bytes, int, int, int]:
    """Return value, mod revision, create revision and version; without `counts` the last two are 0."""
    value = _ROW.decode(entry.row).value
    mod_revision = entry.mod_revision
    return (value, mod_revision, entry.create_revision, entry.version) if counts else (value, mod_revision, 0, 0)
