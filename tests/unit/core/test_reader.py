"""A miss means the next replica, never the end."""

from __future__ import annotations

import pytest

from ledger.core.entry import Entry, Miss, MissKind
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.core.reader import RangeReader, ReadEntry
from ledger.errors import DigestError, LedgerError, NoSuchEntryError, QuorumLostError, WrongPasswordError

METADATA = LedgerMetadata(
    quorum=QuorumConfig(3, 2, 2),
    state=LedgerState.OPEN,
    segments=(Segment(0, ("a", "b", "c")), Segment(2, ("d", "b", "c"))),
    digest_type=DigestType.CRC32C,
    password=b"",
)


def entry(entry_id: int) -> Entry:
    return Entry(entry_id, entry_id - 1, 10, b"x")


def miss(kind: MissKind) -> Miss:
    return Miss(kind, kind.name)


def test_reads_go_to_the_write_set_of_the_right_segment() -> None:
    assert RangeReader(1, METADATA, 0, 3).start() == [
        ReadEntry("a", 0),
        ReadEntry("b", 1),
        ReadEntry("c", 2),
        ReadEntry("d", 3),
    ]


def test_suspects_are_asked_last() -> None:
    reader = RangeReader(1, METADATA, 0, 0)
    assert reader.start({"a"}) == [ReadEntry("b", 0)]
    assert reader.on_answers([("b", 0, miss(MissKind.UNKNOWN))]) == [ReadEntry("a", 0)]


def test_entries_come_in_order_whatever_the_answer_order() -> None:
    reader = RangeReader(1, METADATA, 0, 2)
    reader.start()
    assert reader.on_answers([("c", 2, entry(2)), ("a", 0, entry(0))]) == []
    assert not reader.is_done
    assert reader.on_answers([("b", 1, entry(1))]) == []
    assert reader.is_done
    assert reader.entries() == [entry(0), entry(1), entry(2)]


@pytest.mark.parametrize("kind", [MissKind.ABSENT, MissKind.CORRUPT, MissKind.UNKNOWN])
def test_the_next_replica_is_asked_after_a_miss(kind: MissKind) -> None:
    reader = RangeReader(1, METADATA, 0, 0)
    reader.start()
    assert reader.on_answers([("a", 0, miss(kind))]) == [ReadEntry("b", 0)]
    reader.on_answers([("b", 0, entry(0))])
    assert reader.entries() == [entry(0)]


@pytest.mark.parametrize(
    ("kinds", "error"),
    [
        ((MissKind.ABSENT, MissKind.ABSENT), NoSuchEntryError),
        ((MissKind.ABSENT, MissKind.CORRUPT), DigestError),
        ((MissKind.CORRUPT, MissKind.CORRUPT), DigestError),
        ((MissKind.ABSENT, MissKind.UNKNOWN), QuorumLostError),
        ((MissKind.UNKNOWN, MissKind.CORRUPT), QuorumLostError),
    ],
)
def test_what_all_replicas_said_decides_the_error(kinds: tuple[MissKind, MissKind], error: type[LedgerError]) -> None:
    reader = RangeReader(1, METADATA, 0, 0)
    reader.start()
    for bookie, kind in zip("ab", kinds, strict=True):
        reader.on_answers([(bookie, 0, miss(kind))])
    assert reader.is_done
    with pytest.raises(error, match="entry 0 of ledger 1.*a: .*b: "):
        reader.entries()


def test_a_wrong_password_is_not_tried_elsewhere() -> None:
    reader = RangeReader(1, METADATA, 0, 0)
    reader.start()
    assert reader.on_answers([("a", 0, miss(MissKind.DENIED))]) == []
    with pytest.raises(WrongPasswordError):
        reader.entries()
