"""Whatever clients, workers and time do, the broker does what a dumb model does; nothing is lost or doubled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.replies import Begun, Changed, Committed, Refused, TasksSubmitted
from broker.machine.rules import BrokerRules
from broker.machine.statuses import ENDED, Outcome, TaskStatus
from broker.machine.tables import RecordType
from broker.machine.views import Nothing
from tests.sets import examples
from tests.unit.broker.machine.driven_broker import DrivenBroker

TENANTS = st.sampled_from(["one", "two"])
WORKERS = st.sampled_from(["w1", "w2"])
SLOTS = st.sampled_from(["", "", "s1", "s2"])
RETENTION_MS = 5_000

SPECS = st.builds(
    c.TaskSpec,
    type=st.sampled_from(["mail", "sms"]),
    at_most_once=st.booleans(),
    max_attempts=st.sampled_from([None, 0, 1, 2]),
    priority=st.sampled_from([None, -1, 4]),
    resources=st.sampled_from([{}, {}, {"db": 1}, {"db": 2}]),
    slot=SLOTS,
    key=st.sampled_from(["", "k"]),
    delay_ms=st.sampled_from([0, 0, 0, 50]),
    ttl_ms=st.sampled_from([0, 0, 0, 30, 200]),
    timeout_ms=st.sampled_from([0, 0, 40]),
    heartbeat_ms=st.sampled_from([0, 0, 0, 60]),
    retry=st.sampled_from(["", "", '{"backoff_ms": 20}']),
)


@dataclass
class ModelTask:
    """What a test knows of a task from what it did."""

    tenant: str
    spec: c.TaskSpec
    deadline_ms: int
    transaction: int
    deliveries: list[int] = field(default_factory=list)


@dataclass
class ModelWorker:
    """A worker process: what it received, what it holds, what it has ended without being heard."""

    incarnation: int = 0
    is_up: bool = False
    delivered_up_to: int = 0
    held: dict[int, int] = field(default_factory=dict)  # task by assignment
    ended: list[c.EndedRun] = field(default_factory=list)


class BrokerAgainstModel(RuleBasedStateMachine):
    """Two tenants, two workers, a leader that changes; the outside world remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = DrivenBroker(BrokerRules(retention_ms=RETENTION_MS, dead_retention_ms=RETENTION_MS))
        self.tasks: dict[int, ModelTask] = {}
        self.gone: set[int] = set()
        self.open: dict[int, tuple[str, list[int]]] = {}
        self.workers = {"w1": ModelWorker(), "w2": ModelWorker()}
        self.finished: set[int] = set()
        self.limit: int | None = None
        self.caps: dict[str, int] = {}

    # ---- clients

    @rule(tenant=TENANTS, specs=st.lists(SPECS, min_size=1, max_size=4), data=st.data())
    def submit(self, tenant: str, specs: list[c.TaskSpec], data: st.DataObject) -> None:
        mine = [number for number, (owner, _) in self.open.items() if owner == tenant]
        transaction = data.draw(st.sampled_from([0, *mine]))
        busy = self.slots(tenant)
        reply = self.broker.run(c.SubmitTasks(tenant, specs, "", transaction))
        assert isinstance(reply, TasksSubmitted)
        for task_id, spec in zip(reply.task_ids(len(specs)), specs, strict=True):
            is_free = not spec.slot or spec.slot not in busy
            assert bool(task_id) == is_free, "a slot is taken exactly while an unfinished task has it"
            if task_id:
                assert task_id not in self.tasks, "an id was used twice"
                deadline_ms = self.broker.now_ms + spec.ttl_ms if spec.ttl_ms else 0
                self.tasks[task_id] = ModelTask(tenant, spec, deadline_ms, transaction)
                busy |= {spec.slot} if spec.slot else set()
                if transaction:
                    self.open[transaction][1].append(task_id)

    @rule(tenant=TENANTS, spec=SPECS)
    def submit_twice_with_a_key(self, tenant: str, spec: c.TaskSpec) -> None:
        command = c.SubmitTasks(tenant, [spec], f"key {self.broker.revision}")
        first = self.broker.run(command)
        if first.count:
            assert self.broker.run(command) == first
            deadline_ms = self.broker.now_ms + spec.ttl_ms if spec.ttl_ms else 0
            self.tasks[first.first_task_id] = ModelTask(tenant, spec, deadline_ms, 0)

    @rule(tenant=TENANTS, ttl_ms=st.sampled_from([40, 1_000]))
    def begin(self, tenant: str, ttl_ms: int) -> None:
        reply = self.broker.run(c.BeginTransaction(tenant, ttl_ms))
        assert isinstance(reply, Begun)
        self.open[reply.transaction] = (tenant, [])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_commit=st.booleans())
    def conclude(self, data: st.DataObject, is_commit: bool) -> None:
        transaction = data.draw(st.sampled_from(sorted(self.open)))
        tenant, ids = self.open.pop(transaction)
        if is_commit:
            command: Any = c.CommitTransaction(tenant, transaction)
            assert self.broker.run(command) == self.broker.run(command) == Committed(len(ids))
        else:
            assert self.broker.run(c.RollbackTransaction(tenant, transaction)) == Committed(len(ids))
            self.gone.update(ids)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        before = self.broker.status(task_id) if task_id not in self.gone else None
        reply = self.broker.run(c.CancelTasks(self.tasks[task_id].tenant, [task_id]))
        if before in {TaskStatus.WAITING, TaskStatus.DELAYED}:
            assert reply == Changed(1)
        elif before == TaskStatus.RUNNING:
            assert reply == Changed(0, 1)
        else:
            assert reply == Changed(0, 0, 1)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), priority=st.integers(-3, 3), db=st.sampled_from([None, 0, 2]))
    def change(self, data: st.DataObject, priority: int, db: int | None) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        resources = None if db is None else {"db": db}
        self.broker.run(c.ChangeTasks(self.tasks[task_id].tenant, [task_id], priority=priority, resources=resources))

    @rule(tenant=TENANTS)
    def replay_dead(self, tenant: str) -> None:
        self.broker.run(c.ReplayDead(tenant))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def delete_dead(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        is_dead = task_id not in self.gone and self.broker.status(task_id) == TaskStatus.ERROR
        reply = self.broker.run(c.DeleteDead(self.tasks[task_id].tenant, [task_id]))
        assert reply == (Changed(1) if is_dead else Changed(0, 0, 1))
        self.forget_the_purged()

    # ---- the administrator

    @rule(tenant=TENANTS, cap=st.sampled_from([0, 1, 3]), priority=st.sampled_from([0, 2]))
    def set_tenant(self, tenant: str, cap: int, priority: int) -> None:
        self.broker.run(c.SetTenant(tenant, TenantPolicy(running_max=cap, priority=priority, weight=1.0 + cap)))
        self.caps[tenant] = cap

    @rule(amount=st.sampled_from([None, 0, 2, 3]))
    def limit_db(self, amount: int | None) -> None:
        self.broker.run(c.LimitResource("db", amount))
        self.limit = amount

    @rule(tenant=TENANTS, key=st.sampled_from(["", "k"]), ms=st.sampled_from([0, 30]))
    def hold(self, tenant: str, key: str, ms: int) -> None:
        self.broker.run(c.SetHold(tenant, "", key, until_ms=self.broker.now_ms + ms if ms else 0))

    @rule(tenant=TENANTS, key=st.sampled_from(["", "k"]))
    def release(self, tenant: str, key: str) -> None:
        self.broker.run(c.ClearHold(tenant, "", key))

    # ---- workers

    @rule(worker_id=WORKERS, threads=st.integers(0, 4), is_new=st.booleans())
    def appear(self, worker_id: str, threads: int, is_new: bool) -> None:
        worker = self.workers[worker_id]
        if is_new or not worker.incarnation:
            self.workers[worker_id] = worker = ModelWorker(worker.incarnation + 1)
        worker.is_up = True
        self.broker.run(
            c.WorkerAppeared(
                worker_id, f"i{worker.incarnation}", "", WorkerOffer(threads), worker.delivered_up_to,
                [c.HeldRun(task, assignment) for assignment, task in worker.held.items()], worker.ended,
            )
        )  # fmt: skip
        self.note_ends(worker.ended)
        worker.ended = []
        for assignment, task_id in list(worker.held.items()):
            if self.broker.machine.assignment_of(task_id) != assignment:
                del worker.held[assignment]

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Send what left the broker, as far as streams are up; the rest of it is never sent."""
        told, self.broker.told = self.broker.told, []
        count = data.draw(st.integers(0, len(told))) if told else 0
        for kind, worker_id, task_id, assignment_id in told[:count]:
            worker = self.workers[worker_id]
            is_current = self.broker.machine.assignment_of(task_id) == assignment_id
            if not worker.is_up or kind != 1 or not is_current:
                continue
            assert assignment_id > worker.delivered_up_to, "assignments rise"
            worker.delivered_up_to = assignment_id
            worker.held[assignment_id] = task_id
            self.tasks[task_id].deliveries.append(assignment_id)
        if count < len(told):
            for worker_id, worker in self.workers.items():
                if worker.is_up:
                    worker.is_up = False
                    self.broker.run(c.WorkerLost(worker_id, f"i{worker.incarnation}"))

    @rule(worker_id=WORKERS, data=st.data())
    def end_runs(self, worker_id: str, data: st.DataObject) -> None:
        worker = self.workers[worker_id]
        count = data.draw(st.integers(0, len(worker.held)))
        ends = []
        for assignment, task in list(worker.held.items())[:count]:
            status = data.draw(st.sampled_from([TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED]))
            ends.append(c.EndedRun(task, assignment, int(status), "" if status == TaskStatus.FINISHED else "failed"))
            del worker.held[assignment]
        if not worker.is_up:
            worker.ended += ends
            return
        ends += data.draw(st.sampled_from([[], ends]))
        self.note_ends(ends)
        assert not isinstance(self.broker.run(c.ReportRuns(worker_id, f"i{worker.incarnation}", ends)), Refused)

    def note_ends(self, ends: list[c.EndedRun]) -> None:
        for end in ends:
            if end.status == TaskStatus.FINISHED:
                self.finished.add(end.task_id)

    @rule(worker_id=WORKERS)
    def progress(self, worker_id: str) -> None:
        worker = self.workers[worker_id]
        if worker.is_up:
            items = [c.ProgressOf(task, assignment, 0.5) for assignment, task in worker.held.items()]
            self.broker.run(c.ReportRuns(worker_id, f"i{worker.incarnation}", [], items))

    @rule(worker_id=WORKERS, is_dead=st.booleans())
    def lose(self, worker_id: str, is_dead: bool) -> None:
        worker = self.workers[worker_id]
        if worker.incarnation:
            worker.is_up = False
            self.broker.run(c.WorkerLost(worker_id, f"i{worker.incarnation}", is_dead))

    @precondition(lambda self: any(worker.incarnation > 1 for worker in self.workers.values()))
    @rule(worker_id=WORKERS)
    def hear_a_ghost(self, worker_id: str) -> None:
        worker = self.workers[worker_id]
        if worker.incarnation > 1:
            ghost = f"i{worker.incarnation - 1}"
            assert isinstance(self.broker.run(c.ReportRuns(worker_id, ghost)), Refused)
            assert isinstance(self.broker.run(c.WorkerLost(worker_id, ghost, is_dead=True)), Refused)

    # ---- time and leaders

    @rule(ms=st.sampled_from([0, 0, 1, 20, 60, 300]), limit=st.sampled_from([2, 7, 2_000]))
    def pass_time(self, ms: int, limit: int) -> None:
        self.broker.now_ms += ms
        self.broker.fire(limit=limit)
        self.forget_the_purged()
        for task_id, task in self.tasks.items():
            if task_id not in self.gone and task.deadline_ms and task.deadline_ms <= self.broker.now_ms:
                status = self.broker.status(task_id)
                changed = self.broker.get(task_id).deadline_ms != task.deadline_ms
                assert changed or status not in {TaskStatus.WAITING, TaskStatus.DELAYED}, "a deadline was missed"

    @rule(entries=st.integers(1, 3))
    def take_part_of_what_is_due(self, entries: int) -> None:
        for _ in range(entries):
            for record_type, fields in self.broker.machine.due(self.broker.now_ms, self.broker.promoted_ms, 2_000):
                self.broker.log_record(record_type, fields)
                break
        self.broker._collect()
        self.forget_the_purged()

    @rule(is_boot=st.booleans())
    def change_leaders(self, is_boot: bool) -> None:
        if is_boot:
            self.broker.reboot()
        else:
            self.broker.promote()
        for worker in self.workers.values():
            worker.is_up = False

    @rule()
    def purge(self) -> None:
        self.broker.pass_time(RETENTION_MS)
        self.forget_the_purged()

    def forget_the_purged(self) -> None:
        """Tasks go for two reasons only: they ended, and were kept for long enough; or their transaction ran out."""
        for number, (tenant, ids) in list(self.open.items()):
            if not any(
                shown.transaction == number for shown in self.broker.ask(q.ListTransactions(tenant)).transactions
            ):
                self.gone.update(ids)
                del self.open[number]
        for fields in self.broker.logged(RecordType.TASK_REMOVED):
            self.gone.add(fields[0])

    def slots(self, tenant: str) -> set[str]:
        """Return the slots that tasks have that are there and have not ended."""
        return {
            task.spec.slot
            for task_id, task in self.tasks.items()
            if task.tenant == tenant
            and task_id not in self.gone
            and task.spec.slot
            and self.broker.status(task_id) not in ENDED
        }

    # ---- what holds always

    @invariant()
    def nothing_is_lost_and_there_is_no_phantom(self) -> None:
        shown: list[int] = []
        after = 0
        while True:
            page = self.broker.ask(q.ListTasks("", after=after, limit=7))
            shown += [task.task_id for task in page.tasks]
            after = page.next
            if not after:
                break
        assert shown == sorted(set(self.tasks) - self.gone)
        for task_id in self.gone:
            assert isinstance(self.broker.ask(q.GetTask("", task_id)), Nothing)

    @invariant()
    def at_most_once_is_delivered_once(self) -> None:
        for task_id, task in self.tasks.items():
            if task.spec.at_most_once:
                assert len(task.deliveries) <= 1, f"task {task_id} was delivered as {task.deliveries}"

    @invariant()
    def slots_are_exclusive(self) -> None:
        taken: set[tuple[str, str]] = set()
        for task_id, task in self.tasks.items():
            if task_id not in self.gone and task.spec.slot and self.broker.status(task_id) not in ENDED:
                assert (task.tenant, task.spec.slot) not in taken
                taken.add((task.tenant, task.spec.slot))

    @invariant()
    def attempts_and_ends_are_what_they_may_be(self) -> None:
        for task_id, task in self.tasks.items():
            if task_id in self.gone:
                continue
            shown = self.broker.get(task_id)
            assert 0 <= shown.attempts <= len(self.broker.assignments(task_id))
            if shown.max_attempts:
                assert shown.attempts <= shown.max_attempts
            if shown.status == TaskStatus.FINISHED:
                assert task_id in self.finished
            if shown.status == TaskStatus.ERROR and shown.outcome == Outcome.OUTCOME_UNKNOWN:
                assert task.spec.at_most_once

    @invariant()
    def index_tables_replay_and_snapshot_agree(self) -> None:
        self.broker.check()


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(max_examples=examples(12), stateful_step_count=35, deadline=None)
