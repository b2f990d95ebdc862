"""Folder or object store in which backups lie. Files appear whole or not at all; nothing outside is ever touched."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from rsm_spark.backup.manifest import BackupError, CorruptBackupError
from rsm_spark.backup.place_files import ArrowFiles, FolderFiles, PlaceFiles
from rsm_spark.object_stores.complaints import ObjectStoreError, complaint_of
from rsm_spark.object_stores.storage_options import checked_uri, is_s3, shown_uri
from rsm_spark.object_stores.unfinished import Unfinished

_CHUNK_BYTES = 1 << 20
_LOGGER = logging.getLogger(__name__)


class BackupPlace:
    """Backups of many logs. All calls block.

    Args:
        place: Folder, `s3://bucket/folder`, or a URI that pyarrow knows: `gs://…`, `abfss://…`, `hdfs://…`.
        storage_options: Of S3: keys as deltalake has them, beside what the environment says.

    Raises:
        UsageError: The URI holds a secret.
        BackupError: The URI is none, or the options contradict each other.

    """

    def __init__(self, place: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.place = checked_uri(place.rstrip("/") or "/")
        self.shown = shown_uri(self.place)
        self._options = dict(storage_options or {})
        self._folder: Path | None = None
        try:
            self._files = self._opened()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BackupError(f"{self.shown}: no place for backups: {self._complaint(error)}") from None

    def _opened(self) -> PlaceFiles:
        if "://" not in self.place or self.place.startswith("file://"):
            self._folder = Path(self.place.removeprefix("file://")).absolute()
            return FolderFiles(self._folder)
        if is_s3(self.place):
            from rsm_spark.object_stores.s3 import S3Store  # noqa: PLC0415 - boto3 only where it is used

            return S3Store(self.place, self._options)
        return ArrowFiles(self.place)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by path below it.

        Raises:
            BackupError: The place cannot be read.

        """
        with self._told("listed", folder):
            return self._files.sizes(folder)

    def unfinished(self, folder: str) -> list[Unfinished]:
        """Return what was begun below a folder and not finished, by path in the place.

        A store that does not tell has none here, with a warning: that it does not let see them is no fault of a backup.

        Raises:
            BackupError: The place cannot be read.

        """
        with self._told("listed", folder):
            try:
                found = self._files.unfinished(folder)
            except ObjectStoreError as error:
                _LOGGER.warning(
                    "%s/%s: what killed writers left there cannot be listed: %s; or have the store end uploads by "
                    "itself after some days (a lifecycle rule)",
                    self.shown, folder, error,
                )  # fmt: skip
                return []
            return [one._replace(path=f"{folder}/{one.path}") for one in found]

    def discard(self, upload: Unfinished) -> None:
        """Remove what was begun and not finished.

        Raises:
            BackupError: The place cannot be written.

        """
        self._check_inside(upload.path)
        with self._told("removed", upload.path):
            self._files.discard(upload)

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
                with self._files.open(path) as file:
                    yield file
            except FileNotFoundError:
                raise CorruptBackupError(f"{self.shown}/{path}: it is not there: take another backup") from None

    def put(self, path: str, content: bytes) -> None:
        """Write a short file. It appears, and stays, when this returns.

        Raises:
            BackupError: The place cannot be written.

        """
        self._check_inside(path)
        with self._told("written", path):
            self._files.put(path, content)

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a local file to the place; see `put`."""
        self._check_inside(path)
        with self._told("written", path):
            self._files.copy_in(source, path)

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error.

        Raises:
            BackupError: The place cannot be written.

        """
        self._check_inside(path)
        with self._told("removed", path):
            self._files.delete(path)

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
            where = f"{self.shown}/{path}".rstrip("/")
            raise BackupError(f"{where}: cannot be {what}: {self._complaint(error)}") from None

    def _complaint(self, error: Exception) -> str:
        is_worded = self._folder is not None or isinstance(error, ObjectStoreError)
        return str(error) if is_worded else complaint_of(error, self._options)
