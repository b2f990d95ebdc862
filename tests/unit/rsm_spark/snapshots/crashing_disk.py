"""A disk whose process, or whose power, goes at a given step."""

from __future__ import annotations

from io import BufferedWriter
from pathlib import Path
from typing import Any, Self, cast

from rsm_spark.snapshots.disk import SnapshotDisk


class Crash(BaseException):
    """The process is gone: nobody catches this, nothing is cleaned up."""


class _File:
    """A file whose writes are steps of the disk."""

    def __init__(self, disk: CrashingDisk, path: Path, file: BufferedWriter) -> None:
        self._disk, self._path, self._file = disk, path, file

    def write(self, content: bytes) -> int:
        self._disk.unsynced.setdefault(self._path, self._path.stat().st_size if self._path.exists() else 0)
        if self._disk.step_count + 1 == self._disk.crash_at and not self._disk.is_after:
            self._file.write(content[: len(content) // 2])
            self._file.flush()
        self._disk.step(before=True)
        self._file.write(content)
        self._file.flush()
        self._disk.step(before=False)
        return len(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CrashingDisk(SnapshotDisk):
    """Goes at step `crash_at`, before or after it is done; 0 = never.

    Args:
        crash_at: 1 = the first write, fsync, rename, making or removing of a folder.
        is_after: The step is done.

    """

    def __init__(self, crash_at: int = 0, *, is_after: bool = False) -> None:
        self.crash_at = crash_at
        self.is_after = is_after
        self.step_count = 0
        # Files with bytes that no fsync covers -> size that one covers. Renames that no fsync of their folder covers.
        self.unsynced: dict[Path, int] = {}
        self.renamed: list[tuple[Path, Path]] = []

    def step(self, *, before: bool) -> None:
        if before:
            self.step_count += 1
        if self.step_count == self.crash_at and before is not self.is_after:
            raise Crash

    def lose_power(self) -> None:
        """Lose what no fsync covers: bytes of files, and renames."""
        for path, size in self.unsynced.items():
            for there in (path, *(target / path.name for source, target in self.renamed if source == path.parent)):
                if there.exists():
                    with there.open("r+b") as file:
                        file.truncate(size)
        for source, target in reversed(self.renamed):
            if target.exists() and not source.exists():
                target.rename(source)

    def make_folder(self, path: Path) -> None:
        self.step(before=True)
        super().make_folder(path)
        self.step(before=False)

    def create(self, path: Path) -> BufferedWriter:
        self.step(before=True)
        file = super().create(path)
        self.step(before=False)
        return cast("BufferedWriter", _File(self, path, file))

    def append(self, path: Path) -> BufferedWriter:
        self.step(before=True)
        file = super().append(path)
        self.step(before=False)
        return cast("BufferedWriter", _File(self, path, file))

    def sync_file(self, file: BufferedWriter) -> None:
        self.step(before=True)
        super().sync_file(file)
        self.unsynced.pop(Path(file.name), None)
        self.step(before=False)

    def sync_folder(self, path: Path) -> None:
        self.step(before=True)
        super().sync_folder(path)
        self.renamed = [one for one in self.renamed if one[1].parent != path]
        self.step(before=False)

    def rename(self, source: Path, target: Path) -> None:
        self.step(before=True)
        super().rename(source, target)
        self.renamed.append((source, target))
        self.step(before=False)

    def remove_folder(self, path: Path) -> None:
        self.step(before=True)
        super().remove_folder(path)
        self.step(before=False)
