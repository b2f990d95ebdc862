"""What records of tasks do to the index: also one by one, as an entry may end with any of them."""

from __future__ import annotations

from msgspec.structs import replace

from broker.machine import commands as c
from broker.machine.folding_tasks import flags_of
from broker.machine.index.tasks import TaskFlag
from broker.machine.messages import encode
from broker.machine.rows import TaskRow
from broker.machine.statuses import TaskStatus
from broker.machine.tables import PRIORITY_OF_TENANT, RecordType, Table
from tests.unit.broker.machine.driven_broker import DrivenBroker


def test_flags_say_what_is_known_of_a_task_without_its_rows() -> None:
    row = TaskRow("t", "mail", b"", 1, False, 0, 0, 1, "", "", "", 0, 0, 0, 0, "", "", "", 0)  # noqa: FBT003
    assert flags_of(row) == 0
    assert flags_of(replace(row, heartbeat_ms=1)) == flags_of(replace(row, timeout_ms=1)) == TaskFlag.WATCHED
    full = replace(row, at_most_once=True, group=0, priority=PRIORITY_OF_TENANT, code="pool", timeout_ms=9)
    assert flags_of(full) == (
        TaskFlag.AT_MOST_ONCE | TaskFlag.GROUP | TaskFlag.PRIORITY | TaskFlag.CODE | TaskFlag.WATCHED
    )


def test_what_an_entry_had_no_room_for_is_left_over_until_it_goes() -> None:
    broker = DrivenBroker()
    (task,) = broker.submit(c.TaskSpec("mail", slot="s"))
    machine = broker.machine
    decision = machine.decide(_cancel(task), broker.revision + 1, broker.now_ms)
    broker.log_record(*decision.records[0])
    assert list(machine.tasks.residue) == [task]
    assert machine.next_due_ms(0) == 0
    broker.check()
    broker.fire()
    assert not machine.tasks.residue
    assert machine.count(Table.SLOTS) == 0
    broker.log_record(RecordType.TASK_REMOVED, (task,))
    assert list(machine.tasks.residue) == [task]
    broker.check()
    broker.fire()
    assert machine.count(Table.STATES) == 0
    broker.check()


def test_a_slot_that_was_left_over_may_be_taken_and_stays_with_who_took_it() -> None:
    broker = DrivenBroker()
    (task,) = broker.submit(c.TaskSpec("mail", slot="s"))
    decision = broker.machine.decide(_cancel(task), broker.revision + 1, broker.now_ms)
    broker.log_record(*decision.records[0])
    (other,) = broker.submit(c.TaskSpec("mail", slot="s"))
    assert other
    broker.fire()
    assert broker.submit(c.TaskSpec("mail", slot="s")) == [0]
    assert broker.status(other) == TaskStatus.WAITING
    broker.check()


def _cancel(task: int) -> bytes:
    return encode(c.CancelTasks("acme", [task]))
