"""Faults of the disk of a bookie that is down: files cut short, gone or zeroed, an old copy, a broken index.

Only what a bookie must find is done: journal files are zeroed below their landmark, an old copy is put back once the
metadata know a higher age. What lies within the seconds that nobody can see is not judged.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ledger.storage.index_memory import MemoryIndex
from ledger.storage.landmarks import FILE_NAME, Landmarks
from ledger.testing.disk import SimDiskImage
from ledger.testing.hosts import SimHost

INDEX = "index"
"""Path of the bookie's index on a simulated disk."""


class DiskFaults:
    """Faults of the disk of one host, whose power goes first.

    Args:
        host: The host.
        rng: Draws what is struck, and where.
        folder: Where its landmarks are.
        registered_age: Returns the age of its disks that the metadata hold.

    """

    def __init__(self, host: SimHost, rng: random.Random, folder: str, registered_age: Callable[[], int]) -> None:
        self._host = host
        self._rng = rng
        self._folder = folder
        self._registered_age = registered_age
        self._image: SimDiskImage | None = None

    def truncate(self) -> None:
        """Cut a journal file short."""
        self._host.kill(power=True)
        for path in self._draw(".j"):
            self._host.disk.truncate(path, self._rng.randrange(self._host.disk.file_bytes(path)))

    def delete(self) -> None:
        """Delete a journal file or a segment."""
        named = self._cut().held.journal_ids
        for path in self._draw(".j", ".seg"):
            # A file that is not named yet holds nothing that was acknowledged.
            if path.endswith(".seg") or int(path.rpartition("/")[2][:16], 16) in named:
                self._host.disk.delete(path)

    def zero(self) -> None:
        """Zero a journal file from a place on that was synced for long."""
        held = self._cut().held
        for path in self._draw(".j"):
            journal_id = int(path.rpartition("/")[2][:16], 16)
            is_newest = journal_id == held.synced_journal_id
            proven = held.synced_to if is_newest else self._host.disk.file_bytes(path)
            if proven and (is_newest or journal_id in held.journal_ids[:-1]):
                self._host.disk.zero(path, self._rng.randrange(proven))

    def roll_back(self) -> None:
        """Copy the disk; the next time put the copy back, if it can be told from the disk by then."""
        disk = self._host.disk
        if self._image is None:
            if disk.exists(f"{self._folder}/{FILE_NAME}"):
                self._image = disk.image()
            return
        if self._image_age() < self._registered_age():
            self._host.kill(power=True)
            disk.put_back(self._image)
            self._image = None

    def index(self) -> None:
        """Have the index lose a row, or change one."""
        self._host.kill(power=True)
        index = self._host.disk.kept.get(INDEX)
        if isinstance(index, MemoryIndex):
            index.damage(self._rng)

    def spoil(self) -> None:
        """Have a place of a file that cannot be read; whoever uses it goes on."""
        for path in self._draw(".j", ".seg", f"/{FILE_NAME}", "/limbo.json"):
            self._host.disk.spoil(path, self._rng.randrange(self._host.disk.file_bytes(path)) // 4096 * 4096)

    def _cut(self) -> Landmarks:
        self._host.kill(power=True)
        return Landmarks(self._host.disk, self._folder)

    def _draw(self, *suffixes: str) -> list[str]:
        """Draw a file that has content; none if there is none."""
        disk = self._host.disk
        paths = [path for path in disk.files() if path.endswith(suffixes) and disk.file_bytes(path)]
        return [self._rng.choice(paths)] if paths else []

    def _image_age(self) -> int:
        assert self._image is not None
        return Landmarks(self._image.disk(), self._folder).held.age.count
