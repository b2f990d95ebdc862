"""Commands and queries of the file store, their replies and results: msgpack arrays whose first element is the kind."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from rsm_spark.core.contents import FileContent
from rsm_spark.files.errors import FileError, FileFault, file_error

ANY = -1
"""Bound of a quota that is none."""


class RenameRule(StrEnum):
    """Rule by which a name is given that something has already.

    INTO: a directory takes it in, anything else makes the rename a "no", as Hadoop's first rename has it. NEW: it is
    refused. OVERWRITE: a file, or an empty directory, makes room.
    """

    INTO = "into"
    NEW = "new"
    OVERWRITE = "overwrite"


class CreateFile(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Make a file with this content, and the directories above it that are not there."""

    path: str
    content: bytes
    owner: str
    permission: int
    overwrite: bool


class AppendFile(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Put bytes behind what a file has."""

    path: str
    content: bytes


class MakeDirectory(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Make a directory, and those above it that are not there; one that is there is left as it is."""

    path: str
    owner: str
    permission: int


class RenameEntry(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Give a file, or a directory with all below it, another path."""

    source: str
    destination: str
    rule: RenameRule


class DeleteEntry(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Delete a file, or a directory: with something in it only if `is_recursive`."""

    path: str
    is_recursive: bool


class SetFileTimes(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Set times, in ms since 1970; None = it stays."""

    path: str
    modified_ms: int | None
    accessed_ms: int | None


class SetPermission(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Set the permission that is shown."""

    path: str
    permission: int


class SetQuota(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Bound what lies below a directory; `ANY` = no bound, None = it stays."""

    path: str
    names_max: int | None
    bytes_max: int | None


class BeginUpload(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Begin to send a file in parts. It is there when the upload ends, whole; until then it is nowhere."""

    path: str
    owner: str
    permission: int
    overwrite: bool


class WriteUpload(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Send the next part; parts are numbered from 0."""

    path: str
    number: int
    part: int
    content: bytes


class EndUpload(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Put the file at its path, with all that was sent."""

    path: str
    number: int


class DropUpload(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Forget what was sent."""

    path: str
    number: int


class NoteLedger(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Note in which ledger the content of an upload is going to lie. Servers say so, before they write to it."""

    path: str
    number: int
    ledger: int


class NoteProgress(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Note how many bytes an upload has in its ledger: its server is still there."""

    path: str
    number: int
    size: int


class EndLedger(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Put the file at its path, with the content that its ledger holds, which is closed; see `FileContent`."""

    path: str
    number: int
    size: int
    chunk_count: int
    digest: bytes


class ForgetLedgers(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Forget ledgers that nothing named any more: they are deleted. The path is the root."""

    path: str
    ledgers: tuple[int, ...]


FileCommand = (
    BeginUpload
    | NoteLedger
    | NoteProgress
    | EndLedger
    | ForgetLedgers
    | WriteUpload
    | EndUpload
    | DropUpload
    | CreateFile
    | AppendFile
    | MakeDirectory
    | RenameEntry
    | DeleteEntry
    | SetFileTimes
    | SetPermission
    | SetQuota
)


class ShowEntry(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Show what lies at a path."""

    path: str


class ListEntries(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """List a directory, in order, behind a name; of a file itself."""

    path: str
    after: str = ""
    limit: int = 1_000


class ReadFile(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Read bytes of a file, 1 MiB at most; None = all behind the offset. With a number only of the file that has it."""

    path: str
    offset: int = 0
    length: int | None = None
    number: int = 0


class SumEntries(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Sum up what lies at a path and below."""

    path: str


class ListFreed(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """List ledgers that nothing named any more before a revision, some of them. The path is the root."""

    path: str
    limit: int
    before: int


class FindNameless(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Find out which of these ledgers nothing names, nor will. The path is the root.

    Attributes:
        ledgers: Each with the number of the upload for which it was made, as its metadata say.

    """

    path: str
    ledgers: tuple[tuple[int, int], ...]


FileQuery = ShowEntry | ListEntries | ReadFile | SumEntries | ListFreed | FindNameless


class FileDone(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """It was done, or was so before; False = there was nothing to do it with."""

    is_done: bool = True


class FileRefused(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """It was not done, and why; see `FileFault`."""

    fault: str
    reason: str

    def error(self) -> FileError:
        """Return it as an error."""
        return file_error(FileFault(self.fault), self.reason)


class UploadBegun(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Number of an upload, which its parts name."""

    number: int


class EntryShown(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A file or a directory.

    Attributes:
        name: In its directory; "" where it was asked for by its path.
        number: Its own, which it keeps when it is renamed.
        is_directory: Else it is a file.
        size: Bytes.
        modified_ms: ms since 1970.
        accessed_ms: The same.
        owner: Name of whoever made it.
        permission: As Unix has it.
        child_count: Names in it.

    """

    name: str
    number: int
    is_directory: bool
    size: int
    modified_ms: int
    accessed_ms: int
    owner: str
    permission: int
    child_count: int


class EntriesPage(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Some entries of a directory, in the order of their names."""

    entries: list[EntryShown]
    has_more: bool


class FilePart(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Bytes of a file, how many it has in all, and its number."""

    content: bytes
    size: int
    number: int


class FilePlace(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Place of what is read next of a file: a ledger.

    Attributes:
        number: Of the file.
        size: Its bytes.
        content: What of them lies in the ledger, from the first byte on.

    """

    number: int
    size: int
    content: FileContent


class FreedLedger(msgspec.Struct, frozen=True, array_like=True):
    """Ledger that nothing names any more.

    Attributes:
        ledger: Its id.
        number: Of the upload for which it was made.
        revision: Since then nothing names it; 0 = nothing ever has.

    """

    ledger: int
    number: int
    revision: int


class FreedLedgers(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Ledgers that nothing names any more, some of them."""

    ledgers: tuple[FreedLedger, ...]


class NamelessLedgers(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Those of the ledgers that were asked for which nothing names, nor will."""

    ledgers: tuple[int, ...]


class EntriesSum(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Sum of what lies at a path and below, and its quotas; `ANY` = none."""

    files: int
    directories: int
    size: int
    names_max: int
    bytes_max: int


FileReply = FileDone | UploadBegun | FileRefused
FileResult = FileRefused | EntryShown | EntriesPage | FilePart | EntriesSum | FilePlace | FreedLedgers | NamelessLedgers

_COMMANDS = msgspec.msgpack.Decoder(FileCommand)
_QUERIES = msgspec.msgpack.Decoder(FileQuery)
_REPLIES = msgspec.msgpack.Decoder(FileReply)
_RESULTS = msgspec.msgpack.Decoder(FileResult)
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: FileCommand | FileQuery | FileReply | FileResult) -> bytes:
    """Return the bytes of a message."""
    return _ENCODER.encode(message)


def decode_command(text: bytes) -> FileCommand:
    """Read a command.

    Raises:
        FileError: `INVALID`: it is none.

    """
    return _decoded(_COMMANDS, text, "command")  # type: ignore[no-any-return]


def decode_query(text: bytes) -> FileQuery:
    """Read a query.

    Raises:
        FileError: `INVALID`: it is none.

    """
    return _decoded(_QUERIES, text, "query")  # type: ignore[no-any-return]


def decode_reply(text: bytes) -> FileReply:
    """Read a reply."""
    return _REPLIES.decode(text)  # type: ignore[no-any-return]


def decode_result(text: bytes) -> FileResult:
    """Read the result of a query."""
    return _RESULTS.decode(text)  # type: ignore[no-any-return]


def _decoded(decoder: msgspec.msgpack.Decoder[Any], text: bytes, what: str) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileError(FileFault.INVALID, f"this is no {what} of a file store: {str(error)[:200]}") from None
