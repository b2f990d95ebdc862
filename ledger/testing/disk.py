"""A simulated disk: a page cache over durable bytes, and what goes wrong with both.

* `SimPowerCut`   not an error of a disk: the process that made the call has ended

A write changes the cache, `fdatasync` makes a file's writes durable, `fsync_dir` the names in a folder. At a power
loss any part of the unsynced writes stays, each whole, torn at any byte, or with sectors missing, and of the
unsynced changes of names a prefix, as journalling file systems order them. A killed process leaves the cache as it
is. A failed `fdatasync` drops the writes that it was to make durable but leaves the cache, marked clean: a second one
succeeds and keeps nothing (what Linux does). Folders are durable at once: whoever installs a server makes them.
"""
# Longer than 400 lines: what a disk does and what goes wrong with it change the same few fields.

from __future__ import annotations

import copy
import errno
import posixpath
import random
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ledger.storage.disk import Buffer

_CAPACITY_BYTES = 1 << 30
_KEPT_RATE, _TORN_RATE, _HOLED_RATE = 0.35, 0.25, 0.15
_SECTOR_BYTES = 512


class SimPowerCut(BaseException):
    """Ends a blocking function in the middle; derived so that no handler of errors takes it for one."""


class _File:
    """Content of one file: as processes see it, and as a power loss would leave it at best."""

    __slots__ = ("cached", "durable", "settled_bytes", "unreadable", "unsynced")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        # (offset, bytes) in the order of writing. `durable` plus all of these is `cached`, unless a sync failed.
        self.unsynced: list[tuple[int, bytes]] = []
        self.unreadable: list[tuple[int, int]] = []  # (first, end) byte offsets
        self.settled_bytes = 0  # where the writes of the last sync begin

    def write(self, byte_offset: int, content: bytes) -> None:
        _put(self.cached, byte_offset, content)
        self.unsynced.append((byte_offset, content))
        end = byte_offset + len(content)
        # What is written as a whole is given another place by the device.
        self.unreadable = [place for place in self.unreadable if place[0] < byte_offset or place[1] > end]


class SimDiskImage:
    """All that was durable on a disk at one moment."""

    def __init__(self, files: dict[str, bytes], folders: list[str], kept: dict[str, Any]) -> None:
        self._files, self._folders = files, folders
        self._kept = copy.deepcopy(kept)

    def disk(self) -> SimDisk:
        """Return a healthy disk that holds it."""
        disk = SimDisk(random.Random(0))
        disk.put_back(self)
        return disk

    def contents(self) -> tuple[dict[str, bytes], list[str], dict[str, Any]]:
        """Return files, folders, and what libraries keep."""
        return self._files, self._folders, copy.deepcopy(self._kept)


class SimDisk:
    """The disk of one host; implements `ledger.storage.disk.Disk`.

    Attributes:
        slowness: Multiplies the time of everything; 1 is a healthy disk.
        write_error_rate: Share of writes that fail with ENOSPC, with nothing written.
        sync_error_rate: Share of syncs that fail with EIO.
        read_error_rate: Share of reads that fail with EIO, and succeed when tried again.
        capacity_bytes: ENOSPC beyond it.
        operations_left: While a process ends: operations still carried out of the function under way.
        sync_count: Successful `fdatasync` calls so far.
        kept: What libraries keep on it in files of their own; each change of it is durable at once.

    """

    def __init__(
        self, rng: random.Random, *, capacity_bytes: int = _CAPACITY_BYTES, note: Callable[[bytes], None] | None = None
    ) -> None:
        self.rng = rng
        self.slowness = 1.0
        self.write_error_rate = 0.0
        self.sync_error_rate = 0.0
        self.read_error_rate = 0.0
        self.capacity_bytes = self._capacity_bytes = capacity_bytes
        self.operations_left: int | None = None
        self.sync_count = 0
        self.kept: dict[str, Any] = {}
        self._note = note or (lambda _content: None)
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._folders: dict[str, None] = {"/": None}
        # folder -> changes of names in it since its last sync: (name, file or None if it went), each list at once.
        self._unsynced_names: dict[str, list[list[tuple[str, _File | None]]]] = {}
        self._handles: dict[int, _File] = {}
        self._next_handle = 3
        self._last_stale_handle = 3

    # --- Disk

    def open(self, path: str, *, create: bool = False) -> int:
        self._operate()
        file = self._names.get(path)
        if file is None:
            folder = posixpath.dirname(path)
            if not create or folder not in self._folders:
                _fail(errno.ENOENT, path)
            file = _File()
            self._rename(folder, [(path, file)])
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def close(self, handle: int) -> None:
        if self._handles.pop(handle, None) is None and handle > self._last_stale_handle:
            _fail(errno.EBADF, f"handle {handle}")

    def pwritev(self, handle: int, buffers: Sequence[Buffer], byte_offset: int) -> int:
        content = b"".join(buffers)
        torn = self._operate(tears=True)
        file = self._file(handle)
        if self.rng.random() < self.write_error_rate:
            _fail(errno.ENOSPC, "write")
        if byte_offset + len(content) > len(file.cached) and self.used_bytes + len(content) > self.capacity_bytes:
            _fail(errno.ENOSPC, "write")
        if torn:
            file.write(byte_offset, content[: self.rng.randrange(len(content) + 1)])
            raise SimPowerCut
        file.write(byte_offset, content)
        return len(content)

    def pread(self, handle: int, byte_count: int, byte_offset: int) -> bytes:
        self._operate()
        if self.read_error_rate and self.rng.random() < self.read_error_rate:
            _fail(errno.EIO, "pread")
        file = self._file(handle)
        if any(first < byte_offset + byte_count and byte_offset < end for first, end in file.unreadable):
            _fail(errno.EIO, "pread")
        return bytes(file.cached[byte_offset : byte_offset + byte_count])

    def fdatasync(self, handle: int) -> None:
        self._operate()
        file = self._file(handle)
        writes, file.unsynced = file.unsynced, []
        if self.rng.random() < self.sync_error_rate:
            _fail(errno.EIO, "fdatasync")
        for byte_offset, content in writes:
            _put(file.durable, byte_offset, content)
        if writes:
            file.settled_bytes = min(byte_offset for byte_offset, _ in writes)
        self.sync_count += 1
        self._note(b"sync %d" % len(writes))

    def zero_fill(self, handle: int, byte_count: int) -> None:
        self.pwritev(handle, [bytes(byte_count)], 0)

    def size(self, handle: int) -> int:
        return len(self._file(handle).cached)

    def rename(self, source: str, target: str) -> None:
        self._operate()
        file = self._names.get(source)
        if file is None:
            _fail(errno.ENOENT, source)
        folder, target_folder = posixpath.dirname(source), posixpath.dirname(target)
        if folder != target_folder:
            _fail(errno.EXDEV, f"{source} to {target}: the twin renames within one folder only")
        self._rename(folder, [(source, None), (target, file)])

    def remove(self, path: str) -> None:
        self._operate()
        if path not in self._names:
            _fail(errno.ENOENT, path)
        self._rename(posixpath.dirname(path), [(path, None)])

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._folders

    def make_dirs(self, path: str) -> None:
        self._operate()
        while path not in self._folders:
            self._folders[path] = None
            path = posixpath.dirname(path)

    def list_dir(self, path: str) -> list[str]:
        if path not in self._folders:
            _fail(errno.ENOENT, path)
        names = [*self._names, *self._folders]
        return sorted(posixpath.basename(name) for name in names if posixpath.dirname(name) == path and name != path)

    def fsync_dir(self, path: str) -> None:
        self._operate()
        if path not in self._folders:
            _fail(errno.ENOENT, path)
        if self.rng.random() < self.sync_error_rate:
            _fail(errno.EIO, f"fsync of {path}")  # journalling file systems lose no change between two others
        for change in self._unsynced_names.pop(path, []):
            _apply(self._durable_names, change)

    def free_bytes(self, path: str) -> int:
        self._file_system(path)
        return max(0, self.capacity_bytes - self.used_bytes)

    def total_bytes(self, path: str) -> int:
        self._file_system(path)
        return self.capacity_bytes

    # --- what tests and faults do to it

    @property
    def used_bytes(self) -> int:
        """Bytes of all files, as processes see them."""
        return sum(len(file.cached) for file in self._names.values())

    def files(self) -> dict[str, bytes]:
        """Return the content of all files as processes see it, by path, sorted."""
        return {path: bytes(self._names[path].cached) for path in sorted(self._names)}

    def make_healthy(self) -> None:
        """End all faults but those that lie in the files."""
        self.slowness = 1.0
        self.write_error_rate = self.sync_error_rate = self.read_error_rate = 0.0
        self.make_room()

    def fill(self, room_bytes: int) -> None:
        """Leave room for this many bytes."""
        self.capacity_bytes = self.used_bytes + room_bytes

    def make_room(self) -> None:
        """Undo `fill`."""
        self.capacity_bytes = self._capacity_bytes

    def close_handles(self) -> None:
        """Take the handles of a process that ended; what is left of it may still close them, to no effect."""
        self._handles.clear()
        self._last_stale_handle = self._next_handle

    def lose_power(self) -> None:
        """Keep what was synced, and of the rest what chance decides."""
        self.close_handles()
        for folder in self._unsynced_names:
            changes = self._unsynced_names[folder]
            for change in changes[: self.rng.randrange(len(changes) + 1)]:
                _apply(self._durable_names, change)
        self._unsynced_names.clear()
        self._names = dict(self._durable_names)
        for path in sorted(self._names):
            file = self._names[path]
            for byte_offset, content in file.unsynced:
                drawn = self.rng.random()
                if drawn < _KEPT_RATE:
                    _put(file.durable, byte_offset, content)
                elif drawn < _KEPT_RATE + _TORN_RATE:
                    _put(file.durable, byte_offset, content[: self.rng.randrange(len(content) + 1)])
                elif drawn < _KEPT_RATE + _TORN_RATE + _HOLED_RATE:
                    self._keep_some_sectors(file, byte_offset, content)
            file.unsynced = []
            file.cached = bytearray(file.durable)

    def _keep_some_sectors(self, file: _File, byte_offset: int, content: bytes) -> None:
        """Write back the sectors of one write in no order, as a page cache may."""
        end = byte_offset + len(content)
        start = byte_offset
        while start < end:
            stop = min(end, (start // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
            if self.rng.random() < 0.5:
                _put(file.durable, start, content[start - byte_offset : stop - byte_offset])
            start = stop

    def rot_settled(self, path: str) -> None:
        """Flip one bit before the last synced write: after a crash, rot in that one looks like a torn tail."""
        file = self._names[path]
        if file.settled_bytes:
            self.rot(path, byte_offset=self.rng.randrange(min(file.settled_bytes, len(file.durable))))

    def misdirect_settled(self, path: str) -> None:
        """Undo a write before the last synced one, and find its bytes elsewhere: the disk took the wrong sectors."""
        file = self._names[path]
        settled_bytes = min(file.settled_bytes, len(file.durable), len(file.cached))
        sectors = settled_bytes // _SECTOR_BYTES
        if sectors < 2:
            return
        source, target = (sector * _SECTOR_BYTES for sector in self.rng.sample(range(sectors), 2))
        size = min(_SECTOR_BYTES * self.rng.choice((1, 1, 8)), settled_bytes - max(source, target))
        for content in (file.durable, file.cached):
            moved = content[source : source + size]
            content[source : source + size] = bytes(size)
            content[target : target + size] = moved

    def rot(self, path: str | None = None, *, byte_offset: int | None = None) -> tuple[str, int] | None:
        """Flip one bit, on the disk and in the cache.

        Args:
            path: The file; drawn if not given.
            byte_offset: Drawn if not given.

        Returns:
            Where; None if there is no byte to flip.

        """
        candidates = [name for name in sorted(self._names) if self._names[name].durable and path in (None, name)]
        if not candidates:
            return None
        name = self.rng.choice(candidates)
        file = self._names[name]
        place = self.rng.randrange(len(file.durable)) if byte_offset is None else byte_offset
        bit = 1 << self.rng.randrange(8)
        file.durable[place] ^= bit
        if place < len(file.cached):
            file.cached[place] ^= bit
        return name, place

    def file_bytes(self, path: str) -> int:
        """Return the length of a file in bytes."""
        return len(self._names[path].cached)

    def truncate(self, path: str, byte_count: int) -> None:
        """Cut a file short, on the disk and in the cache."""
        for content in (self._names[path].durable, self._names[path].cached):
            del content[byte_count:]

    def spoil(self, path: str, byte_offset: int, byte_count: int = 4096) -> None:
        """Read a place of a file no more, until it is written anew as a whole."""
        self._names[path].unreadable.append((byte_offset, byte_offset + byte_count))

    def zero(self, path: str, byte_offset: int) -> None:
        """Zero a file from a place on, on the disk and in the cache."""
        for content in (self._names[path].durable, self._names[path].cached):
            content[byte_offset:] = bytes(max(0, len(content) - byte_offset))

    def delete(self, path: str) -> None:
        """Lose a file for good."""
        for names in (self._names, self._durable_names):
            names.pop(path, None)

    def image(self) -> SimDiskImage:
        """Copy what is durable."""
        files = {path: bytes(file.durable) for path, file in self._durable_names.items()}
        return SimDiskImage(files, list(self._folders), self.kept)

    def put_back(self, image: SimDiskImage) -> None:
        """Hold what an image holds, and nothing else."""
        self.lose_everything()
        files, folders, self.kept = image.contents()
        self._folders = dict.fromkeys(folders)
        for path, content in files.items():
            file = self._names[path] = self._durable_names[path] = _File()
            file.cached[:] = file.durable[:] = content

    def lose_everything(self) -> None:
        """Replace the disk by an empty one."""
        self.close_handles()
        self.kept = {}
        self._names.clear()
        self._durable_names.clear()
        self._unsynced_names.clear()
        self._folders = {"/": None}

    # --- inside

    def _operate(self, *, tears: bool = False) -> bool:
        """Count an operation of a function whose process has ended; return True if this write is its last."""
        if self.operations_left is None:
            return False
        if self.operations_left <= 0:
            if tears and self.operations_left == 0:
                self.operations_left = -1
                return True
            raise SimPowerCut
        self.operations_left -= 1
        return False

    def _file(self, handle: int) -> _File:
        file = self._handles.get(handle)
        if file is None:
            _fail(errno.EBADF, f"handle {handle}")
        return file

    def _rename(self, folder: str, change: list[tuple[str, _File | None]]) -> None:
        _apply(self._names, change)
        self._unsynced_names.setdefault(folder, []).append(change)

    def _file_system(self, path: str) -> None:
        if not self.exists(path):
            _fail(errno.ENOENT, path)


def _apply(names: dict[str, _File], change: list[tuple[str, _File | None]]) -> None:
    for path, file in change:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _put(content: bytearray, byte_offset: int, piece: bytes) -> None:
    if byte_offset > len(content):
        content.extend(bytes(byte_offset - len(content)))
    content[byte_offset : byte_offset + len(piece)] = piece


def _fail(code: int, what: str) -> NoReturn:
    raise OSError(code, f"simulated: {errno.errorcode[code]}", what)
