"""What does not add up is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.core.policies import WorkerOffer
from broker.core.scheduling.board import Board
from tests.unit.broker_scheduling.brute_force import Checked


def _lose_a_wake_up(board: Board) -> None:
    board.freed.clear()
    board.dirty.clear()


PLANTED: dict[str, Callable[[Board], object]] = {
    "a gate counts wrong": lambda board: setattr(board.tenants["a"].cap, "used", 7),
    "a resource counts wrong": lambda board: setattr(board.gates["db", "", ""], "used", 0),
    "a worker counts wrong": lambda board: setattr(board.workers["w"], "running", 2),
    "a worker's type counts wrong": lambda board: board.workers["w"].by_type.update(t=5),
    "an account counts wrong": lambda board: setattr(board.tenants["a"].account, "waiting", 0),
    "a line counts wrong": lambda board: setattr(next(iter(board.tenants["a"].lines.values())), "count", 9),
    "a task is in no queue": lambda board: next(iter(board.tenants["a"].lines.values())).fifo.clear(),
    "a wake-up is lost": _lose_a_wake_up,
    "a task waits and runs": lambda board: board.waiting.update({1: next(iter(board.waiting.values()))}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_add_up_is_found(planted):
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=2))
    checked.submit(resources=[("db", 1)], count=6)
    checked.dispatch()
    checked.end(1)
    checked.scheduler.validate()
    PLANTED[planted](checked.scheduler._board)
    with pytest.raises(AssertionError):
        checked.scheduler.validate()
