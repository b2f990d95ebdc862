"""What the broker's log says in numbers and names, in words.

The connectors do not import the broker: the layout of its records comes from the description in its log, what is here
cannot be described there. A test holds it against the broker's own code.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ENDED_STATUSES",
    "GROUP_DEFAULT",
    "MACHINE_NAME",
    "PRIORITY_DEFAULT",
    "PRIORITY_OF_TENANT",
    "STATUS_WORDS",
    "WORKER_STATUS_WORDS",
    "FactKind",
    "TaskStatus",
    "WorkerEnd",
    "WorkerStatus",
]

MACHINE_NAME = "broker"

PRIORITY_OF_TENANT = -(2**31)
"""Priority of a task that named none."""

PRIORITY_DEFAULT = 0
GROUP_DEFAULT = 1
"""Of tasks of a tenant of whom nothing was said."""


class FactKind(IntEnum):
    """Record types that the history is made of; the names, in lower case, are those of the log's description.

    RANGE is no record: it says which records a batch of facts was taken from.
    """

    RANGE = 0
    TASK_SUBMITTED = 1
    TASK_CHANGED = 2
    TASK_REMOVED = 3
    TASK_ASSIGNED = 4
    TASK_ENDED = 5
    TASK_REQUEUED = 6
    TASK_CANCEL_ASKED = 7
    PROGRESS_REPORTED = 8
    LATE_END = 9
    TRANSACTION_COMMITTED = 10
    WORKER_CONNECTED = 11
    WORKER_CHANGED = 12
    WORKER_DIED = 13
    WORKER_REMOVED = 14
    TENANT_SET = 15
    TENANT_REMOVED = 16
    MACHINE_DESCRIBED = 17


class TaskStatus:
    """Values of `status` of the tasks; ROLLED_BACK is the history's own, of what was prepared and never visible."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ERROR = "error"
    DELAYED = "delayed"
    PREPARED = "prepared"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


STATUS_WORDS: dict[int, str] = {
    0: TaskStatus.WAITING,
    1: TaskStatus.RUNNING,
    2: TaskStatus.FINISHED,
    4: TaskStatus.ERROR,
    5: TaskStatus.DELAYED,
    6: TaskStatus.PREPARED,
    7: TaskStatus.CANCELLED,
}
"""By the log's number; a number that is not here is written as "status N"."""

ENDED_STATUSES = frozenset({TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED})


class WorkerStatus:
    """Values of `status` of the workers."""

    CONNECTED = "connected"
    DEAD = "dead"
    DISCONNECTED = "disconnected"
    DRAINING = "draining"


WORKER_STATUS_WORDS: dict[int, str] = {
    0: WorkerStatus.CONNECTED,
    1: WorkerStatus.DEAD,
    2: WorkerStatus.DISCONNECTED,
    3: WorkerStatus.DRAINING,
}
"""By the log's number."""


class WorkerEnd:
    """How a worker's incarnation went. LEFT: it had said that it would. REPLACED: another one came under its id."""

    LEFT = "left"
    LOST = "lost"
    REPLACED = "replaced"
