"""The file store as a replicated state machine: directories, small files in its records, quotas. Pure.

Directories and files have numbers, so that a rename of a directory is two records, whatever it holds. What is deleted
with all below it goes to a trash that nobody sees, and is purged from there by and by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from rsm_spark.core.contents import CONTENTS_TABLE, FREED_TABLE, FileContent
from rsm_spark.core.machine import Decision, DueRecords, MachineDescription, Row, RowChange
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.files.commands import (
    ANY,
    AppendFile,
    BeginUpload,
    CreateFile,
    DeleteEntry,
    DropUpload,
    EndLedger,
    EndUpload,
    EntriesPage,
    EntriesSum,
    EntryShown,
    FileCommand,
    FileDone,
    FilePart,
    FilePlace,
    FileQuery,
    FileRefused,
    FileResult,
    FindNameless,
    ForgetLedgers,
    FreedLedger,
    FreedLedgers,
    ListEntries,
    ListFreed,
    MakeDirectory,
    NamelessLedgers,
    NoteLedger,
    NoteProgress,
    ReadFile,
    RenameEntry,
    SetFileTimes,
    SetPermission,
    SetQuota,
    ShowEntry,
    UploadBegun,
    WriteUpload,
    decode_command,
    decode_query,
    encode,
)
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import LEDGERS_MAX, PART_BYTES_MAX
from rsm_spark.files.paths import names_of, shown
from rsm_spark.files.records import (
    ENTERED,
    ENTRIES_TABLE,
    FILES_DESCRIPTION,
    LEDGER_GONE,
    PART_ERASED,
    PART_WRITTEN,
    PARTS_TABLE,
    QUOTAS_TABLE,
    REMOVED,
    TRASH,
    UPLOAD_ENDED,
    UPLOADED,
    UPLOADS_TABLE,
)
from rsm_spark.files.tree import FileNode, FileTree
from rsm_spark.files.uploads import FileUpload, FileUploads, UploadDraft

PAGE_MAX = 1_000
"""Entries of one page of a listing."""
_GROWING = (CreateFile, AppendFile, MakeDirectory, BeginUpload, WriteUpload, NoteLedger)
_ROOM_FOR_LEDGERS = f"there are {LEDGERS_MAX} files in ledgers of their own, or such that are about to go: delete some"
_FULL = (
    "the memory of the leader, or of a replica that follows it, is nearly used up: nothing that is new is taken. "
    "Nothing was changed: delete something, or come again later"
)


class FileMachine(TableMachine):
    """State of the file store; see `rsm_spark.files.commands` for what it is asked. Refusals are replies, not errors.

    Attributes:
        tree: Its directories.
        uploads: Files that are being sent.

    """

    description: ClassVar[MachineDescription] = FILES_DESCRIPTION

    def __init__(self) -> None:
        self.tree = FileTree()
        self.uploads = FileUploads()
        # Sizes of parts behind the first, of files that have such: an offset is then found without reading.
        self._more_parts: dict[int, dict[int, int]] = {}
        super().__init__()

    # ---- deciding

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide a command."""
        draft = self._draft(revision, now_ms)
        try:
            decoded = decode_command(command)
            if self.is_full and isinstance(decoded, _GROWING):
                return Decision((), encode(FileRefused(FileFault.FULL.value, _FULL)))
            if isinstance(decoded, ForgetLedgers):
                return self._forgotten(decoded)
            if isinstance(decoded, NoteLedger) and self._ledger_count >= LEDGERS_MAX:
                return Decision((), encode(FileRefused(FileFault.FULL.value, _ROOM_FOR_LEDGERS)))
            reply = _carry_out(draft, decoded)
        except FileError as error:
            return Decision((), encode(FileRefused(error.fault.value, str(error))))
        return Decision(draft.records, encode(reply))

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[DueRecords]:
        """Forget uploads that have become silent, and purge what was deleted with all below it, one by one."""
        for _ in range(limit):
            draft = self._draft(0, now_ms)
            if not draft.forget_overdue(promoted_ms) and not draft.purge_one():
                return
            yield draft.records

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return 0 while there is something to purge, else when an upload has been silent for too long."""
        return 0 if self.tree.count(TRASH) else self.uploads.next_due_ms(promoted_ms)

    def _draft(self, revision: int, now_ms: int) -> UploadDraft:
        return UploadDraft(self.tree, self._quota, self._content, self.uploads, revision, now_ms)

    @property
    def _ledger_count(self) -> int:
        return self.count(CONTENTS_TABLE) + self.count(FREED_TABLE)

    def _content(self, number: int) -> FileContent | None:
        if not self.count(CONTENTS_TABLE):
            return None
        found = self.get(CONTENTS_TABLE, number)
        return None if found is None else FileContent(*found)

    def _forgotten(self, command: ForgetLedgers) -> Decision:
        known = [ledger for ledger in command.ledgers if self.get(FREED_TABLE, ledger) is not None]
        return Decision([(LEDGER_GONE, (ledger,)) for ledger in known], encode(FileDone(bool(known))))

    def _quota(self, directory: int) -> tuple[int, int] | None:
        if not self.count(QUOTAS_TABLE):
            return None
        found = self.get(QUOTAS_TABLE, directory)
        return None if found is None else (found[0], found[1])

    # ---- folding

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record; see `TableMachine.apply`."""
        change = super().apply(record_type, fields, revision)
        if record_type == ENTERED:
            self.tree.put(fields[0], fields[1], FileNode(*fields[2:]))
        elif record_type == REMOVED:
            self.tree.remove(*fields)
        elif record_type == PART_WRITTEN and fields[1]:
            self._more_parts.setdefault(fields[0], {})[fields[1]] = len(fields[2])
        elif record_type == PART_ERASED and fields[0] in self._more_parts:
            sizes = self._more_parts[fields[0]]
            sizes.pop(fields[1], None)
            if not sizes:
                del self._more_parts[fields[0]]
        elif record_type == UPLOADED:
            self.uploads.held[fields[0]] = FileUpload(*fields[1:])
        elif record_type == UPLOAD_ENDED:
            self.uploads.held.pop(fields[0], None)
        return change

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state; see `TableMachine.restore`."""
        self.tree, self.uploads, self._more_parts = FileTree(), FileUploads(), {}
        super().restore(rows)
        self.tree.load(((key[0], key[1]), FileNode(*row)) for key, row in self.items(ENTRIES_TABLE))
        self.uploads = FileUploads((key[0], FileUpload(*row)) for key, row in self.items(UPLOADS_TABLE))
        for (number, part), (content,) in self.items(PARTS_TABLE):
            if part:
                self._more_parts.setdefault(number, {})[part] = len(content)

    # ---- answering

    def query(self, query: bytes, revision: int) -> bytes:
        """Answer a query."""
        try:
            return encode(self._answer(decode_query(query), revision))
        except FileError as error:
            return encode(FileRefused(error.fault.value, str(error)))

    def _answer(self, query: FileQuery, revision: int) -> FileResult:
        if isinstance(query, ListFreed):
            return self._freed(query)
        if isinstance(query, FindNameless):
            return self._nameless(query, revision)
        names = names_of(query.path)
        node = self.tree.find(names)
        if node is None:
            raise FileError(FileFault.NOT_FOUND, f"{shown(query.path)} does not exist")
        if isinstance(query, ShowEntry):
            return self._shown("", node)
        if isinstance(query, ReadFile):
            return self._read_file(query, node)
        if isinstance(query, ListEntries):
            return self._list(query, node)
        files, directories, size = self.tree.below(node)
        names_max, bytes_max = self._quota(node.number) or (ANY, ANY)
        return EntriesSum(files, directories, size, names_max, bytes_max)

    def _list(self, query: ListEntries, node: FileNode) -> EntriesPage:
        if not node.is_directory:
            return EntriesPage([self._shown("", node)], has_more=False)
        limit = max(1, min(query.limit, PAGE_MAX))
        found = self.tree.page(node.number, query.after, limit + 1)
        return EntriesPage([self._shown(name, one) for name, one in found[:limit]], has_more=len(found) > limit)

    def _freed(self, query: ListFreed) -> FreedLedgers:
        found: list[FreedLedger] = []
        for (ledger,), (number, was_named) in self.items(FREED_TABLE):
            if len(found) >= min(query.limit, PAGE_MAX):
                break
            revision = self.revision_of(FREED_TABLE, ledger) if was_named else 0
            if revision < query.before:
                found.append(FreedLedger(ledger, number, revision))
        return FreedLedgers(tuple(found))

    def _nameless(self, query: FindNameless, revision: int) -> NamelessLedgers:
        """Look which ledgers no upload will name any more, and no file does.

        An upload that is not known has ended if its number is one of the past: then it never names anything again.
        """
        nameless = []
        for ledger, number in query.ledgers:
            content = self._content(number)
            is_named = content is not None and content.ledger == ledger
            is_expected = number > revision or number in self.uploads.held
            if not is_named and not is_expected and self.get(FREED_TABLE, ledger) is None:
                nameless.append(ledger)
        return NamelessLedgers(tuple(nameless))

    def _read_file(self, query: ReadFile, node: FileNode) -> FilePart | FilePlace:
        if node.is_directory:
            raise FileError(FileFault.IS_DIRECTORY, f"{shown(query.path)} is a directory, no file")
        if not 0 <= query.offset <= node.size or (query.length is not None and query.length < 0):
            raise FileError(
                FileFault.INVALID,
                f"{shown(query.path)} has {node.size} bytes: an offset of {query.offset} and a length of "
                f"{query.length} cannot be read of it",
            )
        if query.number and query.number != node.number:
            raise FileError(FileFault.NOT_FOUND, f"{shown(query.path)} is another file by now: read it anew")
        content = self._content(node.number)
        if content is not None and query.offset < content.size and query.length != 0:
            return FilePlace(node.number, node.size, content)
        length = PART_BYTES_MAX if query.length is None else min(query.length, PART_BYTES_MAX)
        end = min(node.size, query.offset + length)
        sizes = self._more_parts.get(node.number, {})
        begin = 0 if content is None else content.size
        pieces, at, first = [], begin, node.size - begin - sum(sizes.values())
        for number in range(node.part_count):
            if at >= end:
                break
            size = sizes[number] if number else first
            if at + size > query.offset:
                row = self.get(PARTS_TABLE, node.number, number)
                assert row is not None, "parts are written and erased together with their file"
                pieces.append(row[0][max(0, query.offset - at) : end - at])
            at += size
        return FilePart(b"".join(pieces), node.size, node.number)

    def _shown(self, name: str, node: FileNode) -> EntryShown:
        return EntryShown(
            name, node.number, node.is_directory, node.size, node.modified_ms, node.accessed_ms, node.owner,
            node.permission, self.tree.count(node.number) if node.is_directory else 0,
        )  # fmt: skip


def _carry_out(draft: UploadDraft, command: FileCommand) -> FileDone | UploadBegun:
    """Write a command's records into its draft; return the reply."""
    match command:
        case CreateFile(path, content, owner, permission, overwrite):
            draft.create(path, content, owner, permission, overwrite=overwrite)
        case AppendFile(path, content):
            draft.append(path, content)
        case MakeDirectory(path, owner, permission):
            draft.make_directory(path, owner, permission)
        case RenameEntry(source, destination, rule):
            return FileDone(draft.rename(source, destination, rule))
        case DeleteEntry(path, is_recursive):
            return FileDone(draft.delete(path, is_recursive=is_recursive))
        case SetFileTimes(path, modified_ms, accessed_ms):
            draft.set_times(path, modified_ms, accessed_ms)
        case SetPermission(path, permission):
            draft.set_permission(path, permission)
        case SetQuota(path, names_max, bytes_max):
            draft.set_quota(path, names_max, bytes_max)
        case BeginUpload(path, owner, permission, overwrite):
            return UploadBegun(draft.begin_upload(path, owner, permission, overwrite=overwrite))
        case WriteUpload(path, number, part, content):
            draft.write_upload(path, number, part, content)
        case EndUpload(path, number):
            draft.end_upload(path, number)
        case NoteLedger(path, number, ledger):
            draft.note_ledger(path, number, ledger)
        case NoteProgress(path, number, size):
            draft.note_progress(path, number, size)
        case EndLedger(path, number, size, chunk_count, digest):
            draft.end_ledger(path, number, size, chunk_count, digest)
        case DropUpload(path, number):
            return FileDone(draft.drop_upload(path, number))
    return FileDone()
