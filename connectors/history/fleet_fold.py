"""Facts to rows of workers and of tenants' policies. Pure.

A worker's row is its incarnation's: a process, which may lose its connection and come back. It is gone when its lease
has run out (`lost`, or `left` if it was draining), or when another process comes under its id (`replaced`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.history.layout import Fact, TenantFact, WorkerFact
from connectors.history.rows import HistoryWorker, PolicyRow
from connectors.history.words import WORKER_STATUS_WORDS, FactKind, HistoryWorkerStatus, WorkerEnd


class WorkerFold:
    """Folds what is said of workers.

    Args:
        present: Row of the last incarnation of each worker that the facts name, as the table has it.

    Attributes:
        changed: Rows that the facts changed, by worker and incarnation.

    """

    def __init__(self, present: Mapping[str, HistoryWorker] | None = None) -> None:
        self.changed: dict[tuple[str, str], HistoryWorker] = {}
        self._present: dict[str, HistoryWorker] = dict(present or {})

    def apply(self, fact: Fact) -> None:
        """Fold one fact; those that say nothing of workers are passed over."""
        if fact.kind == FactKind.WORKER_REMOVED:
            row = self._present.get(fact.said.worker_id)
            if row is not None:
                row.removed_at = fact.logged_ms
                self._note(row, fact)
        elif fact.kind in {FactKind.WORKER_CONNECTED, FactKind.WORKER_CHANGED, FactKind.WORKER_DIED}:
            self._told(fact)

    def _told(self, fact: Fact) -> None:
        said: WorkerFact = fact.said
        worker_id, incarnation, changed_ms = said.worker_id, said.incarnation, said.changed_ms
        before = self._present.get(worker_id)
        row = before
        if row is None or row.incarnation != incarnation:
            row = HistoryWorker(worker_id, incarnation, fact.revision, fact.revision, "", came_at=said.connected_ms)
            self._present[worker_id] = row
        row.status = WORKER_STATUS_WORDS.get(said.status, f"status {said.status}")
        row.location, row.offer, row.threads = said.location or None, said.offer or None, _threads(said.offer)
        row.connected_at = said.connected_ms
        self._note(row, fact)
        if fact.kind == FactKind.WORKER_CONNECTED:
            row.connections += 1
            row.ended_at = row.end = row.draining_at = row.disconnected_at = None
            if before is not None and before is not row:
                before.followed_by = incarnation
                if before.ended_at == changed_ms:  # By the same command: its own lease had not run out.
                    before.end = WorkerEnd.REPLACED
                self._note(before, fact)
        elif fact.kind == FactKind.WORKER_DIED and row.ended_at is None:
            # It is said once more of one that has been dead when another process comes under its id.
            row.ended_at = changed_ms
            row.end = WorkerEnd.LOST if row.draining_at is None else WorkerEnd.LEFT
        elif row.status == HistoryWorkerStatus.DRAINING:
            row.draining_at = row.draining_at or changed_ms
        elif row.status == HistoryWorkerStatus.DISCONNECTED:
            row.disconnected_at = changed_ms

    def _note(self, row: HistoryWorker, fact: Fact) -> None:
        row.revision = fact.revision
        self.changed[row.worker_id, row.incarnation] = row


def _threads(offer: str) -> int | None:
    """Return how many tasks a worker offers to run at once; the broker's default is one."""
    threads = _object(offer).get("threads_max", 1)
    return threads if isinstance(threads, int) else None


def group_and_priority(policy: str) -> tuple[int | None, int | None]:
    """Return what a tenant's policy says of tasks that name none; None where it says nothing."""
    fields = _object(policy)
    return fields.get("group"), fields.get("priority")


def policy_row(fact: Fact) -> PolicyRow | None:
    """Return the row of a policy that was set or removed; None for other facts."""
    if fact.kind == FactKind.TENANT_REMOVED:
        return PolicyRow(fact.revision, fact.said.tenant, fact.logged_ms, is_removed=True)
    if fact.kind != FactKind.TENANT_SET:
        return None
    said: TenantFact = fact.said
    group, priority = group_and_priority(said.policy)
    row = PolicyRow(fact.revision, said.tenant, fact.logged_ms, is_removed=False)
    row.weight, row.running_max, row.waiting_max = said.weight, said.running_max, said.waiting_max
    row.group, row.priority, row.policy = group, priority, said.policy
    return row


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {}
    return found if isinstance(found, dict) else {}
