"""What went wrong in Majordodo (facts of its public source and of runs of it), as far as a state machine shows it."""

from __future__ import annotations

import hashlib

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.machine import BrokerMachine
from broker.machine.replies import Refusal, Refused, TasksSubmitted
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


def test_a_snapshot_of_any_moment_and_the_log_behind_it_make_the_same_state() -> None:
    """Its snapshots may name a position whose earlier entries are not in them (2)."""
    broker = DrivenBroker()
    broker.appear()
    snapshots = [(0, list(broker.replayed().rows()))]
    for place in range(6):
        broker.submit(Spec("mail", slot=f"s{place}"), Spec("mail", delay_ms=10))
        snapshots.append((broker.revision, list(broker.machine.rows())))
        broker.pass_time(10)
        broker.end(broker.listed(statuses=[TaskStatus.RUNNING])[0])
        snapshots.append((broker.revision, list(broker.machine.rows())))
    for position, rows in snapshots[1:]:
        other = BrokerMachine(broker.rules)
        other.restore(rows)
        for revision, record_type, fields in broker.log:
            if revision > position:
                other.apply(record_type, fields, revision)
        other.validate()
        assert sorted(other.rows()) == sorted(broker.machine.rows())


def test_code_mode_and_everything_else_of_a_task_is_in_a_snapshot() -> None:
    """Its snapshots leave out code pools, and tasks in them forget their mode and code pool (3)."""
    broker = DrivenBroker()
    broker.appear()
    broker.run(c.DeployCode("pool", b"zip", hashlib.sha256(b"zip").hexdigest()))
    spec = Spec(
        "mail", b"payload", True, 3, 7, 2, {"db": 1}, "slot", "key", START_MS + 5, 0, START_MS + 900, 0, 80, 90, "pool",
        "mode", '{"backoff_ms": 5}',
    )  # fmt: skip
    (task,) = broker.submit(spec)
    before = broker.get(task)
    broker.reboot()
    assert broker.get(task) == before
    assert (before.code, before.mode, before.start_ms, before.deadline_ms) == (
        "pool",
        "mode",
        START_MS + 5,
        START_MS + 900,
    )
    broker.pass_time(5)
    run = broker.machine.assigned_run(task, broker.get(task).assignment_id, broker.now_ms)
    assert run is not None
    assert (run.code, run.mode, run.slot, run.key, run.resources, run.timeout_ms, run.heartbeat_ms) == (
        "pool", "mode", "slot", "key", {"db": 1}, 80, 90,
    )  # fmt: skip


def test_whoever_applies_the_log_later_has_the_same_times_and_the_same_delays() -> None:
    """It reads the clock where it applies: replicas differ in creation times, and in what is delayed (4)."""
    broker = DrivenBroker()
    (task,) = broker.submit(Spec("mail", delay_ms=10))
    broker.now_ms += 10**9  # The follower replays in eleven days.
    other = broker.replayed()
    assert sorted(other.rows()) == sorted(broker.machine.rows())
    other.validate()
    assert other.tasks.by_id[task].status == TaskStatus.DELAYED
    assert broker.get(task).created_ms == START_MS


def test_every_task_of_a_batch_has_its_own_start_code_mode_and_semantics() -> None:
    """It reads them from the top of the request, while its client sends them with each task (5)."""
    broker = DrivenBroker()
    for code in ("a", "b"):
        broker.run(c.DeployCode(code, code.encode(), hashlib.sha256(code.encode()).hexdigest()))
    ids = broker.submit(
        Spec("mail", code="a", mode="x", delay_ms=5),
        Spec("mail", code="b", at_most_once=True, max_attempts=3),
        Spec("mail", start_ms=START_MS + 7, mode="y"),
    )
    shown = [broker.get(one) for one in ids]
    assert [(one.code, one.mode, one.at_most_once, one.max_attempts, one.due_ms) for one in shown] == [
        ("a", "x", False, 0, START_MS + 5),
        ("b", "", True, 3, 0),
        ("", "y", False, 0, START_MS + 7),
    ]


def test_a_taken_slot_says_who_has_it_and_a_commit_that_fails_says_why() -> None:
    """A taken slot reads as "no task id, no reason", and errors of commits lose their text (5)."""
    broker = DrivenBroker()
    (holder,) = broker.submit(Spec("mail", slot="s"))
    assert broker.run(c.SubmitTasks("acme", [Spec("mail", slot="s")])) == TasksSubmitted(0, 0, [(0, holder)])
    reply = broker.run(c.CommitTransaction("acme", 4711))
    assert isinstance(reply, Refused)
    assert reply.refusal == Refusal.TRANSACTION_OVER
    assert "4711" in reply.reason


def test_a_batch_is_one_decision_so_sending_it_again_doubles_nothing() -> None:
    """A batch whose ledger closes half-way is retried whole: what had been written is there twice (10)."""
    broker = DrivenBroker()
    command = c.SubmitTasks("acme", [Spec("mail")] * 10, "once")
    first = broker.run(command)
    broker.promote()
    assert broker.run(command) == first
    broker.reboot()
    assert broker.run(command) == first
    assert len(broker.ask(q.ListTasks("acme")).tasks) == 10
