"""The index of workers."""

from __future__ import annotations

import pytest

from broker.machine.index.timers import PlanKind, Timers
from broker.machine.index.workers import WorkerIndex
from broker.machine.rows import WorkerRow
from broker.machine.statuses import WorkerStatus


def row(status: WorkerStatus = WorkerStatus.CONNECTED, *, at_ms: int = 5, replaced: str = "") -> WorkerRow:
    return WorkerRow("i1", status, "here", at_ms, at_ms, '{"threads_max": 3}', replaced)


def test_only_a_dead_worker_is_forgotten_in_time() -> None:
    timers = Timers()
    workers = WorkerIndex(timers, 100)
    assert workers.set("w", row()).threads_max == workers.offers["w"].threads_max == 3
    workers.validate()
    assert len(timers) == 0
    workers.set("w", row(WorkerStatus.DEAD))
    workers.validate()
    assert timers.planned_ms(PlanKind.WORKER, "w") == 105
    workers.remove("w")
    workers.validate()
    assert len(timers) == len(workers.by_id) == len(workers.offers) == 0


def test_a_new_leader_awaits_once_who_came_before_it() -> None:
    workers = WorkerIndex(Timers(), 100)
    workers.set("old", row(at_ms=5))
    workers.set("new", row(at_ms=9))
    for _ in range(2):
        workers.promote(9)
        assert workers.is_promoted(9)
        assert list(workers.awaited) == ["old"]
    assert not workers.is_promoted(10)


def test_incarnations_that_were_replaced_are_known() -> None:
    workers = WorkerIndex(Timers(), 100)
    workers.set("w", row(replaced="i8,i9"))
    assert [workers.was_replaced("w", one) for one in ("i8", "i9", "i1", "")] == [True, True, False, False]
    assert not workers.was_replaced("nobody", "i8")


def test_a_plan_or_an_offer_that_is_wrong_is_found() -> None:
    timers = Timers()
    workers = WorkerIndex(timers, 100)
    workers.set("w", row(WorkerStatus.DEAD))
    timers.forget(PlanKind.WORKER, "w")
    with pytest.raises(AssertionError, match="worker w and its plan"):
        workers.validate()
    workers.set("w", row())
    del workers.offers["w"]
    with pytest.raises(AssertionError):
        workers.validate()
