"""Errors of the broker's clients.

* `BrokerClientError(RsmError)`       anything that the broker answered, or did not
    * `RequestRefusedError`           the broker says no, and nothing was done; trying again cannot help
        * `NotAllowedError`           the token is missing, unknown, or not entitled to this
        * `NotFoundError`             there is none, or none of this tenant
        * `SlotTakenError`            another task that has not ended has the slot; names it
        * `QueueFullError`            the tenant has as many tasks not ended as it may have
        * `TransactionOverError`      the transaction was committed or rolled back, or has expired
        * `EventsGoneError`           events since then are not kept any more; read the state anew
    * `BrokerUnavailableError`        nobody took the request within the time limit; certainly nothing was done
    * `BadAnswerError`                what came is not what a broker answers
    * `TaskNotDoneError`              the task ended without a result; has the task
        * `TaskFailedError`           it ended in an error
        * `TaskCancelledError`        somebody cancelled it
    * `WaitTimeoutError`              the task has not ended within the time limit; it goes on

`rsm_spark.errors.OutcomeUnknownError` is raised where a request may or may not have been carried out: read before you
ask again.
"""

from __future__ import annotations

from broker.client.shapes import Problem
from broker.client.task import Task
from rsm_spark.errors import RsmError

__all__ = [
    "BadAnswerError",
    "BrokerClientError",
    "BrokerUnavailableError",
    "EventsGoneError",
    "NotAllowedError",
    "NotFoundError",
    "QueueFullError",
    "RequestRefusedError",
    "SlotTakenError",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskNotDoneError",
    "TransactionOverError",
    "WaitTimeoutError",
    "refusal",
]


class BrokerClientError(RsmError):
    """Base of what a call of a broker's client raises."""


class RequestRefusedError(BrokerClientError):
    """The broker says no, and nothing was done.

    Attributes:
        reason: Machine-readable, such as "queue-full": see `broker.machine.replies.Refusal`.
        status_code: Of HTTP.
        slot_task_id: Task that has the slot; 0 = this is not about a slot.

    """

    def __init__(self, message: str, *, reason: str = "", status_code: int = 0, slot_task_id: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.status_code = status_code
        self.slot_task_id = slot_task_id


class NotAllowedError(RequestRefusedError):
    """The token is missing, unknown, or not entitled to this."""


class NotFoundError(RequestRefusedError):
    """There is none, or none of this tenant."""


class SlotTakenError(RequestRefusedError):
    """Another task that has not ended has the slot: `slot_task_id`."""


class QueueFullError(RequestRefusedError):
    """The tenant has as many tasks that have not ended as it may have."""


class TransactionOverError(RequestRefusedError):
    """The transaction was committed or rolled back, or has expired."""


class EventsGoneError(RequestRefusedError):
    """Events from that revision on are not kept any more."""


class BrokerUnavailableError(BrokerClientError):
    """Nobody took the request within the time limit; certainly nothing was done."""


class BadAnswerError(BrokerClientError):
    """Error for an answer that no broker gives."""


class TaskNotDoneError(BrokerClientError):
    """The task ended without a result.

    Attributes:
        task: As it ended.

    """

    def __init__(self, message: str, *, task: Task) -> None:
        super().__init__(message)
        self.task = task


class TaskFailedError(TaskNotDoneError):
    """The task ended in an error."""


class TaskCancelledError(TaskNotDoneError):
    """Somebody cancelled the task."""


class WaitTimeoutError(BrokerClientError, TimeoutError):
    """The task has not ended within the time limit; it goes on."""


_BY_REASON: dict[str, type[RequestRefusedError]] = {
    "slot-taken": SlotTakenError,
    "queue-full": QueueFullError,
    "transaction-over": TransactionOverError,
    "not-found": NotFoundError,
}
_BY_STATUS: dict[int, type[RequestRefusedError]] = {
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    410: EventsGoneError,
}


def refusal(asked: str, status_code: int, problem: Problem) -> RequestRefusedError:
    """Return the error that an answer stands for.

    Args:
        asked: What was asked, such as "POST /api/v1/tasks".
        status_code: Of the answer.
        problem: Its body.

    """
    kind = _BY_REASON.get(problem.reason) or _BY_STATUS.get(status_code, RequestRefusedError)
    said = problem.detail or problem.title or "no reason given"
    return kind(
        f"{asked}: {said} ({problem.reason or status_code})",
        reason=problem.reason,
        status_code=status_code,
        slot_task_id=problem.slot_task_id,
    )
