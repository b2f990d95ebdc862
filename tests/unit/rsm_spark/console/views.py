"""Views of a cluster for tests of the console."""

from __future__ import annotations

from typing import Any

import msgspec

from rsm_spark.console.core.view import BookieRow, ConsoleView, ConsumerRow, CopiesView, LogRow, ReplicaRow

COPIES = CopiesView(
    summary="all of 7 ledgers", is_whole=True, ledger_count=7, lacking=(), lacking_count=0, entry_count=0,
    unreadable_count=0, since_ms=0, auditor="b1:3181", is_enabled=True, checked_ms=1,
)  # fmt: skip
BOOKIES = tuple(BookieRow(f"b{number}:3181", "writable", 100, 50, 7) for number in (1, 2, 3))


def replica(name: str, **more: Any) -> ReplicaRow:
    return ReplicaRow(replica_id=name, address=f"{name}:1", **{"role": "follower", "revision": 100, **more})


def consumer(name: str, **more: Any) -> ConsumerRow:
    known = {"what": "a query", "revision": 50, "behind": 0, "moved_ms": 1, "held_bytes": 0, "lost": 0}
    return ConsumerRow(name=name, **{**known, **more})


def orders(*replicas: ReplicaRow, **more: Any) -> LogRow:
    known = {"machine": "map", "leader": "a", "revision": 100, "ledger_count": 2}
    return LogRow(log="orders", replicas=replicas or (replica("a", role="leader"), replica("b")), **{**known, **more})


def view(*logs: LogRow, at_ms: int = 60_000, **more: Any) -> ConsoleView:
    known = {"bookies": BOOKIES, "copies": COPIES, "log_count": len(logs)}
    return ConsoleView(at_ms=at_ms, logs=logs or (orders(),), **{**known, **more})


def lacking(**more: Any) -> CopiesView:
    known = {"summary": "2 of 7 ledgers lack some", "is_whole": False, "lacking_count": 2, "entry_count": 30}
    return msgspec.structs.replace(COPIES, **{**known, **more})
