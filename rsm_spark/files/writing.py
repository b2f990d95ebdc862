"""Files as they are written: a short one by one command, a longer one as an upload that is there whole when it ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from rsm_spark.core.contents import FileContent
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.files.commands import (
    BeginUpload,
    CreateFile,
    DropUpload,
    EndLedger,
    EndUpload,
    FileCommand,
    FileDone,
    NoteLedger,
    NoteProgress,
    UploadBegun,
    WriteUpload,
)

Execute = Callable[[FileCommand], Awaitable[FileDone | UploadBegun]]
"""Has a command carried out; raises `FileError` where it is refused."""
_NOTED_CHUNKS = 32
"""After so many the log is told that the upload goes on: many times before it would be given up."""


class ContentDraft(Protocol):
    """A content that is being written to a ledger; see `ContentWriter`."""

    ledger: int
    size: int

    async def write(self, chunk: bytes) -> None:
        """Write a chunk."""
        ...

    async def close(self) -> FileContent:
        """Make it final."""
        ...

    def give_up(self) -> None:
        """Write no more."""
        ...


Begin = Callable[[int], Awaitable[ContentDraft]]
"""Begins a content in a ledger of its own, for the upload of a number."""


async def write_file(
    execute: Execute,
    path: str,
    pieces: AsyncIterator[bytes],
    owner: str,
    permission: int,
    *,
    overwrite: bool,
    begin: Begin | None = None,
) -> int:
    """Write a file; return its bytes. Nobody sees it before all of it is there.

    Args:
        execute: See `Execute`.
        path: Of the file.
        pieces: Of its content, each of `PART_BYTES_MAX`; the last one may be shorter. None is empty but a single one.
        owner: Who it belongs to.
        permission: That is shown.
        overwrite: It may replace a file.
        begin: See `Begin`; None = contents lie in the records.

    Raises:
        FileError: It is refused; nothing was changed.
        RsmError: See `Execute`; what was sent is forgotten, now or after a while.
        LedgerError: Bookies do not take it; the same.

    """
    first = await anext(pieces, b"")
    second = await anext(pieces, None)
    if second is None:
        await execute(CreateFile(path, first, owner, permission, overwrite))
        return len(first)
    begun = await execute(BeginUpload(path, owner, permission, overwrite))
    assert isinstance(begun, UploadBegun)
    number, pieces = begun.number, _behind((first, second), pieces)
    try:
        content = None if begin is None else await _content(execute, path, number, begin)
        if content is not None:
            return await _to_ledger(execute, path, number, pieces, content)
        part = size = 0
        async for piece in pieces:
            await execute(WriteUpload(path, number, part, piece))
            part, size = part + 1, size + len(piece)
        await execute(EndUpload(path, number))
    except BaseException:
        with contextlib.suppress(RsmError):
            await execute(DropUpload(path, number))
        raise
    return size


async def _behind(first: tuple[bytes, ...], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    async for piece in pieces:
        yield piece


async def _content(execute: Execute, path: str, number: int, begin: Begin) -> ContentDraft | None:
    """Begin a content, and note it in the log before anything is written to it; None = the log cannot hold that yet."""
    content = await begin(number)
    try:
        await execute(NoteLedger(path, number, content.ledger))
    except InvalidCommandError:  # It is of an older version until every replica knows the newer one.
        content.give_up()
        return None
    except BaseException:
        content.give_up()
        raise
    return content


async def _to_ledger(
    execute: Execute, path: str, number: int, pieces: AsyncIterator[bytes], content: ContentDraft
) -> int:
    count = 0
    try:
        async for piece in pieces:
            await content.write(piece)
            count += 1
            if count % _NOTED_CHUNKS == 0:
                await execute(NoteProgress(path, number, content.size))
        closed = await content.close()
    except BaseException:
        content.give_up()
        raise
    await execute(EndLedger(path, number, closed.size, closed.chunk_count, closed.digest))
    return closed.size
