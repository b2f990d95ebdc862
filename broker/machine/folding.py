"""Fold of the records: what each does to the index, beside what it does to its table.

A record that writes a row is folded by a function of its key and its row, one that removes a row by a function of its
fields. Both are given the change of the row's bytes; what writes is given the record's revision too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from broker.machine import folding_policies as policies
from broker.machine import folding_tasks as tasks
from broker.machine import rows
from broker.machine.folding_tasks import Key
from broker.machine.state import BrokerState
from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from rsm_spark.core.machine import Fold, RowChange

_Write: TypeAlias = "Callable[[BrokerState, Key, Any, RowChange, int], None]"
_Removal: TypeAlias = "Callable[[BrokerState, Key, RowChange], None]"

_WRITES: dict[int, tuple[Any, _Write]] = {
    RecordType.TASK_SUBMITTED: (rows.TaskRow, tasks.task_submitted),
    RecordType.TASK_CHANGED: (rows.TaskRow, tasks.task_changed),
    RecordType.TASK_ASSIGNED: (rows.StateRow, tasks.task_assigned),
    RecordType.TASK_ENDED: (rows.StateRow, tasks.task_ended),
    RecordType.TASK_REQUEUED: (rows.StateRow, tasks.task_requeued),
    RecordType.TASK_CANCEL_ASKED: (rows.StateRow, tasks.task_cancel_asked),
    RecordType.PROGRESS_REPORTED: (rows.ProgressRow, tasks.progress_reported),
    RecordType.SLOT_TAKEN: (rows.SlotRow, tasks.slot_taken),
    RecordType.REQUEST_NOTED: (rows.RequestRow, policies.request_noted),
    RecordType.TRANSACTION_BEGUN: (rows.TransactionRow, tasks.transaction_begun),
    RecordType.TRANSACTION_GIVEN_UP: (rows.TransactionRow, tasks.transaction_given_up),
    RecordType.WORKER_CONNECTED: (rows.WorkerRow, policies.worker_connected),
    RecordType.WORKER_CHANGED: (rows.WorkerRow, policies.worker_changed),
    RecordType.WORKER_DIED: (rows.WorkerRow, policies.worker_changed),
    RecordType.TENANT_SET: (rows.TenantRow, policies.tenant_set),
    RecordType.HOLD_SET: (rows.HoldRow, policies.hold_set),
    RecordType.RESOURCE_LIMITED: (rows.LimitRow, policies.resource_limited),
    RecordType.CODE_DEPLOYED: (rows.CodeRow, policies.code_deployed),
}
_REMOVALS: dict[int, _Removal] = {
    RecordType.TASK_REMOVED: tasks.task_removed,
    RecordType.STATE_REMOVED: tasks.state_removed,
    RecordType.PROGRESS_REMOVED: tasks.progress_removed,
    RecordType.SLOT_RELEASED: tasks.slot_released,
    RecordType.REQUEST_FORGOTTEN: policies.request_forgotten,
    RecordType.TRANSACTION_COMMITTED: tasks.transaction_committed,
    RecordType.TRANSACTION_ROLLED_BACK: tasks.transaction_rolled_back,
    RecordType.WORKER_REMOVED: policies.worker_removed,
    RecordType.TENANT_REMOVED: policies.tenant_removed,
    RecordType.HOLD_ENDED: policies.hold_ended,
    RecordType.RESOURCE_UNLIMITED: policies.resource_unlimited,
    RecordType.CODE_REMOVED: policies.code_removed,
}
_WIDTHS = {record.type: len(record.key) for record in BROKER_DESCRIPTION.records}

# Of every record of the broker the key comes first, then the row: `BrokerState.apply` cuts its fields there.
assert all(
    (*record.key, *record.row) == tuple(field.name for field in record.fields)
    for record in BROKER_DESCRIPTION.records
    if record.fold is Fold.UPSERT
)

_Folds: TypeAlias = "tuple[int, Any, _Write | None, _Removal | None]"
FOLDS: dict[int, _Folds] = {
    **{number: (_WIDTHS[number], row, fold, None) for number, (row, fold) in _WRITES.items()},
    **{number: (_WIDTHS[number], None, None, fold) for number, fold in _REMOVALS.items()},
}
"""Fold by record type: width of the key; class of the row and fold if it writes one, else the fold that removes.

Records that change no row have none.
"""
