"""Transactions: tasks that become visible all at once, or never."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from broker.machine.commands import BeginTransaction, CommitTransaction, RollbackTransaction
from broker.machine.decisions import LoggedRecord, answered, refused
from broker.machine.faults import name_fault, number_fault
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.limits import DURATION_MS_MAX
from broker.machine.messages import encode
from broker.machine.replies import Begun, Committed, Refusal
from broker.machine.rows import RequestRow, TransactionRow, row_fields
from broker.machine.state import BrokerState
from broker.machine.tables import RecordType, Table
from rsm_spark.core.machine import Decision

_AT_ONCE_MAX = 1_000
_OPEN_MAX = 10_000


def _key(transaction: int) -> str:
    """Return the request key of a commit: no client can name it, since it has a control character."""
    return f"\tcommitted {transaction}"


def begin(state: BrokerState, command: BeginTransaction, revision: int, now_ms: int) -> Decision:
    """Decide the beginning of a transaction, whose number is its revision."""
    fault = name_fault("tenant", command.tenant) or number_fault("ttl_ms", command.ttl_ms, 1, DURATION_MS_MAX)
    if fault:
        return refused(Refusal.INVALID, fault)
    if state.count(Table.TRANSACTIONS) >= _OPEN_MAX:
        return refused(Refusal.QUEUE_FULL, f"{_OPEN_MAX:,} transactions are open: commit or roll back some")
    expires_ms = now_ms + command.ttl_ms
    fields = row_fields((revision,), TransactionRow(command.tenant, now_ms, expires_ms))
    return answered([(RecordType.TRANSACTION_BEGUN, fields)], Begun(revision, expires_ms))


def _is_open(state: BrokerState, tenant: str, transaction: int) -> bool:
    found = state.transaction_row(transaction)
    return found is not None and found.tenant == tenant and bool(found.expires_ms)


def _over(tenant: str, transaction: int) -> Decision:
    return refused(
        Refusal.TRANSACTION_OVER,
        f"transaction {transaction} of tenant {tenant!r} is not open: it was committed, rolled back, or its time ran "
        "out",
    )


def commit(state: BrokerState, command: CommitTransaction, now_ms: int) -> Decision:
    """Decide a commit: one record makes all tasks visible."""
    tenant, transaction = command.tenant, command.transaction
    if not _is_open(state, tenant, transaction):
        known = state.get(Table.REQUESTS, tenant, _key(transaction))
        return Decision((), RequestRow(*known).reply) if known is not None else _over(tenant, transaction)
    reply = Committed(len(state.tasks.by_transaction[transaction]))
    records: list[LoggedRecord] = [
        (RecordType.TRANSACTION_COMMITTED, (transaction, now_ms)),
        (RecordType.REQUEST_NOTED, row_fields((tenant, _key(transaction)), RequestRow(encode(reply), now_ms))),
    ]
    return answered(records, reply)


def roll_back(state: BrokerState, command: RollbackTransaction) -> Decision:
    """Decide a rollback: it is over at once; of very many tasks the rows go with the entries behind."""
    tenant, transaction = command.tenant, command.transaction
    if not _is_open(state, tenant, transaction):
        return _over(tenant, transaction)
    tasks = state.tasks.by_transaction[transaction]
    reply = Committed(len(tasks))
    if len(tasks) > _AT_ONCE_MAX:
        return answered([_given_up(state, transaction)], reply)
    records = [record for task in tasks.values() for record in removals(state, task)]
    records.append((RecordType.TRANSACTION_ROLLED_BACK, (transaction,)))
    return answered(records, reply)


def _given_up(state: BrokerState, transaction: int) -> LoggedRecord:
    found = state.transaction_row(transaction)
    assert found is not None
    return RecordType.TRANSACTION_GIVEN_UP, row_fields((transaction,), replace(found, expires_ms=0))


def removals(state: BrokerState, task: TaskState) -> list[LoggedRecord]:
    """Return the records by which a prepared task is forgotten; its slot goes before it, which names it."""
    records: list[LoggedRecord] = []
    if task.flags & TaskFlag.SLOT:
        records.append((RecordType.SLOT_RELEASED, (task.tenant.name, state.task_row(task.task_id).slot)))
    records.append((RecordType.TASK_REMOVED, (task.task_id,)))
    return records


def expired(state: BrokerState, transaction: int) -> Iterator[LoggedRecord]:
    """Yield the records by which a transaction ends whose time has run out, or that was given up.

    It is over with the first of them: whoever sees only some sees none of its tasks.
    """
    if not state.is_given_up(transaction):
        yield _given_up(state, transaction)
    tasks = state.tasks.by_transaction[transaction]
    while tasks:
        for task in list(islice(tasks.values(), _AT_ONCE_MAX)):
            yield from removals(state, task)
    yield RecordType.TRANSACTION_ROLLED_BACK, (transaction,)
