"""A file store that is asked one thing after the other, for tests."""

from __future__ import annotations

from typing import Any

from rsm_spark.files.commands import (
    CreateFile,
    DeleteEntry,
    EntriesPage,
    FileCommand,
    FileDone,
    FilePart,
    FileQuery,
    FileRefused,
    ListEntries,
    MakeDirectory,
    ReadFile,
    RenameEntry,
    RenameRule,
    UploadBegun,
    decode_reply,
    decode_result,
    encode,
)
from rsm_spark.files.machine import FileMachine
from rsm_spark.testing import MachineHarness


class Store:
    """A file store that is asked one thing after the other."""

    def __init__(self) -> None:
        self.machine = FileMachine()
        self.harness = MachineHarness(self.machine)

    def run(self, command: FileCommand) -> Any:
        reply = decode_reply(self.harness.execute(encode(command)).reply)
        if isinstance(reply, UploadBegun):
            return reply.number
        return reply.is_done if isinstance(reply, FileDone) else reply.fault

    def ask(self, query: FileQuery) -> Any:
        result = decode_result(self.harness.query(encode(query)))
        return result.fault if isinstance(result, FileRefused) else result

    def write(self, path: str, content: bytes = b"x", *, overwrite: bool = False) -> Any:
        return self.run(CreateFile(path, content, "ann", 0o644, overwrite))

    def mkdir(self, path: str) -> Any:
        return self.run(MakeDirectory(path, "ann", 0o755))

    def rename(self, source: str, destination: str, rule: RenameRule = RenameRule.NEW) -> Any:
        return self.run(RenameEntry(source, destination, rule))

    def delete(self, path: str, *, recursive: bool = False) -> Any:
        return self.run(DeleteEntry(path, recursive))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Any:
        found = self.ask(ReadFile(path, offset, length))
        return found.content if isinstance(found, FilePart) else found

    def read_all(self, path: str) -> bytes:
        """Return a file of any length, read piece by piece."""
        content = b""
        while True:
            found = self.ask(ReadFile(path, len(content)))
            content += found.content
            if len(content) == found.size:
                return content

    def names(self, path: str) -> Any:
        found = self.ask(ListEntries(path))
        return [entry.name for entry in found.entries] if isinstance(found, EntriesPage) else found
