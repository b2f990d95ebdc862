"""Replies of the broker to commands; at most `REPLY_BYTES_MAX` each, so a reply counts rather than lists."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Refusal(StrEnum):
    """Reasons to refuse a command, or one task of a batch: machine-readable, in problem documents too."""

    INVALID = "invalid"
    TOO_LARGE = "too-large"
    NOT_FOUND = "not-found"
    SLOT_TAKEN = "slot-taken"
    QUEUE_FULL = "queue-full"
    BYTES_FULL = "bytes-full"
    MEMORY_FULL = "memory-full"
    DRAINING = "draining"
    TRANSACTION_OVER = "transaction-over"
    TRANSACTION_FULL = "transaction-full"
    CONFLICT = "conflict"
    IN_USE = "in-use"
    UNKNOWN_CODE = "unknown-code"
    STALE_WORKER = "stale-worker"
    NOT_ALLOWED = "not-allowed"


class TasksSubmitted(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """Tasks were accepted.

    Attributes:
        first_task_id: Of the first accepted one; they have consecutive ids, in the order given. 0 = none was.
        count: Accepted.
        refused: (place in the batch, id of the task that has the slot) of those whose slot is taken, ascending.

    """

    first_task_id: int
    count: int
    refused: list[tuple[int, int]] = []

    def task_ids(self, task_count: int) -> list[int]:
        """Return an id for each task of the batch, 0 for those refused."""
        ids = [0] * task_count
        refused = {place for place, _ in self.refused}
        next_id = self.first_task_id
        for place in range(task_count):
            if place not in refused:
                ids[place] = next_id
                next_id += 1
        return ids


class Begun(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    transaction: int
    expires_ms: int


class Committed(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """A transaction was committed, or rolled back: with so many tasks."""

    task_count: int


class Changed(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """Tasks were cancelled, changed or replayed.

    Attributes:
        count: Done now.
        asked: Of a cancellation: tasks that run, whose worker is asked.
        passed_over: Named, but ended, another tenant's, or not there.

    """

    count: int
    asked: int = 0
    passed_over: int = 0


class Done(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """It is so from this revision on."""

    revision: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=20):
    """Nothing was done.

    Attributes:
        refusal: See `Refusal`.
        reason: For people: what was asked, what was found, what to do.

    """

    refusal: str
    reason: str


BrokerReply = TasksSubmitted | Begun | Committed | Changed | Done | Refused
