"""Files as they are written: a short one by one command, a longer one as an upload that is there whole when it ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from rsm_spark.errors import RsmError
from rsm_spark.files.commands import (
    BeginUpload,
    CreateFile,
    DropUpload,
    EndUpload,
    FileCommand,
    FileDone,
    UploadBegun,
    WriteUpload,
)

Execute = Callable[[FileCommand], Awaitable[FileDone | UploadBegun]]
"""Has a command carried out; raises `FileError` where it is refused."""


async def write_file(
    execute: Execute, path: str, pieces: AsyncIterator[bytes], owner: str, permission: int, *, overwrite: bool
) -> int:
    """Write a file; return its bytes. Nobody sees it before all of it is there.

    Args:
        execute: See `Execute`.
        path: Of the file.
        pieces: Of its content, each of `PART_BYTES_MAX` at most; none is empty but a single one.
        owner: Who it belongs to.
        permission: That is shown.
        overwrite: It may replace a file.

    Raises:
        FileError: It is refused; nothing was changed.
        RsmError: See `Execute`; what was sent is forgotten, now or after a while.

    """
    first = await anext(pieces, b"")
    second = await anext(pieces, None)
    if second is None:
        await execute(CreateFile(path, first, owner, permission, overwrite))
        return len(first)
    begun = await execute(BeginUpload(path, owner, permission, overwrite))
    assert isinstance(begun, UploadBegun)
    number, part, size = begun.number, 0, 0
    try:
        for piece in (first, second):
            await execute(WriteUpload(path, number, part, piece))
            part, size = part + 1, size + len(piece)
        async for piece in pieces:
            await execute(WriteUpload(path, number, part, piece))
            part, size = part + 1, size + len(piece)
        await execute(EndUpload(path, number))
    except BaseException:
        with contextlib.suppress(RsmError):
            await execute(DropUpload(path, number))
        raise
    return size
