"""A device that cannot read a place of a file: the store starts, serves the rest, and says what it cannot tell."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from ledger.storage.disk import RealDisk
from ledger.storage.limbo import LEDGER_ID_MAX
from ledger.storage.unreadable import FileReader
from ledger.testing import SimDisk
from tests.unit.ledger.storage.store_bench import StoreBench, entry

_PLACE_BYTES = 4096
_SIZE = 700


class _SickDisk(SimDisk):
    """A disk that refuses to open some files, too."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.closed: list[str] = []

    def open(self, path: str, *, create: bool = False) -> int:
        if path in self.closed:
            raise OSError(errno.EIO, "open", path)
        return super().open(path, create=create)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.closed = [target if path == source else path for path in self.closed]

    def remove(self, path: str) -> None:
        super().remove(path)
        self.closed = [other for other in self.closed if other != path]


async def _filled(*, keep_index: bool) -> StoreBench:
    """Return a store that was killed: segments, and a journal file with entries, each of them acknowledged."""
    bench = StoreBench(_SickDisk(random.Random(1)), keep_index=keep_index, journal={"file_bytes": 1 << 15})
    await bench.open()
    for first in range(0, 90, 10):
        await bench.add(*[(1 + n % 2, n) for n in range(first, first + 10)], size=_SIZE)
    return bench


def _read_at_a_start(bench: StoreBench) -> list[str]:
    return [path for path in bench.disk.files() if not path.endswith(".tmp")]


async def _check(bench: StoreBench, seen: str) -> int:
    """Start; each entry is there, or answered as unknown. Return how many are not there."""
    assert await bench.open() is not None, seen
    lost = 0
    for n in range(90):
        found = await bench.read(1 + n % 2, n)
        if isinstance(found, bytes):
            assert found == entry(1 + n % 2, n, _SIZE), seen
        else:
            lost += 1
            assert isinstance(found, Exception) or bench.store.limbo.ledger_id_max == LEDGER_ID_MAX, seen
    await bench.add((3, 0), size=_SIZE)
    assert await bench.read(3, 0) == entry(3, 0, _SIZE), seen
    assert not bench.failures, seen
    return lost


@pytest.mark.parametrize("keep_index", [True, False])
def test_each_place_of_each_file_may_be_unreadable_at_a_start(*, keep_index: bool) -> None:
    async def run() -> None:
        sizes = {path: len(content) for path, content in (await _filled(keep_index=keep_index)).disk.files().items()}
        assert {path.rpartition(".")[2] for path in sizes} >= {"j", "seg", "free"}
        lost: dict[str, int] = {}
        for path, size in sizes.items():
            for offset in range(0, size, _PLACE_BYTES):
                bench = await _filled(keep_index=keep_index)
                bench.disk.spoil(path, offset)
                found = await _check(bench, f"{path} at {offset}")
                assert await _check(bench, f"{path} at {offset}, again") == found
                lost[path] = lost.get(path, 0) + found
        # A place costs what lay in it, and in the batch or the block around it, not the file.
        for path, size in sizes.items():
            places = size // _PLACE_BYTES + 1
            assert lost[path] <= 25 * places, (path, lost[path], places)
        assert any(lost[path] for path in sizes if path.endswith(".j"))
        assert any(lost[path] for path in sizes if path.endswith(".seg"))
        assert not any(lost[path] for path in sizes if not path.endswith((".j", ".seg")))

    asyncio.run(run())


@pytest.mark.parametrize("keep_index", [True, False])
def test_each_file_may_refuse_to_be_opened_at_a_start(*, keep_index: bool) -> None:
    async def run() -> None:
        paths = (await _filled(keep_index=keep_index)).disk.files()
        for path in [path for path in paths if path.endswith((".j", ".free", ".seg"))]:
            bench = await _filled(keep_index=keep_index)
            vars(bench.disk)["closed"] = [path]
            found = await _check(bench, path)
            assert bool(found) is path.endswith((".j", ".seg")), path
            assert await _check(bench, path) == found

    asyncio.run(run())


def test_a_journal_file_that_cannot_be_read_is_kept_and_not_written_again() -> None:
    async def run() -> None:
        bench = await _filled(keep_index=True)
        (path,) = [path for path in bench.disk.files() if path.endswith(".j")]
        bench.disk.spoil(path, 0)
        await _check(bench, path)
        assert "bytes 0-4096 cannot be read; the file is kept as" in str(bench.store.limbo.reasons)
        kept = f"{path.removesuffix('.j')}.unreadable"
        content = bench.disk.files()[kept]
        await _check(bench, path)
        assert bench.disk.files()[kept] == content

    asyncio.run(run())


def test_a_list_leaves_out_what_cannot_be_read_and_the_block_is_named_for_repair() -> None:
    async def run() -> None:
        bench = await _filled(keep_index=True)
        (row, *_) = bench.store.index.blocks(1)
        bench.disk.spoil(bench.store.segments.path(row.segment_id), row.byte_offset)
        every = list(range(0, 90, 2))
        in_block = [n for n in every if row.first_entry_id <= n <= row.last_entry_id]
        assert in_block
        assert await bench.store.list_entries(1) == [n for n in every if n not in in_block]
        assert [damage.row for damage in bench.store.damages.found()] == [row]
        assert not bench.failures

    asyncio.run(run())


def test_what_was_readable_while_it_was_checked_must_be_so_when_it_is_copied() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_dirs("/d")
    handle = disk.open("/d/file", create=True)
    disk.pwritev(handle, [bytes(range(256)) * 100], 0)
    disk.spoil("/d/file", 4096)
    reader = FileReader(disk, handle)
    whole = reader.read(1 << 20, 100)
    assert whole == (bytes(range(256)) * 16 + bytes(4096) + bytes(range(256)) * 68)[100:]
    assert reader.lost == [(4096, 8192)]
    reader.is_settled = True
    assert reader.read(100, 8150) == whole[8050:8150]
    disk.spoil("/d/file", 12288)
    assert reader.read(100, 8150) == whole[8050:8150]
    with pytest.raises(OSError, match="EIO"):
        reader.read(1 << 20, 0)


def test_errors_that_say_nothing_of_the_bytes_are_not_taken_for_a_loss() -> None:
    class Busy(SimDisk):
        def pread(self, handle: int, byte_count: int, byte_offset: int) -> bytes:
            del handle, byte_count, byte_offset
            raise OSError(errno.ENOMEM, "pread")

    disk = Busy(random.Random(1))
    disk.make_dirs("/d")
    with pytest.raises(OSError, match="pread"):
        FileReader(disk, disk.open("/d/file", create=True)).read(1, 0)


def test_an_error_of_the_kernel_names_the_file(tmp_path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "file")
    handle = disk.open(path, create=True)
    with pytest.raises(OSError, match="file") as raised:
        disk.pread(handle, 1, -1)
    assert raised.value.filename == path
