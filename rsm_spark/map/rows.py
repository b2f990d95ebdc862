"""The rows of the table `map` in memory."""

from __future__ import annotations

import msgspec

from rsm_spark.core.table_rows import StoredRow

MapEntry = StoredRow
"""Canonical row and mod revision. The row is kept packed: the digest needs its old bytes at every write."""

_COLUMN = msgspec.msgpack.Decoder(tuple[bytes])


def value_of(packed: bytes) -> bytes:
    """Return the one column of a canonical row, or key.

    Raises:
        MsgspecError: It is none.

    """
    return _COLUMN.decode(packed)[0]
