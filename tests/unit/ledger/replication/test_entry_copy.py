"""A copy stores what passed the digest, and nothing else; what nobody gives is named."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ledger.core.entry import Entry, Miss, MissKind
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.core.reader import ReadEntry, replicas_of
from ledger.errors import DigestError, NoSuchEntryError, QuorumLostError
from ledger.replication.core.entry_copy import EntryCopy, StoreEntry

BOOKIES = ("a:1", "b:1", "c:1")
METADATA = LedgerMetadata(
    QuorumConfig(3, 3, 2), LedgerState.CLOSED, (Segment(0, BOOKIES),), DigestType.CRC32C, b"", last_entry_id=99
)
ABSENT = Miss(MissKind.ABSENT, "ENOENTRY")
CORRUPT = Miss(MissKind.CORRUPT, "it fails the digest")
UNKNOWN = Miss(MissKind.UNKNOWN, "EIO")


def entry(entry_id: int, size: int = 10) -> Entry:
    return Entry(entry_id, entry_id - 1, size * (entry_id + 1), bytes(size))


def copy_of(*entry_ids: int, target: str = "d:1", **more) -> EntryCopy:
    return EntryCopy(7, METADATA, entry_ids, target, **more)


def test_an_entry_is_read_then_stored_as_it_was() -> None:
    copy = copy_of(4)
    (read,) = copy.start()
    assert read == ReadEntry("b:1", 4)
    assert copy.on_answers([("b:1", 4, entry(4))]) == [StoreEntry(entry(4))]
    assert not copy.is_over
    assert copy.on_stored([4]) == []
    assert copy.is_complete
    assert (copy.stored_count, copy.stored_bytes) == (1, 10)


def test_bytes_that_fail_the_digest_are_never_stored_but_read_elsewhere() -> None:
    copy = copy_of(0)
    copy.start()
    assert copy.on_answers([("a:1", 0, CORRUPT)]) == [ReadEntry("b:1", 0)]
    assert copy.on_answers([("b:1", 0, entry(0))]) == [StoreEntry(entry(0))]


@pytest.mark.parametrize(
    ("miss", "error"), [(ABSENT, NoSuchEntryError), (CORRUPT, DigestError), (UNKNOWN, QuorumLostError)]
)
def test_an_entry_that_no_replica_gives_is_named_and_the_others_are_copied(miss, error) -> None:
    copy = copy_of(0, 1)
    copy.start()
    for bookie in BOOKIES:
        copy.on_answers([(bookie, 0, miss)])
    copy.on_answers([("b:1", 1, entry(1))])
    copy.on_stored([1])
    assert copy.is_over
    assert not copy.is_complete
    assert copy.failure_count == 1
    assert isinstance(copy.failures[0], error)
    assert "entry 0 of ledger 7" in str(copy.failures[0])


def test_the_target_itself_is_not_asked() -> None:
    copy = copy_of(0, target="a:1")
    assert copy.start() == [ReadEntry("b:1", 0)]


def test_the_only_replica_of_an_entry_cannot_be_refilled() -> None:
    metadata = LedgerMetadata(
        QuorumConfig(1, 1, 1), LedgerState.CLOSED, (Segment(0, ("a:1",)),), DigestType.CRC32C, b"", last_entry_id=0
    )
    copy = EntryCopy(7, metadata, [0], "a:1")
    assert copy.start() == []
    assert copy.is_over
    assert isinstance(copy.failures[0], NoSuchEntryError)


def test_bookies_that_are_gone_are_asked_last() -> None:
    copy = copy_of(0, last_asked=("a:1",))
    assert copy.start() == [ReadEntry("b:1", 0)]
    assert copy.on_answers([("b:1", 0, ABSENT)]) == [ReadEntry("c:1", 0)]
    assert copy.on_answers([("c:1", 0, ABSENT)]) == [ReadEntry("a:1", 0)]


def test_a_target_that_refuses_ends_the_copy() -> None:
    copy = copy_of(0, 1, 2)
    copy.start()
    copy.on_answers([("a:1", 0, entry(0))])
    copy.on_store_failed("EREADONLY")
    assert copy.is_over
    assert not copy.is_complete
    assert copy.on_answers([("b:1", 1, entry(1))]) == []


def test_large_entries_are_copied_a_few_at_a_time() -> None:
    copy = copy_of(*range(100), window_bytes=1 << 20)
    reads: list[Any] = list(copy.start())
    assert len(reads) == 8
    effects = copy.on_answers([(read.bookie_id, read.entry_id, entry(read.entry_id, 400_000)) for read in reads])
    assert all(isinstance(effect, StoreEntry) for effect in effects)
    assert copy.on_stored(range(6)) == []  # two still under way
    assert len(copy.on_stored([6])) == 1


def test_every_entry_is_copied_or_named_whatever_replicas_answer() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        gone = {b: {e for e in range(100) if rng.random() < 0.4} for b in BOOKIES}
        copy = copy_of(*range(100), window_bytes=rng.choice([50, 1000, 100_000]))
        effects, stored = copy.start(), []
        while effects:
            effect = effects.pop(rng.randrange(len(effects)))
            if isinstance(effect, StoreEntry):
                stored.append(effect.entry.entry_id)
                effects += copy.on_stored([effect.entry.entry_id])
            else:
                is_gone = effect.entry_id in gone[effect.bookie_id]
                answer = rng.choice([ABSENT, CORRUPT, UNKNOWN]) if is_gone else entry(effect.entry_id)
                effects += copy.on_answers([(effect.bookie_id, effect.entry_id, answer)])
            copy.validate()
        lost = set.intersection(*gone.values())
        assert copy.is_over
        assert sorted(stored) == [e for e in range(100) if e not in lost], f"seed {seed}"
        assert copy.failure_count == len(lost)
        assert all(set(replicas_of(METADATA, e)) == set(BOOKIES) for e in lost)
