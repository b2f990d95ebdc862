"""Every torn prefix and every flipped bit of a journal gets the right verdict: tail, or loss."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.storage.file_window import FileWindow
from ledger.storage.journal_format import batch_buffers, bodies, mark, parse_file_name, scan, sealed_file_name

ID = (7 << 32) | 0xDEADBEEF


def image(batches: list[list[bytes]], *, idle: bool = False, seal: bool = False, file_bytes: int = 8192):
    """A file image and the end offset of each batch."""
    data, ends = bytearray(), []
    for bodies_ in batches:
        toc: array[int] = array("I")
        chunk = bytearray()
        for body in bodies_:
            chunk += b"gap"
            toc.extend((3, len(body)))
            chunk += body
        data += b"".join(batch_buffers(ID, len(data), toc, [bytes(chunk)], len(bodies_)))
        ends.append(len(data))
    if idle:
        data += mark(ID, len(data), seal=False)
    if seal:
        data += mark(ID, len(data), seal=True)
    end = len(data)
    return bytearray(data.ljust(file_bytes, b"\0")), ends, end


def entries(data: bytearray, found) -> list[list[bytes]]:
    return [[bytes(data[p : p + n]) for p, n in bodies(FileWindow.of(data), b)] for b in found.batches]


BATCHES = st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=5), min_size=1, max_size=6)


@given(BATCHES, st.booleans())
def test_all_batches_come_back(batches, seal) -> None:
    data, _, end = image(batches, seal=seal)
    found = scan(data, ID, has_successor=seal)
    assert entries(data, found) == batches
    assert (found.end_offset, found.is_sealed, found.lost) == (end, seal, [])


@given(BATCHES, st.data())
@settings(max_examples=200)
def test_a_torn_prefix_keeps_whole_batches_and_is_never_loss(batches, data) -> None:
    """What was not written is zero, or whatever an earlier use of the file left there."""
    content, ends, _ = image(batches)
    cut = data.draw(st.integers(0, ends[-1]))
    old, _, _ = image([[b"older" * 20]] * 9)
    stale = bytearray(old) if data.draw(st.booleans()) else bytearray(len(content))
    torn = content[:cut] + stale.replace(ID.to_bytes(8, "little"), (ID - 1).to_bytes(8, "little"))[cut:]
    found = scan(torn, ID)
    # By content, not by place: what lies behind the cut may happen to be what was to be written there.
    assert entries(torn, found) == batches[: sum(torn[:end] == content[:end] for end in ends)]
    assert found.lost == []


@given(BATCHES, st.data())
@settings(max_examples=300)
def test_a_flipped_bit_before_a_valid_header_is_loss_and_the_rest_survives(batches, data) -> None:
    content, ends, _ = image(batches, idle=True)
    bit = data.draw(st.integers(0, ends[-1] * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    hit = next(i for i, end in enumerate(ends) if bit // 8 < end)
    found = scan(content, ID)
    assert entries(content, found) == batches[:hit] + batches[hit + 1 :]
    start = ends[hit - 1] if hit else 0
    assert found.lost == [(start, ends[hit])]


@given(BATCHES, st.data())
def test_a_flipped_bit_in_the_last_batch_without_a_mark_behind_is_a_tail(batches, data) -> None:
    content, ends, _ = image(batches)
    start = ends[-2] if len(ends) > 1 else 0
    bit = data.draw(st.integers(start * 8, ends[-1] * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    found = scan(content, ID)
    assert entries(content, found) == batches[:-1]
    assert found.lost == []


def test_a_file_with_a_successor_that_lacks_its_seal_has_lost_something() -> None:
    data, _, end = image([[b"a"]])
    assert scan(data, ID, has_successor=True).lost == [(end, len(data))]


def test_records_of_an_earlier_use_never_validate() -> None:
    data, _, _ = image([[b"a"], [b"b"]])
    assert scan(data, ID + 1).batches == []


def test_file_names_carry_the_id() -> None:
    assert parse_file_name(sealed_file_name(ID)) == ID
    assert parse_file_name("0001.free") is None
    assert parse_file_name("zzzzzzzzzzzzzzzz.j") is None
