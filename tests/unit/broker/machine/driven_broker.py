"""A broker driven as a leader drives it: decide, then apply what was decided; time passes when the test says so."""

from __future__ import annotations

from typing import Any

from broker.machine import commands as c
from broker.machine import messages
from broker.machine import queries as q
from broker.machine.machine import BrokerMachine
from broker.machine.mapping import Mapper
from broker.machine.outbox import OutboxKind
from broker.machine.policies import WorkerOffer
from broker.machine.replies import Refused, TasksSubmitted
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType
from broker.machine.views import TaskPageView, TaskView
from rsm_spark.core.records import REPLY_BYTES_MAX
from rsm_spark.core.state import ReplicatedState

__all__ = ["START_MS", "DrivenBroker"]

START_MS = 1_000_000_000


class DrivenBroker:
    """The machine in its replicated state, its log in memory.

    Attributes:
        log: (revision, type, fields) of every record.
        now_ms: Logged time.
        promoted_ms: Logged time at which the present leader began.
        told: What left to workers: (kind, worker, task, assignment).

    """

    def __init__(self, rules: BrokerRules | None = None, mapper: Mapper | None = None) -> None:
        self.rules = rules or BrokerRules()
        self.machine = BrokerMachine(self.rules, mapper)
        self.machine.outbox.open()
        self.state = ReplicatedState(self.machine, bytes(16))
        self.log: list[tuple[int, int, tuple[Any, ...]]] = []
        self.now_ms = START_MS
        self.promoted_ms = 0
        self.told: list[tuple[OutboxKind, str, int, int]] = []

    @property
    def revision(self) -> int:
        return self.state.revision

    # ---- what the kernel does

    def log_record(self, record_type: int, fields: tuple[Any, ...]) -> int:
        self.machine.loggable([(record_type, fields)])
        self.state.fold(record_type, None, fields, self.now_ms)
        self.log.append((self.revision, record_type, fields))
        return self.revision

    def run(self, command: Any) -> Any:
        """Decide and apply a command; return its reply. Due things are left alone."""
        text = command if isinstance(command, bytes) else messages.encode(command)
        decision = self.machine.decide(text, self.revision + 1, self.now_ms)
        assert len(decision.reply) <= REPLY_BYTES_MAX
        for record_type, fields in decision.records:
            self.log_record(record_type, fields)
        self._collect()
        reply = messages.decode_reply(decision.reply)
        assert not (isinstance(reply, Refused) and decision.records), "a refusal with records"
        return reply

    def fire(self, *, limit: int = 2_000) -> list[tuple[int, tuple[Any, ...]]]:
        """Log what is due now, entry by entry; return it."""
        fired: list[tuple[int, tuple[Any, ...]]] = []
        idle = 0
        while True:
            count = len(fired)
            for record_type, fields in self.machine.due(self.now_ms, self.promoted_ms, limit):
                self.log_record(record_type, fields)
                fired.append((record_type, fields))
                if len(fired) - count == limit:
                    break
            idle = 0 if len(fired) > count else idle + 1
            next_due_ms = self.machine.next_due_ms(self.promoted_ms)
            if next_due_ms is None or next_due_ms > self.now_ms:
                break
            assert idle < 100, "something is due, and nothing comes of it"
        self._collect()
        return fired

    def pass_time(self, ms: int) -> list[tuple[int, tuple[Any, ...]]]:
        self.now_ms += ms
        return self.fire()

    def _collect(self) -> None:
        self.told += [item[1:] for item in self.machine.outbox.take(self.revision)]

    def promote(self) -> None:
        """Have another replica lead, which has followed the log."""
        self.machine = self.replayed()
        self._lead()

    def reboot(self) -> None:
        """Have a replica lead that has booted from a snapshot of now."""
        rows = list(self.machine.rows())
        self.machine = BrokerMachine(self.rules, self.machine.mapper)
        self.machine.restore(rows)
        self._lead()

    def _lead(self) -> None:
        self.machine.outbox.open()
        old, self.state = self.state, ReplicatedState(self.machine, bytes(16))
        self.state.restore(list(old.rows()), old.tip, old.description)
        self.machine.outbox.open()
        self.promoted_ms = self.now_ms
        self.told = []

    def replayed(self) -> BrokerMachine:
        """Return a machine that has applied the same log."""
        other = BrokerMachine(self.rules)
        for revision, record_type, fields in self.log:
            other.apply(record_type, fields, revision)
        return other

    # ---- what tests say

    def submit(self, *specs: c.TaskSpec, tenant: str = "acme", **rest: Any) -> list[int]:
        """Submit tasks; return their ids, 0 for those refused."""
        reply = self.run(c.SubmitTasks(tenant, list(specs), **rest))
        assert isinstance(reply, TasksSubmitted), reply
        return reply.task_ids(len(specs))

    def appear(
        self, worker_id: str = "w", incarnation: str = "i1", *, offer: WorkerOffer | None = None, **rest: Any
    ) -> Any:
        return self.run(c.WorkerAppeared(worker_id, incarnation, "here", offer or WorkerOffer(10), **rest))

    def end(self, task_id: int, status: int = TaskStatus.FINISHED, *, incarnation: str = "i1", **rest: Any) -> Any:
        """Have the worker of a running task say that it ended."""
        shown = self.get(task_id)
        ended = c.EndedRun(task_id, shown.assignment_id, int(status), **rest)
        return self.run(c.ReportRuns(shown.worker_id, incarnation, [ended]))

    def ask(self, query: Any) -> Any:
        text = query if isinstance(query, bytes) else messages.encode(query)
        return messages.decode_result(self.machine.query(text, self.revision))

    def get(self, task_id: int, tenant: str = "") -> TaskView:
        shown = self.ask(q.GetTask(tenant, task_id))
        assert isinstance(shown, TaskView), f"there is no task {task_id}"
        return shown

    def status(self, task_id: int) -> TaskStatus:
        return TaskStatus(self.get(task_id).status)

    def listed(self, **rest: Any) -> list[int]:
        page = self.ask(q.ListTasks(**{"tenant": "", **rest}))
        assert isinstance(page, TaskPageView)
        return [task.task_id for task in page.tasks]

    def logged(self, record_type: int) -> list[tuple[Any, ...]]:
        return [fields for _, kind, fields in self.log if kind == record_type]

    def assignments(self, task_id: int) -> list[int]:
        """Return the ids of all assignments of a task."""
        return [
            revision for revision, kind, fields in self.log if kind == RecordType.TASK_ASSIGNED and fields[0] == task_id
        ]

    def check(self) -> None:
        """Check index against tables, and both against a replay."""
        self.machine.validate()
        self.state.validate()
        other = self.replayed()
        other.validate()
        assert sorted(other.rows()) == sorted(self.machine.rows())


def pages(broker: DrivenBroker, **rest: object) -> list[list[int]]:
    """Return the ids of all pages."""
    found: list[list[int]] = []
    after = 0
    while True:
        page = broker.ask(q.ListTasks(**{"tenant": "", **rest, "after": after}))  # type: ignore[arg-type]
        assert isinstance(page, TaskPageView)
        found.append([task.task_id for task in page.tasks])
        after = page.next
        if not after:
            return found
