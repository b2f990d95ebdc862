"""The broker's state: its tables, and beside them the index, kept by folding records on every replica.

    tables     what snapshots hold and digests cover
    index      objects that each keep their own invariants, rebuilt from the tables: see `broker.machine.index`

Nothing here decides or folds: see `broker.machine.machine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.machine.index.admin import CodeIndex, HoldIndex, PolicyIndex
from broker.machine.index.demands import DemandBacklog
from broker.machine.index.purging import ByteBounds, EndedTasks, KeptRequests
from broker.machine.index.tasks import TaskIndex, TaskState
from broker.machine.index.timers import Timers
from broker.machine.index.workers import WorkerIndex
from broker.machine.mapping import Mapper
from broker.machine.outbox import Outbox
from broker.machine.resources import resources_of
from broker.machine.rows import KeptState, KeptTask, ProgressRow, TaskRow, TransactionRow, unpacked
from broker.machine.rules import BrokerRules
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler
from broker.machine.tables import BROKER_DESCRIPTION, PRIORITY_OF_TENANT, Table
from broker.machine.worker_messages import AssignedRun
from rsm_spark.core.records import pack
from rsm_spark.core.table_machine import TableMachine

_TASK_ROW = msgspec.msgpack.Decoder(KeptTask)
_STATE_ROW = msgspec.msgpack.Decoder(KeptState)
_ID = msgspec.msgpack.Decoder(tuple[int])
_PROGRESS_ROW = msgspec.msgpack.Decoder(ProgressRow)
_RUN_COLUMNS = tuple(
    name
    for name in AssignedRun.__struct_fields__
    if name in TaskRow.__struct_fields__ and name not in {"payload", "resources"}
)
"""Columns of a task's row that its worker is told as they are."""


class BrokerState(TableMachine):
    """Tables and index.

    Args:
        rules: Of this broker.
        mapper: A user's function that sets properties of tasks at submit.

    Attributes:
        tasks: The index of tasks.
        timers: What time makes due, but for what is only kept for a while.
        scheduler: Who runs what.
        demands: What the scheduler is still to be told.
        policies: Of tenants.
        holds: What holds tasks back, or has them refused.
        codes: Code pools and their use.
        workers: The index of workers.
        ended: Ended tasks, to be removed in time.
        bounds: Ended tasks, to be removed beyond a quota.
        spent: Ended tasks whose payloads are to leave: see `broker.machine.payload_release`; no state.
        requests: Replies to request keys, to be forgotten in time.
        outbox: What must leave to workers.
        logged_ms: Highest time in a record applied.

    """

    description = BROKER_DESCRIPTION
    is_evolving = False  # What a version of the broker may log, the format level of the log says.
    heeds_levels = True

    def __init__(self, rules: BrokerRules, mapper: Mapper | None = None) -> None:
        super().__init__()
        self.rules = rules
        self.mapper = mapper
        self.outbox = Outbox()
        self._clear_index()

    def _clear_index(self) -> None:
        rules = self.rules
        self.tasks = TaskIndex()
        self.timers = Timers()
        self.scheduler = Scheduler()
        self.demands = DemandBacklog(self.tasks, self.scheduler, self.demand)
        self.policies = PolicyIndex(rules)
        self.holds = HoldIndex(self.timers)
        self.codes = CodeIndex(self.timers)
        self.workers = WorkerIndex(self.timers, rules.worker_retention_ms)
        self.ended = EndedTasks(self.tasks, self.policies.retention_ms, rules.ended_max)
        self.bounds = ByteBounds(self.tasks, self.ended, self.policies, rules.bytes_max)
        self.spent: dict[int, None] = {}
        self.requests = KeptRequests(rules.request_retention_ms, rules.requests_max)
        self.logged_ms = 0

    def validate_index(self) -> None:
        """Check the invariants of each part of the index; slow, for tests."""
        self.tasks.validate()
        self.timers.validate()
        self.scheduler.validate()
        self.demands.validate()
        self.holds.validate()
        self.codes.validate()
        self.workers.validate()
        self.ended.validate()
        self.requests.validate(self.count(Table.REQUESTS))

    # ---- rows

    def task_row(self, task_id: int) -> KeptTask:
        """Return what was submitted."""
        return _TASK_ROW.decode(self._tables[Table.TASKS].entries[pack((task_id,))].row)

    def state_row(self, task_id: int) -> KeptState | None:
        """Return what became of a task, if anything."""
        found = self._tables[Table.STATES].entries.get(pack((task_id,)))
        return None if found is None else _STATE_ROW.decode(found.row)

    def progress_row(self, task_id: int) -> ProgressRow | None:
        """Return what a task's run said of itself last, if anything."""
        found = self._tables[Table.PROGRESS].entries.get(pack((task_id,)))
        return None if found is None else _PROGRESS_ROW.decode(found.row)

    def transaction_row(self, transaction: int) -> TransactionRow | None:
        """Return a transaction that is not over, or is on its way out."""
        found = self.get(Table.TRANSACTIONS, transaction)
        return None if found is None else TransactionRow(*found)

    def decode_task(self, row: bytes) -> KeptTask:
        """Return a row of `tasks` from its bytes."""
        return _TASK_ROW.decode(row)

    def row_bytes(self, table: str, task_id: int) -> bytes | None:
        """Return a row as it is kept, or None if there is none."""
        found = self._tables[table].entries.get(pack((task_id,)))
        return None if found is None else found.row

    def has_row(self, table: str, task_id: int) -> bool:
        """Return whether a task has a row in a table."""
        entries = self._tables[table].entries
        return bool(entries) and pack((task_id,)) in entries

    def ids(self, table: str) -> Iterator[int]:
        """Iterate over the ids of a table whose key is a task's id."""
        return (_ID.decode(key)[0] for key in self._tables[table].entries)

    # ---- rows and index together

    def is_given_up(self, transaction: int) -> bool:
        """Return whether a transaction is over, and its tasks are on their way out."""
        found = self.transaction_row(transaction) if transaction in self.tasks.by_transaction else None
        return found is not None and not found.expires_ms

    def assignment_of(self, task_id: int) -> int:
        """Return the id of a task's present assignment; 0 if it does not run."""
        task = self.tasks.by_id.get(task_id)
        return task.assignment_id if task is not None and task.worker_id else 0

    def assigned_run(self, task_id: int, assignment_id: int, now_ms: int) -> AssignedRun | None:
        """Return what a worker is told of an assignment; None if it is not the task's present one."""
        if self.assignment_of(task_id) != assignment_id:
            return None
        row = self.task_row(task_id)
        columns: dict[str, Any] = {name: getattr(row, name) for name in _RUN_COLUMNS}
        return AssignedRun(
            task_id=task_id,
            assignment_id=assignment_id,
            payload=unpacked(row.payload),
            attempt=self.tasks.by_id[task_id].attempts,
            deadline_in_ms=max(1, row.deadline_ms - now_ms) if row.deadline_ms else 0,
            resources=dict(resources_of(row.resources)),
            **columns,
        )

    def demand(self, task: TaskState, row: KeptTask | None = None) -> Demand:
        """Return what a task asks for."""
        row = row or self.task_row(task.task_id)
        group, priority = row.group, row.priority
        if not group or priority == PRIORITY_OF_TENANT:
            policy = self.policies.of(row.tenant)
            group = group or policy.group
            priority = policy.priority if priority == PRIORITY_OF_TENANT else priority
        resources = resources_of(row.resources)
        return Demand(task.task_id, row.tenant, row.type, group, priority, resources, row.key, task.at_ms)
