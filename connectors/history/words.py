"""Words for the numbers and names in the broker's log.

The connectors do not import the broker: the layout of its records comes from the description in its log, what is here
cannot be described there. A test holds it against the broker's own code.
"""

from __future__ import annotations

from enum import StrEnum, auto

MACHINE_NAME = "broker"

PRIORITY_OF_TENANT = -(2**31)
"""Priority of a task that named none."""

PRIORITY_DEFAULT = 0
GROUP_DEFAULT = 1
"""Of tasks of a tenant of whom nothing was said."""


class FactKind(StrEnum):
    """Names of the record types that the history is made of, as the log's description has them."""

    TASK_SUBMITTED = auto()
    TASK_CHANGED = auto()
    TASK_REMOVED = auto()
    TASK_ASSIGNED = auto()
    TASK_ENDED = auto()
    TASK_REQUEUED = auto()
    TASK_CANCEL_ASKED = auto()
    PROGRESS_REPORTED = auto()
    LATE_END = auto()
    TRANSACTION_COMMITTED = auto()
    WORKER_CONNECTED = auto()
    WORKER_CHANGED = auto()
    WORKER_DIED = auto()
    WORKER_REMOVED = auto()
    TENANT_SET = auto()
    TENANT_REMOVED = auto()


class HistoryTaskStatus:
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
    0: HistoryTaskStatus.WAITING,
    1: HistoryTaskStatus.RUNNING,
    2: HistoryTaskStatus.FINISHED,
    4: HistoryTaskStatus.ERROR,
    5: HistoryTaskStatus.DELAYED,
    6: HistoryTaskStatus.PREPARED,
    7: HistoryTaskStatus.CANCELLED,
}
"""By the log's number; a number that is not here is written as "status N"."""

ENDED_STATUSES = frozenset({HistoryTaskStatus.FINISHED, HistoryTaskStatus.ERROR, HistoryTaskStatus.CANCELLED})


class HistoryWorkerStatus:
    """Values of `status` of the workers."""

    CONNECTED = "connected"
    DEAD = "dead"
    DISCONNECTED = "disconnected"
    DRAINING = "draining"


WORKER_STATUS_WORDS: dict[int, str] = {
    0: HistoryWorkerStatus.CONNECTED,
    1: HistoryWorkerStatus.DEAD,
    2: HistoryWorkerStatus.DISCONNECTED,
    3: HistoryWorkerStatus.DRAINING,
}
"""By the log's number."""


class WorkerEnd:
    """End of a worker's incarnation. LEFT: it had said that it would. REPLACED: another one came under its id."""

    LEFT = "left"
    LOST = "lost"
    REPLACED = "replaced"
