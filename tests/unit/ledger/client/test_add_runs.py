"""Matching of answers with adds in flight: quick for runs in order, right for everything else."""

from __future__ import annotations

import random

import pytest

from ledger.client.add_runs import AddBatch, AddRuns
from ledger.wire import v2_fast, v3_fast
from ledger.wire.v2_fast import stored_frame, stored_ids


def frames(ledger_id: int, entry_ids: range | list[int]) -> list[bytes]:
    return [stored_frame(ledger_id, entry_id) for entry_id in entry_ids]


def runs_of(*sends: tuple[str, int, range | list[int]], now: float = 0.0) -> AddRuns[str]:
    runs = AddRuns[str](stored_ids)
    for asker, ledger_id, entry_ids in sends:
        runs.add(AddBatch(asker, ledger_id, entry_ids, frames(ledger_id, entry_ids)), now)
    return runs


def take(runs: AddRuns[str], received: list[bytes], rest: bytes = b"") -> list[tuple[str, list[int]]]:
    buffer = bytearray(b"".join(received) + rest)
    answered, position = runs.take_stored(buffer, len(buffer))
    runs.validate()
    assert position == len(buffer) - len(rest)
    return [(asker, list(entry_ids)) for asker, entry_ids in answered]


def test_a_run_in_order_is_one_answer() -> None:
    runs = runs_of(("a", 1, range(100)))
    assert take(runs, frames(1, range(100))) == [("a", list(range(100)))]


def test_a_run_may_be_answered_in_pieces() -> None:
    runs = runs_of(("a", 1, range(10)))
    pieces = frames(1, range(10))
    assert take(runs, pieces[:4]) == [("a", [0, 1, 2, 3])]
    assert take(runs, pieces[4:]) == [("a", [4, 5, 6, 7, 8, 9])]
    assert runs.clear() == []


def test_an_unfinished_frame_is_left() -> None:
    runs = runs_of(("a", 1, range(3)))
    assert take(runs, frames(1, range(2)), rest=stored_frame(1, 2)[:-1]) == [("a", [0, 1])]


def test_one_answer_may_span_several_runs() -> None:
    runs = runs_of(("a", 1, range(3)), ("a", 1, range(3, 5)), ("b", 2, range(2)))
    received = frames(1, range(5)) + frames(2, range(2))
    assert take(runs, received) == [("a", [0, 1, 2]), ("a", [3, 4]), ("b", [0, 1])]


def test_answers_in_any_order_are_each_taken_once() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        sends: list[tuple[str, int, range | list[int]]] = []
        expected: list[tuple[str, int]] = []
        received: list[bytes] = []
        next_entry = {1: 0, 2: 0, 3: 0}
        for _ in range(rng.randint(1, 8)):
            ledger_id = rng.randint(1, 3)
            first = next_entry[ledger_id]
            entry_ids = range(first, first + rng.randint(1, 9))
            next_entry[ledger_id] = entry_ids.stop
            picked = (
                list(entry_ids) if rng.random() < 0.7 else sorted(rng.sample(entry_ids, k=(len(entry_ids) + 1) // 2))
            )
            sends.append((f"of {ledger_id}", ledger_id, picked))
            expected += [(f"of {ledger_id}", entry_id) for entry_id in picked]
            received += frames(ledger_id, picked)
        for _ in range(rng.choice([0, 1, 5, 100])):
            i, j = rng.randrange(len(received)), rng.randrange(len(received))
            received[i], received[j] = received[j], received[i]
        runs = runs_of(*sends)
        seen: list[tuple[str, int]] = []
        while received:
            cut = rng.randint(1, len(received))
            seen += [(asker, e) for asker, entry_ids in take(runs, received[:cut]) for e in entry_ids]
            received = received[cut:]
        assert sorted(seen) == sorted(expected)
        assert runs.clear() == []


def test_the_same_entry_sent_twice_is_answered_twice() -> None:
    runs = runs_of(("first", 1, range(3)), ("again", 1, [1, 2]))
    assert take(runs, frames(1, [0, 1, 2, 1, 2])) == [("first", [0, 1, 2]), ("again", [1, 2])]
    runs = runs_of(("first", 1, range(3)), ("again", 1, [1, 2]))
    assert take(runs, frames(1, [1, 1, 0, 2, 2])) == [
        ("first", [1]),
        ("again", [1]),
        ("first", [0]),
        ("first", [2]),
        ("again", [2]),
    ]


def test_an_answer_that_nobody_waits_for_is_left() -> None:
    runs = runs_of(("a", 1, range(2)))
    stray = stored_frame(1, 7)
    assert take(runs, frames(1, [0]), rest=stray) == [("a", [0])]
    assert runs.take(1, 7, stray) is None
    assert take(runs, frames(1, [1])) == [("a", [1])]
    assert take(runs, [], rest=stored_frame(1, 1)) == []


def test_another_answer_to_an_add_takes_it_out_of_its_run() -> None:
    runs = runs_of(("a", 1, range(4)))
    assert runs.take(1, 2, stored_frame(1, 2)) == [("a", range(2, 3))]
    assert runs.take(1, 2, stored_frame(1, 2)) is None
    assert take(runs, frames(1, [0, 1])) == [("a", [0]), ("a", [1])]
    assert take(runs, frames(1, [3])) == [("a", [3])]


def test_what_is_overdue_is_reported_once_and_may_be_answered_late() -> None:
    runs = runs_of(("a", 1, range(4)), now=1.0)
    runs.add(AddBatch("b", 1, range(4, 6), frames(1, range(4, 6))), 2.0)
    assert take(runs, frames(1, [1])) == [("a", [1])]
    assert runs.overdue(1.0) == []
    assert [(asker, list(entry_ids)) for asker, entry_ids in runs.overdue(1.5)] == [("a", [0, 2, 3])]
    assert (runs.overdue(1.5), runs.late_count) == ([], 3)
    assert take(runs, frames(1, [0, 4, 3, 5])) == [("b", [4]), ("b", [5])]
    assert runs.take(1, 2, stored_frame(1, 2)) == []
    assert (runs.take(1, 2, stored_frame(1, 2)), runs.late_count) == (None, 0)


def test_a_late_answer_counts_for_the_same_entry_sent_again() -> None:
    """It is the same entry on the same bookie: the answer to the second request may then be the late one."""
    runs = runs_of(("a", 1, [7]), now=1.0)
    runs.overdue(2.0)
    runs.add(AddBatch("a", 1, [7], frames(1, [7])), 3.0)
    assert take(runs, frames(1, [7])) == [("a", [7])]
    assert take(runs, frames(1, [7])) == []


def test_a_lost_connection_leaves_the_unanswered_behind() -> None:
    runs = runs_of(("a", 1, range(4)), ("b", 2, range(2)))
    take(runs, frames(1, [0, 2]))
    assert [(asker, list(entry_ids)) for asker, entry_ids in runs.clear()] == [("a", [1, 3]), ("b", [0, 1])]
    assert runs.clear() == []


@pytest.mark.parametrize("first_txn", [1, 120, 16380, 2**21 - 5])
def test_answers_of_growing_size_are_matched(first_txn: int) -> None:
    """In protocol v3 the size of an answer depends on its numbers."""
    answers = [v3_fast.add_response_frame(first_txn + n, 0, 5, 125 + n) for n in range(20)]
    runs = AddRuns[str](v3_fast.stored_ids)
    runs.add(AddBatch("a", 5, range(125, 145), answers), 0.0)
    assert [e for _, entry_ids in take(runs, answers) for e in entry_ids] == list(range(125, 145))
    assert runs.clear() == []


def test_an_answer_to_another_transaction_is_left() -> None:
    runs = AddRuns[str](v3_fast.stored_ids)
    runs.add(AddBatch("a", 5, range(1), [v3_fast.add_response_frame(9, 0, 5, 0)]), 0.0)
    stray = bytearray(v3_fast.add_response_frame(8, 0, 5, 0))
    assert runs.take_stored(stray, len(stray)) == ([], 0)


def test_only_whole_answers_that_say_stored_are_read() -> None:
    for frame, ids in (
        (v2_fast.stored_frame(5, 9), v2_fast.stored_ids),
        (v3_fast.add_response_frame(3, 0, 5, 9), v3_fast.stored_ids),
    ):
        assert ids(frame, 0, len(frame)) == (5, 9, len(frame))
        assert ids(b"xy" + frame, 2, len(frame) + 2) == (5, 9, len(frame) + 2)
        assert ids(frame, 0, len(frame) - 1) is None
        damaged = bytearray(frame)
        damaged[3] ^= 1
        assert ids(damaged, 0, len(damaged)) is None
    refused = v3_fast.add_response_frame(3, 504, 5, 9)
    assert v3_fast.stored_ids(refused, 0, len(refused)) is None
