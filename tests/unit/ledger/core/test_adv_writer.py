"""Explicit entry ids: any order in, the order of the ids out, every id once."""

from __future__ import annotations

import random

import pytest

from ledger.core.adv_writer import AHEAD_MAX, AdvLedgerWriter
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.writer_effects import ChangeEnsemble, ConfirmEntries, ResendEntries, SendEntries
from ledger.errors import FencedError, UsageError

E3 = QuorumConfig(3, 3, 2)


def writer_of(quorum: QuorumConfig = E3) -> AdvLedgerWriter:
    return AdvLedgerWriter(7, quorum, [f"b{i}:1" for i in range(quorum.ensemble_size)])


def store(writer: AdvLedgerWriter, *entry_ids: int) -> list[object]:
    effects: list[object] = []
    for position in range(writer.quorum.ack_quorum):
        effects += writer.on_stored(position, entry_ids)
        writer.validate()
    return effects


def test_entries_are_sent_at_once_and_confirmed_in_the_order_of_their_ids() -> None:
    writer = writer_of()
    assert writer.append_at([2, 0], [1, 1]) == [SendEntries(2, -1, [1]), SendEntries(0, -1, [2])]
    assert store(writer, 2) == []
    assert store(writer, 0) == [ConfirmEntries(0)]
    assert writer.append_at([1], [1]) == [SendEntries(1, 0, [3])]
    assert store(writer, 1) == [ConfirmEntries(2)]


def test_consecutive_ids_go_as_one_run() -> None:
    assert writer_of().append_at([3, 4, 5, 0], [1, 1, 1, 1]) == [SendEntries(3, -1, [1, 2, 3]), SendEntries(0, -1, [4])]


def test_lengths_count_in_the_order_of_arrival_and_the_ledgers_length_what_is_confirmed() -> None:
    writer = writer_of()
    assert writer.append_at([1, 0], [10, 5]) == [SendEntries(1, -1, [10]), SendEntries(0, -1, [15])]
    assert (writer.pending_bytes, writer.confirmed_length) == (15, 0)
    store(writer, 0)
    assert (writer.pending_bytes, writer.confirmed_length) == (10, 5)
    store(writer, 1)
    assert (writer.pending_bytes, writer.confirmed_length) == (0, 15)


@pytest.mark.parametrize("entry_id", [0, 1, 3, -1])
def test_an_id_is_given_once(entry_id: int) -> None:
    writer = writer_of()
    writer.append_at([0, 1, 3], [1, 1, 1])
    store(writer, 0)
    with pytest.raises(UsageError, match=f"entry {entry_id} cannot"):
        writer.check(entry_id)
    writer.check(2)
    writer.check(4)


def test_an_id_far_ahead_is_refused_with_where_the_gap_begins() -> None:
    writer = writer_of()
    writer.append_at([0, 2], [1, 1])
    store(writer, 0)
    writer.check(AHEAD_MAX)
    with pytest.raises(UsageError, match="from 1 on"):
        writer.check(AHEAD_MAX + 1)


def test_ids_are_the_applications_alone() -> None:
    with pytest.raises(UsageError, match="append_at"):
        writer_of().append([1])


def test_a_frozen_writer_takes_nothing() -> None:
    writer = writer_of()
    writer.freeze(FencedError("fenced"))
    with pytest.raises(FencedError):
        writer.append_at([0], [1])


def test_bookies_owe_nothing_for_a_gap() -> None:
    writer = writer_of()
    writer.append_at([1], [1])
    assert not writer.is_waiting
    assert writer.last_confirmable == -1
    writer.append_at([0], [1])
    assert writer.is_waiting
    assert writer.last_confirmable == 1


def test_a_replacement_is_sent_what_was_given_only() -> None:
    writer = writer_of()
    writer.change_after_s = 1.0
    writer.append_at([0, 2, 5], [1, 1, 1])
    assert writer.on_position_failed(0, "EIO", 0.0, is_refusal=True) == [ChangeEnsemble()]
    assert writer.hold([0]) == 0
    effects = writer.on_ensemble_changed(["b9:1", "b1:1", "b2:1"])
    assert effects[1] == ResendEntries(0, [0, 2, 5])


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_ids_and_answers_confirms_all_in_order(seed: int) -> None:
    rng = random.Random(seed)
    quorum = rng.choice([E3, QuorumConfig(2, 2, 2), QuorumConfig(4, 2, 2)])
    writer = writer_of(quorum)
    ids = list(range(40))
    rng.shuffle(ids)
    answers: list[tuple[int, int]] = []
    confirmed = -1
    while ids or answers:
        if ids and rng.random() < 0.4:
            batch = [ids.pop() for _ in range(min(len(ids), rng.randint(1, 4)))]
            writer.append_at(batch, [3] * len(batch))
            answers += [(position, entry_id) for entry_id in batch for position in write_set(entry_id, quorum)]
        elif answers:
            position, entry_id = answers.pop(rng.randrange(len(answers)))
            for effect in writer.on_stored(position, [entry_id]):
                assert isinstance(effect, ConfirmEntries)
                assert effect.last_entry_id > confirmed
                confirmed = effect.last_entry_id
        writer.validate()
    assert confirmed == 39
    assert writer.confirmed_length == 120
