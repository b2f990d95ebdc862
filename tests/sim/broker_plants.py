"""Bugs to plant into brokers and workers: each a function that patches one rule away."""

# Longer than 400 lines: one list, of which each bug is a few lines.

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from broker.machine import completion as ending
from broker.machine import payload_release as spending
from broker.machine import rebuilding, runs, submitting, timing
from broker.machine import worker_changes as fleet
from broker.machine.commands import SubmitTasks, TaskSpec
from broker.machine.holds import Author
from broker.machine.index.purging import KeptRequests
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.machine import BrokerMachine
from broker.machine.scheduling.dispatching import Dispatcher
from broker.machine.scheduling.model import TaskClass
from broker.machine.scheduling.scheduler import Scheduler
from broker.machine.scheduling.scheduler_state import SchedulerState
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, TaskStatus
from broker.machine.tables import RecordType, Table
from broker.machine.worker_messages import FromBroker
from broker.server.worker_registry import WorkerRegistry
from broker.worker.core.protocol import LinkState, WorkerProtocol
from rsm_spark.core.machine import Row
from tests.broker_sim.disk_snapshot import DiskSnapshot
from tests.broker_sim.sim_broker import SimBroker
from tests.broker_sim.sim_client import SimClient

__all__ = [
    "acknowledges_ends_before_they_are_confirmed",
    "asks_the_wall_clock_in_apply",
    "believes_a_hello_that_comes_late",
    "blocked_task_uses_up_the_place_of_its_type",
    "counts_what_was_never_delivered_as_lost",
    "does_not_count_what_runs_at_a_rebuild",
    "fires_deadlines_by_another_clock",
    "forgets_a_workers_tenants_when_it_offers_something_else",
    "forgets_holds_at_restore",
    "forgets_request_keys_at_once",
    "gives_leases_no_new_time_at_promotion",
    "gives_the_tasks_of_a_batch_what_the_first_one_asks_for",
    "gives_workers_the_tasks_of_whoever_is_first",
    "heeds_streams_that_were_given_up_and_lower_epochs",
    "leaves_code_pools_out_of_snapshots",
    "leaves_modes_out_of_snapshots",
    "leaves_quotas_unchecked_after_a_failover",
    "lets_payloads_of_dead_letters_go",
    "lets_tenants_lift_an_operators_hold",
    "lets_workers_wait_for_tenants_for_ever",
    "logs_tasks_of_transactions_that_are_over",
    "matches_results_by_epoch",
    "matches_results_by_task_alone",
    "names_a_later_position_in_snapshots",
    "purges_before_the_end_is_known",
    "releases_resources_twice",
    "releases_slots_when_it_tries_again",
    "repeats_batches_that_have_no_key",
    "runs_again_what_was_delivered_and_is_lost",
    "sends_assignments_before_they_are_confirmed",
    "wakes_only_the_first_that_is_blocked",
]


def lets_payloads_of_dead_letters_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spending, "_SPENT", ENDED)


def lets_tenants_lift_an_operators_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Author, "may_lift", lambda _self, _other: True)


def leaves_quotas_unchecked_after_a_failover(patch: pytest.MonkeyPatch) -> None:
    original = rebuilding.rebuild

    def rebuild(state: BrokerState) -> None:
        original(state)
        for tenant in state.tasks.tenants.values():
            tenant.bytes = 0

    patch.setattr("broker.machine.machine.rebuild", rebuild)
    _unchecked(patch)


def forgets_a_workers_tenants_when_it_offers_something_else(patch: pytest.MonkeyPatch) -> None:
    original = WorkerRegistry.on_said

    def on_said(self: WorkerRegistry, link: Any, said: Any) -> None:
        fit = self._by_link.get(link)
        if fit is not None and said.offer is not None:
            fit.tenants = None
        original(self, link, said)

    patch.setattr(WorkerRegistry, "on_said", on_said)


def gives_workers_the_tasks_of_whoever_is_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_top_of", lambda self, _tenants, task_class, *_: self._top(task_class))
    _unchecked(patch)


def lets_workers_wait_for_tenants_for_ever(patch: pytest.MonkeyPatch) -> None:
    original = TaskClass.bench

    def bench(self: TaskClass, worker: Any, _tenants: Any) -> None:
        original(self, worker, ())

    patch.setattr(TaskClass, "bench", bench)
    _unchecked(patch)


def _unchecked(patch: pytest.MonkeyPatch) -> None:
    """Have the machine not check itself: the bug is to be found from outside."""
    patch.setattr(BrokerMachine, "validate", lambda _self: None)


# ---- assignments: the paused leader delivers late


def sends_assignments_before_they_are_confirmed(patch: pytest.MonkeyPatch) -> None:
    original = SimBroker._send

    def send(self: SimBroker, batch: Any) -> None:
        original(self, batch)
        self.registry.deliver(self.machine.outbox.take(self.state.revision))

    patch.setattr(SimBroker, "_send", send)


def heeds_streams_that_were_given_up_and_lower_epochs(patch: pytest.MonkeyPatch) -> None:
    original = WorkerProtocol.received

    def received(self: WorkerProtocol, stream_id: int, message: FromBroker, now_ms: int) -> Any:
        is_old = stream_id != self._stream_id or message.leader_epoch < self.leader_epoch
        if message.assignments and is_old and self.state is not LinkState.LEFT:
            return self._heed(message)
        return original(self, stream_id, message, now_ms)

    patch.setattr(WorkerProtocol, "received", received)


def believes_a_hello_that_comes_late(patch: pytest.MonkeyPatch) -> None:
    original = WorkerRegistry.on_hello

    def on_hello(self: WorkerRegistry, link: Any, hello: Any, tenants: Any = None) -> None:
        original(self, link, msgspec.structs.replace(hello, stream=0), tenants)

    patch.setattr(WorkerRegistry, "on_hello", on_hello)


def counts_what_was_never_delivered_as_lost(patch: pytest.MonkeyPatch) -> None:
    def undelivered(state: BrokerState, task: TaskState, now_ms: int) -> Any:
        return ending.lost(state, task, now_ms, "worker_died", "worker came back without it")

    patch.setattr(fleet, "undelivered", undelivered)


def runs_again_what_was_delivered_and_is_lost(patch: pytest.MonkeyPatch) -> None:
    def lost(_state: BrokerState, task: TaskState, now_ms: int, outcome: str, error: str) -> Any:
        return ending.requeued(task, now_ms, attempts=task.attempts, outcome=outcome, error=error)

    patch.setattr(fleet, "lost", lost)
    patch.setattr(timing, "lost", lost)


def gives_leases_no_new_time_at_promotion(patch: pytest.MonkeyPatch) -> None:
    original = WorkerRegistry.begin

    def begin(self: WorkerRegistry, known: Iterable[tuple[str, str, bool]]) -> None:
        original(self, known)
        self._leases = OrderedDict.fromkeys(self._leases, 0.0)

    patch.setattr(WorkerRegistry, "begin", begin)


# ---- results that are told to the next leader


def matches_results_by_epoch(patch: pytest.MonkeyPatch) -> None:
    original, lead = runs.is_current, SimBroker.lead
    began: dict[int, int] = {}

    def led(self: SimBroker) -> None:
        began[id(self.machine)] = self.state.revision
        lead(self)

    def is_current(state: BrokerState, worker_id: str, task_id: int, assignment_id: int) -> TaskState | None:
        if assignment_id <= began.get(id(state), 0):
            return None
        return original(state, worker_id, task_id, assignment_id)

    patch.setattr(SimBroker, "lead", led)
    patch.setattr(runs, "is_current", is_current)


def matches_results_by_task_alone(patch: pytest.MonkeyPatch) -> None:
    def is_current(state: BrokerState, _worker_id: str, task_id: int, _assignment_id: int) -> TaskState | None:
        task = state.tasks.by_id.get(task_id)
        return task if task is not None and task.status == TaskStatus.RUNNING else None

    patch.setattr(runs, "is_current", is_current)


def acknowledges_ends_before_they_are_confirmed(patch: pytest.MonkeyPatch) -> None:
    original = WorkerRegistry.on_said

    def on_said(self: WorkerRegistry, link: Any, said: Any) -> None:
        original(self, link, said)
        if said.ended:
            link.acknowledge([end.assignment_id for end in said.ended])

    patch.setattr(WorkerRegistry, "on_said", on_said)


# ---- batches, keys, transactions


def repeats_batches_that_have_no_key(patch: pytest.MonkeyPatch) -> None:
    original = SimClient._ask

    def ask(self: SimClient, command: Any, on_reply: Any, *, is_repeatable: bool = False) -> None:
        is_submit = isinstance(command, SubmitTasks)
        original(self, command, on_reply, is_repeatable=is_repeatable or is_submit)

    patch.setattr(SimClient, "_ask", ask)


def forgets_request_keys_at_once(patch: pytest.MonkeyPatch) -> None:
    original = KeptRequests.__init__

    def init(self: KeptRequests, _retention_ms: int, *rest: Any) -> None:
        original(self, 1, *rest)

    patch.setattr(KeptRequests, "__init__", init)


def gives_the_tasks_of_a_batch_what_the_first_one_asks_for(patch: pytest.MonkeyPatch) -> None:
    original = submitting._records

    def records(state: BrokerState, command: SubmitTasks, revision: int, now_ms: int) -> Any:
        first = command.tasks[0]
        names = ("at_most_once", "start_ms", "delay_ms", "code", "mode")
        alike = {name: getattr(first, name) for name in names}
        tasks: list[TaskSpec] = [msgspec.structs.replace(spec, **alike) for spec in command.tasks]
        return original(state, msgspec.structs.replace(command, tasks=tasks), revision, now_ms)

    patch.setattr(submitting, "_records", records)


def logs_tasks_of_transactions_that_are_over(patch: pytest.MonkeyPatch) -> None:
    original = submitting._check_whole

    def check(state: BrokerState, command: SubmitTasks, size: int) -> None:
        original(state, msgspec.structs.replace(command, transaction=0), size)

    patch.setattr(submitting, "_check_whole", check)


# ---- dispatch


def blocked_task_uses_up_the_place_of_its_type(patch: pytest.MonkeyPatch) -> None:
    original = Dispatcher._pair

    def pair(self: Dispatcher, task_class: Any) -> Any:
        for tenant in self._state.tenants.values():
            for queue in tenant.queues.values():
                if queue.blocked_on is not None and queue.count and queue.task_class.type is task_class.type:
                    self._state.active.pop(task_class, None)
                    return None
        return original(self, task_class)

    patch.setattr(Dispatcher, "_pair", pair)
    _unchecked(patch)


def wakes_only_the_first_that_is_blocked(patch: pytest.MonkeyPatch) -> None:
    original = SchedulerState.wake

    def wake(self: SchedulerState, limit: Any) -> None:
        rest = dict(itertools.islice(limit.blocked.items(), 1, None))
        limit.blocked = dict(itertools.islice(limit.blocked.items(), 1))
        original(self, limit)
        limit.blocked.update(rest)

    patch.setattr(SchedulerState, "wake", wake)
    _unchecked(patch)


def releases_resources_twice(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler.end

    def end(self: Scheduler, task_id: int, now_ms: int) -> None:
        queue = self._state.running[task_id].queue
        original(self, task_id, now_ms)
        for limit, amount in (*queue.uses, *queue.task_class.uses):
            if limit.kind == "resource":
                limit.used = max(0, limit.used - amount)

    patch.setattr(Scheduler, "end", end)
    _unchecked(patch)


def does_not_count_what_runs_at_a_rebuild(patch: pytest.MonkeyPatch) -> None:
    original = Scheduler.resume

    def resume(self: Scheduler, demand: Any, worker_id: str, since_ms: int) -> None:
        original(self, demand, worker_id, since_ms)
        running = self._state.running[demand.task_id]
        for limit, amount in (*running.queue.uses, *running.queue.task_class.uses):
            limit.used -= amount

    patch.setattr(Scheduler, "resume", resume)
    _unchecked(patch)


# ---- slots, time, what is kept


def releases_slots_when_it_tries_again(patch: pytest.MonkeyPatch) -> None:
    original = ending.failed

    def failed(state: BrokerState, task: TaskState, now_ms: int, outcome: str, error: str) -> Any:
        records = original(state, task, now_ms, outcome, error)
        if task.flags & TaskFlag.SLOT and records[0][0] == RecordType.TASK_REQUEUED:
            slot = state.task_row(task.task_id).slot
            records.append((RecordType.SLOT_RELEASED, (task.tenant.name, slot)))
        return records

    patch.setattr(runs, "failed", failed)


def fires_deadlines_by_another_clock(patch: pytest.MonkeyPatch) -> None:
    original = timing._timed

    def timed(state: BrokerState, now_ms: int, promoted_ms: int) -> Iterator[Any]:
        for record_type, fields in original(state, now_ms + 2_000, promoted_ms):
            if record_type == RecordType.TASK_ENDED:
                yield record_type, (*fields[:6], now_ms, *fields[7:])
            else:
                yield record_type, fields

    patch.setattr(timing, "_timed", timed)


def purges_before_the_end_is_known(patch: pytest.MonkeyPatch) -> None:
    original = timing._purge

    def purge(state: BrokerState, now_ms: int) -> Iterator[Any]:
        yield from original(state, now_ms)
        for task in list(state.tasks.by_id.values()):
            if task.status == TaskStatus.RUNNING and now_ms - task.at_ms > state.rules.retention_ms:
                yield RecordType.TASK_REMOVED, (task.task_id,)

    patch.setattr(timing, "_purge", purge)


def asks_the_wall_clock_in_apply(patch: pytest.MonkeyPatch) -> None:
    original, ticks = BrokerMachine.apply, itertools.count(1)

    def apply(self: BrokerMachine, record_type: int, fields: tuple[Any, ...], revision: int) -> Any:
        if record_type == RecordType.TASK_SUBMITTED:
            fields = (*fields[:4], fields[4] + next(ticks) % 7, *fields[5:])
        return original(self, record_type, fields, revision)

    patch.setattr(BrokerMachine, "apply", apply)


# ---- snapshots


def _rows(patch: pytest.MonkeyPatch, edit: Any) -> None:
    original = BrokerMachine.rows

    def rows(self: BrokerMachine) -> Iterator[Row]:
        return (kept for row in original(self) if (kept := edit(row)) is not None)

    patch.setattr(BrokerMachine, "rows", rows)


def leaves_code_pools_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    _rows(patch, lambda row: None if row.table == Table.CODE else row)


def leaves_modes_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    def edit(row: Row) -> Row:
        if row.table != Table.TASKS:
            return row
        columns = list(msgspec.msgpack.decode(row.row))
        columns[16] = ""
        return row._replace(row=msgspec.msgpack.encode(columns))

    _rows(patch, edit)


def names_a_later_position_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    original = DiskSnapshot.__init__
    earlier: dict[int, list[Row]] = {}

    def init(self: Any, state: Any, applied: int) -> None:
        original(self, state, applied)
        rows, earlier[id(state)] = self.rows, list(self.rows)
        self.rows = earlier.get(-id(state), rows)
        earlier[-id(state)] = rows

    patch.setattr(DiskSnapshot, "__init__", init)


def forgets_holds_at_restore(patch: pytest.MonkeyPatch) -> None:
    original = rebuilding._rebuild_policies

    def rebuild(state: BrokerState) -> None:
        original(state)
        for hold in list(state.holds.ends):
            state.scheduler.set_hold(*hold, is_paused=False)

    patch.setattr(rebuilding, "_rebuild_policies", rebuild)
    _unchecked(patch)
