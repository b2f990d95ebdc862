"""States of tasks and of workers, as the log and the HTTP API name them.

task     WAITING    may be given to a worker                  no row of `task_states`, or one that says so
         DELAYED    waits for a time: a start, a backoff      `due_ms` of its state, or `start_ms` of the task
         RUNNING    assigned; perhaps not delivered yet       `assignment_id`, `worker_id`
         FINISHED   ended well                                `result`
         ERROR      ended badly, for good: a dead letter      `outcome` and `error` say why
         CANCELLED  ended because somebody wanted it to       `outcome`
         PREPARED   part of an open transaction               `transaction` of the task is open

submit -> WAITING | DELAYED | PREPARED; commit: PREPARED -> WAITING | DELAYED; due: DELAYED -> WAITING;
assign: WAITING -> RUNNING; RUNNING -> FINISHED | ERROR | CANCELLED | WAITING | DELAYED (again);
deadline or cancel: WAITING | DELAYED -> ERROR | CANCELLED; replay: ERROR -> WAITING

worker   CONNECTED     has a stream, gets assignments
         DISCONNECTED  its stream is down, its lease runs: its tasks are still its own
         DEAD          its lease has run out, or its incarnation was replaced
         DRAINING      has a stream, ends what it runs, gets nothing more
"""

from __future__ import annotations

from enum import IntEnum


class TaskStatus(IntEnum):
    """See the module; numbers are the log's. 0 to 5 are Majordodo's."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    ERROR = 4
    DELAYED = 5
    PREPARED = 6
    CANCELLED = 7


ENDED = frozenset({TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED})
"""States that a task leaves only by a replay of dead letters, or by the purge."""


class WorkerStatus(IntEnum):
    """See the module; numbers are the log's. 0 to 2 are Majordodo's."""

    CONNECTED = 0
    DEAD = 1
    DISCONNECTED = 2
    DRAINING = 3


class Outcome:
    """Reason why a task is in its state: values of `outcome`, a machine-readable word. "" = nothing to say.

    FAILED: the executor raised. TIMED_OUT: its run took longer than `timeout_ms`. STALLED: no heartbeat came for
    `heartbeat_ms`. WORKER_DIED: the worker was lost while it ran. OUTCOME_UNKNOWN: an at-most-once task was delivered
    to a worker that was lost: it may have run, and never runs again. DEADLINE_EXPIRED: it was not over in time.
    CANCELLED: somebody cancelled it. REFUSED: the worker cannot run tasks of this type or code.
    """

    NONE = ""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    WORKER_DIED = "worker_died"
    OUTCOME_UNKNOWN = "outcome_unknown"
    DEADLINE_EXPIRED = "deadline_expired"
    CANCELLED = "cancelled"
    REFUSED = "refused"
