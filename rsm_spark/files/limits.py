"""Bounds of what a file store holds, and what is refused beyond them. Pure."""

from __future__ import annotations

from rsm_spark.core.contents import CHUNK_BYTES
from rsm_spark.files.commands import ANY
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.paths import shown

PART_BYTES_MAX = CHUNK_BYTES
"""Bytes that one command writes: it fits an entry of the log several times."""
FILE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a file that lie in the state."""
LARGE_BYTES_MAX = 8 * 1024 * 1024 * 1024
"""Bytes of a file whose content lies in a ledger of its own."""
LEDGERS_MAX = 100_000
"""Ledgers of contents, those that are about to go included."""
PARTS_MAX = 1_000
UPLOADS_MAX = 1_000
UPLOADS_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of all files that are being sent; one owner has half of them at most."""
UPLOAD_MS = 600_000
"""Logged time after which a file goes of which no further part has come."""
CHILDREN_MAX = 100_000
"""Names in one directory."""
OWNER_CHARS_MAX = 200
_PERMISSION_MAX = 0o1777


def check_size(path: str, content: bytes, size: int) -> None:
    """Refuse a content that is too long.

    Args:
        path: Of the file.
        content: Written next.
        size: Bytes that the file has already.

    Raises:
        FileError: `TOO_LARGE`.

    """
    if len(content) > PART_BYTES_MAX:
        raise FileError(
            FileFault.TOO_LARGE,
            f"{len(content)} bytes for {shown(path)}: at most {PART_BYTES_MAX} are written at once",
        )
    if size + len(content) > FILE_BYTES_MAX:
        raise FileError(
            FileFault.TOO_LARGE,
            f"{shown(path)} would have {size + len(content)} bytes in the records, a file has at most {FILE_BYTES_MAX}",
        )


def check_large(path: str, size: int) -> None:
    """Refuse a content that is too long for a ledger.

    Raises:
        FileError: `TOO_LARGE`.

    """
    if size > LARGE_BYTES_MAX:
        raise FileError(
            FileFault.TOO_LARGE, f"{shown(path)} would have {size} bytes, a file has at most {LARGE_BYTES_MAX}"
        )


def check_owner(owner: str, permission: int) -> None:
    """Refuse an owner or a permission that is none.

    Raises:
        FileError: `INVALID`.

    """
    if len(owner) > OWNER_CHARS_MAX or not 0 <= permission <= _PERMISSION_MAX:
        raise FileError(
            FileFault.INVALID, f"an owner has at most {OWNER_CHARS_MAX} letters, a permission is 0 to 1777 (octal)"
        )


def time_of(ms: int) -> int:
    """Return a time as it is.

    Raises:
        FileError: `INVALID`: it is none.

    """
    if not 0 <= ms < 1 << 53:
        raise FileError(FileFault.INVALID, f"{ms} is no time: ms since 1970")
    return ms


def bound_of(value: int) -> int:
    """Return the bound of a quota as it is.

    Raises:
        FileError: `INVALID`: it is none.

    """
    if value == ANY or 0 < value < 1 << 62:
        return value
    raise FileError(FileFault.INVALID, f"{value} is no quota: more than 0, or {ANY} for none")
