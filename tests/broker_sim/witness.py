"""What really happened, noted outside of the broker: what clients sent and were told, what executors ran.

* `at-most-once`    at most one run of a task that was submitted so is ever started
* `worker-scope`    a worker is given the tasks of no tenant but those of its credential
* `confirmed-first` nothing is started that the log does not know, nor twice
* `no-phantom`      nothing is run, or in the log, that nobody submitted; nothing is there twice
* `nothing-lost`    what a client was told is in the log
* `acked-ends`      an end is acknowledged to a worker only when it is in the log
* `same-state`      all processes have the same state at the same revision
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from broker.machine.commands import EndedRun, TaskSpec
from broker.machine.worker_messages import AssignedRun
from rsm_spark.core.state import ReplicatedState
from rsm_spark.testing.ghosts import BrokenInvariantError

if TYPE_CHECKING:
    from tests.broker_sim.auditor import Auditor

__all__ = ["SentTask", "Witness", "fail"]


def fail(name: str, what: str) -> None:
    """Say that an invariant does not hold.

    Raises:
        BrokenInvariantError: Always.

    """
    raise BrokenInvariantError(f"{name}: {what}")


class SentTask(msgspec.Struct):
    """A task that a client has sent; its payload is its own.

    Attributes:
        tenant: Whose.
        spec: As sent.
        transaction: In which; 0 = none.
        task_id: As the client was told; 0 = not yet.
        is_denied: The client was told that it was not accepted.

    """

    tenant: str
    spec: TaskSpec
    transaction: int = 0
    task_id: int = 0
    is_denied: bool = False


class Witness:
    """See the module.

    Attributes:
        bans: Holds of operators that none of them has asked to end.
        tenant_bytes_max: Quota of each tenant; 0 = none.
        sent: By payload.
        starts: Assignments that were started, by task.
        ends: How runs ended, by assignment.
        killed: Assignments whose runs were killed with their worker.
        promotions: How often somebody came to lead.
        counts: Of what was done.
        auditor: Of the log.
        lease_ms: Of workers.
        is_alive: Whether an incarnation of a worker lives, by its name.

    """

    auditor: Auditor

    def __init__(self) -> None:
        self.bans: set[tuple[str, str, str]] = set()
        self.tenant_bytes_max = 0
        self.sent: dict[bytes, SentTask] = {}
        self.starts: dict[int, list[int]] = {}
        self.ends: dict[int, EndedRun] = {}
        self.killed: dict[int, None] = {}
        self.promotions = 0
        self.counts: Counter[str] = Counter()
        self._started: dict[int, str] = {}
        self._digests: dict[int, int] = {}
        self._states = 0
        self.lease_ms = 0
        self.is_alive: Callable[[str, str], bool] = lambda _worker_id, _incarnation: False
        self.on_validate: Callable[[ReplicatedState], None] = lambda _state: None

    # ---- clients

    def on_sent(self, tenant: str, specs: Iterable[TaskSpec], transaction: int) -> None:
        """Note what a client sends; sending it again changes nothing."""
        for spec in specs:
            self.sent.setdefault(spec.payload, SentTask(tenant, spec, transaction))

    def on_accepted(self, specs: Sequence[TaskSpec], task_ids: Sequence[int]) -> None:
        """Note what a client was told: an id for each task, 0 for those refused."""
        for spec, task_id in zip(specs, task_ids, strict=True):
            sent = self.sent[spec.payload]
            found = self.auditor.ids.get(spec.payload, 0)
            if sent.task_id not in (0, task_id):
                fail("no-phantom", f"task {spec.payload!r} was said to be {sent.task_id}, then {task_id}")
            if found != task_id:
                fail("nothing-lost", f"{spec.payload!r} was said to be task {task_id}, the log says {found}")
            sent.task_id, sent.is_denied = task_id, not task_id
            self.counts["accepted" if task_id else "refused"] += 1

    def on_denied(self, specs: Iterable[TaskSpec]) -> None:
        """Note that a client was told that none was accepted, for good."""
        for spec in specs:
            if spec.payload in self.auditor.ids:
                fail("nothing-lost", f"{spec.payload!r} was refused, and is in the log")
            self.sent[spec.payload].is_denied = True
            self.counts["refused"] += 1

    # ---- executors

    def on_started(
        self, run: AssignedRun, worker_id: str, incarnation: str, tenants: tuple[str, ...] | None = None
    ) -> None:
        """Note that a run was started by a worker that may run the tasks of these tenants alone; None = of all."""
        task_id, assignment_id = run.task_id, run.assignment_id
        sent = self.sent.get(run.payload)
        at = f"assignment {assignment_id} of task {task_id} on {worker_id}"
        if sent is None:
            fail("no-phantom", f"{at}: nobody sent {run.payload!r}")
        assert sent is not None
        if tenants is not None:
            self.counts["bound_starts"] += 1
            if run.tenant not in tenants:
                fail("worker-scope", f"{at}: it is of tenant {run.tenant}, the worker may run tasks of {tenants}")
        assigned = self.auditor.assignments.get(assignment_id)
        if assigned != (task_id, worker_id):
            fail("confirmed-first", f"{at} is started, the log has {assigned}")
        if assignment_id in self._started:
            fail("confirmed-first", f"{at} is started twice, on {self._started[assignment_id]} and {incarnation}")
        self._started[assignment_id] = incarnation
        starts = self.starts.setdefault(task_id, [])
        starts.append(assignment_id)
        self.counts["starts"] += 1
        if sent.spec.at_most_once:
            self.counts["at_most_once_starts"] += 1
            if len(starts) > 1:
                fail("at-most-once", f"task {task_id} is started again: assignments {starts}")

    def was_started(self, assignment_id: int) -> bool:
        """Return whether a run was started."""
        return assignment_id in self._started

    def on_ended(self, run: AssignedRun, end: EndedRun) -> None:
        """Note that a run has ended."""
        self.ends[run.assignment_id] = end

    def on_run_killed(self, run: AssignedRun) -> None:
        """Note that a run will never end, nor say so."""
        self.killed[run.assignment_id] = None

    def on_acknowledged(self, assignment_ids: Iterable[int]) -> None:
        """Note that a worker is told that these ends are known."""
        for assignment_id in assignment_ids:
            if assignment_id not in self.auditor.over:
                fail("acked-ends", f"the end of assignment {assignment_id} is acknowledged, the log does not have it")

    # ---- processes

    def on_claim(self) -> None:
        """Note that somebody has claimed the log."""
        self.counts["claims"] += 1

    def on_state(self, name: str, state: ReplicatedState) -> None:
        """Compare a confirmed state with that of the others."""
        self._states += 1
        known = self._digests.setdefault(state.revision, state.digest)
        if known != state.digest:
            fail("same-state", f"{name} differs from others at revision {state.revision}")
        if self._states % 400 == 0:
            self.on_validate(state)
