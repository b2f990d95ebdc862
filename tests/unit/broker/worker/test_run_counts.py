"""Counts of a worker's runs: each end once, and only so many types are kept apart."""

from __future__ import annotations

from broker.machine.commands import EndedRun
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun
from broker.worker.run_counts import RunCounts


def run(assignment_id: int, type_name: str) -> AssignedRun:
    return AssignedRun(assignment_id, assignment_id, "acme", type_name, b"", 1, 0, 0, 0)


def test_each_end_counts_once_by_type_and_status() -> None:
    counts = RunCounts()
    counts.begin([run(1, "resize"), run(2, "resize"), run(3, "mail")])
    counts.end([EndedRun(1, 1, TaskStatus.FINISHED), EndedRun(3, 3, TaskStatus.ERROR)])
    counts.end([EndedRun(1, 1, TaskStatus.FINISHED), EndedRun(9, 9, TaskStatus.FINISHED)])
    assert counts.begun == {"resize": 2, "mail": 1}
    assert counts.ended == {("resize", "finished"): 1, ("mail", "error"): 1}
    assert +counts.running == {"resize": 1}


def test_tenants_that_invent_types_do_not_grow_the_page() -> None:
    counts = RunCounts()
    for number in range(1_000):
        counts.begin([run(number, f"t{number}")])
        counts.end([EndedRun(number, number, TaskStatus.CANCELLED)])
    assert len(counts.begun) == 101
    assert counts.ended["other", "cancelled"] == 900
    assert sum(counts.ended.values()) == 1_000
