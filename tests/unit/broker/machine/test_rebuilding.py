"""The index made from the tables, and compared with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.machine import commands as c
from broker.machine.index.tasks import TaskFlag
from broker.machine.policies import WorkerOffer
from broker.machine.rebuilding import status_of
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker


def lively() -> DrivenBroker:
    broker = DrivenBroker()
    broker.appear(offer=WorkerOffer(1))
    broker.submit(c.TaskSpec("mail", slot="s"), c.TaskSpec("mail", ttl_ms=50), c.TaskSpec("mail", delay_ms=5))
    broker.fire()
    broker.run(c.SubmitTasks("acme", [c.TaskSpec("mail")], "", broker.run(c.BeginTransaction("acme")).transaction))
    broker.check()
    return broker


def wrong_status(broker: DrivenBroker) -> None:
    task = next(iter(broker.machine.tasks.by_id.values()))
    broker.machine.tasks.stop(task)
    broker.machine.tasks.move(task, TaskStatus.WAITING)


def missing_timer(broker: DrivenBroker) -> None:
    broker.machine.timers._planned.clear()


def lost_in_the_scheduler(broker: DrivenBroker) -> None:
    waiting = broker.listed(statuses=[TaskStatus.WAITING])
    broker.machine.scheduler.withdraw(waiting[0])


def forgotten_slot(broker: DrivenBroker) -> None:
    for task in broker.machine.tasks.by_id.values():
        task.flags &= ~TaskFlag.SLOT


def forgotten_worker(broker: DrivenBroker) -> None:
    broker.machine.workers.by_id.clear()


@pytest.mark.parametrize(
    "damage", [wrong_status, missing_timer, lost_in_the_scheduler, forgotten_slot, forgotten_worker]
)
def test_an_index_that_differs_from_the_tables_is_found(damage: Callable[[DrivenBroker], None]) -> None:
    broker = lively()
    damage(broker)
    with pytest.raises(AssertionError):
        broker.machine.validate()


def test_a_task_without_a_state_is_as_it_was_submitted() -> None:
    broker = lively()
    for task_id, task in broker.machine.tasks.by_id.items():
        row, found = broker.machine.task_row(task_id), broker.machine.state_row(task_id)
        assert status_of(row, found, is_open=bool(row.transaction)) == task.status
        if row.transaction:
            assert status_of(row, None, is_open=False) == TaskStatus.WAITING
