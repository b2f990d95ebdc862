"""What each record does to the index, beside what it does to its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.core import folding_policies as policies
from broker.core import folding_tasks as tasks
from broker.core.tables import RecordType
from rsm_spark.core.machine import RowChange

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["FOLDS"]

FOLDS: dict[int, Callable[[BrokerState, tuple[Any, ...], int, RowChange], None]] = {
    RecordType.TASK_SUBMITTED: tasks.task_submitted,
    RecordType.TASK_CHANGED: tasks.task_changed,
    RecordType.TASK_REMOVED: tasks.task_removed,
    RecordType.TASK_ASSIGNED: tasks.task_assigned,
    RecordType.TASK_ENDED: tasks.task_ended,
    RecordType.TASK_REQUEUED: tasks.task_requeued,
    RecordType.TASK_CANCEL_ASKED: tasks.task_cancel_asked,
    RecordType.STATE_REMOVED: tasks.state_removed,
    RecordType.PROGRESS_REPORTED: tasks.progress_reported,
    RecordType.PROGRESS_REMOVED: tasks.progress_removed,
    RecordType.SLOT_TAKEN: tasks.slot_taken,
    RecordType.SLOT_RELEASED: tasks.slot_released,
    RecordType.REQUEST_NOTED: policies.request_noted,
    RecordType.REQUEST_FORGOTTEN: policies.request_forgotten,
    RecordType.TRANSACTION_BEGUN: tasks.transaction_begun,
    RecordType.TRANSACTION_COMMITTED: tasks.transaction_committed,
    RecordType.TRANSACTION_ROLLED_BACK: tasks.transaction_rolled_back,
    RecordType.TRANSACTION_GIVEN_UP: tasks.transaction_given_up,
    RecordType.WORKER_CONNECTED: policies.worker_connected,
    RecordType.WORKER_CHANGED: policies.worker_changed,
    RecordType.WORKER_DIED: policies.worker_changed,
    RecordType.WORKER_REMOVED: policies.worker_removed,
    RecordType.TENANT_SET: policies.tenant_set,
    RecordType.TENANT_REMOVED: policies.tenant_removed,
    RecordType.HOLD_SET: policies.hold_set,
    RecordType.HOLD_ENDED: policies.hold_ended,
    RecordType.RESOURCE_LIMITED: policies.resource_limited,
    RecordType.RESOURCE_UNLIMITED: policies.resource_unlimited,
    RecordType.CODE_DEPLOYED: policies.code_deployed,
    RecordType.CODE_REMOVED: policies.code_removed,
}
"""By record type; those that change no row have none."""
