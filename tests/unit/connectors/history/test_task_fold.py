"""What the fold makes of a broker's log is what the broker showed while it led."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from broker.machine.commands import TaskSpec
from broker.machine.statuses import TaskStatus
from connectors.history.facts import facts_of
from connectors.history.rows import AttemptRow, HistoryTask, WaitRow
from connectors.history.task_fold import TaskFold
from connectors.history.words import FactKind
from tests.unit.connectors.history.recorded_broker import RecordedBroker, acted


class Folded:
    """A history in memory, built range by range as the tables are: nothing but rows goes from one to the next."""

    def __init__(self) -> None:
        self.tasks: dict[int, HistoryTask] = {}
        self.attempts: dict[int, AttemptRow] = {}
        self.waits: dict[int, WaitRow] = {}
        self._incarnations: dict[str, str] = {}
        self._policies: dict[str, Any] = {}

    def add(self, broker: RecordedBroker, first: int, end: int) -> None:
        facts = facts_of(broker.facts(first, end), first - 1)
        rows = {task_id: msgspec.structs.replace(row) for task_id, row in self.tasks.items()}
        days = {row.assignment_id: row.day for row in self.attempts.values()}
        fold = TaskFold(rows, self._incarnations, self._policies, days)
        for fact in facts:
            fold.apply(fact)
        self.tasks |= {row.task_id: row for row in fold.changed_tasks}
        for assignment_id, row in fold.attempts.items():
            known = self.attempts.get(assignment_id)
            self.attempts[assignment_id] = row if known is None else _filled(known, row)
        self.waits |= {row.assignment_id: row for row in fold.waits}
        self._incarnations, self._policies = fold._incarnations, fold._policies


def _filled(known: AttemptRow, said: AttemptRow) -> AttemptRow:
    changes = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
    return msgspec.structs.replace(known, **changes)


def folded(broker: RecordedBroker, rng: random.Random) -> Folded:
    history = Folded()
    first = 1
    while first <= broker.revision:
        end = min(first + rng.choice([1, 3, 20, 200]), broker.revision + 1)
        history.add(broker, first, end)
        first = end
    return history


@pytest.mark.parametrize("seed", range(8))
def test_the_history_is_what_the_broker_told_along_the_way(seed: int) -> None:
    broker = acted(seed)
    history = folded(broker, random.Random(seed))
    check_tasks(broker, history.tasks)
    check_attempts(broker, history.attempts)
    check_waits(broker, history.waits)


def check_tasks(broker: RecordedBroker, tasks: dict[int, HistoryTask]) -> None:
    assert set(broker.shown) <= set(tasks)
    assert {row.task_id: row.purged_at for row in tasks.values() if row.purged_at} == broker.purged
    for task_id, shown in broker.shown.items():
        row = tasks[task_id]
        status = TaskStatus(shown.status).name.lower()
        if row.purged_at and status == "prepared":
            assert row.status == "rolled_back"
            continue
        if row.purged_at and status not in {"finished", "error", "cancelled"}:
            continue  # It ended and was purged between two looks.
        assert row.status == status
        said = (row.tenant, row.type, row.attempts, row.worker_id or "", row.created_at, row.outcome or "")
        assert said == (
            shown.tenant, shown.type, shown.attempts, shown.worker_id, shown.created_ms, shown.outcome
        )  # fmt: skip
        times = (row.ended_at or 0, row.due_at or 0, row.cancel_asked_at or 0, row.deadline_at or 0)
        due_ms = shown.due_ms
        ended_ms = shown.ended_ms if status in {"finished", "error", "cancelled"} else 0
        assert times[0] == ended_ms
        assert times[1] == due_ms
        assert times[2:] == (shown.cancel_ms, shown.deadline_ms)
        if shown.assignment_id:
            assert (row.assignment_id, row.assigned_at or 0) == (shown.assignment_id, shown.assigned_ms)


def check_attempts(broker: RecordedBroker, attempts: dict[int, AttemptRow]) -> None:
    assert set(attempts) == set(broker.runs)
    for assignment_id, run in broker.runs.items():
        row = attempts[assignment_id]
        assert {name: getattr(row, name) for name in run} == run
        assert (row.run_ms is None) == (row.outcome is None) == (row.ended_at is None), row
        if row.ended_at is not None:
            assert row.run_ms == row.ended_at - run["assigned_at"]


def check_waits(broker: RecordedBroker, waits: dict[int, WaitRow]) -> None:
    found = {number: (row.runnable_at, row.group, row.priority) for number, row in waits.items()}
    assert found == broker.waits
    assert all(row.wait_ms == row.assigned_at - row.runnable_at for row in waits.values() if row.runnable_at)


def test_the_random_broker_sees_every_kind_of_end() -> None:
    """Else the test above would say little."""
    outcomes: set[str | None] = set()
    statuses: set[str] = set()
    late = 0
    for seed in range(8):
        history = folded(acted(seed), random.Random(seed))
        outcomes |= {row.outcome for row in history.attempts.values()}
        statuses |= {row.status for row in history.tasks.values()}
        late += sum(row.late_at is not None for row in history.attempts.values())
    assert {
        "finished", "failed", "cancelled", "worker_died", "undelivered", "outcome_unknown", "stalled", "timed_out",
        "deadline_expired",
    } <= outcomes  # fmt: skip
    assert {"finished", "error", "cancelled", "rolled_back", "waiting", "delayed"} <= statuses
    assert late


def test_a_payload_that_leaves_the_broker_stays_in_the_history() -> None:
    broker = RecordedBroker()
    large = b"x" * 5_000
    done, dead = broker.submit(TaskSpec("mail", large), TaskSpec("mail", large, max_attempts=1))
    broker.appear()
    broker.fire()
    broker.end(done, result=b"well")
    broker.end(dead, TaskStatus.ERROR, error="no")
    broker.fire()
    assert broker.get(done).payload_gone
    facts = facts_of(broker.facts(payloads=True), 0)
    fold = TaskFold()
    for fact in facts:
        fold.apply(fact)
    assert [fold.tasks[task].payload for task in (done, dead)] == [large, large]
    assert (fold.tasks[done].status, fold.tasks[done].result) == ("finished", b"well")
    assert any(fact.kind == FactKind.TASK_CHANGED and fact.said.payload == b"" for fact in facts)
