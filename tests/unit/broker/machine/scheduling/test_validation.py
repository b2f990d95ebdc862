"""What does not add up is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.machine.policies import WorkerOffer
from broker.machine.scheduling.scheduler_state import SchedulerState
from tests.unit.broker.machine.scheduling.brute_force import Checked


def _lose_a_wake_up(state: SchedulerState) -> None:
    state.freed.clear()
    state.dirty.clear()


PLANTED: dict[str, Callable[[SchedulerState], object]] = {
    "a limit counts wrong": lambda state: setattr(state.tenants["a"].cap, "used", 7),
    "a resource counts wrong": lambda state: setattr(state.limits["db", "", ""], "used", 0),
    "a worker counts wrong": lambda state: setattr(state.workers["w"], "running", 2),
    "a worker's type counts wrong": lambda state: state.workers["w"].by_type.update(t=5),
    "a share counts wrong": lambda state: setattr(state.tenants["a"].share, "waiting", 0),
    "a queue counts wrong": lambda state: setattr(next(iter(state.tenants["a"].queues.values())), "count", 9),
    "a task is in no queue": lambda state: next(iter(state.tenants["a"].queues.values())).fifo.clear(),
    "a wake-up is lost": _lose_a_wake_up,
    "a task waits and runs": lambda state: state.waiting.update({1: next(iter(state.waiting.values()))}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_add_up_is_found(planted):
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=2))
    checked.submit(resources=[("db", 1)], count=6)
    checked.dispatch()
    checked.end(1)
    checked.scheduler.validate()
    PLANTED[planted](checked.scheduler._state)
    with pytest.raises(AssertionError):
        checked.scheduler.validate()
