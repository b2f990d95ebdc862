"""The file system as local snapshots use it: few calls, each of which a test can let fail."""

from __future__ import annotations

import os
import shutil
from io import BufferedWriter
from pathlib import Path

from ledger.private_files import FILE_MODE, FOLDER_MODE


class SnapshotDisk:
    """Real files. Every method raises OSError."""

    def make_folder(self, path: Path) -> None:
        """Create a folder that does not exist, and its parents."""
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        path.mkdir(mode=FOLDER_MODE)

    def create(self, path: Path) -> BufferedWriter:
        """Open a new file for writing."""
        return open(path, "xb", opener=_private)

    def append(self, path: Path) -> BufferedWriter:
        """Open a file for writing behind what it holds; make it when missing."""
        return open(path, "ab", opener=_private)

    def sync_file(self, file: BufferedWriter) -> None:
        """Wait until the file's bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        """Wait until the folder's names are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Move a folder to a name that is free."""
        source.rename(target)

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
