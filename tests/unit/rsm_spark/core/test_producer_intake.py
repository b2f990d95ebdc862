"""Intake of producers: each record of theirs is in the log once, however often it is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.append_queue import AppendComposer, AppendQueue
from rsm_spark.core.envelope import root_hash
from rsm_spark.core.plain_log import WrittenEnd, decode_entry, first_records, ledger_records
from rsm_spark.core.producer_intake import ProducerIntake, ProducerVerdict, RepeatedRange, SentRange
from rsm_spark.core.producers import (
    PRODUCERS_MAX,
    PRODUCERS_OF_OWNER_MAX,
    RANGES_MAX,
    ForeignProducerError,
    ForgottenSequenceError,
    ProducedRange,
    ProducerError,
    ProducerGapError,
    ProducerTable,
    RecordSource,
    TooManyProducersError,
    UnknownProducerError,
    facts_of,
    folded,
)
from rsm_spark.core.state import StateTip

_LOG_ID = bytes(16)


class _Writer:
    """A writer of one log, without a log: what is composed is confirmed when that is said."""

    def __init__(self, table: ProducerTable | None = None) -> None:
        self.table = table or ProducerTable()
        self.intake = ProducerIntake("clicks", self.table)
        self.queue = AppendQueue("clicks", WrittenEnd())
        tip = StateTip(0, root_hash(_LOG_ID), 0, 0)
        self.composer = AppendComposer(_LOG_ID, 1, tip, WrittenEnd(), None, self.table)
        self.entries: list[bytes] = []

    def send(self, producer: str, sequence: int, *payloads: bytes, owner: str = "ann") -> ProducerVerdict:
        source = RecordSource(producer, owner, sequence)
        accepted = self.intake.judge(source, len(payloads))
        if accepted.fresh:
            fresh = source._replace(sequence=sequence + len(payloads) - accepted.fresh)
            rest = payloads[-accepted.fresh :]
            append = self.queue.add(rest, (None,) * len(rest), None, object, fresh)
            self.intake.take(fresh, len(rest), append.ticket)
        return accepted

    def write(self, now_ms: int = 7, *, note: bool = False) -> None:
        """Compose an entry of all that waits, and confirm it."""
        own = ledger_records(self.composer.end, self.composer.note(now_ms, 1_000)) if note else ()
        batch = self.composer.compose(own, self.queue.take(), confirmed_revision=0, logged_ms=now_ms)
        self.entries.append(batch.payload)
        for append in batch.appends:
            assert append.source is not None
            self.intake.confirm(append.source)
        self.table.validate()


def test_a_sequence_is_answered_with_the_position_that_it_has() -> None:
    writer = _Writer()
    assert writer.send("p", 1, b"a", b"b") == ProducerVerdict((), 2)
    (way,) = writer.send("p", 1, b"a", b"b").repeated
    assert isinstance(way.where, SentRange), "it is on its way, and has no position that could be told"
    assert way.where.at(9).position(1) == 8
    writer.write()
    (found,) = (record for record in decode_entry(writer.entries[0])[0] if record.payload == b"b")
    again = writer.send("p", 2, b"b", b"c", b"d")
    assert again == ProducerVerdict((RepeatedRange(2, 1, ProducedRange(1, 2, found.position)),), 2)
    assert again.repeated[0].where.position(2) == found.position  # type: ignore[union-attr]
    writer.write()
    assert [one.payload for entry in writer.entries for one in decode_entry(entry)[0]] == [b"a", b"b", b"c", b"d"]


def test_a_gap_is_refused_and_says_what_must_come() -> None:
    writer = _Writer()
    writer.send("p", 1, b"a")
    with pytest.raises(ProducerGapError, match="sends sequence 3, 2 must come") as caught:
        writer.send("p", 3, b"c")
    assert caught.value.expected == 2
    with pytest.raises(UnknownProducerError, match="'q' is not known"):
        writer.send("q", 2, b"x")


def test_what_is_older_than_remembered_is_refused_by_name() -> None:
    writer = _Writer()
    for sequence in range(1, RANGES_MAX + 3):
        writer.send("p", sequence, b"%d" % sequence)
        writer.write()
    with pytest.raises(ForgottenSequenceError, match="sequence 2 of producer 'p' is in the log"):
        writer.send("p", 2, b"2")
    assert writer.send("p", 3, b"3").fresh == 0


def test_a_producer_belongs_to_who_used_it_first() -> None:
    writer = _Writer()
    writer.send("p", 1, b"a")
    with pytest.raises(ForeignProducerError, match="belongs to somebody else"):
        writer.send("p", 2, b"b", owner="bob")
    writer.write()
    with pytest.raises(ForeignProducerError, match="belongs to somebody else"):
        writer.send("p", 1, b"a", owner="bob")


@pytest.mark.parametrize(
    ("producer", "sequence"), [("", 1), ("p\n", 1), ("p" * 65, 1), ("ä" * 33, 1), ("p", 0), ("p", -1), ("p", 2**63)]
)
def test_what_names_no_producer_and_no_sequence_is_refused(producer: str, sequence: int) -> None:
    with pytest.raises(ProducerError, match="log clicks: "):
        _Writer().send(producer, sequence, b"a")


def test_one_owner_does_not_take_the_room_of_all() -> None:
    writer = _Writer()
    for number in range(PRODUCERS_OF_OWNER_MAX):
        writer.send(f"p{number}", 1, b"")
        if number == PRODUCERS_OF_OWNER_MAX // 2:
            writer.write()
    with pytest.raises(TooManyProducersError, match="of this owner"):
        writer.send("one more", 1, b"")
    writer.send("hers", 1, b"", owner="bob")
    writer.send("p0", 2, b"")


def test_a_log_has_room_for_so_many_producers_and_for_a_note_of_them() -> None:
    writer = _Writer()
    for number in range(PRODUCERS_MAX):
        writer.table.open(f"{number:064d}", f"{number % 5:0200d}", 7)
        for sequence in range(1, RANGES_MAX + 1):
            big = 2**62 + sequence
            writer.table.get(f"{number:064d}").add(ProducedRange(big, 1, 2**62), 2**62)  # type: ignore[union-attr]
    assert len(writer.table.rows()) < 3 * 1024 * 1024
    with pytest.raises(TooManyProducersError, match="it has 4096 producers"):
        writer.send("one more", 1, b"", owner="bob")


def test_who_appends_nothing_is_forgotten_by_a_note_alone() -> None:
    writer = _Writer()
    writer.send("old", 1, b"a")
    writer.write(now_ms=10)
    writer.send("new", 1, b"b")
    writer.write(now_ms=900)
    assert not writer.table.has_idle(1_009, 1_000)
    assert writer.table.has_idle(1_010, 1_000)
    assert writer.send("old", 1, b"a").fresh == 0
    writer.write(now_ms=1_010, note=True)
    assert list(writer.table) == ["new"]
    assert list(folded(map(facts_of, writer.entries))) == ["new"]
    with pytest.raises(UnknownProducerError):
        writer.send("old", 2, b"c")


def test_who_takes_over_knows_what_the_writer_before_knew_from_the_newest_note_on() -> None:
    writer = _Writer()
    first = first_records("w", "i", WrittenEnd(), writer.composer.note(0, 1_000))
    writer.entries.append(writer.composer.compose(first, (), confirmed_revision=0, logged_ms=0).payload)
    for number in range(1, 6):
        writer.send("p", number, b"%d" % number)
        writer.send(f"q{number}", 1, b"x", b"y")
        writer.write(now_ms=number, note=number == 3)
    facts = [facts_of(entry) for entry in writer.entries]
    assert [entry.has_note for entry in facts] == [True, False, False, True, False, False]
    for begin in (0, 3):
        assert folded(facts[begin:]).rows() == writer.table.rows()


def test_a_log_without_producers_ends_the_search_for_them() -> None:
    composer = AppendComposer(_LOG_ID, 1, StateTip(0, root_hash(_LOG_ID), 0, 0), WrittenEnd(), None)
    assert composer.note(0, 1) is None
    assert not composer.is_note_due
    entry = composer.compose(first_records("w", "i", WrittenEnd()), (), confirmed_revision=0, logged_ms=1).payload
    assert facts_of(entry).has_note
    assert len(folded([facts_of(entry)])) == 0


def test_the_note_comes_again_behind_some_megabytes() -> None:
    writer = _Writer()
    for number in range(1, 10):
        assert not writer.composer.is_note_due
        writer.send("p", number, bytes(1024 * 1024 - 200))
        writer.write()
        if number == 9:
            break
    assert writer.composer.is_note_due
    writer.write(note=True)
    assert not writer.composer.is_note_due


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(1, 4), st.integers(0, 3), st.booleans()), max_size=60))
def test_every_record_is_in_the_log_once_however_often_it_is_sent(
    sends: list[tuple[str, int, int, bool]],
) -> None:
    """Each step sends records of a producer, beginning some way back; a writer takes over with what the log tells."""
    writer, sent = _Writer(), dict.fromkeys("pqr", 0)
    entries: list[bytes] = []
    for producer, count, back, takes_over in sends:
        first = max(1, sent[producer] + 1 - back)
        payloads = [f"{producer}{n}".encode() for n in range(first, first + count)]
        try:
            writer.send(producer, first, *payloads)
        except ForgottenSequenceError:
            continue
        sent[producer] = max(sent[producer], first + count - 1)
        if takes_over:
            writer.write()
            entries += writer.entries
            table = folded(map(facts_of, entries))
            assert table.rows() == writer.table.rows()
            writer = _After(writer, table)
    writer.write()
    entries += writer.entries
    found = [record.payload.decode() for entry in entries for record in decode_entry(entry)[0]]
    for producer, last in sent.items():
        assert [one for one in found if one[0] == producer] == [f"{producer}{n}" for n in range(1, last + 1)]


class _After(_Writer):
    """The writer that follows another one."""

    def __init__(self, before: _Writer, table: ProducerTable) -> None:
        super().__init__(table)
        self.composer.tip = before.composer.tip
