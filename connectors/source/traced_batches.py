"""Spans of a micro-batch: of its plan, of each part that a task reads or writes, of its end; and of a batch read.

Driver and tasks are processes of their own, and Spark tells none of them who the others are. What each comes to know is
the name of the micro-batch, its query's id and its number: the ids of the trace are made of that, as those of a task of
the broker are. Only who plans does not know it yet: when it planned travels with the partitions, and the task that
reads the first of them tells it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from connectors.source.option_values import parse_share
from ledger.telemetry import TelemetrySettings, start_telemetry
from ledger.telemetry.settings import OTLP_URL_VARIABLE, TRACE_RATE_VARIABLE
from ledger.telemetry.trace_context import TraceContext, derived_context
from ledger.telemetry.tracing import Span, SpanKind, Tracer, Value, tracer, use_context

if TYPE_CHECKING:
    # A client of Spark Connect has another class of this name.
    from pyspark.sql import DataFrame

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties of a thread of the driver, and of a task, that works for a stream."""
SERVICE: Final = "rsm-spark"
"""Name of a process of Spark for a collector."""
_started: tuple[int, BatchTrace, Tracer | None] | None = None
"""Telemetry that this module has started: in which process, for whose spans, and what begins them."""


class TracedBatch(NamedTuple):
    """Name of a batch in the whole cluster.

    Attributes:
        query: Id of its query, or what stands for it.
        number: Of it in the query.

    """

    query: str
    number: int


@dataclass(frozen=True)
class BatchTrace:
    """Target of the spans of a query.

    Attributes:
        url: Of the collector.
        rate: Share of the batches that are told; the same in all processes of a query.

    """

    url: str
    rate: float

    def context(self, name: TracedBatch) -> TraceContext:
        """Return the context of a batch, the same in all processes."""
        return derived_context(f"spark/{name.query}/{name.number}", self.rate)

    def tracer(self) -> Tracer | None:
        """Return what begins spans in this process: that of the program, else one of our own.

        Raises:
            UsageError: The address is wrong, or the extra `otel` is not installed.

        """
        global _started  # noqa: PLW0603 - one of a process, as its log is
        if is_telemetry_free() and (_started is None or _started != (os.getpid(), self, tracer())):
            start_telemetry(TelemetrySettings(otlp_url=self.url, trace_rate=self.rate), SERVICE)
            _started = (os.getpid(), self, tracer())
        return tracer()


def is_telemetry_free() -> bool:
    """Tell whether this process tells nothing but spans of queries: what a program tells is its own."""
    running = tracer()
    return running is None or (_started is not None and _started[2] is running)


class TraceOptions(Protocol):
    """Options of a query, as far as they say where its spans go."""

    @property
    def otlp_url(self) -> str:
        """Of the collector; "" = as the environment says."""
        ...

    @property
    def trace_rate(self) -> float | None:
        """Share of the batches that are told; None = as the environment says."""
        ...


class _PlanTimes(NamedTuple):
    start_ns: int
    end_ns: int
    part_count: int


@dataclass(frozen=True)
class TracedPartition(InputPartition):
    """An input partition of a query that traces.

    Attributes:
        partition: What is read.
        number: Of it in the plan.
        trace: Where spans go.
        name: Of the batch; None = the task knows it.
        plan: When it was planned.

    """

    partition: InputPartition
    number: int
    trace: BatchTrace
    name: TracedBatch | None
    plan: _PlanTimes


def trace_of(options: TraceOptions, environment: Mapping[str, str] = os.environ) -> BatchTrace | None:
    """Return where the spans of a query go; None = they are not told.

    Raises:
        OptionError: The environment has a share that is none.

    """
    url = options.otlp_url or environment.get(OTLP_URL_VARIABLE)
    if not url:
        return None
    rate = options.trace_rate
    if rate is None:
        rate = parse_share(environment, TRACE_RATE_VARIABLE)
    return BatchTrace(url, TelemetrySettings().trace_rate if rate is None else rate)


def traced_plan(
    trace: BatchTrace | None, plan: Callable[[], Sequence[InputPartition]], name: TracedBatch | None = None
) -> Sequence[InputPartition]:
    """Return input partitions that tell tasks of the plan; those of a query that does not trace are as they were.

    Args:
        trace: Where spans go.
        plan: Makes the partitions.
        name: Of the batch; None = the tasks know it.

    """
    if trace is None:
        return plan()
    start_ns = time.time_ns()
    found = plan()
    times = _PlanTimes(start_ns, time.time_ns(), len(found))
    return [TracedPartition(one, number, trace, name, times) for number, one in enumerate(found)]


def read_traced(
    partition: InputPartition, read: Callable[[InputPartition], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Read an input partition, as a part of its batch's trace if that is told (in a task)."""
    if not isinstance(partition, TracedPartition):
        return read(partition)
    return _read_traced(partition, read)


def _read_traced(
    part: TracedPartition, read: Callable[[InputPartition], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    name = part.name or _name_of_task()
    found = part.trace.tracer()
    span = None
    if name is not None and found is not None:
        context = part.trace.context(name)
        if part.number == 0:
            _tell_plan(found, part, context, name)
        said: dict[str, Value] = {"batch": name.number, "part": part.number, **_range_of(part.partition)}
        span = found.begin("read part", SpanKind.CONSUMER, context, said)
    row_count = 0
    try:
        for batch in read(part.partition):
            row_count += batch.num_rows
            yield batch
    except Exception as error:
        _end(span, error)
        raise
    finally:  # Spark may want no more of it.
        if span is not None:
            span.set(count=row_count)
            span.end()


def _tell_plan(found: Tracer, part: TracedPartition, context: TraceContext, name: TracedBatch) -> None:
    """Tell of the plan what its driver could not: of a batch read it is where the trace begins."""
    said: dict[str, Value] = {"query": name.query, "batch": name.number, "count": part.plan.part_count}
    is_root = part.name is not None
    plan = found.begin(
        "plan",
        SpanKind.INTERNAL,
        "new" if is_root else context,
        said,
        own=context if is_root else None,
        start_ns=part.plan.start_ns,
    )
    if plan is not None:
        plan.end(end_ns=part.plan.end_ns)


def _range_of(partition: InputPartition) -> dict[str, Value]:
    """Return which entries an input partition has, as far as it has any."""
    names = {"log": "log", "ledger": "ledger_id", "first_entry": "first_entry_id", "last_entry": "last_entry_id"}
    found = {name: getattr(partition, field, None) for name, field in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _name_of_task() -> TracedBatch | None:
    """Return the micro-batch that this task works for; None = it works for none."""
    context = TaskContext.get()
    query, number = (None if context is None else context.getLocalProperty(one) for one in (QUERY_ID, BATCH_ID))
    return TracedBatch(query, int(number)) if query and number else None


def query_id_of(frame: DataFrame) -> str:
    """Return the id of the stream that this thread of the driver runs a micro-batch of; "" = it is not told."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    return "" if context is None else str(context.getLocalProperty(QUERY_ID) or "")


@contextmanager
def traced_batch(trace: BatchTrace | None, name: TracedBatch, start_ns: int, **said: Value) -> Iterator[None]:
    """Have what this block does belong to a batch, and tell the batch at its end.

    Args:
        trace: Where spans go; None = nowhere.
        name: Of the batch.
        start_ns: When it began.
        said: Attributes.

    """
    found = None if trace is None or not name.query else trace.tracer()
    if trace is None or found is None:
        yield
        return
    context = trace.context(name)
    ids: dict[str, Value] = {"query": name.query, "batch": name.number}
    with _spanned(found.begin("micro-batch", SpanKind.INTERNAL, "new", ids | said, own=context, start_ns=start_ns)):
        yield


@contextmanager
def traced_step(trace: BatchTrace | None, name: TracedBatch, step: str, **said: Value) -> Iterator[Span | None]:
    """Have what this block does be one step of a batch.

    Args:
        trace: Where spans go; None = nowhere.
        name: Of the batch.
        step: What it is.
        said: Attributes.

    """
    found = None if trace is None or not name.query else trace.tracer()
    if trace is None or found is None:
        yield None
        return
    with _spanned(found.begin(step, SpanKind.INTERNAL, trace.context(name), {"batch": name.number, **said})) as span:
        yield span


@contextmanager
def _spanned(span: Span | None) -> Iterator[Span | None]:
    with use_context(None if span is None else span.context):
        try:
            yield span
        except Exception as error:
            _end(span, error)
            raise
    _end(span, None)


def _end(span: Span | None, error: Exception | None) -> None:
    if span is not None:
        span.end("" if error is None else f"{type(error).__name__}: {error}")
