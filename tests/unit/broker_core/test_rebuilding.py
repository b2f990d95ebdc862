"""The index made from the tables, and compared with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.core import commands as c
from broker.core.policies import WorkerOffer
from broker.core.rebuilding import status_of
from broker.core.statuses import TaskStatus
from broker.core.tasks import TaskFlag
from tests.unit.broker_core.driven_broker import DrivenBroker


def lively() -> DrivenBroker:
    broker = DrivenBroker()
    broker.appear(offer=WorkerOffer(1))
    broker.submit(c.TaskSpec("mail", slot="s"), c.TaskSpec("mail", ttl_ms=50), c.TaskSpec("mail", delay_ms=5))
    broker.fire()
    broker.run(c.SubmitTasks("acme", [c.TaskSpec("mail")], "", broker.run(c.BeginTransaction("acme")).transaction))
    broker.check()
    return broker


def wrong_status(broker: DrivenBroker) -> None:
    task = next(iter(broker.machine.index.tasks.values()))
    broker.machine.index.stop(task)
    broker.machine.index.move(task, TaskStatus.WAITING)


def missing_timer(broker: DrivenBroker) -> None:
    broker.machine.timers._planned.clear()


def lost_in_the_scheduler(broker: DrivenBroker) -> None:
    waiting = broker.listed(statuses=[TaskStatus.WAITING])
    broker.machine.scheduler.withdraw(waiting[0])


def forgotten_slot(broker: DrivenBroker) -> None:
    for task in broker.machine.index.tasks.values():
        task.flags &= ~TaskFlag.SLOT


def forgotten_worker(broker: DrivenBroker) -> None:
    broker.machine.workers.clear()


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
    for task_id, task in broker.machine.index.tasks.items():
        row, found = broker.machine.task_row(task_id), broker.machine.state_row(task_id)
        assert status_of(row, found, is_open=bool(row.transaction)) == task.status
        if row.transaction:
            assert status_of(row, None, is_open=False) == TaskStatus.WAITING
