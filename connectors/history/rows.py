"""Rows of the history as they are folded. Times are logged ms since 1970, days are days since then; None = nothing.

The columns of the Delta tables are the fields of these structs: `connectors.history.columns` gives them their types.
"""

from __future__ import annotations

import msgspec

DAY_MS = 24 * 3_600_000


def day_of(ms: int) -> int:
    """Return the day (UTC) of a time."""
    return ms // DAY_MS


class HistoryTask(msgspec.Struct, gc=False):
    """A task: what was submitted, and the last that is known of it. It stays when the broker purges it."""

    task_id: int
    day: int
    revision: int
    tenant: str | None = None
    type: str | None = None
    status: str = ""
    outcome: str | None = None
    error: str | None = None
    attempts: int = 0
    worker_id: str | None = None
    assignment_id: int | None = None
    created_at: int | None = None
    since_at: int | None = None
    due_at: int | None = None
    assigned_at: int | None = None
    cancel_asked_at: int | None = None
    ended_at: int | None = None
    purged_at: int | None = None
    at_most_once: bool | None = None
    max_attempts: int | None = None
    priority: int | None = None
    group: int | None = None
    resources: str | None = None
    slot: str | None = None
    key: str | None = None
    start_at: int | None = None
    deadline_at: int | None = None
    timeout_ms: int | None = None
    heartbeat_ms: int | None = None
    code: str | None = None
    mode: str | None = None
    retry: str | None = None
    transaction: int | None = None
    payload: bytes | None = None
    result: bytes | None = None


class AttemptRow(msgspec.Struct, gc=False):
    """One assignment of a task to a worker. As the fold returns it, None also says "as it was": see `Writing.FILL`."""

    assignment_id: int
    task_id: int
    day: int
    revision: int
    attempt: int | None = None
    tenant: str | None = None
    type: str | None = None
    worker_id: str | None = None
    incarnation: str | None = None
    assigned_at: int | None = None
    first_report_at: int | None = None
    last_report_at: int | None = None
    fraction: float | None = None
    cancel_asked_at: int | None = None
    ended_at: int | None = None
    run_ms: int | None = None
    outcome: str | None = None
    error: str | None = None
    task_status: str | None = None
    late_at: int | None = None
    late_status: str | None = None


class WaitRow(msgspec.Struct, gc=False):
    """Wait of a task before one of its assignments: from when it could run."""

    assignment_id: int
    task_id: int
    day: int
    attempt: int
    tenant: str | None
    type: str | None
    group: int | None
    priority: int | None
    worker_id: str
    runnable_at: int | None
    assigned_at: int
    wait_ms: int | None


class HistoryWorker(msgspec.Struct, gc=False):
    """One incarnation of a worker: a process, from when it came to when it went."""

    worker_id: str
    incarnation: str
    came_revision: int
    revision: int
    status: str
    location: str | None = None
    threads: int | None = None
    offer: str | None = None
    came_at: int | None = None
    connections: int = 0
    connected_at: int | None = None
    disconnected_at: int | None = None
    draining_at: int | None = None
    ended_at: int | None = None
    end: str | None = None
    followed_by: str | None = None
    removed_at: int | None = None


class PolicyRow(msgspec.Struct, gc=False):
    """A tenant's policy from a record on; of a removed one the defaults hold, and its own columns are null."""

    revision: int
    tenant: str
    set_at: int
    is_removed: bool
    weight: float | None = None
    running_max: int | None = None
    waiting_max: int | None = None
    group: int | None = None
    priority: int | None = None
    policy: str | None = None
