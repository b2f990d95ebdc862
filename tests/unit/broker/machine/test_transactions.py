"""Transactions: all at once, or never."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.limits import BATCH_TASKS_MAX, TRANSACTION_TASKS_MAX
from broker.machine.replies import Begun, Committed, Refusal, Refused
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType, Table
from broker.machine.views import Nothing
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


def begin(broker: DrivenBroker, ttl_ms: int = 10_000, tenant: str = "acme") -> int:
    reply = broker.run(c.BeginTransaction(tenant, ttl_ms))
    assert isinstance(reply, Begun)
    assert reply.expires_ms == broker.now_ms + ttl_ms
    return reply.transaction


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


def test_prepared_tasks_do_not_run_before_the_commit_and_one_record_makes_all_of_them_wait(
    broker: DrivenBroker,
) -> None:
    transaction = begin(broker)
    ids = broker.submit(Spec("mail"), Spec("mail", delay_ms=50), transaction=transaction)
    ids += broker.submit(Spec("mail"), transaction=transaction)
    assert broker.fire() == []
    assert {broker.status(one) for one in ids} == {TaskStatus.PREPARED}
    broker.promote()
    assert broker.run(c.CommitTransaction("acme", transaction)) == Committed(3)
    assert [broker.status(one) for one in ids] == [TaskStatus.WAITING, TaskStatus.DELAYED, TaskStatus.WAITING]
    assert len(broker.logged(RecordType.TRANSACTION_COMMITTED)) == 1
    broker.fire()
    broker.check()
    broker.pass_time(50)
    assert {broker.status(one) for one in ids} == {TaskStatus.RUNNING}


def test_committing_again_answers_the_same_and_another_transaction_is_refused(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    broker.submit(Spec("mail"), transaction=transaction)
    first = broker.run(c.CommitTransaction("acme", transaction))
    broker.reboot()
    assert broker.run(c.CommitTransaction("acme", transaction)) == first == Committed(1)
    assert refusal(broker.run(c.CommitTransaction("other", transaction))) == Refusal.TRANSACTION_OVER
    assert refusal(broker.run(c.CommitTransaction("acme", transaction + 1))) == Refusal.TRANSACTION_OVER
    assert refusal(broker.run(c.RollbackTransaction("acme", transaction))) == Refusal.TRANSACTION_OVER
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")], "", transaction))) == Refusal.TRANSACTION_OVER


def test_a_slot_is_taken_inside_a_transaction_and_released_by_its_rollback(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    (task,) = broker.submit(Spec("mail", slot="s"), transaction=transaction)
    assert broker.submit(Spec("mail", slot="s")) == [0]
    assert broker.run(c.RollbackTransaction("acme", transaction)) == Committed(1)
    assert isinstance(broker.ask(q.GetTask("acme", task)), Nothing)
    assert broker.machine.count(Table.TASKS) == broker.machine.count(Table.SLOTS) == 0
    assert broker.submit(Spec("mail", slot="s")) != [0]
    broker.check()


def test_an_unknown_transaction_refuses_before_anything_is_logged(broker: DrivenBroker) -> None:
    """Majordodo's #10: it logs first, and refuses at apply."""
    count = len(broker.log)
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")], "", 4711))) == Refusal.TRANSACTION_OVER
    other = begin(broker, tenant="other")
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")], "", other))) == Refusal.TRANSACTION_OVER
    assert len(broker.log) == count + 1


def test_an_abandoned_transaction_is_rolled_back_in_time(broker: DrivenBroker) -> None:
    transaction = begin(broker, 1_000)
    broker.submit(Spec("mail", slot="s"), Spec("mail"), transaction=transaction)
    broker.pass_time(999)
    assert len(broker.listed()) == 2
    broker.pass_time(1)
    assert broker.listed() == []
    assert broker.machine.count(Table.TRANSACTIONS) == 0
    assert refusal(broker.run(c.CommitTransaction("acme", transaction))) == Refusal.TRANSACTION_OVER
    broker.check()


def test_a_new_leader_gives_transactions_their_full_time_again(broker: DrivenBroker) -> None:
    transaction = begin(broker, 1_000)
    broker.now_ms += 900
    broker.reboot()
    broker.pass_time(999)
    assert broker.run(c.CommitTransaction("acme", transaction)) == Committed(0)


def test_a_deadline_that_passed_while_a_task_was_prepared_ends_it_at_the_commit(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    (task,) = broker.submit(Spec("mail", ttl_ms=100), transaction=transaction)
    broker.pass_time(200)
    assert broker.status(task) == TaskStatus.PREPARED
    broker.run(c.CommitTransaction("acme", transaction))
    broker.fire()
    assert broker.status(task) == TaskStatus.ERROR
    broker.check()


def test_of_a_large_transaction_that_is_rolled_back_nobody_sees_a_half(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    count = 0
    while count < 6_000:
        specs = [Spec("mail", slot=f"s{count + n}") for n in range(2_000)]
        broker.submit(*specs, transaction=transaction)
        count += 2_000
    assert broker.run(c.RollbackTransaction("acme", transaction)) == Committed(count)
    assert len(broker.log) < count * 2 + 10, "the command itself is one record"
    while broker.machine.count(Table.TRANSACTIONS):
        assert broker.ask(q.ListTransactions()).transactions == []
        assert broker.listed(limit=10) == []
        assert refusal(broker.run(c.CommitTransaction("acme", transaction))) == Refusal.TRANSACTION_OVER
        assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")], "", transaction))) == Refusal.TRANSACTION_OVER
        for record_type, fields in broker.machine.due(broker.now_ms, 0, 2_000):
            broker.log_record(record_type, fields)
        if broker.machine.count(Table.TASKS) > 4_000:
            broker.machine.validate()
            broker.reboot()
    assert broker.machine.count(Table.TASKS) == broker.machine.count(Table.SLOTS) == 0
    broker.check()


def test_a_slot_of_a_transaction_that_is_over_is_free_at_once(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    specs = [Spec("mail", slot=f"s{n}") for n in range(1_500)]
    broker.submit(*specs, transaction=transaction)
    broker.run(c.RollbackTransaction("acme", transaction))
    (task,) = broker.submit(Spec("mail", slot="s1400"))
    assert task
    broker.fire()
    assert broker.submit(Spec("mail", slot="s1400")) == [0], "the one that took it keeps it"
    broker.check()


def test_a_transaction_takes_so_many_tasks_and_no_more(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    for _ in range(TRANSACTION_TASKS_MAX // BATCH_TASKS_MAX):
        broker.submit(*[Spec("mail")] * BATCH_TASKS_MAX, transaction=transaction)
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")], "", transaction))) == Refusal.TRANSACTION_FULL
    assert broker.run(c.CommitTransaction("acme", transaction)) == Committed(TRANSACTION_TASKS_MAX)


@pytest.mark.parametrize(
    "command", [c.BeginTransaction("", 5), c.BeginTransaction("acme", 0), c.BeginTransaction("a", 2**62)]
)
def test_an_unsound_transaction_is_refused(broker: DrivenBroker, command: c.BeginTransaction) -> None:
    assert refusal(broker.run(command)) == Refusal.INVALID


def test_open_transactions_are_listed_with_their_counts(broker: DrivenBroker) -> None:
    transaction = begin(broker)
    begin(broker, tenant="other")
    broker.submit(Spec("mail"), transaction=transaction)
    (shown,) = broker.ask(q.ListTransactions("acme")).transactions
    assert (shown.transaction, shown.task_count, shown.created_ms) == (transaction, 1, START_MS)
    assert len(broker.ask(q.ListTransactions()).transactions) == 2


def test_of_a_transaction_whose_time_ran_out_nobody_sees_a_half_wherever_an_entry_ends(broker: DrivenBroker) -> None:
    transaction = begin(broker, 1_000)
    ids = broker.submit(*[Spec("mail", slot=f"s{n}") for n in range(5)], transaction=transaction)
    broker.now_ms += 1_000
    while broker.machine.count(Table.TRANSACTIONS):
        for record_type, fields in broker.machine.due(broker.now_ms, broker.promoted_ms, 2_000):
            broker.log_record(record_type, fields)
            break
        assert broker.listed() == []
        assert all(isinstance(broker.ask(q.GetTask("", one)), Nothing) for one in ids)
        assert refusal(broker.run(c.CommitTransaction("acme", transaction))) == Refusal.TRANSACTION_OVER
        broker.check()
        broker.reboot()
    assert broker.machine.count(Table.SLOTS) == 0
