"""The records of one file, one by one: all of them, with what of the file is damaged."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import pytest

from ledger.errors import UsageError
from ledger.storage.disk import RealDisk
from ledger.storage.journal_format import batch_buffers
from ledger.storage.record_listing import DamagedPlace, StoredRecord, list_journal, list_segment
from ledger.storage.records import fence_record, key_record
from ledger.storage.segments import Segments
from tests.unit.ledger.storage.store_bench import KEY, entry

ID = (3 << 32) | 77
DISK = RealDisk(is_read_only=True)


def _journal(folder, name: str = f"{ID:016x}.j"):
    """Write a journal file of three batches: an entry and a key, two entries, a fence."""
    data = b""
    for bodies in ([entry(1, 0), key_record(1, KEY)], [entry(1, 1), entry(2, 5)], [fence_record(2)]):
        toc = array("I", [n for body in bodies for n in (0, len(body))])
        data += b"".join(batch_buffers(ID, len(data), toc, bodies, len(bodies)))
    path = folder / name
    path.write_bytes(data + bytes(5000))
    return path


def _records(path) -> list[StoredRecord]:
    """Return what is sound; the contents are copied, for a view is valid until the next one."""
    found = (each for each in list_journal(DISK, str(path)) if isinstance(each, StoredRecord))
    return [msgspec.structs.replace(each, content=memoryview(bytes(each.content))) for each in found]


def _kinds(found: Sequence[StoredRecord | DamagedPlace]) -> list[tuple[str, int, int]]:
    return [(each.kind, each.ledger_id, each.entry_id) for each in found if isinstance(each, StoredRecord)]


ALL = [("entry", 1, 0), ("key", 1, -0x1000), ("entry", 1, 1), ("entry", 2, 5), ("fence", 2, -0x2000)]


@pytest.mark.parametrize("suffix", ["j", "free", "unreadable"])
def test_a_journal_file_is_listed_in_the_order_of_writing(tmp_path, suffix) -> None:
    path = _journal(tmp_path, f"{ID:016x}.{suffix}")
    content = path.read_bytes()
    assert _kinds(list(list_journal(DISK, str(path)))) == ALL
    for record in _records(path):
        assert content[record.byte_offset : record.byte_offset + record.byte_count] == record.content
    assert path.read_bytes() == content


def test_a_flipped_bit_costs_its_batch_alone_and_is_told(tmp_path) -> None:
    path = _journal(tmp_path)
    data = bytearray(path.read_bytes())
    second = next(each.byte_offset for each in _records(path) if each.entry_id == 1)
    data[second] ^= 1
    path.write_bytes(data)
    found = list(list_journal(DISK, str(path)))
    assert _kinds(found) == [*ALL[:2], ALL[4]]
    (damage,) = [each for each in found if isinstance(each, DamagedPlace)]
    assert damage.byte_offset < second < damage.byte_end


@pytest.mark.parametrize("content", [b"", bytes(4096), b"RSJ1 but not ours " * 99])
def test_a_foreign_file_is_told(tmp_path, content) -> None:
    path = tmp_path / f"{ID:016x}.j"
    path.write_bytes(content)
    (found,) = list_journal(DISK, str(path))
    assert isinstance(found, DamagedPlace)


@pytest.mark.parametrize("name", ["journal", "12.j", f"{ID:016x}.seg", "zzzzzzzzzzzzzzzz.j"])
def test_a_name_that_tells_no_id_is_refused(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError, match="hexadecimal"):
        list(list_journal(DISK, str(tmp_path / name)))


def _segment(folder):
    segments = Segments(RealDisk(), [str(folder)])
    writer = segments.create(ID)
    writer.add_block(1, [0, 1], [entry(1, 0), entry(9, 1)], 0)
    writer.add_block(2, [5], [entry(2, 5)], 4)
    writer.add_block(2, [-0x2000], [fence_record(2)], -1)
    writer.finish()
    return folder / f"{ID:016x}.seg"


def test_a_segment_is_listed_and_what_lies_in_the_place_of_another_is_told(tmp_path) -> None:
    found: list[StoredRecord] = []
    assert list_segment(DISK, str(_segment(tmp_path)), found.append) == []
    assert _kinds(found) == [("entry", 1, 0), ("entry", 1, 1), ("entry", 2, 5), ("fence", 2, -0x2000)]
    assert [each.is_in_place for each in found] == [True, False, True, True]


def test_a_damaged_block_of_a_segment_is_told_and_the_others_listed(tmp_path) -> None:
    path = _segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    found: list[StoredRecord] = []
    (damage,) = list_segment(DISK, str(path), found.append)
    assert "block of ledger 1, entries 0-1" in damage.what
    assert _kinds(found) == [("entry", 2, 5), ("fence", 2, -0x2000)]


def test_a_segment_that_is_not_there_is_no_damage(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        list_segment(DISK, str(tmp_path / f"{ID:016x}.seg"), lambda _: None)
    with pytest.raises(UsageError, match="hexadecimal"):
        list_segment(DISK, str(tmp_path / "x.seg"), lambda _: None)
