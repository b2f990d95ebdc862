"""When to look at what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.machine.index.timers import Plan, PlanKind, Timers


def test_the_first_plan_is_the_earliest_of_those_that_hold() -> None:
    timers = Timers()
    timers.plan(PlanKind.TASK, 1, 50)
    timers.plan(PlanKind.HOLD, ("a", "", ""), 30)
    timers.plan(PlanKind.TASK, 2, 40)
    assert timers.first() == Plan(30, PlanKind.HOLD, ("a", "", ""))
    timers.forget(PlanKind.HOLD, ("a", "", ""))
    assert timers.first() == Plan(40, PlanKind.TASK, 2)
    timers.plan(PlanKind.TASK, 2, 60)
    assert timers.first() == Plan(50, PlanKind.TASK, 1)
    timers.plan(PlanKind.TASK, 2, 10)
    assert timers.first() == Plan(10, PlanKind.TASK, 2)
    assert (timers.planned_ms(PlanKind.TASK, 2), timers.planned_ms(PlanKind.TASK, 3)) == (10, None)


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 20)), max_size=60))
def test_whatever_is_planned_and_forgotten_nothing_is_missed(steps: list[tuple[int, int | None]]) -> None:
    timers, model = Timers(), dict[int, int]()
    for key, at_ms in steps:
        if at_ms is None:
            timers.forget(PlanKind.TASK, key)
            model.pop(key, None)
        else:
            timers.plan(PlanKind.TASK, key, at_ms)
            model[key] = at_ms
        timers.validate()
        first = timers.first()
        assert (None if first is None else (first.at_ms, first.key)) == min(
            ((at, key) for key, at in model.items()), default=None
        )


def test_plans_that_were_put_off_again_and_again_do_not_pile_up() -> None:
    timers = Timers()
    for at_ms in range(100_000):
        timers.plan(PlanKind.TASK, at_ms % 3, at_ms)
    assert len(timers) == 3
    assert len(timers._heap) < 2_000
    timers.validate()
