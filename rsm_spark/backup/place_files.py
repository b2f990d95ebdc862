"""Files of a place of backups: in a folder, or in a store that Arrow knows. They appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from ledger.private_files import FILE_MODE, FOLDER_MODE
from rsm_spark.object_stores.unfinished import Unfinished

_CHUNK_BYTES = 1 << 20
_NEW = ".new-"
_DRAFT = re.compile(r"\.new-[0-9a-f]{16}")


class PlaceFiles(Protocol):
    """Files below one address; paths are relative to it. What fails raises OSError."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by path below it."""
        ...

    def open(self, path: str) -> AbstractContextManager[Any]:
        """Open a file for reading, as a stream; FileNotFoundError = there is none."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a short file."""
        ...

    def copy_in(self, source: Path, path: str) -> None:
        """Write a file as a local one is."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...

    def unfinished(self, folder: str) -> list[Unfinished]:
        """Return what was begun below a folder and not finished, by path below it."""
        ...

    def discard(self, upload: Unfinished) -> None:
        """Remove such a thing."""
        ...


class FolderFiles:
    """Files on a disk of this machine; each is there for ever once it is seen.

    Args:
        folder: Of all of them; made when the first one is written.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder; see `PlaceFiles`."""
        return dict(_seen(_listed(pafs.LocalFileSystem(), str(self.folder / folder))))

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """Open a file for reading; see `PlaceFiles`."""
        with (self.folder / path).open("rb") as file:
            yield file

    def put(self, path: str, content: bytes) -> None:
        """Write a short file; see `PlaceFiles`."""
        with self._created(path) as file:
            file.write(content)

    def copy_in(self, source: Path, path: str) -> None:
        """Write a file as a local one is; see `PlaceFiles`."""
        with source.open("rb") as read, self._created(path) as written:
            _copy(read, written)

    @contextmanager
    def _created(self, path: str) -> Iterator[IO[bytes]]:
        target = self.folder / path
        target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        draft = target.parent / _draft_name()
        try:
            with open(draft, "xb", opener=_private) as written:
                yield written
                written.flush()
                os.fsync(written.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        for folder in (target.parent, *target.parent.relative_to(self.folder).parents):
            _sync_folder(self.folder / folder)

    def delete(self, path: str) -> None:
        """Remove a file; see `PlaceFiles`."""
        (self.folder / path).unlink(missing_ok=True)

    def unfinished(self, folder: str) -> list[Unfinished]:
        """Return drafts below a folder; see `PlaceFiles`."""
        return _drafts(_listed(pafs.LocalFileSystem(), str(self.folder / folder)))

    def discard(self, upload: Unfinished) -> None:
        """Remove a draft; see `PlaceFiles`."""
        self.delete(upload.path)


class ArrowFiles:
    """Files of a store that Arrow knows.

    Arrow completes a file when its stream goes, however it ended: so each gets its name when it is whole.

    Args:
        uri: As Arrow reads it.

    """

    def __init__(self, uri: str) -> None:
        self._files, root = pafs.FileSystem.from_uri(uri)
        self._root = root.rstrip("/")

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder; see `PlaceFiles`."""
        return dict(_seen(_listed(self._files, f"{self._root}/{folder}")))

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """Open a file for reading; see `PlaceFiles`."""
        with self._files.open_input_stream(f"{self._root}/{path}", compression=None) as file:
            yield file

    def put(self, path: str, content: bytes) -> None:
        """Write a short file; see `PlaceFiles`."""
        with self._created(path) as file:
            file.write(content)

    def copy_in(self, source: Path, path: str) -> None:
        """Write a file as a local one is; see `PlaceFiles`."""
        with source.open("rb") as read, self._created(path) as written:
            _copy(read, written)

    @contextmanager
    def _created(self, path: str) -> Iterator[Any]:
        folder = f"{self._root}/{path}".rpartition("/")[0]
        draft = f"{folder}/{_draft_name()}"
        try:
            with self._begun(draft, folder) as file:
                yield file
            self._files.move(draft, f"{self._root}/{path}")
        except BaseException:
            with contextlib.suppress(OSError, pa.ArrowException):  # It is found by `unfinished` later.
                self._files.delete_file(draft)
            raise

    def _begun(self, draft: str, folder: str) -> Any:
        try:
            return self._files.open_output_stream(draft, compression=None)
        except FileNotFoundError:  # One with real folders, such as HDFS.
            self._files.create_dir(folder, recursive=True)
            return self._files.open_output_stream(draft, compression=None)

    def delete(self, path: str) -> None:
        """Remove a file; see `PlaceFiles`."""
        if self._files.get_file_info(f"{self._root}/{path}").type != pafs.FileType.NotFound:
            self._files.delete_file(f"{self._root}/{path}")

    def unfinished(self, folder: str) -> list[Unfinished]:
        """Return drafts below a folder; see `PlaceFiles`."""
        return _drafts(_listed(self._files, f"{self._root}/{folder}"))

    def discard(self, upload: Unfinished) -> None:
        """Remove a draft; see `PlaceFiles`."""
        self.delete(upload.path)


def _listed(files: pafs.FileSystem, folder: str) -> Iterator[tuple[str, int]]:
    root = folder.rstrip("/")
    for one in files.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True)):
        if one.type == pafs.FileType.File:
            yield one.path[len(root) + 1 :], one.size


def _seen(listed: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    return ((path, size) for path, size in listed if not path.rpartition("/")[2].startswith("."))


def _drafts(listed: Iterator[tuple[str, int]]) -> list[Unfinished]:
    return sorted(Unfinished(path) for path, _ in listed if _DRAFT.fullmatch(path.rpartition("/")[2]))


def _copy(read: IO[bytes], written: Any) -> None:
    while chunk := read.read(_CHUNK_BYTES):
        written.write(chunk)


def _draft_name() -> str:
    return f"{_NEW}{secrets.token_hex(8)}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
