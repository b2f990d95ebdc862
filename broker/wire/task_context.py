"""Context of a task's trace: made of the task's name, so that brokers and workers need not tell it to each other."""

from __future__ import annotations

from ledger.telemetry.trace_context import TraceContext, derived_context


def task_context(log: str, task_id: int, rate: float) -> TraceContext:
    """Return the span of a task, from its submit to its end; the spans of its runs are below it.

    Args:
        log: Name of the broker's log.
        task_id: Of the task.
        rate: Share of the tasks whose traces are told; brokers and workers are to have the same.

    """
    return derived_context(f"task {task_id} of {log}", rate)
