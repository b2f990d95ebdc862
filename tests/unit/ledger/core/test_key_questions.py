"""In which order the metadata are asked about ledgers, and how fast for those who were answered "no"."""

from __future__ import annotations

import random
from typing import cast

import pytest

from ledger.core.key_questions import AskerRank, KeyQuestions, QuestionLimits

PROVEN, NEW, REFUSED = AskerRank.PROVEN, AskerRank.NEW, AskerRank.REFUSED


def test_proven_ones_come_first_and_the_number_on_its_way_is_bounded() -> None:
    questions = KeyQuestions(QuestionLimits(asked_max=3))
    for ledger_id, rank in ((1, REFUSED), (2, NEW), (3, PROVEN), (4, PROVEN)):
        questions.ask(ledger_id, "a", rank)
    assert questions.take(0.0) == [3, 4, 2]
    assert questions.take(0.0) == []
    assert questions.answer(3, is_final=True) == ["a"]
    assert questions.take(0.0) == [1]


def test_a_question_of_a_stranger_becomes_that_of_a_proven_one_who_asks_the_same() -> None:
    questions = KeyQuestions(QuestionLimits(asked_max=1))
    for ledger_id in range(5):
        questions.ask(ledger_id, "stranger", REFUSED)
    questions.ask(4, "writer", PROVEN)
    assert questions.take(0.0) == [4]
    assert questions.answer(4, is_final=False) == ["stranger", "writer"]


def test_a_no_that_was_on_its_way_says_nothing_to_who_came_later() -> None:
    questions = KeyQuestions()
    questions.ask(7, "stranger", NEW)
    assert questions.take(0.0) == [7]
    questions.ask(7, "writer", PROVEN)
    assert questions.answer(7, is_final=False) == ["stranger"]
    assert questions.take(0.0) == [7]
    assert questions.answer(7, is_final=False) == ["writer"]
    assert len(questions) == 0


def test_a_yes_is_for_all() -> None:
    questions = KeyQuestions()
    questions.ask(7, "early", NEW)
    questions.take(0.0)
    questions.ask(7, "late", NEW)
    assert questions.answer(7, is_final=True) == ["early", "late"]


def test_those_who_were_refused_share_a_few_questions_a_second() -> None:
    questions = KeyQuestions(QuestionLimits(refused_per_s=10.0))
    for number in range(20_000):
        questions.ask(number, number % 7, REFUSED)
    asked = 0
    for tick in range(1_000):
        questions.ask(100_000 + tick, "writer", NEW)
        found = questions.take(50.0 + tick / 100)
        assert 100_000 + tick in found
        asked += len(found) - 1
        for ledger_id in found:
            questions.answer(ledger_id, is_final=False)
    assert 90 <= asked <= 115  # ten seconds, and one second's worth at once
    assert questions.wake_at_s() is not None


def test_who_is_gone_is_not_asked_for() -> None:
    questions = KeyQuestions()
    questions.ask(1, "a", REFUSED)
    questions.ask(2, "a", NEW)
    questions.ask(2, "b", NEW)
    questions.forget([1, 2, 3], "a")
    assert questions.take(0.0) == [2]
    questions.forget([2], "b")
    assert questions.answer(2, is_final=True) == []
    questions.validate()


@pytest.mark.parametrize("seed", range(20))
def test_everybody_is_told_once_whatever_the_order(seed: int) -> None:
    rng = random.Random(seed)
    questions = KeyQuestions(QuestionLimits(asked_max=3, refused_asked_max=2, refused_per_s=100.0))
    waits: set[tuple[int, int]] = set()
    on_their_way: list[int] = []
    now_s = 0.0
    for _ in range(2_000):
        now_s += rng.random() / 100
        ledger_id, asker = rng.randrange(12), rng.randrange(6)
        if rng.random() < 0.5:
            if (ledger_id, asker) not in waits:
                questions.ask(ledger_id, asker, rng.choice(list(AskerRank)))
                waits.add((ledger_id, asker))
        elif rng.random() < 0.2:
            questions.forget([i for i, a in waits if a == asker], asker)
            waits = {x for x in waits if x[1] != asker}
        elif on_their_way:
            answered = on_their_way.pop(rng.randrange(len(on_their_way)))
            for told in questions.answer(answered, is_final=rng.random() < 0.5):
                waits.remove((answered, cast("int", told)))
        on_their_way += questions.take(now_s)
        questions.validate()
        assert len(on_their_way) <= 3
    for _ in range(1_000):
        now_s += 0.01
        on_their_way += questions.take(now_s)
        if on_their_way:
            answered = on_their_way.pop()
            for told in questions.answer(answered, is_final=True):
                waits.remove((answered, cast("int", told)))
    assert not waits
