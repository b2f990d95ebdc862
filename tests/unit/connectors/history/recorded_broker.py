"""A broker whose log is read back as Spark reads it, and which remembers itself what its history must say."""

from __future__ import annotations

import functools
import random
from typing import Any

import pyarrow as pa

from broker.machine import commands as c
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.replies import Begun
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from connectors.delta.fold import RecordRange
from connectors.history.facts import RECORD_COLUMNS, fact_reader
from connectors.history.layout import layout_of
from rsm_spark.core.machine import Field, FieldType, Fold, RecordDescription, encode_description
from rsm_spark.core.records import KernelRecord, pack
from tests.unit.broker.machine.driven_broker import DrivenBroker

__all__ = ["RecordedBroker", "acted", "record_columns"]

RECORDS = {record.type: record for record in BROKER_DESCRIPTION.records}
DESCRIBED = RecordDescription(
    int(KernelRecord.MACHINE_DESCRIBED), "machine_described", (Field("text", FieldType.BYTES),)
)
RETENTION_MS = 5_000


class RecordedBroker(DrivenBroker):
    """Notes, with every record, what the broker itself knows.

    Attributes:
        logged_ms: Of each record.
        shown: Every task as it was last shown.
        purged: When tasks went.
        runs: By assignment: task, attempt, worker, incarnation, assigned, ended, status afterwards.
        waits: By assignment: since when, group, priority.

    """

    def __init__(self) -> None:
        super().__init__(
            BrokerRules(retention_ms=RETENTION_MS, dead_retention_ms=3 * RETENTION_MS, timeout_grace_ms=10)
        )
        self.logged_ms: list[int] = []
        self.shown: dict[int, Any] = {}
        self.purged: dict[int, int] = {}
        self.runs: dict[int, dict[str, Any]] = {}
        self.waits: dict[int, tuple[int, int, int]] = {}
        self._committed: dict[int, int] = {}
        self.describe()

    def describe(self) -> None:
        """Describe the machine, as a leader does before anything else, and in every ledger."""
        described = (encode_description(BROKER_DESCRIPTION),)
        self.state.fold(KernelRecord.MACHINE_DESCRIBED, None, described, self.now_ms)
        self.log.append((self.revision, int(KernelRecord.MACHINE_DESCRIBED), described))
        self.logged_ms.append(self.now_ms)

    def log_record(self, record_type: int, fields: tuple[Any, ...]) -> int:
        before = self.machine.tasks.by_id.get(fields[0]) if fields and isinstance(fields[0], int) else None
        held = (before.assignment_id, before.worker_id) if before is not None else (0, "")
        if record_type == RecordType.TASK_ASSIGNED:
            assert before is not None
            demand = self.machine.demand(before)
            # The broker counts from the time asked for, even if the transaction was committed after it.
            since_ms = max(before.at_ms, self._committed.get(before.transaction, 0))
            self.waits[self.revision + 1] = (since_ms, demand.group, demand.priority)
            worker = self.machine.workers.by_id[fields[3]]
            self.runs[self.revision + 1] = {
                "task_id": fields[0], "attempt": fields[2], "worker_id": fields[3], "incarnation": worker.incarnation,
                "assigned_at": fields[5], "ended_at": None, "task_status": None,
            }  # fmt: skip
        elif record_type == RecordType.TRANSACTION_COMMITTED:
            self._committed[fields[0]] = fields[1]
        elif record_type == RecordType.TASK_REMOVED:
            self.purged[fields[0]] = self.now_ms
        revision = super().log_record(record_type, fields)
        self.logged_ms.append(self.now_ms)
        after = self.machine.tasks.by_id.get(fields[0]) if before is not None else None
        if after is not None and held[1] and not after.worker_id:
            self.runs[held[0]] |= {"ended_at": self.now_ms, "task_status": TaskStatus(after.status).name.lower()}
        return revision

    def look(self) -> None:
        """Ask for every task as any client may."""
        for task_id in self.listed(limit=1_000):
            self.shown[task_id] = self.get(task_id)

    def facts(self, first: int = 1, end: int = 0, *, payloads: bool = False, size: int = 7) -> RecordRange:
        """Return records [first, end) with their facts, as tasks of several input batches make them."""
        return RecordRange(self.fact_rows(first, end, payloads=payloads, size=size))

    def fact_rows(self, first: int = 1, end: int = 0, *, payloads: bool = False, size: int = 7) -> pa.Table:
        """Return the same as rows."""
        reader = fact_reader(layout_of(BROKER_DESCRIPTION, payloads=payloads, log="test"))
        last = end or self.revision + 1
        batches = [
            record_columns(self.log[at - 1 : min(at + size, last) - 1], self.logged_ms[at - 1 :])
            for at in range(first, last, size)
        ]
        return pa.Table.from_batches(list(reader(batches)))


def record_columns(log: list[tuple[int, int, tuple[Any, ...]]], logged_ms: list[int]) -> pa.RecordBatch:
    """Return records as columns of `rows=records`."""
    rows = []
    for (revision, kind, fields), at_ms in zip(log, logged_ms, strict=False):
        record = RECORDS.get(kind, DESCRIBED)
        named = dict(zip((field.name for field in record.fields), fields, strict=True))
        has_key, has_row = record.fold != Fold.NONE, record.fold == Fold.UPSERT
        rows.append(
            {
                "revision": revision,
                "ledger_id": 3,
                "entry_id": revision - 1,
                "logged_at": at_ms,
                "type": int(kind),
                "name": record.name,
                "key": pack([named[name] for name in record.key]) if has_key else None,
                "row": pack([named[name] for name in record.row]) if has_row else None,
                "fields": None if has_key and len(record.key) + len(record.row) == len(fields) else pack(fields),
                "entry_hash": revision.to_bytes(32, "big"),
            }
        )
    types = [
        pa.int64(), pa.int64(), pa.int64(), pa.timestamp("ms", "UTC"), pa.int32(), pa.string(), pa.binary(),
        pa.binary(), pa.binary(), pa.binary(),
    ]  # fmt: skip
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in zip(RECORD_COLUMNS, types, strict=True)]
    arrays[3] = arrays[3].cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(arrays, names=list(RECORD_COLUMNS))


class _Hands:
    """Worker processes of a test: what each has received of its broker."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.is_up = False


@functools.cache
def acted(seed: int, steps: int = 150) -> RecordedBroker:
    """Return a broker with which clients, workers and time did things at random; every kind of end comes up."""
    broker = RecordedBroker()
    rng = random.Random(seed)
    workers = {"w1": _Hands(), "w2": _Hands()}
    opened: list[tuple[str, int]] = []
    past: list[tuple[int, int, str]] = []
    for step in range(steps):
        if step == steps // 2:
            broker.describe()
        rng.choice(_DEEDS)(broker, rng, workers, opened, past)
        broker.fire()
        for task in broker.machine.tasks.by_id.values():
            if task.worker_id:
                past.append((task.task_id, task.assignment_id, task.worker_id))
        del past[:-50]
        broker.look()
    return broker


def _specs(rng: random.Random) -> list[c.TaskSpec]:
    return [
        c.TaskSpec(
            rng.choice(["mail", "sms"]),
            b"payload %d" % rng.randrange(100),
            at_most_once=rng.random() < 0.3,
            max_attempts=rng.choice([None, 0, 1, 2]),
            priority=rng.choice([None, -1, 4]),
            group=rng.choice([None, None, 1, 2]),
            resources=rng.choice([{}, {"db": 1}]),
            slot=rng.choice(["", "", "s1"]),
            key=rng.choice(["", "k"]),
            delay_ms=rng.choice([0, 0, 0, 50]),
            ttl_ms=rng.choice([0, 0, 0, 30, 200]),
            timeout_ms=rng.choice([0, 0, 40]),
            heartbeat_ms=rng.choice([0, 0, 60]),
            retry=rng.choice(["", '{"backoff_ms": 20}', '{"backoff_ms": 0}']),
        )
        for _ in range(rng.randrange(1, 5))
    ]


def _submit(broker: RecordedBroker, rng: random.Random, _workers: Any, opened: Any, _past: Any) -> None:
    tenant = rng.choice(["one", "two"])
    mine = [number for owner, number in opened if owner == tenant]
    broker.run(c.SubmitTasks(tenant, _specs(rng), "", rng.choice([0, *mine])))


def _begin(broker: RecordedBroker, rng: random.Random, _workers: Any, opened: Any, _past: Any) -> None:
    tenant = rng.choice(["one", "two"])
    reply = broker.run(c.BeginTransaction(tenant, rng.choice([100, 10_000])))
    assert isinstance(reply, Begun)
    opened.append((tenant, reply.transaction))


def _conclude(broker: RecordedBroker, rng: random.Random, _workers: Any, opened: Any, _past: Any) -> None:
    if opened:
        tenant, number = opened.pop(rng.randrange(len(opened)))
        broker.run(rng.choice([c.CommitTransaction, c.CommitTransaction, c.RollbackTransaction])(tenant, number))


def _appear(broker: RecordedBroker, rng: random.Random, workers: Any, _opened: Any, past: Any) -> None:
    worker_id = rng.choice(["w1", "w2"])
    hands = workers[worker_id]
    if rng.random() < 0.5 or not hands.incarnation:
        hands.incarnation += 1
    runs = [(run.task_id, run.assignment_id) for run in broker.machine.tasks.runs_of(worker_id)]
    held = [c.HeldRun(*run) for run in runs if rng.random() < 0.7]
    delivered = rng.choice([0, max((assignment for _, assignment in runs), default=0)])
    broker.appear(
        worker_id, f"i{hands.incarnation}", offer=WorkerOffer(rng.randrange(1, 6)), held=held, delivered_up_to=delivered
    )
    hands.is_up = True


def _leave(broker: RecordedBroker, rng: random.Random, workers: Any, _opened: Any, _past: Any) -> None:
    worker_id = rng.choice(["w1", "w2"])
    incarnation = f"i{workers[worker_id].incarnation}"
    how = rng.random()
    if how < 0.3:
        broker.run(c.WorkerChanged(worker_id, incarnation, None, is_draining=True))
    broker.run(c.WorkerLost(worker_id, incarnation, is_dead=how < 0.6))


def _report(broker: RecordedBroker, rng: random.Random, workers: Any, _opened: Any, past: Any) -> None:
    running = [(one.task_id, one.assignment_id, one.worker_id) for one in broker.machine.tasks.by_id.values()]
    found = [run for run in running if run[2]] + (past if rng.random() < 0.3 else [])
    if not found:
        return
    task_id, assignment_id, worker_id = rng.choice(found)
    incarnation = f"i{workers[worker_id].incarnation}"
    status = rng.choice([TaskStatus.FINISHED, TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED])
    outcome, error = rng.choice([("", "ValueError: x"), ("timed_out", "")]) if status == TaskStatus.ERROR else ("", "")
    ended = [c.EndedRun(task_id, assignment_id, int(status), outcome, error, b"result")]
    progress = [c.ProgressOf(task_id, assignment_id, rng.random(), "on the way")]
    is_end = rng.random() < 0.7
    broker.run(c.ReportRuns(worker_id, incarnation, ended if is_end else [], [] if is_end else progress))


def _change(broker: RecordedBroker, rng: random.Random, _workers: Any, _opened: Any, _past: Any) -> None:
    ids = [task_id for task_id in broker.shown if rng.random() < 0.2][:5]
    match rng.randrange(4):
        case 0 if ids:
            broker.run(c.CancelTasks("", ids))
        case 1 if ids:
            broker.run(c.ChangeTasks("", ids, priority=rng.randrange(9), group=rng.randrange(1, 4)))
        case 2:
            broker.run(c.ReplayDead(rng.choice(["one", "two"])))
        case 3:
            policy = TenantPolicy(weight=rng.randrange(1, 4), group=rng.randrange(1, 4), priority=rng.randrange(9))
            broker.run(c.SetTenant("one", policy) if rng.random() < 0.7 else c.RemoveTenant("one"))


def _pass(broker: RecordedBroker, rng: random.Random, _workers: Any, _opened: Any, _past: Any) -> None:
    broker.pass_time(rng.choice([1, 10, 40, 100, RETENTION_MS + 1]))


def _remove(broker: RecordedBroker, rng: random.Random, _workers: Any, _opened: Any, _past: Any) -> None:
    broker.run(c.RemoveWorker(rng.choice(["w1", "w2"])))


_DEEDS = [_submit, _submit, _submit, _begin, _conclude, _appear, _leave, _report, _report, _report, _change, _pass]
_DEEDS += [_pass, _remove]
