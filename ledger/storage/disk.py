# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH115, PTH208
"""The ports through which storage touches the outside: a disk and threads to wait for it.

Storage code is written as plain blocking functions on a `Disk`; the event loop hands them to an `DiskExecutor`.
In production the disk is the kernel's and an executor is a thread. In the simulation the disk is
`ledger.testing.disk` (page cache over durable bytes) and an executor is a delay in virtual time. So the very
same journal, converter and recovery run in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ledger.private_files import FILE_MODE, FOLDER_MODE

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_IOV_MAX = 1000
"""Buffers of one system call; Linux allows 1,024."""
_READ_BYTES = 1 << 20
_ZEROS = bytes(1 << 20)


class Disk(Protocol):
    """Files as storage needs them: positioned, synced by name. Every call blocks and raises `OSError`.

    What is written is durable once `fdatasync` returned; a name (created, renamed, removed) is durable once
    `fsync_dir` of its folder returned. After an error of either nothing may be assumed of what came before.
    """

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing, and return a handle; `create` makes an empty file where none is."""
        ...

    def close(self, handle: int) -> None:
        """Close a handle; syncs nothing."""
        ...

    def pwritev(self, handle: int, buffers: Sequence[Buffer], byte_offset: int) -> int:
        """Write all buffers one after the other at `byte_offset`; return their bytes. Torn if power fails."""
        ...

    def pread(self, handle: int, byte_count: int, byte_offset: int) -> bytes:
        """Read up to `byte_count` bytes: fewer only at the end of the file."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Wait until all that was written through any handle of this file, and its size, is durable."""
        ...

    def zero_fill(self, handle: int, byte_count: int) -> None:
        """Make the file `byte_count` zero bytes long, really written, so that later writes find their blocks."""
        ...

    def size(self, handle: int) -> int:
        """Return the length of the file in bytes."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing the target, atomically."""
        ...

    def remove(self, path: str) -> None: ...

    def exists(self, path: str) -> bool:
        """Return whether a file or folder of this name exists."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents where missing."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the bytes that this process may still write to the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system of `path`."""
        ...


class DiskExecutor(Protocol):
    """Executor of blocking functions, in the order of their submission for one worker."""

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run `fn` off the event loop; the future belongs to the running loop."""
        ...

    def close(self) -> asyncio.Future[None]:
        """Take no more work; the future is done when all that was submitted is. What comes later is never run."""
        ...


class RealDisk:
    """The kernel's files.

    Args:
        fsync: False keeps nothing over a power cut.
        is_read_only: Open files for reading alone, also those that this process must not write.

    """

    def __init__(self, *, fsync: bool = True, is_read_only: bool = False) -> None:
        self._fsync = fsync
        self._open_flags = os.O_CLOEXEC | (os.O_RDONLY if is_read_only else os.O_RDWR)

    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, self._open_flags | (os.O_CREAT if create else 0), FILE_MODE)

    def close(self, handle: int) -> None:
        os.close(handle)

    def pwritev(self, handle: int, buffers: Sequence[Buffer], byte_offset: int) -> int:
        if len(buffers) == 1:
            return self._pwrite_all(handle, buffers[0], byte_offset)
        written = 0
        for start in range(0, len(buffers), _IOV_MAX):
            part = buffers[start : start + _IOV_MAX]
            expected = sum(map(len, part))
            count = os.pwritev(handle, part, byte_offset + written)
            if count != expected:  # A short write: a signal, a quota, or the disk is full and says so next time.
                rest = memoryview(b"".join(part))[count:]
                count += self._pwrite_all(handle, rest, byte_offset + written + count)
            written += count
        return written

    def _pwrite_all(self, handle: int, buffer: Buffer, byte_offset: int) -> int:
        view = memoryview(buffer)
        written = 0
        while written < len(view):
            written += os.pwrite(handle, view[written:], byte_offset + written)
        return written

    def pread(self, handle: int, byte_count: int, byte_offset: int) -> bytes:
        try:
            data = os.pread(handle, byte_count, byte_offset)
            while len(data) < byte_count:
                more = os.pread(handle, byte_count - len(data), byte_offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _named(error, handle) from error
        return data

    def fdatasync(self, handle: int) -> None:
        if self._fsync:
            try:
                os.fdatasync(handle)
            except OSError as error:
                raise _named(error, handle) from error

    def zero_fill(self, handle: int, byte_count: int) -> None:
        for start in range(0, byte_count, len(_ZEROS)):
            self._pwrite_all(handle, _ZEROS[: byte_count - start], start)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, mode=FOLDER_MODE, exist_ok=True)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def fsync_dir(self, path: str) -> None:
        if not self._fsync:
            return
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize


def _named(error: OSError, handle: int) -> OSError:
    """Return an error that tells the file, which the kernel's own does not."""
    with contextlib.suppress(OSError):
        return OSError(error.errno, error.strerror, os.readlink(f"/proc/self/fd/{handle}"))
    return error


class ThreadedDiskExecutor:
    """Worker threads with one queue. With one worker, functions run in the order of their submission."""

    def __init__(self, name: str, *, worker_count: int = 1) -> None:
        self._loop = asyncio.get_running_loop()
        # None ends one worker.
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(worker_count)
        ]
        self._running_count = worker_count
        self._count_lock = threading.Lock()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        loop = self._loop
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = fn()
            except BaseException as error:  # noqa: BLE001  the waiter decides, a worker never dies of a job
                loop.call_soon_threadsafe(_fail, future, error)
            else:
                loop.call_soon_threadsafe(_finish, future, result)

        self._jobs.put(job)
        return future

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            while (job := self._jobs.get()) is not None:
                job()
            with self._count_lock:
                self._running_count -= 1
                is_last = not self._running_count
            if is_last:
                self._loop.call_soon_threadsafe(_finish, self._ended, None)

    def close(self) -> asyncio.Future[None]:
        for _ in self._threads:
            self._jobs.put(None)
        return self._ended


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def read_file(disk: Disk, path: str) -> bytearray:
    """Return the whole content of a file."""
    handle = disk.open(path)
    try:
        content = bytearray()
        while piece := disk.pread(handle, _READ_BYTES, len(content)):
            content += piece
        return content
    finally:
        disk.close(handle)


def write_atomically(disk: Disk, folder: str, name: str, content: bytes) -> None:
    """Write a small file so that after a crash it is there whole, or as it was before."""
    temporary = f"{folder}/{name}.tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    handle = disk.open(temporary, create=True)
    try:
        disk.pwritev(handle, [content], 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.rename(temporary, f"{folder}/{name}")
    disk.fsync_dir(folder)
