"""Folds the log by rules of its own, record by record, and judges each: it shares no code with the broker's machine.

* `legal`            records follow the states of tasks as `broker.machine.statuses` has them
* `no-phantom`       every task in the log was sent by a client, as it stands there, and is there once
* `slot-exclusive`   a slot has at most one unfinished task; who has not ended keeps it
* `limits`           no assignment exceeds what workers offer, tenants may have and resources allow
* `holds`            nothing is assigned that is paused
* `at-most-once`     what was started and is at most once is not queued again
* `at-least-once`    what ends well has run well, with that result; nothing is removed that has not ended
* `time-is-data`     what is fired by time is not fired before it; all times are logged time
* `work-conserving`  while a leader has nothing to do, no task waits that some worker could run
* `lease`            no worker that is alive is called dead before every leader has given it its lease
* `given-back`       what a worker never got is not counted as lost, when it says so
* `no-orphans`       nothing runs on a dead worker, nothing is prepared in a transaction that is over

And what `tests.broker_sim.audited_locks` says.

# Longer than 400 lines: every record of the log is judged here, on one picture of all tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.machine.statuses import ENDED, Outcome, TaskStatus, WorkerStatus
from broker.machine.tables import BROKER_DESCRIPTION, PRIORITY_OF_TENANT, RecordType
from rsm_spark.core.envelope import body_of, decode_envelope
from rsm_spark.core.records import KernelRecord, decode_records
from tests.broker_sim.audited_gates import AuditedGates, AuditedTask, amounts_of
from tests.broker_sim.audited_locks import AuditedLocks
from tests.broker_sim.witness import Witness, fail

__all__ = ["Auditor"]

_FIELDS = {record.type: [field.name for field in record.fields] for record in BROKER_DESCRIPTION.records}
_OVER = 2
_LEASE_SLACK_MS = 50


class Auditor:
    """See the module.

    Args:
        witness: Knows what really happened.

    Attributes:
        revision: Of the last record.
        logged_ms: Of the last entry.
        promoted_ms: When the last leader began.
        ids: Of tasks, by payload; of those removed too.
        tasks: By id.
        assignments: (task, worker) of all that was ever assigned.
        over: Assignments whose end is in the log, one way or another.
        replays: How often dead letters were replayed, by task.
        gates: What stands between tasks and workers.
        transactions: 1 = open, 0 = committed, `_OVER` = rolled back.
        counts: Of records, by what they say.

    """

    def __init__(self, witness: Witness) -> None:
        self.revision = 0
        self.logged_ms = 0
        self.promoted_ms = 0
        self.ids: dict[bytes, int] = {}
        self.tasks: dict[int, AuditedTask] = {}
        self.assignments: dict[int, tuple[int, str]] = {}
        self.over: dict[int, None] = {}
        self.replays: dict[int, int] = {}
        self.transactions: dict[int, int] = {}
        self.gates = AuditedGates()
        self.locks = AuditedLocks(witness)
        self.slots: dict[tuple[str, str], int] = {}
        self.counts: Counter[str] = Counter()
        self._witness = witness
        self._running = self.gates.running
        self._slotted: dict[int, None] = {}
        # Runs that the present entry calls lost, by worker.
        self._lost: dict[str, list[tuple[int, int]]] = {}
        # Workers that it calls dead though they live and have not had their lease, and why.
        self._early: dict[str, str] = {}
        self._at = ""
        self._judges: dict[int, Callable[[dict[str, Any]], None]] = {
            RecordType.TASK_SUBMITTED: self._submitted,
            RecordType.TASK_CHANGED: self._changed,
            RecordType.TASK_REMOVED: self._removed,
            RecordType.TASK_ASSIGNED: self._assigned,
            RecordType.TASK_ENDED: self._ended,
            RecordType.TASK_REQUEUED: self._requeued,
            RecordType.TASK_CANCEL_ASKED: self._cancel_asked,
            RecordType.LATE_END: self._late_end,
            RecordType.SLOT_TAKEN: self._slot_taken,
            RecordType.SLOT_RELEASED: self._slot_released,
            RecordType.TRANSACTION_BEGUN: self._begun,
            RecordType.TRANSACTION_COMMITTED: self._committed,
            RecordType.TRANSACTION_ROLLED_BACK: self._rolled_back,
            RecordType.WORKER_CONNECTED: self._worker,
            RecordType.WORKER_CHANGED: self._worker,
            RecordType.WORKER_DIED: self._worker,
            RecordType.WORKER_REMOVED: self._forget_worker,
            RecordType.TENANT_SET: self.gates.set_tenant,
            RecordType.TENANT_REMOVED: self.gates.forget_tenant,
            RecordType.HOLD_SET: self._hold_set,
            RecordType.HOLD_ENDED: self._hold_ended,
            RecordType.RESOURCE_LIMITED: self.gates.set_limit,
            RecordType.RESOURCE_UNLIMITED: self.gates.end_limit,
        }

    @property
    def unfinished(self) -> list[int]:
        """Return the tasks that have not ended."""
        return [task_id for task_id, task in self.tasks.items() if task.status not in ENDED]

    def check_idle(self) -> None:
        """Judge a leader that has nothing to give out: nothing that waits could start."""
        waiting = {one: task for one, task in self.tasks.items() if task.status == TaskStatus.WAITING}
        found = self.gates.startable(waiting)
        if found is not None:
            fail("work-conserving", f"task {found[0]} waits, {found[1]} could run it, and the leader is idle")

    def dead_of(self, tenant: str) -> list[int]:
        """Return the dead letters of a tenant."""
        tasks = self.tasks.items()
        return [one for one, task in tasks if task.status == TaskStatus.ERROR and task.row["tenant"] == tenant]

    def take(self, payload: bytes) -> None:
        """Judge the next confirmed entry."""
        envelope = decode_envelope(payload)
        assert envelope.first_revision == self.revision + 1
        self.logged_ms = envelope.logged_ms
        self._lost.clear()
        self._early.clear()
        for record in decode_records(body_of(payload)):
            self.revision += 1
            names = _FIELDS.get(record.type)
            if names is None:
                if record.type == KernelRecord.LEADER_STARTED:
                    self.promoted_ms = self.logged_ms
                continue
            row = dict(zip(names, record.fields, strict=True))
            self._at = f"revision {self.revision}"
            judge = self._judges.get(record.type)
            if judge is not None:
                judge(row)
        self._end_entry()

    def _end_entry(self) -> None:
        for why in self._early.values():
            fail("lease", why)
        holders: dict[tuple[str, str], int] = {}
        for task_id in self._slotted:
            row = self.tasks[task_id].row
            slot = (row["tenant"], row["slot"])
            if slot in holders:
                fail("slot-exclusive", f"tasks {holders[slot]} and {task_id} both have slot {slot}")
            if self.slots.get(slot) != task_id:
                fail("slot-exclusive", f"task {task_id} has not ended, its slot {slot} is {self.slots.get(slot)}'s")
            holders[slot] = task_id
        for task_id, task in self._running.items():
            if self.gates.workers[task.worker_id][0] == WorkerStatus.DEAD:
                fail("no-orphans", f"task {task_id} runs on {task.worker_id}, which is dead")

    def _task(self, task_id: int) -> AuditedTask:
        task = self.tasks.get(task_id)
        if task is None:
            fail("legal", f"{self._at} is of task {task_id}, which there is not")
        assert task is not None
        return task

    def _expect(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            fail(name, f"{self._at}: {what}")

    # ---- tasks

    def _submitted(self, row: dict[str, Any]) -> None:
        task_id, payload = row["task_id"], row["payload"]
        self._expect("legal", task_id == self.revision, f"task {task_id} has another id than its revision")
        sent = self._witness.sent.get(payload)
        self._expect("no-phantom", sent is not None, f"nobody sent {payload!r}")
        assert sent is not None
        self._expect("no-phantom", payload not in self.ids, f"{payload!r} is task {self.ids.get(payload)} already")
        self._expect("no-phantom", not sent.is_denied, f"{payload!r} was refused, its client was told")
        spec, now_ms = sent.spec, self.logged_ms
        expected = (
            sent.tenant, spec.type, spec.at_most_once, spec.slot, spec.key, sent.transaction, spec.code, spec.mode,
            spec.group or 0, PRIORITY_OF_TENANT if spec.priority is None else spec.priority, spec.resources,
            now_ms + spec.delay_ms if spec.delay_ms else spec.start_ms,
            now_ms + spec.ttl_ms if spec.ttl_ms else spec.deadline_ms,
            spec.timeout_ms, spec.heartbeat_ms, spec.retry,
        )  # fmt: skip
        found = (
            row["tenant"], row["type"], row["at_most_once"], row["slot"], row["key"], row["transaction"], row["code"],
            row["mode"], row["group"], row["priority"], amounts_of(row["resources"]), row["start_ms"],
            row["deadline_ms"], row["timeout_ms"], row["heartbeat_ms"], row["retry"],
        )  # fmt: skip
        self._expect("no-phantom", found == expected, f"task {task_id} is {found}, sent was {expected}")
        self._expect("time-is-data", row["created_ms"] == now_ms, f"task {task_id} was made at {row['created_ms']}")
        transaction = row["transaction"]
        status = TaskStatus.DELAYED if row["start_ms"] > now_ms else TaskStatus.WAITING
        if transaction:
            self._expect("legal", self.transactions.get(transaction) == 1, f"transaction {transaction} is not open")
            status = TaskStatus.PREPARED
        self.ids[payload] = task_id
        self.tasks[task_id] = AuditedTask(row, status)
        self.locks.submitted(row)
        if row["slot"]:
            self._slotted[task_id] = None
        self.counts["submitted"] += 1

    def _changed(self, row: dict[str, Any]) -> None:
        task = self._task(row["task_id"])
        if task.status in {TaskStatus.FINISHED, TaskStatus.CANCELLED}:
            self._spent(task, row)
            return
        # A dead letter that is replayed loses the deadline that has passed, in the record before.
        is_open = task.status not in ENDED or (task.status == TaskStatus.ERROR and not row["deadline_ms"])
        self._expect("legal", is_open, f"task {row['task_id']} has ended")
        self._expect("legal", row["payload"] == task.row["payload"], "a payload is changed")
        self.locks.weigh("tasks", row)
        task.row = row

    def _spent(self, task: AuditedTask, row: dict[str, Any]) -> None:
        """Judge a payload that leaves: once, nothing else is changed, and the task cannot run again."""
        task_id = row["task_id"]
        self._expect("legal", bool(task.row["payload"]), f"task {task_id} has ended, its payload has gone before")
        self._expect("legal", row == {**task.row, "payload": b""}, f"task {task_id} has ended, more is changed")
        self.locks.weigh("tasks", row)
        task.row = row
        self.counts["payloads_gone"] += 1

    def _removed(self, row: dict[str, Any]) -> None:
        task_id = row["task_id"]
        task = self._task(task_id)
        if task.status == TaskStatus.PREPARED:
            is_over = self.transactions[task.row["transaction"]] != 0
            self._expect("at-least-once", is_over, f"task {task_id} is removed, its transaction was committed")
        else:
            self._expect("at-least-once", task.status in ENDED, f"task {task_id} is removed, it has not ended")
            self.counts["purged"] += 1
        del self.tasks[task_id]
        self.locks.removed(task_id)
        self._slotted.pop(task_id, None)

    def _assigned(self, row: dict[str, Any]) -> None:
        task_id, worker_id = row["task_id"], row["worker_id"]
        task = self._task(task_id)
        self._expect(
            "legal", task.status == TaskStatus.WAITING, f"task {task_id} is assigned, its status {task.status}"
        )
        self._expect("legal", row["attempts"] == task.attempts + 1, f"task {task_id}: attempt {row['attempts']}")
        self._expect(
            "time-is-data", row["assigned_ms"] == self.logged_ms, f"task {task_id} was assigned at another time"
        )
        deadline_ms = task.row["deadline_ms"]
        self._expect(
            "time-is-data", not deadline_ms or self.logged_ms <= deadline_ms, f"task {task_id} is assigned too late"
        )
        fault = self.gates.fault(task, worker_id)
        if fault is not None:
            fail(fault[0], f"{self._at}: task {task_id} is assigned: {fault[1]}")
        self.locks.weigh("states", row)
        task.held = amounts_of(task.row["resources"])
        task.status, task.attempts = TaskStatus.RUNNING, row["attempts"]
        task.worker_id, task.assignment_id = worker_id, self.revision
        self._running[task_id] = task
        self.assignments[self.revision] = (task_id, worker_id)
        self.counts["assigned"] += 1

    def _stop(self, task_id: int, task: AuditedTask, error: str) -> None:
        if task.status == TaskStatus.RUNNING:
            if "came back without it" in error:
                self._lost.setdefault(task.worker_id, []).append((task_id, task.assignment_id))
            del self._running[task_id]
            self.over[task.assignment_id] = None

    def _ended(self, row: dict[str, Any]) -> None:
        task_id, status = row["task_id"], row["status"]
        task = self._task(task_id)
        was_running = task.status == TaskStatus.RUNNING
        self._expect(
            "legal", task.status not in ENDED and status in ENDED, f"task {task_id}: {task.status} to {status}"
        )
        self._expect("time-is-data", row["ended_ms"] == self.logged_ms, f"task {task_id} ended at {row['ended_ms']}")
        if status == TaskStatus.FINISHED:
            said = self._witness.ends.get(row["assignment_id"])
            self._expect(
                "legal", was_running and row["assignment_id"] == task.assignment_id, "another run has finished"
            )
            is_so = said is not None and said.status == status and said.result == row["result"]
            self._expect("at-least-once", is_so, f"task {task_id} is said to have finished, its run: {said}")
        if row["outcome"] == Outcome.DEADLINE_EXPIRED:
            deadline_ms = task.row["deadline_ms"]
            is_due = task.is_expired or 0 < deadline_ms <= self.logged_ms
            self._expect("time-is-data", is_due, f"task {task_id} has expired, its deadline is {deadline_ms}")
        self.locks.weigh("states", row)
        self._stop(task_id, task, row["error"])
        task.status, task.ended_ms, task.outcome = status, self.logged_ms, row["outcome"]
        self._slotted.pop(task_id, None)
        self.counts[f"ended {TaskStatus(status).name.lower()} {row['outcome']}".rstrip()] += 1
        self.counts["ended"] += 1

    def _requeued(self, row: dict[str, Any]) -> None:
        task_id, status = row["task_id"], row["status"]
        task = self._task(task_id)
        is_again = status in (TaskStatus.WAITING, TaskStatus.DELAYED)
        self._expect("legal", is_again, f"task {task_id} is queued again with status {status}")
        if task.status == TaskStatus.RUNNING:
            was_started = self._witness.was_started(task.assignment_id)
            if task.row["at_most_once"] and was_started:
                fail("at-most-once", f"{self._at}: task {task_id} waits again, its run was started")
            self.counts["requeued" if was_started else "given back"] += 1
        elif task.status == TaskStatus.DELAYED:
            self._expect("time-is-data", task.due_ms <= self.logged_ms, f"task {task_id} waits before {task.due_ms}")
        elif task.status == TaskStatus.ERROR:
            self.replays[task_id] = self.replays.get(task_id, 0) + 1
            self.counts["replayed"] += 1
            if task.row["slot"]:
                self._slotted[task_id] = None
        else:
            fail("legal", f"{self._at}: task {task_id} is queued again, its status is {task.status}")
        self.locks.weigh("states", row)
        self._stop(task_id, task, row["error"])
        task.status, task.attempts, task.due_ms, task.is_expired = status, row["attempts"], row["due_ms"], False

    def _cancel_asked(self, row: dict[str, Any]) -> None:
        task = self._task(row["task_id"])
        self._expect("legal", task.status == TaskStatus.RUNNING, f"task {row['task_id']} does not run")
        self.locks.weigh("states", row)
        if row["outcome"] == Outcome.DEADLINE_EXPIRED:
            is_due = 0 < task.row["deadline_ms"] <= self.logged_ms
            self._expect(
                "time-is-data", is_due, f"task {row['task_id']} expires, its deadline is {task.row['deadline_ms']}"
            )
            task.is_expired = True  # Whatever its deadline is changed to later.
        self.counts["cancels asked"] += 1

    def _late_end(self, row: dict[str, Any]) -> None:
        self.over[row["assignment_id"]] = None
        self.counts["late ends"] += 1

    # ---- slots, transactions

    def _slot_taken(self, row: dict[str, Any]) -> None:
        slot = (row["tenant"], row["slot"])
        holder = self.slots.get(slot)
        if holder is not None and holder in self._slotted and holder != row["task_id"]:
            fail("slot-exclusive", f"{self._at}: {slot} is {holder}'s, and taken by {row['task_id']}")
        self.slots[slot] = row["task_id"]
        self.counts["slots taken"] += 1

    def _slot_released(self, row: dict[str, Any]) -> None:
        slot = (row["tenant"], row["slot"])
        holder = self.slots.pop(slot, None)
        task = self.tasks.get(holder or 0)
        if task is not None and holder in self._slotted:
            is_going = task.status == TaskStatus.PREPARED
            self._expect("slot-exclusive", is_going, f"{slot} is released, task {holder} has not ended")
            del self._slotted[holder]

    def _begun(self, row: dict[str, Any]) -> None:
        self.transactions[row["transaction"]] = 1

    def _committed(self, row: dict[str, Any]) -> None:
        transaction = row["transaction"]
        self._expect("legal", self.transactions.get(transaction) == 1, f"transaction {transaction} is not open")
        self.transactions[transaction] = 0
        for task in self.tasks.values():
            if task.status == TaskStatus.PREPARED and task.row["transaction"] == transaction:
                is_delayed = task.row["start_ms"] > task.row["created_ms"]
                task.status = TaskStatus.DELAYED if is_delayed else TaskStatus.WAITING
        self.counts["committed"] += 1

    def _rolled_back(self, row: dict[str, Any]) -> None:
        transaction = row["transaction"]
        self._expect("legal", self.transactions.get(transaction) == 1, f"transaction {transaction} is not open")
        self.transactions[transaction] = _OVER
        left = [one for one, task in self.tasks.items() if task.row["transaction"] == transaction]
        self._expect("no-orphans", not left, f"transaction {transaction} is rolled back, tasks {left} are left")
        self.counts["rolled back"] += 1

    # ---- workers, policies

    def _worker(self, row: dict[str, Any]) -> None:
        worker_id, incarnation = row["worker_id"], row["incarnation"]
        before = self.gates.workers.get(worker_id)
        if row["status"] == WorkerStatus.DEAD:
            waited_ms = self.logged_ms - self.promoted_ms
            is_alive = self._witness.is_alive(worker_id, incarnation)
            is_early = is_alive and waited_ms < self._witness.lease_ms - _LEASE_SLACK_MS
            if is_early:
                self._early[worker_id] = f"{worker_id} is dead, {waited_ms} ms after the promotion"
        elif before is not None and before[0] != WorkerStatus.DEAD and before[2] == incarnation:
            for task_id, assignment_id in self._lost.get(worker_id, ()):
                was_started = self._witness.was_started(assignment_id)
                self._expect("given-back", was_started, f"task {task_id} is lost, it never came to {worker_id}")
        if row["status"] != WorkerStatus.DEAD:
            self._early.pop(worker_id, None)  # Another process took its place, or one that was thought to.
        self._lost.pop(worker_id, None)
        self.gates.set_worker(row)
        self.counts["workers died"] += row["status"] == WorkerStatus.DEAD

    def _hold_set(self, row: dict[str, Any]) -> None:
        self.locks.set_hold(row)
        self.gates.set_hold(row)

    def _hold_ended(self, row: dict[str, Any]) -> None:
        self.locks.end_hold(row)
        self.gates.end_hold(row)

    def _forget_worker(self, row: dict[str, Any]) -> None:
        worker_id, workers = row["worker_id"], self.gates.workers
        self._expect("legal", workers[worker_id][0] == WorkerStatus.DEAD, f"{worker_id} is removed alive")
        del workers[worker_id]
