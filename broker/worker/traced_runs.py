"""Spans of runs at a worker: each belongs to its task's trace, whose context both ends know by the task's name."""

from __future__ import annotations

from collections.abc import Sequence

from broker.machine.commands import EndedRun
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun
from broker.wire.task_context import task_context
from ledger.telemetry.tracing import Span, SpanKind, Value, tracer


class RunTraces:
    """See the module.

    Args:
        log: Name of the broker's log.
        worker_id: Of the worker.

    """

    def __init__(self, log: str, worker_id: str) -> None:
        self._log = log
        self._worker_id = worker_id
        # assignment id -> its span. Invariant: the runs that go on and are traced; each of them ends.
        self._spans: dict[int, Span] = {}

    def begin(self, runs: Sequence[AssignedRun]) -> None:
        """Take note that runs begin."""
        found = tracer()
        if found is None:
            return
        for run in runs:
            ids: dict[str, Value] = {
                "tenant": run.tenant,
                "task": run.task_id,
                "type": run.type,
                "attempt": run.attempt,
            }
            context = task_context(self._log, run.task_id, found.rate)
            span = found.begin("run", SpanKind.CONSUMER, context, {**ids, "worker": self._worker_id})
            if span is not None:
                self._spans[run.assignment_id] = span

    def end(self, ends: Sequence[EndedRun]) -> None:
        """Take note that runs have ended."""
        if not self._spans:
            return
        for one in ends:
            span = self._spans.pop(one.assignment_id, None)
            if span is not None:
                is_well = one.status == TaskStatus.FINISHED
                span.end("" if is_well else f"{one.outcome or 'error'}: {one.error}")
