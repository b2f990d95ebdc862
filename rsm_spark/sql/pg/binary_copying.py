r"""COPY in binary: rows as PostgreSQL's clients write and read them with `FORMAT binary`. Pure.

    "PGCOPY\n\377\r\n\0", flags, bytes of an extension      once
    count of values, then for each its size and bytes       a row; size -1 = NULL
    -1                                                      the end

What comes is cut into rows as it comes; a row that is not whole yet waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from rsm_spark.sql.pg.cut_rows import BAD_COPY, ROW_BYTES_MAX, CutRows
from rsm_spark.sql.pg.faults import TOO_LARGE, PgFault

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEAD: Final = struct.Struct("!11sii")
_COUNT: Final = struct.Struct("!h")
_SIZE: Final = struct.Struct("!i")
_NULL: Final = _SIZE.pack(-1)
_CRITICAL_FLAGS: Final = 0xFFFF0000
_EXTENSION_BYTES_MAX: Final = 64 * 1024

BINARY_HEAD: Final = _HEAD.pack(_SIGNATURE, 0, 0)
BINARY_END: Final = _COUNT.pack(-1)


def binary_row(values: Sequence[bytes | None]) -> bytes:
    """Return a row as it is copied out."""
    parts = [_COUNT.pack(len(values))]
    for value in values:
        parts += [_NULL] if value is None else [_SIZE.pack(len(value)), value]
    return b"".join(parts)


class BinaryCopyRows(CutRows):
    """Cuts what comes into rows.

    Args:
        columns: Of each row.

    """

    def __init__(self, columns: int) -> None:
        super().__init__("row", ROW_BYTES_MAX + _EXTENSION_BYTES_MAX)
        self._columns = columns
        self._has_begun = self._is_over = False

    def _cut(self, text: bytes, *, is_last: bool) -> Iterator[list[bytes | None]]:
        at = 0
        if not self._has_begun:
            at = self._begin(text)
        while self._has_begun and not self._is_over:
            found = self._row(text, at)
            if found is None:
                break
            at, row = found
            if row is None:
                self._is_over = True
                break
            self.count += 1
            yield row
        self._left = text[at:]
        if self._is_over and self._left:
            raise PgFault(BAD_COPY, "the copy goes on behind its end")
        if is_last and (self._left or not self._has_begun):
            raise PgFault(BAD_COPY, f"the copy ends inside row {self.count + 1}, or before its first one")

    def _begin(self, text: bytes) -> int:
        """Read what stands before the rows, once it is whole; return where they begin."""
        known = text[: len(_SIGNATURE)]
        if known != _SIGNATURE[: len(known)]:
            raise PgFault(BAD_COPY, "this is no copy in binary: it does not begin with PGCOPY")
        if len(text) < _HEAD.size:
            return 0
        flags, extension = int.from_bytes(text[11:15], "big"), int.from_bytes(text[15:19], "big", signed=True)
        if flags & _CRITICAL_FLAGS:
            raise PgFault(BAD_COPY, f"the copy has flags that are not known, {flags:#x}: send it without")
        if not 0 <= extension <= _EXTENSION_BYTES_MAX:
            raise PgFault(BAD_COPY, f"{extension} bytes before the rows: there are at most {_EXTENSION_BYTES_MAX}")
        if len(text) < _HEAD.size + extension:
            return 0
        self._has_begun = True
        return _HEAD.size + extension

    def _row(self, text: bytes, at: int) -> tuple[int, list[bytes | None] | None] | None:
        """Return where the row that begins here ends, and its values, None = it is the end; None = it is not whole."""
        begin = at
        if len(text) < at + _COUNT.size:
            return None
        (count,) = _COUNT.unpack_from(text, at)
        at += _COUNT.size
        if count == -1:
            return at, None
        if count != self._columns:
            raise PgFault(BAD_COPY, f"row {self.count + 1} has {count} values, not {self._columns}")
        row: list[bytes | None] = []
        for _ in range(count):
            if len(text) < at + _SIZE.size:
                return None
            (size,) = _SIZE.unpack_from(text, at)
            at += _SIZE.size
            if size == -1:
                row.append(None)
                continue
            if size < 0:
                raise PgFault(BAD_COPY, f"row {self.count + 1}: a value of {size} bytes")
            if at + size - begin > ROW_BYTES_MAX:
                raise PgFault(TOO_LARGE, f"row {self.count + 1} has more than {ROW_BYTES_MAX} bytes")
            if len(text) < at + size:
                return None
            row.append(text[at : at + size])
            at += size
        return at, row
