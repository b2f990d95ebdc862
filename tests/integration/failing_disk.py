"""A disk of its own that a test fills, makes slow, and has fail: ext4 on a loop device."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FailingDisk", "failing_disk"]

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN, `_IOR('X', 125, __u32)`."""
_WITHOUT_LOG = 2


class FailingDisk:
    """A mounted file system that belongs to nobody else.

    Args:
        folder: Where it is mounted.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have every write and sync wait until the block is left, as while a volume's snapshot is taken."""
        subprocess.run(["fsfreeze", "--freeze", str(self.folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(self.folder)], check=True)

    def fill(self) -> None:
        """Leave no byte of it free."""
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 10):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 - what it is told by at the end
            os.fsync(file.fileno())

    def fail(self) -> None:
        """Answer everything from now on with an error, as a device does that is gone."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(folder)


@contextmanager
def failing_disk(folder: Path, size_mib: int) -> Iterator[FailingDisk]:
    """Mount a disk of some size.

    Raises:
        OSError: This machine lets nobody mount one.

    """
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    folder.mkdir()
    for command in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command[0]}: {done.stderr.strip()}")
    try:
        yield FailingDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        image.unlink()
