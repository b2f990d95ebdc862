"""Code pools: kept while a task needs them."""

from __future__ import annotations

import hashlib

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.replies import Done, Refusal, Refused
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker

Spec = c.TaskSpec


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


def deploy(code: str, archive: bytes, **rest: int) -> c.DeployCode:
    return c.DeployCode(code, archive, hashlib.sha256(archive).hexdigest(), **rest)


def test_code_is_kept_with_its_tasks_also_in_snapshots(broker: DrivenBroker) -> None:
    """Majordodo's #3: its snapshots have no code pools, and its tasks forget theirs."""
    broker.run(deploy("pool", b"bytes"))
    (task,) = broker.submit(Spec("mail", code="pool", mode="object"))
    broker.reboot()
    assert broker.ask(q.GetCode("pool")).archive == b"bytes"
    assert (broker.get(task).code, broker.get(task).mode) == ("pool", "object")
    assert [(shown.code, shown.task_count) for shown in broker.ask(q.ListCodes()).codes] == [("pool", 1)]
    assert refusal(broker.run(c.RemoveCode("pool"))) == Refusal.IN_USE
    broker.run(c.CancelTasks("acme", [task]))
    assert isinstance(broker.run(c.RemoveCode("pool")), Done)
    broker.check()


def test_the_same_code_again_is_taken_and_other_bytes_of_its_name_are_refused(broker: DrivenBroker) -> None:
    broker.run(deploy("pool", b"bytes"))
    count = len(broker.log)
    assert isinstance(broker.run(deploy("pool", b"bytes")), Done)
    assert len(broker.log) == count
    assert refusal(broker.run(deploy("pool", b"others"))) == Refusal.CONFLICT
    assert refusal(broker.run(c.DeployCode("new", b"x", "0" * 64))) == Refusal.INVALID
    assert refusal(broker.run(deploy("new", b""))) == Refusal.INVALID
    assert refusal(broker.run(deploy("new", bytes(3 * 1024 * 1024 + 1)))) == Refusal.TOO_LARGE
    assert refusal(broker.run(c.RemoveCode("new"))) == Refusal.NOT_FOUND


def test_a_dead_letter_whose_code_is_gone_is_not_replayed(broker: DrivenBroker) -> None:
    broker.run(deploy("pool", b"bytes"))
    (task,) = broker.submit(Spec("mail", code="pool", max_attempts=1))
    broker.fire()
    broker.end(task, TaskStatus.ERROR)
    broker.run(c.RemoveCode("pool"))
    assert refusal(broker.run(c.ReplayDead("acme", [task]))) == Refusal.UNKNOWN_CODE
    broker.run(deploy("pool", b"bytes"))
    broker.run(c.ReplayDead("acme", [task]))
    assert refusal(broker.run(c.RemoveCode("pool"))) == Refusal.IN_USE
    broker.check()


def test_a_rolled_back_transaction_needs_its_code_no_more(broker: DrivenBroker) -> None:
    broker.run(deploy("pool", b"bytes"))
    transaction = broker.run(c.BeginTransaction("acme")).transaction
    broker.submit(Spec("mail", code="pool"), Spec("mail", code="pool"), transaction=transaction)
    assert refusal(broker.run(c.RemoveCode("pool"))) == Refusal.IN_USE
    broker.run(c.RollbackTransaction("acme", transaction))
    assert isinstance(broker.run(c.RemoveCode("pool")), Done)
    broker.check()
