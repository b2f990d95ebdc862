"""The checker of lists finds what is not strictly serializable, and nothing else."""

import random
from math import inf

import pytest

from rsm_spark.testing.list_append import AppendOutcome, AppendTransaction, ListRead, ListWrite, check_lists

OK, FAILED, UNKNOWN = AppendOutcome.OK, AppendOutcome.FAILED, AppendOutcome.UNKNOWN


def transaction(number, began_s, ended_s, *steps, fate=OK):
    made = tuple(ListWrite(*one[1:]) if one[0] == "a" else ListRead(one[1], tuple(one[2])) for one in steps)
    return AppendTransaction(number, made, began_s, ended_s, fate)


def test_an_order_that_everybody_saw_is_sound():
    history = [
        transaction(1, 0, 5, ("a", "x", 1)),
        transaction(2, 1, 6, ("r", "x", [1]), ("a", "x", 2), ("r", "x", [1, 2])),
        transaction(3, 2, 4, ("r", "x", [])),
        transaction(4, 7, 9, ("r", "x", [1, 2, 3]), ("r", "y", [])),
        transaction(5, 2, inf, ("a", "x", 3), fate=UNKNOWN),
        transaction(6, 2, inf, ("a", "x", 4), fate=UNKNOWN),
        transaction(7, 2, 3, ("a", "x", 5), fate=FAILED),
        transaction(8, 10, 11, ("a", "y", 9)),
    ]
    assert check_lists(history) == []


UNSOUND = {
    "lost update": [
        transaction(1, 0, 5, ("r", "x", []), ("a", "x", 1)),
        transaction(2, 0, 5, ("r", "x", []), ("a", "x", 2)),
        transaction(3, 6, 7, ("r", "x", [1, 2])),
    ],
    "write skew": [
        transaction(1, 0, 5, ("r", "x", []), ("a", "y", 1)),
        transaction(2, 0, 5, ("r", "y", []), ("a", "x", 2)),
        transaction(3, 6, 7, ("r", "x", [2]), ("r", "y", [1])),
    ],
    "an old state was read": [transaction(1, 0, 1, ("a", "x", 1)), transaction(2, 2, 3, ("r", "x", []))],
    "what was acknowledged is gone": [
        transaction(1, 0, 1, ("a", "x", 1)),
        transaction(2, 2, 3, ("a", "x", 2)),
        transaction(3, 4, 5, ("r", "x", [2])),
    ],
    "never kept": [transaction(1, 0, 1, ("a", "x", 1), fate=FAILED), transaction(2, 0, 3, ("r", "x", [1]))],
    "read a value twice": [transaction(1, 0, 9, ("a", "x", 1)), transaction(2, 0, 3, ("r", "x", [1, 1]))],
    "in the middle": [
        transaction(1, 0, 9, ("a", "x", 1), ("a", "x", 2)),
        transaction(2, 0, 3, ("r", "x", [1])),
    ],
    "no order has both": [
        transaction(1, 0, 9, ("a", "x", 1)),
        transaction(2, 0, 9, ("a", "x", 2)),
        transaction(3, 0, 9, ("r", "x", [1, 2])),
        transaction(4, 0, 9, ("r", "x", [2, 1])),
    ],
    "had read and appended": [transaction(1, 0, 9, ("a", "x", 1), ("r", "x", []))],
    "two halves": [
        transaction(1, 0, 9, ("a", "x", 1), ("a", "y", 1)),
        transaction(2, 0, 9, ("r", "x", [1]), ("r", "y", [])),
    ],
}


@pytest.mark.parametrize("name", UNSOUND)
def test_what_is_unsound_is_found(name):
    assert check_lists(UNSOUND[name]), name


@pytest.mark.parametrize("seed", range(20))
def test_drawn_histories(seed):
    """Done one after the other they are sound; with one read of an old state they are not."""
    rng = random.Random(seed)
    lists, history = dict.fromkeys("xyz", ()), []
    for number in range(200):
        steps = []
        for place in range(rng.randint(1, 4)):
            key = rng.choice("xyz")
            if rng.random() < 0.5:
                lists[key] += ((number, place),)
                steps.append(ListWrite(key, (number, place)))
            else:
                steps.append(ListRead(key, lists[key]))
        spread = rng.uniform(0, 3)
        history.append(AppendTransaction(number, tuple(steps), number - spread, number + rng.uniform(0, 3), OK))
    assert check_lists(history) == []
    old = AppendTransaction(200, (ListRead("x", lists["x"][:-3]),), 300.0, 301.0, OK)
    assert check_lists([*history, old])
