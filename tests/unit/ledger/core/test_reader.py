"""A miss means the next replica, never the end; silence means the next replica too; entries come in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.entry import Entry, Miss, MissKind
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.core.reader import RangeReader, ReadRun, replicas_of
from ledger.errors import DigestError, LedgerError, NoSuchEntryError, QuorumLostError, WrongPasswordError
from tests.sets import examples


def metadata_of(quorum: QuorumConfig, *segments: Segment) -> LedgerMetadata:
    return LedgerMetadata(quorum, LedgerState.OPEN, segments, DigestType.CRC32C, b"")


STRIPED = metadata_of(QuorumConfig(3, 2, 2), Segment(0, ("a", "b", "c")), Segment(2, ("d", "b", "c")))
WIDE = metadata_of(QuorumConfig(3, 2, 2), Segment(0, ("a", "b", "c")))
WHOLE = metadata_of(QuorumConfig(3, 3, 2), Segment(0, ("a", "b", "c")))
TWO = metadata_of(QuorumConfig(2, 2, 2), Segment(0, ("a", "b")))


def entry(entry_id: int, size: int = 1) -> Entry:
    return Entry(entry_id, entry_id - 1, 10, bytes(size))


def entries(first: int, count: int, size: int = 1) -> list[Entry]:
    return [entry(entry_id, size) for entry_id in range(first, first + count)]


def miss(kind: MissKind) -> Miss:
    return Miss(kind, kind.name)


def stripe(first: int, count: int) -> list[Entry]:
    return [entry(first + 3 * number) for number in range(count)]


def give(reader: RangeReader, bookie_id: str, first: int, found: list[Entry]) -> list[ReadRun]:
    return reader.on_batch(bookie_id, first, EntryBlock.of(found) if reader.takes_blocks else found, None, 0)


def took(reader: RangeReader) -> list[int]:
    """Take what is ready; return the ids."""
    if not reader.takes_blocks:
        return [one.entry_id for one in reader.take()]
    return [block.first_entry_id + number for block in reader.take_blocks() for number in range(len(block))]


def singles(*pairs: tuple[str, int]) -> list[ReadRun]:
    return [ReadRun(bookie_id, entry_id, 1) for bookie_id, entry_id in pairs]


def test_reads_go_to_the_write_set_of_the_right_segment() -> None:
    assert RangeReader(1, STRIPED, 0, 3).ask(0) == singles(("a", 0), ("b", 1), ("c", 2), ("d", 3))


def test_a_bookie_is_asked_for_entries_in_a_row_where_each_stores_all() -> None:
    runs = RangeReader(1, WHOLE, 0, 63).ask(0)
    assert [run.bookie_id for run in runs] == ["a"] * 32 + ["b"] * 32


def test_suspects_are_asked_last() -> None:
    reader = RangeReader(1, TWO, 0, 0)
    assert reader.ask(0, {"a"}) == singles(("b", 0))
    assert reader.on_answers([("b", 0, miss(MissKind.UNKNOWN))], 0) == singles(("a", 0))


def test_entries_come_in_order_whatever_the_answer_order() -> None:
    reader = RangeReader(1, STRIPED, 0, 2)
    reader.ask(0)
    assert reader.on_answers([("c", 2, entry(2)), ("a", 0, entry(0))], 0) == []
    assert reader.take() == [entry(0)]
    assert not reader.is_done
    assert reader.on_answers([("b", 1, entry(1))], 0) == []
    assert reader.take() == [entry(1), entry(2)]
    assert reader.is_done


@pytest.mark.parametrize("kind", list(MissKind))
def test_the_next_replica_is_asked_after_a_miss(kind: MissKind) -> None:
    reader = RangeReader(1, TWO, 0, 0)
    reader.ask(0)
    assert reader.on_answers([("a", 0, miss(kind))], 0) == singles(("b", 0))
    reader.on_answers([("b", 0, entry(0))], 0)
    assert reader.take() == [entry(0)]
    assert reader.failure is None


@pytest.mark.parametrize(
    ("kinds", "error"),
    [
        ((MissKind.ABSENT, MissKind.ABSENT), NoSuchEntryError),
        ((MissKind.ABSENT, MissKind.CORRUPT), DigestError),
        ((MissKind.CORRUPT, MissKind.CORRUPT), DigestError),
        ((MissKind.ABSENT, MissKind.UNKNOWN), QuorumLostError),
        ((MissKind.UNKNOWN, MissKind.CORRUPT), QuorumLostError),
        ((MissKind.DENIED, MissKind.ABSENT), QuorumLostError),
        ((MissKind.DENIED, MissKind.DENIED), WrongPasswordError),
    ],
)
def test_what_all_replicas_said_decides_the_error(kinds: tuple[MissKind, MissKind], error: type[LedgerError]) -> None:
    reader = RangeReader(1, TWO, 0, 0)
    reader.ask(0)
    for bookie, kind in zip("ab", kinds, strict=True):
        reader.on_answers([(bookie, 0, miss(kind))], 0)
    assert reader.is_done
    assert isinstance(reader.failure, error)
    assert "entry 0 of ledger 1" in str(reader.failure)


def test_what_comes_before_an_entry_that_cannot_be_had_is_still_read() -> None:
    reader = RangeReader(1, TWO, 0, 3)
    reader.ask(0)
    for bookie in "ab":
        reader.on_answers([(bookie, 2, miss(MissKind.ABSENT))], 0)
    assert reader.failure is not None
    assert not reader.is_done
    reader.on_answers([("a", 0, entry(0)), ("a", 3, entry(3)), ("a", 1, entry(1))], 0)
    assert reader.take() == [entry(0), entry(1)]
    assert reader.is_done
    assert reader.next_entry_id == 2


def test_the_window_is_bounded_by_bytes_and_moves_as_entries_are_taken() -> None:
    reader = RangeReader(1, TWO, 0, 999, window_bytes=20_000, entry_bytes=999)
    assert len(reader.ask(0)) == 20
    assert reader.ask(0) == []
    reader.on_answers([("a", entry_id, entry(entry_id, 999)) for entry_id in range(5)], 0)
    assert reader.ask(0) == []  # ready, but nobody has taken them
    assert len(reader.take()) == 5
    assert [run.first_entry_id for run in reader.ask(0)] == [20, 21, 22, 23, 24]


def test_the_window_shrinks_when_entries_are_larger_than_thought() -> None:
    reader = RangeReader(1, TWO, 0, 9999, window_bytes=1_000_000)
    assert len(reader.ask(0)) == 64
    reader.on_answers([("a", entry_id, entry(entry_id, 50_000)) for entry_id in range(64)], 0)
    reader.take()
    assert len(reader.ask(0)) <= 1_000_000 // 40_000


def test_a_batch_ends_with_its_segment() -> None:
    metadata = metadata_of(QuorumConfig(2, 2, 2), Segment(0, ("a", "b")), Segment(10, ("c", "d")))
    runs = RangeReader(1, metadata, 4, 25, batch_bytes=1000, entry_bytes=1).ask(0)
    assert [(run.first_entry_id, run.count) for run in runs] == [(4, 6), (10, 16)]
    assert runs[1].bookie_id in "cd"


def test_each_bookie_of_a_striped_ledger_is_asked_for_its_own_entries_in_one_go() -> None:
    runs = RangeReader(1, WIDE, 0, 16, batch_bytes=1000, entry_bytes=1).ask(0)
    assert runs == [ReadRun("a", 0, 6, 3), ReadRun("b", 1, 6, 3), ReadRun("c", 2, 5, 3)]


def test_the_segments_of_a_striped_ledger_are_asked_for_apart_and_a_short_one_entry_by_entry() -> None:
    runs = RangeReader(1, STRIPED, 0, 9, batch_bytes=1000, entry_bytes=1).ask(0)
    assert runs == [*singles(("a", 0), ("b", 1)), ReadRun("c", 2, 3, 3), ReadRun("d", 3, 3, 3), ReadRun("b", 4, 2, 3)]


def test_a_ledger_with_more_stripes_than_a_request_can_name_is_read_entry_by_entry() -> None:
    bookies = tuple(f"b{number}" for number in range(256))
    metadata = metadata_of(QuorumConfig(256, 2, 2), Segment(0, bookies))
    assert all(run.count == 1 for run in RangeReader(1, metadata, 0, 999, batch_bytes=1000, entry_bytes=1).ask(0))


@pytest.mark.parametrize("takes_blocks", [False, True])
def test_stripes_are_handed_out_in_order_when_all_have_come(*, takes_blocks: bool) -> None:
    reader = RangeReader(1, WIDE, 0, 7, batch_bytes=1000, entry_bytes=1)
    reader.takes_blocks = takes_blocks
    reader.ask(0)
    assert give(reader, "c", 2, stripe(2, 2)) == []
    assert give(reader, "a", 0, stripe(0, 3)) == []
    assert took(reader) == []
    assert give(reader, "b", 1, stripe(1, 1)) == [ReadRun("b", 4, 2, 3)]
    assert give(reader, "b", 4, stripe(4, 2)) == []
    assert took(reader) == list(range(8))
    assert reader.is_done


@pytest.mark.parametrize("takes_blocks", [False, True])
def test_bookies_that_read_no_stripes_are_read_entry_by_entry_and_what_came_of_others_is_kept(
    *, takes_blocks: bool
) -> None:
    reader = RangeReader(1, WIDE, 0, 8, batch_bytes=1000, entry_bytes=1)
    reader.takes_blocks = takes_blocks
    reader.ask(0)
    give(reader, "a", 0, stripe(0, 3))
    assert reader.on_batch("b", 1, [], miss(MissKind.UNKNOWN), 0) == [ReadRun("c", 1, 3, 3)]
    runs = reader.on_batch("c", 1, [], miss(MissKind.UNKNOWN), 0)
    assert runs == singles(("b", 1), ("b", 4), ("b", 7))
    assert reader.has_split
    reader.validate()
    give(reader, "c", 2, stripe(2, 3))
    reader.on_answers([(run.bookie_id, run.first_entry_id, entry(run.first_entry_id)) for run in runs], 0)
    reader.validate()
    assert took(reader) == list(range(9))


def test_entries_before_one_that_is_lost_in_a_stripe_are_still_read() -> None:
    reader = RangeReader(1, WIDE, 0, 8, batch_bytes=1000, entry_bytes=1)
    reader.ask(0)
    give(reader, "a", 0, stripe(0, 3))
    assert give(reader, "b", 1, stripe(1, 1)) == [ReadRun("b", 4, 2, 3)]
    reader.on_batch("b", 4, [], miss(MissKind.ABSENT), 0)
    reader.on_batch("c", 4, [], miss(MissKind.ABSENT), 0)
    assert isinstance(reader.failure, NoSuchEntryError)
    assert took(reader) == [0, 1]
    give(reader, "c", 2, stripe(2, 3))
    assert took(reader) == [2, 3]
    assert reader.is_done


def test_the_rest_of_a_short_batch_is_asked_for_at_the_same_bookie() -> None:
    reader = RangeReader(1, TWO, 0, 7, batch_bytes=10_000)
    (run,) = reader.ask(0)
    assert reader.on_batch(run.bookie_id, 0, entries(0, 3), None, 0) == [ReadRun(run.bookie_id, 3, 5)]
    assert reader.take() == entries(0, 3)
    assert reader.on_batch(run.bookie_id, 3, entries(3, 5), None, 0) == []
    assert reader.take() == entries(3, 5)


def test_a_damaged_entry_in_a_batch_is_read_elsewhere_with_what_follows() -> None:
    reader = RangeReader(1, TWO, 0, 7, batch_bytes=10_000)
    reader.ask(0)
    assert reader.on_batch("a", 0, entries(0, 3), miss(MissKind.CORRUPT), 0) == [ReadRun("b", 3, 5)]


def test_a_batch_that_nobody_answers_is_asked_for_entry_by_entry() -> None:
    reader = RangeReader(1, TWO, 0, 2, batch_bytes=10_000)
    reader.ask(0)
    assert reader.on_batch("a", 0, [], miss(MissKind.UNKNOWN), 0) == [ReadRun("b", 0, 3)]
    runs = reader.on_batch("b", 0, [], miss(MissKind.UNKNOWN), 0)
    assert [(run.first_entry_id, run.count) for run in runs] == [(0, 1), (1, 1), (2, 1)]
    reader.on_answers([(run.bookie_id, run.first_entry_id, entry(run.first_entry_id)) for run in runs], 0)
    assert reader.take() == entries(0, 3)


def test_a_batch_whose_first_entry_all_replicas_deny_fails() -> None:
    reader = RangeReader(1, TWO, 0, 2, batch_bytes=10_000)
    reader.ask(0)
    reader.on_batch("a", 0, [], miss(MissKind.ABSENT), 0)
    reader.on_batch("b", 0, [], miss(MissKind.ABSENT), 0)
    assert isinstance(reader.failure, NoSuchEntryError)


def test_a_silent_bookie_is_not_waited_for_and_the_first_answer_wins() -> None:
    reader = RangeReader(1, TWO, 0, 1)
    reader.ask(0.0)
    assert reader.on_overdue(0.4, 0.5) == []
    assert reader.on_overdue(0.6, 0.5) == singles(("b", 0), ("b", 1))
    reader.on_answers([("b", 0, entry(0)), ("a", 1, entry(1)), ("b", 1, entry(1)), ("a", 0, entry(0))], 0.7)
    assert reader.take() == entries(0, 2)


def test_a_silent_bookie_is_asked_last_until_it_answers() -> None:
    reader = RangeReader(1, TWO, 0, 200, window_bytes=64, entry_bytes=1)
    reader.ask(0.0)
    reader.on_overdue(1.0, 0.5)
    assert list(reader.slow) == ["a"]
    reader.on_answers([("b", entry_id, entry(entry_id)) for entry_id in range(32)], 1.0)
    reader.take()
    assert {run.bookie_id for run in reader.ask(1.0)} == {"b"}
    reader.on_answers([("a", 0, entry(0))], 1.1)  # late, and of no use, but a sign of life
    assert not reader.slow


def test_a_bookie_that_streams_what_was_asked_for_is_not_silent() -> None:
    reader = RangeReader(1, TWO, 0, 9)
    reader.ask(0.0)
    reader.on_answers([("a", 0, entry(0))], 0.4)
    assert reader.on_overdue(0.6, 0.5) == []


def test_a_miss_does_not_fail_the_read_while_another_replica_may_answer() -> None:
    reader = RangeReader(1, TWO, 0, 0)
    reader.ask(0.0)
    reader.on_overdue(1.0, 0.5)
    assert reader.on_answers([("a", 0, miss(MissKind.UNKNOWN))], 1.0) == []
    assert reader.failure is None
    reader.on_answers([("b", 0, entry(0))], 1.0)
    assert reader.take() == [entry(0)]


@settings(max_examples=examples(80), deadline=None)
@given(
    quorum=st.sampled_from(
        [QuorumConfig(3, 3, 2), QuorumConfig(2, 2, 2), QuorumConfig(4, 2, 2), QuorumConfig(1, 1, 1)]
    ),
    count=st.integers(1, 60),
    batch_bytes=st.sampled_from([None, 1, 20, 300]),
    seed=st.integers(0, 2**32),
    missing=st.sets(st.tuples(st.sampled_from("abcdwxyz"), st.integers(0, 60)), max_size=20),
    takes_blocks=st.booleans(),
)
def test_every_entry_comes_once_and_in_order_if_one_replica_has_it(
    quorum: QuorumConfig,
    count: int,
    batch_bytes: int | None,
    seed: int,
    missing: set[tuple[str, int]],
    *,
    takes_blocks: bool,
) -> None:
    rng = random.Random(seed)
    size = quorum.ensemble_size
    metadata = metadata_of(quorum, Segment(0, tuple("abcd"[:size])), Segment(20, tuple("wxyz"[:size])))
    reader = RangeReader(1, metadata, 0, count - 1, window_bytes=30, batch_bytes=batch_bytes, entry_bytes=1)
    reader.takes_blocks = takes_blocks
    holders = {e: [b for b in replicas_of(metadata, e) if (b, e) not in missing] for e in range(count)}
    first_lost = next((e for e in range(count) if not holders[e]), count)
    waiting: list[ReadRun] = []
    taken: list[int] = []
    now = 0.0
    while not reader.is_done:
        now += 0.1
        waiting += reader.ask(now, {"b"} if rng.random() < 0.2 else ())
        if rng.random() < 0.1:
            waiting += reader.on_overdue(now, 0.3)
        run = waiting.pop(rng.randrange(len(waiting)))
        waiting += answer(reader, run, holders, rng, now)
        reader.validate()
        taken += took(reader)
    assert taken == list(range(first_lost))
    assert (reader.failure is None) == (first_lost == count)


def answer(
    reader: RangeReader, run: ReadRun, holders: dict[int, list[str]], rng: random.Random, now: float
) -> list[ReadRun]:
    said: Callable[..., Any] = miss
    kind = rng.choice((MissKind.ABSENT, MissKind.UNKNOWN, MissKind.CORRUPT))
    if run.count == 1:
        has = run.bookie_id in holders[run.first_entry_id]
        return reader.on_answers(
            [(run.bookie_id, run.first_entry_id, entry(run.first_entry_id) if has else said(kind))], now
        )
    found: list[Entry] = []
    for entry_id in range(run.first_entry_id, run.first_entry_id + rng.randint(1, run.count) * run.stride, run.stride):
        if run.bookie_id not in holders[entry_id]:
            break
        found.append(entry(entry_id))
    block = EntryBlock.of(found) if found and reader.takes_blocks else found
    return reader.on_batch(run.bookie_id, run.first_entry_id, block, None if found else said(kind), now)
