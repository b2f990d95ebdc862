"""What records of tasks do to the index: also one by one, as an entry may end with any of them."""

from __future__ import annotations

from broker.core import commands as c
from broker.core.folding_tasks import flags_of
from broker.core.messages import encode
from broker.core.statuses import TaskStatus
from broker.core.tables import PRIORITY_OF_TENANT, RecordType, Table
from broker.core.tasks import TaskFlag
from tests.unit.broker_core.driven_broker import DrivenBroker


def test_flags_say_what_is_known_of_a_task_without_its_rows() -> None:
    assert flags_of(False, 1, 0, "", is_watched=False) == 0  # noqa: FBT003
    assert flags_of(True, 0, PRIORITY_OF_TENANT, "pool", is_watched=True) == (  # noqa: FBT003
        TaskFlag.AT_MOST_ONCE | TaskFlag.GROUP | TaskFlag.PRIORITY | TaskFlag.CODE | TaskFlag.WATCHED
    )


def test_what_an_entry_had_no_room_for_is_left_over_until_it_goes() -> None:
    broker = DrivenBroker()
    (task,) = broker.submit(c.TaskSpec("mail", slot="s"))
    machine = broker.machine
    decision = machine.decide(_cancel(task), broker.revision + 1, broker.now_ms)
    broker.log_record(*decision.records[0])
    assert list(machine.index.residue) == [task]
    assert machine.next_due_ms(0) == 0
    broker.check()
    broker.fire()
    assert not machine.index.residue
    assert machine.count(Table.SLOTS) == 0
    broker.log_record(RecordType.TASK_REMOVED, (task,))
    assert list(machine.index.residue) == [task]
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
