"""The broker's state: its tables, and beside them the index that is kept by `apply` on every replica.

    tables     what snapshots hold and digests cover
    index      tasks by status, tenant, worker; timers; the scheduler; all of it rebuilt from the tables by `restore`

Nothing here decides: see `broker.core.machine`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from broker.core.folding import FOLDS
from broker.core.mapping import Mapper
from broker.core.outbox import Outbox, OutboxKind
from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.purging import EndedTasks, KeptRequests
from broker.core.rebuilding import check_index, rebuild
from broker.core.resources import resources_of
from broker.core.rows import ProgressRow, StateRow, TaskRow, WorkerRow
from broker.core.rules import BrokerRules
from broker.core.scheduling import Demand, Scheduler
from broker.core.statuses import TaskStatus
from broker.core.tables import BROKER_DESCRIPTION, PRIORITY_OF_TENANT, RecordType, Table
from broker.core.tasks import Task, TaskIndex
from broker.core.timers import PlanKind, Timers
from broker.core.worker_messages import AssignedRun
from rsm_spark.core.machine import Fold, Row, RowChange
from rsm_spark.core.records import pack
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.errors import CorruptLogError

__all__ = ["BrokerState"]

_DEFAULT_POLICY = TenantPolicy()
_FILED_AT_ONCE = 10_000
_TASK_ROW = msgspec.msgpack.Decoder(TaskRow)
_STATE_ROW = msgspec.msgpack.Decoder(StateRow)
_ID = msgspec.msgpack.Decoder(tuple[int])
_PROGRESS_ROW = msgspec.msgpack.Decoder(ProgressRow)
_KEY_WIDTHS = {record.type: len(record.key) for record in BROKER_DESCRIPTION.records}
assert all(
    (*record.key, *record.row) == tuple(field.name for field in record.fields)
    for record in BROKER_DESCRIPTION.records
    if record.fold is Fold.UPSERT
)


class BrokerState(TableMachine):
    """Tables and index.

    Args:
        rules: Of this broker.
        mapper: A user's function that sets properties of tasks at submit.

    Attributes:
        index: Of tasks.
        timers: What time makes due, but for what is only kept for a while.
        scheduler: Who runs what.
        ended: Ended tasks, to be removed in time.
        requests: Replies to request keys, to be forgotten in time.
        workers: Rows of workers, by id.
        offers: What workers offer, by id.
        policies: Of tenants of whom something was said.
        holds: When holds end by themselves, 0 = they do not, by (tenant, type, key).
        draining: Those holds that refuse tasks.
        code_ends: When code pools may go, 0 = never, by code.
        code_use: Tasks that need a code pool and have not ended, by code.
        outbox: What must leave to workers.
        logged_ms: Highest time in a record applied.
        promoted_ms: Logged time at which this replica last began to lead; no state, as `awaited`.
        awaited: Workers of whom that leader has not looked yet whether they came to it.

    """

    description = BROKER_DESCRIPTION

    def __init__(self, rules: BrokerRules, mapper: Mapper | None = None) -> None:
        super().__init__()
        self.rules = rules
        self.mapper = mapper
        self.outbox = Outbox()
        self._clear()

    def _clear(self) -> None:
        self.index = TaskIndex()
        self.timers = Timers()
        self.scheduler = Scheduler()
        self.ended = EndedTasks(self.index, self.retention_ms, self.rules.ended_max)
        self.requests = KeptRequests(self.rules.request_retention_ms, self.rules.requests_max)
        self.workers: dict[str, WorkerRow] = {}
        self.offers: dict[str, WorkerOffer] = {}
        self.policies: dict[str, TenantPolicy] = {}
        self.holds: dict[tuple[str, str, str], int] = {}
        self.draining: dict[tuple[str, str, str], None] = {}
        self.code_ends: dict[str, int] = {}
        self.code_use: dict[str, int] = {}
        self.logged_ms = 0
        self.promoted_ms = 0
        self.awaited: deque[str] = deque()
        self._to_file: deque[int] = deque()
        self._unfiled: set[int] = set()  # What of it is still to be done.

    # ---- reading

    def policy(self, tenant: str) -> TenantPolicy:
        """Return the policy in force."""
        return self.policies.get(tenant, _DEFAULT_POLICY)

    def retention_ms(self, tenant: str, is_dead: bool) -> int:
        """Return how long ended tasks of a tenant are kept."""
        policy, rules = self.policy(tenant), self.rules
        if is_dead:
            return rules.dead_retention_ms if policy.dead_retention_ms is None else policy.dead_retention_ms
        return rules.retention_ms if policy.retention_ms is None else policy.retention_ms

    def was_replaced(self, worker_id: str, incarnation: str) -> bool:
        """Return whether another incarnation of a worker has taken the place of this one."""
        row = self.workers.get(worker_id)
        return row is not None and bool(row.replaced) and incarnation in row.replaced.split(",")

    def task_row(self, task_id: int) -> TaskRow:
        """Return the row of a task that there is."""
        return _TASK_ROW.decode(self._tables[Table.TASKS].entries[pack((task_id,))].row)

    def state_row(self, task_id: int) -> StateRow | None:
        """Return what became of a task, if anything."""
        found = self._tables[Table.STATES].entries.get(pack((task_id,)))
        return None if found is None else _STATE_ROW.decode(found.row)

    def progress_row(self, task_id: int) -> ProgressRow | None:
        """Return what a task's run said of itself last, if anything."""
        found = self._tables[Table.PROGRESS].entries.get(pack((task_id,)))
        return None if found is None else _PROGRESS_ROW.decode(found.row)

    def decode_task(self, row: bytes) -> TaskRow:
        """Return a row of `tasks` from its bytes."""
        return _TASK_ROW.decode(row)

    def has_row(self, table: str, task_id: int) -> bool:
        """Return whether a task has a row in a table."""
        entries = self._tables[table].entries
        return bool(entries) and pack((task_id,)) in entries

    def ids(self, table: str) -> Iterator[int]:
        """Iterate over the ids of a table whose key is a task's id."""
        return (_ID.decode(key)[0] for key in self._tables[table].entries)

    def fresh(self) -> BrokerState:
        """Return an empty state with the same rules."""
        return BrokerState(self.rules)

    def plan_code(self, code: str) -> None:
        """Have a code pool removed in time, once nothing needs it."""
        end_ms = self.code_ends.get(code, 0)
        if end_ms and code not in self.code_use:
            self.timers.plan(PlanKind.CODE, code, end_ms)
        else:
            self.timers.forget(PlanKind.CODE, code)

    def is_given_up(self, transaction: int) -> bool:
        """Return whether a transaction is over, and its tasks are on their way out."""
        found = self.get(Table.TRANSACTIONS, transaction) if transaction in self.index.by_transaction else None
        return found is not None and not found[2]

    def assignment_of(self, task_id: int) -> int:
        """Return the id of a task's present assignment; 0 if it does not run."""
        task = self.index.tasks.get(task_id)
        return task.assignment_id if task is not None and task.worker_id else 0

    def assigned_run(self, task_id: int, assignment_id: int, now_ms: int) -> AssignedRun | None:
        """Return what a worker is told of an assignment; None if it is not the task's present one."""
        if self.assignment_of(task_id) != assignment_id:
            return None
        row = self.task_row(task_id)
        return AssignedRun(
            task_id,
            assignment_id,
            row.tenant,
            row.type,
            row.payload_bytes(),
            self.index.tasks[task_id].attempts,
            row.timeout_ms,
            max(1, row.deadline_ms - now_ms) if row.deadline_ms else 0,
            row.heartbeat_ms,
            row.code,
            row.mode,
            row.slot,
            row.key,
            dict(resources_of(row.resources)),
        )

    def demand(self, task: Task, row: TaskRow | None = None) -> Demand:
        """Return what a task asks for."""
        row = row or self.task_row(task.task_id)
        group, priority = row.group, row.priority
        if not group or priority == PRIORITY_OF_TENANT:
            policy = self.policy(row.tenant)
            group = group or policy.group
            priority = policy.priority if priority == PRIORITY_OF_TENANT else priority
        resources = resources_of(row.resources)
        return Demand(task.task_id, row.tenant, row.type, group, priority, resources, row.key, task.at_ms)

    # ---- tasks whose tenant's policy has changed

    def file_anew(self, task_ids: Iterable[int]) -> None:
        """Tell the scheduler what waiting tasks ask for now: at once of so many, of the others before they start."""
        ids = list(task_ids)
        self._to_file.extend(ids)
        self._unfiled.update(ids)
        self.file_some(_FILED_AT_ONCE)

    def file_first(self, task_id: int) -> bool:
        """Do so for a task that is about to start; return whether that was still to be done."""
        if task_id not in self._unfiled:
            return False
        self._unfiled.discard(task_id)
        self.scheduler.change(self.demand(self.index.tasks[task_id]))
        return True

    def file_some(self, count: int) -> bool:
        """Go on with that, with the first tasks first; return whether there was anything to do."""
        waiting, tasks = self._to_file, self.index.tasks
        if not waiting:
            return False
        unfiled = self._unfiled
        for _ in range(min(count, len(waiting))):
            task_id = waiting.popleft()
            if task_id in unfiled:
                unfiled.discard(task_id)
                task = tasks.get(task_id)
                if task is not None and task.status == TaskStatus.WAITING:
                    self.scheduler.change(self.demand(task))
        return True

    @property
    def is_filed(self) -> bool:
        """Whether the scheduler knows what every waiting task asks for now."""
        return not self._to_file

    # ---- folding

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record into its table, and into the index.

        Raises:
            CorruptLogError: The record is none of the description, or names what there is not.

        """
        # `TableMachine.apply`, spelled out: of every record here the key comes first, then the row.
        plan = self._plans.get(record_type)
        if plan is None or tuple(map(type, fields)) != plan.types or plan.rows is None:
            super().apply(record_type, fields, revision)
            if record_type == RecordType.RUN_DISOWNED:
                task_id, assignment_id, worker_id = fields
                self.outbox.add(revision, OutboxKind.CANCEL, worker_id, task_id, assignment_id)
            return None
        width = _KEY_WIDTHS[record_type]
        key = pack(fields[:width])
        if plan.row is None:
            change = RowChange(plan.table, key, plan.rows.remove(key), None)
        else:
            row = pack(fields[width:])
            change = RowChange(plan.table, key, plan.rows.put(key, row, revision), row)
        try:
            FOLDS[record_type](self, fields, revision, change)
        except (KeyError, AssertionError) as error:
            raise CorruptLogError(
                f"revision {revision}: record type {record_type} of the broker contradicts its state: "
                f"{type(error).__name__} {error}"
            ) from error
        return change

    # ---- snapshots

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace tables and index.

        Raises:
            CorruptSnapshotError: A row is none of the tables; the state is then empty.

        """
        self._clear()
        self.outbox.close()
        super().restore(rows)
        rebuild(self)

    def validate(self) -> None:
        """Check that the index says what the tables say; slow, for tests."""
        check_index(self)
