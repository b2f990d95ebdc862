"""Spans of tasks, from their submit to their end: the leader tells each when its end is confirmed.

Nothing of a trace is kept meanwhile, neither in memory nor in the log: who leads when the task ends knows all of it.
"""

from __future__ import annotations

from broker.machine.machine import BrokerMachine
from broker.machine.rows import KeptTask
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType, Table
from broker.wire.task_context import task_context
from ledger.telemetry.tracing import SpanKind, Tracer, tracer
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import decode_records
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole

_NS_IN_MS = 1_000_000


class TaskTraces:
    """See the module.

    Args:
        replica: Of the broker.
        machine: Its state.
        log: Name of its log.

    """

    def __init__(self, replica: Replica, machine: BrokerMachine, log: str) -> None:
        self._replica = replica
        self._machine = machine
        self._log = log

    def on_entry(self, payload: bytes) -> None:
        """Look into a confirmed entry, while this process traces and leads."""
        found = tracer()
        if found is None or self._replica.role is not ReplicaRole.LEADER:
            return
        for record in decode_records(body_of(payload)):
            if record.type == RecordType.TASK_ENDED:
                self._tell(found, record.fields)

    def _tell(self, found: Tracer, fields: tuple[object, ...]) -> None:
        task_id, status, attempts, worker_id, _assignment_id, assigned_ms, ended_ms, *_, outcome, error, _result = (
            fields
        )
        assert isinstance(task_id, int)
        context = task_context(self._log, task_id, found.rate)
        if not context.is_sampled or not self._machine.has_row(Table.TASKS, task_id):
            return
        task = self._machine.task_row(task_id)
        span = found.begin(
            "task", SpanKind.INTERNAL, "new", _attributes(task), own=context, start_ns=task.created_ms * _NS_IN_MS
        )
        if span is None:
            return
        assert isinstance(attempts, int)
        assert isinstance(assigned_ms, int)
        assert isinstance(ended_ms, int)
        span.set(log=self._log, task=task_id, attempt=attempts)
        if assigned_ms:
            span.events.append((assigned_ms * _NS_IN_MS, "assigned", {"rsm.worker": str(worker_id)}))
        said = f"{outcome or 'error'}: {error}" if status != TaskStatus.FINISHED else ""
        span.end(said, end_ns=ended_ms * _NS_IN_MS)


def _attributes(task: KeptTask) -> dict[str, str | int | float | bool]:
    return {"tenant": task.tenant, "type": task.type}
