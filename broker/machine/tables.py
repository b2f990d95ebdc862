"""Tables and records that the broker writes in its log, as every reader of the log finds them described.

A task is two rows, so that a megabyte of payload is written once: `tasks` is what was submitted, `task_states` what
became of it. A task without a row in `task_states` is as it was submitted: waiting; delayed while its `start_ms` is
ahead and no record said that it is due; prepared while its transaction has a row in `transactions`.

The id of a task is the revision of the record that submitted it, the id of an assignment that of the record that
assigned it: both rise and are never used twice. A record cannot name its own revision where time makes it due, so
`task_assigned` says assignment 0: a running task whose `assignment_id` is 0 has the revision of its row. All times are
logged time in ms since 1970; 0 = none. Of a task, group 0 and priority `PRIORITY_OF_TENANT` stand for what its
tenant's policy says at the time. The columns of the tables are the fields of `broker.machine.rows`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.machine import rows
from rsm_spark.core.machine import Field, FieldType, Fold, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.table_machine import delete, note, upsert

PRIORITY_OF_TENANT = -(2**31)
"""Priority of a task that named none: its tenant's, whatever that is at the time."""


def _int(name: str) -> Field:
    return Field(name, FieldType.INT)


def _str(name: str) -> Field:
    return Field(name, FieldType.STR)


def _bytes(name: str) -> Field:
    return Field(name, FieldType.BYTES)


_TYPES: dict[Any, FieldType] = {
    int: FieldType.INT,
    float: FieldType.FLOAT,
    bool: FieldType.BOOL,
    str: FieldType.STR,
    bytes: FieldType.BYTES,
    msgspec.Raw: FieldType.BYTES,
}


class Table:
    TASKS = "tasks"
    STATES = "task_states"
    PROGRESS = "task_progress"
    SLOTS = "slots"
    REQUESTS = "requests"
    TRANSACTIONS = "transactions"
    WORKERS = "workers"
    TENANTS = "tenants"
    HOLDS = "holds"
    RESOURCES = "resource_limits"
    CODE = "code_pools"


def _table(name: str, key: tuple[Field, ...], row: Any) -> TableDescription:
    """Describe a table whose other columns are the fields of a class of rows."""
    return TableDescription(name, key, tuple(Field(one.name, _TYPES[one.type]) for one in msgspec.structs.fields(row)))


_TASKS = _table(Table.TASKS, (_int("task_id"),), rows.KeptTask)
_STATES = _table(Table.STATES, (_int("task_id"),), rows.KeptState)
_PROGRESS = _table(Table.PROGRESS, (_int("task_id"),), rows.ProgressRow)
_SLOTS = _table(Table.SLOTS, (_str("tenant"), _str("slot")), rows.SlotRow)
_REQUESTS = _table(Table.REQUESTS, (_str("tenant"), _str("request_key")), rows.RequestRow)
_TRANSACTIONS = _table(Table.TRANSACTIONS, (_int("transaction"),), rows.TransactionRow)
_WORKERS = _table(Table.WORKERS, (_str("worker_id"),), rows.WorkerRow)
_TENANTS = _table(Table.TENANTS, (_str("tenant"),), rows.TenantRow)
_HOLDS = _table(Table.HOLDS, (_str("tenant"), _str("type"), _str("key")), rows.HoldRow)  # "" = any
_RESOURCES = _table(Table.RESOURCES, (_str("resource"), _str("tenant"), _str("type")), rows.LimitRow)
_CODE = _table(Table.CODE, (_str("code"),), rows.CodeRow)


class RecordType:
    """Numbers of the records in the log."""

    TASK_SUBMITTED = 16
    TASK_CHANGED = 17
    TASK_REMOVED = 18
    TASK_ASSIGNED = 20
    TASK_ENDED = 21
    TASK_REQUEUED = 22
    TASK_CANCEL_ASKED = 23
    STATE_REMOVED = 24
    PROGRESS_REPORTED = 25
    PROGRESS_REMOVED = 26
    LATE_END = 27
    RUN_DISOWNED = 28
    SLOT_TAKEN = 30
    SLOT_RELEASED = 31
    REQUEST_NOTED = 32
    REQUEST_FORGOTTEN = 33
    TRANSACTION_BEGUN = 34
    TRANSACTION_COMMITTED = 35
    TRANSACTION_ROLLED_BACK = 36
    TRANSACTION_GIVEN_UP = 37
    WORKER_CONNECTED = 40
    WORKER_CHANGED = 41
    WORKER_DIED = 42
    WORKER_REMOVED = 43
    TENANT_SET = 50
    TENANT_REMOVED = 51
    HOLD_SET = 52
    HOLD_ENDED = 53
    RESOURCE_LIMITED = 54
    RESOURCE_UNLIMITED = 55
    CODE_DEPLOYED = 60
    CODE_REMOVED = 61


_RECORDS: tuple[RecordDescription, ...] = (
    upsert(RecordType.TASK_SUBMITTED, "task_submitted", _TASKS),
    upsert(RecordType.TASK_CHANGED, "task_changed", _TASKS),
    delete(RecordType.TASK_REMOVED, "task_removed", _TASKS),
    upsert(RecordType.TASK_ASSIGNED, "task_assigned", _STATES),
    upsert(RecordType.TASK_ENDED, "task_ended", _STATES),
    upsert(RecordType.TASK_REQUEUED, "task_requeued", _STATES),
    upsert(RecordType.TASK_CANCEL_ASKED, "task_cancel_asked", _STATES),
    delete(RecordType.STATE_REMOVED, "task_state_removed", _STATES),
    upsert(RecordType.PROGRESS_REPORTED, "progress_reported", _PROGRESS),
    delete(RecordType.PROGRESS_REMOVED, "progress_removed", _PROGRESS),
    # What a worker says of an assignment that is over: it changes nothing, and is on record.
    note(
        RecordType.LATE_END, "late_end", _int("task_id"), _int("assignment_id"), _str("worker_id"), _int("status"),
        _int("ended_ms"), _str("error"), _bytes("result"),
    ),
    # A run that a worker holds and that is no task's present one: it is told to end it.
    note(RecordType.RUN_DISOWNED, "run_disowned", _int("task_id"), _int("assignment_id"), _str("worker_id")),
    upsert(RecordType.SLOT_TAKEN, "slot_taken", _SLOTS),
    delete(RecordType.SLOT_RELEASED, "slot_released", _SLOTS),
    upsert(RecordType.REQUEST_NOTED, "request_noted", _REQUESTS),
    delete(RecordType.REQUEST_FORGOTTEN, "request_forgotten", _REQUESTS),
    upsert(RecordType.TRANSACTION_BEGUN, "transaction_begun", _TRANSACTIONS),
    RecordDescription(
        RecordType.TRANSACTION_COMMITTED, "transaction_committed", (_int("transaction"), _int("committed_ms")),
        Table.TRANSACTIONS, Fold.DELETE, ("transaction",),
    ),
    delete(RecordType.TRANSACTION_ROLLED_BACK, "transaction_rolled_back", _TRANSACTIONS),
    # It is over (`expires_ms` 0) while its tasks are removed, entry by entry; `transaction_rolled_back` is the last.
    upsert(RecordType.TRANSACTION_GIVEN_UP, "transaction_given_up", _TRANSACTIONS),
    upsert(RecordType.WORKER_CONNECTED, "worker_connected", _WORKERS),
    upsert(RecordType.WORKER_CHANGED, "worker_changed", _WORKERS),
    upsert(RecordType.WORKER_DIED, "worker_died", _WORKERS),
    delete(RecordType.WORKER_REMOVED, "worker_removed", _WORKERS),
    upsert(RecordType.TENANT_SET, "tenant_set", _TENANTS),
    delete(RecordType.TENANT_REMOVED, "tenant_removed", _TENANTS),
    upsert(RecordType.HOLD_SET, "hold_set", _HOLDS),
    delete(RecordType.HOLD_ENDED, "hold_ended", _HOLDS),
    upsert(RecordType.RESOURCE_LIMITED, "resource_limited", _RESOURCES),
    delete(RecordType.RESOURCE_UNLIMITED, "resource_unlimited", _RESOURCES),
    upsert(RecordType.CODE_DEPLOYED, "code_deployed", _CODE),
    delete(RecordType.CODE_REMOVED, "code_removed", _CODE),
)  # fmt: skip

BROKER_DESCRIPTION = MachineDescription(
    "broker",
    1,
    (
        _TASKS, _STATES, _PROGRESS, _SLOTS, _REQUESTS, _TRANSACTIONS, _WORKERS, _TENANTS, _HOLDS, _RESOURCES, _CODE,
    ),
    _RECORDS,
)  # fmt: skip
