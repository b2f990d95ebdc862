"""Folder or object store in which backups lie. Files appear whole or not at all; nothing outside is ever touched."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs

from ledger.private_files import FILE_MODE, FOLDER_MODE
from rsm_spark.backup.manifest import BackupError, CorruptBackupError

_CHUNK_BYTES = 1 << 20
_NEW = ".new-"
_DRAFT = re.compile(r"\.new-[0-9a-f]{16}")


class BackupPlace:
    """Backups of many logs. All calls block.

    Args:
        place: Folder, or URI that pyarrow knows: `s3://bucket/folder`, `gs://…`, `abfss://…`, `hdfs://…`.

    Raises:
        BackupError: The URI is none.

    """

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/") or "/"
        # What is told others has no secret: a URI may hold one (s3://key:secret@bucket).
        scheme, mark, rest = self.place.partition("://")
        self.shown = f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}" if mark else self.place
        self._folder: Path | None = None
        try:
            if "://" in place and not place.startswith("file://"):
                self._files, self._root = pafs.FileSystem.from_uri(self.place)
            else:
                self._folder = Path(place.removeprefix("file://")).absolute()
                self._files, self._root = pafs.LocalFileSystem(), str(self._folder)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BackupError(f"{self.shown}: no place for backups: {error}") from error

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by path below it.

        Raises:
            BackupError: The place cannot be read.

        """
        root = f"{self._root}/{folder}".rstrip("/")
        with self._told("listed", folder):
            found = self._files.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True))
            return {
                one.path[len(root) + 1 :]: one.size
                for one in found
                if one.type == pafs.FileType.File and not one.base_name.startswith(".")
            }

    def drafts(self, folder: str) -> list[str]:
        """Return files below a folder that were never finished, by path below it; an object store has none.

        Raises:
            BackupError: The place cannot be read.

        """
        if self._folder is None:
            return []
        root = self._folder / folder
        with self._told("listed", folder):
            found = [path for path in root.rglob(f"{_NEW}*") if _DRAFT.fullmatch(path.name) and path.is_file()]
            return sorted(str(path.relative_to(root)) for path in found)

    def read(self, path: str, bytes_max: int) -> bytes:
        """Return a small file.

        Raises:
            CorruptBackupError: It is not there, or longer than it may be.
            BackupError: The place cannot be read.

        """
        with self.open(path) as file:
            text: bytes = file.read(bytes_max + 1)
        if len(text) > bytes_max:
            raise CorruptBackupError(f"{self.shown}/{path}: longer than {bytes_max:,} bytes")
        return text

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """Open a file for reading, as a stream.

        Raises:
            CorruptBackupError: It is not there, or a link that leads out of the place.
            BackupError: The place cannot be read.

        """
        self._check_inside(path)
        with self._told("read", path):
            try:
                file = self._files.open_input_stream(f"{self._root}/{path}", compression=None)
            except FileNotFoundError:
                raise CorruptBackupError(f"{self.shown}/{path}: it is not there: take another backup") from None
            with file:
                yield file

    @contextmanager
    def create(self, path: str) -> Iterator[IO[bytes] | Any]:
        """Open a new file for writing. It appears, on the disk, when the block ends well.

        Raises:
            BackupError: The place cannot be written.

        """
        self._check_inside(path)
        with self._told("written", path):
            if self._folder is None:
                # An object appears when its stream is closed; one that is broken off is never completed.
                file = self._begin_object(f"{self._root}/{path}")
                yield file
                file.close()
                return
            target = self._folder / path
            target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            draft = target.parent / f"{_NEW}{secrets.token_hex(8)}"
            try:
                with open(draft, "xb", opener=_private) as written:
                    yield written
                    written.flush()
                    os.fsync(written.fileno())
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
            for folder in (target.parent, *target.parent.relative_to(self._folder).parents):
                _sync_folder(self._folder / folder)

    def _begin_object(self, path: str) -> Any:
        try:
            return self._files.open_output_stream(path, compression=None)
        except FileNotFoundError:  # One with real folders, such as HDFS.
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            return self._files.open_output_stream(path, compression=None)

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error.

        Raises:
            BackupError: The place cannot be written.

        """
        self._check_inside(path)
        with self._told("removed", path):
            if self._files.get_file_info(f"{self._root}/{path}").type != pafs.FileType.NotFound:
                self._files.delete_file(f"{self._root}/{path}")

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a local file to the place."""
        with source.open("rb") as read, self.create(path) as written:
            while chunk := read.read(_CHUNK_BYTES):
                written.write(chunk)

    def chunks(self, path: str, size: int, sha256: str) -> Iterator[bytes]:
        """Yield a file piece by piece; the last one only once size and hash are found right.

        Raises:
            CorruptBackupError: They are not.

        """
        hasher, seen, held = hashlib.sha256(), 0, b""
        with self.open(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                seen += len(chunk)
                if seen > size:
                    break
                hasher.update(chunk)
                if held:
                    yield held
                held = chunk
        if seen != size:
            more = "more than " if seen > size else ""
            raise CorruptBackupError(
                f"{self.shown}/{path}: {more}{min(seen, size):,} bytes, should be {size:,}: cut or changed"
            )
        if hasher.hexdigest() != sha256:
            raise CorruptBackupError(f"{self.shown}/{path}: sha256 {hasher.hexdigest()}, should be {sha256}: changed")
        if held:
            yield held

    def _check_inside(self, path: str) -> None:
        if any(part in {"", ".", ".."} for part in path.split("/")):
            raise CorruptBackupError(f"{self.shown}: the path {path!r} leaves the place of the backups")
        if self._folder is not None:
            place = self._folder
            for part in path.split("/"):
                place /= part
                if place.is_symlink():
                    raise CorruptBackupError(f"{place}: a link: files of a backup are files of its folder")

    @contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise BackupError(f"{self.shown}/{path}: cannot be {what}: {error}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
