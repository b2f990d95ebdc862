"""Tables and index: folded together, or the log is corrupt."""

from __future__ import annotations

from typing import Any

import pytest

from broker.machine import commands as c
from broker.machine.machine import BrokerMachine
from broker.machine.messages import encode
from broker.machine.policies import TenantPolicy
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType, Table
from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError
from tests.unit.broker.machine.driven_broker import DrivenBroker

ASSIGNED = (int(TaskStatus.RUNNING), 1, "w", 0, 5, 0, 0, 0, "", "", b"")


@pytest.mark.parametrize(
    ("record_type", "fields"),
    [
        (99, ()),
        (RecordType.TASK_REMOVED, ("1",)),
        (RecordType.TASK_REMOVED, (1, 2)),
        (RecordType.TASK_REMOVED, (1,)),
        (RecordType.TASK_ASSIGNED, (77, *ASSIGNED)),
        (RecordType.TASK_CANCEL_ASKED, (77, *ASSIGNED)),
        (RecordType.SLOT_TAKEN, ("acme", "s", 77)),
        (RecordType.TRANSACTION_COMMITTED, (77, 5)),
        (RecordType.WORKER_REMOVED, ("nobody",)),
    ],
)
def test_a_record_that_contradicts_the_state_stops_the_replica(record_type: int, fields: tuple[Any, ...]) -> None:
    broker = DrivenBroker()
    broker.submit(c.TaskSpec("mail"))
    with pytest.raises(CorruptLogError, match="revision 9"):
        broker.machine.apply(record_type, fields, 9)


def test_a_task_that_runs_is_not_assigned_again() -> None:
    broker = DrivenBroker()
    broker.appear()
    (task,) = broker.submit(c.TaskSpec("mail"))
    broker.fire()
    with pytest.raises(CorruptLogError, match="does not wait"):
        broker.machine.apply(RecordType.TASK_ASSIGNED, (task, *ASSIGNED), 9)


def test_deciding_and_asking_change_nothing() -> None:
    broker = DrivenBroker()
    broker.appear()
    broker.submit(c.TaskSpec("mail", slot="s"), c.TaskSpec("mail", delay_ms=4))
    before = sorted(broker.machine.rows())
    for command in (
        c.CancelTasks("acme", [2, 3]),
        c.WorkerLost("w", "i1", is_dead=True),
        c.SetTenant("x", TenantPolicy()),
    ):
        broker.machine.decide(encode(command), broker.revision + 1, broker.now_ms)
    assert sorted(broker.machine.rows()) == before
    broker.check()


def test_a_snapshot_that_is_none_is_refused_and_leaves_an_empty_state() -> None:
    machine = BrokerMachine()
    with pytest.raises(CorruptSnapshotError):
        machine.restore([Row(Table.TASKS, pack((1,)), pack(("too", "short")), 1)])
    assert machine.count(Table.TASKS) == len(machine.tasks) == 0
    machine.validate()


def test_a_snapshot_while_records_are_applied_is_of_its_moment() -> None:
    broker = DrivenBroker()
    ids = broker.submit(*[c.TaskSpec("mail")] * 20)
    expected = sorted(broker.machine.rows())
    rows = iter(broker.machine.rows())
    first = [next(rows) for _ in range(5)]
    broker.run(c.CancelTasks("acme", ids[:10]))
    broker.submit(c.TaskSpec("mail"))
    assert sorted([*first, *rows]) == expected


def test_retention_is_the_tenants_or_else_the_brokers() -> None:
    broker = DrivenBroker()
    broker.run(c.SetTenant("acme", TenantPolicy(retention_ms=7)))
    machine = broker.machine
    assert machine.policies.retention_ms("acme", False) == 7  # noqa: FBT003
    assert machine.policies.retention_ms("acme", True) == broker.rules.dead_retention_ms  # noqa: FBT003
    assert machine.policies.of("other") == TenantPolicy()
