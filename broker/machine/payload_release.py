"""Payloads of tasks that cannot run again: they leave the state before the task does.

1. A finished or cancelled task never runs again; a dead letter may be replayed, and keeps its payload.
2. The record is `task_changed` with an empty payload. A task is changed otherwise only before its end, so its row is
   newer than the row of its end exactly if its payload has gone: no column says it.
3. Logs of format level 1 keep payloads: older readers of the log would take the empty one for the payload.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.machine.decisions import LoggedRecord
from broker.machine.index.tasks import TaskState
from broker.machine.rows import task_fields, unpacked
from broker.machine.state import BrokerState
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType, Table

_SPENT = frozenset({TaskStatus.FINISHED, TaskStatus.CANCELLED})
_LEVEL = 2


def is_payload_gone(state: BrokerState, task: TaskState) -> bool:
    """Return whether the payload of a task has left."""
    if task.status not in _SPENT:
        return False
    return state.revision_of(Table.TASKS, task.task_id) > state.revision_of(Table.STATES, task.task_id)


def note_spent(state: BrokerState, task: TaskState) -> None:
    """Note a task that has ended, if its payload is to leave."""
    if task.status in _SPENT:
        row = state.row_bytes(Table.TASKS, task.task_id)
        # The row is longer than its payload: most need no second look.
        if row is not None and len(row) > state.rules.payload_kept_bytes:
            state.spent[task.task_id] = None


def payloads_spent(state: BrokerState, count_max: int) -> Iterator[LoggedRecord]:
    """Yield the records by which payloads leave, at most so many."""
    spent, tasks, kept_bytes = state.spent, state.tasks.by_id, state.rules.payload_kept_bytes
    while spent and count_max:
        task_id = next(iter(spent))
        row = state.task_row(task_id) if task_id in tasks else None
        if row is None or state.format_level < _LEVEL or len(unpacked(row.payload)) <= kept_bytes:
            del spent[task_id]
            continue
        count_max -= 1
        yield RecordType.TASK_CHANGED, task_fields(task_id, row, payload=b"")
