from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from connectors.errors import OptionError
from connectors.source import traced_batches
from connectors.source.options import parse_options
from connectors.source.traced_batches import (
    BatchTrace,
    TracedBatch,
    TracedPartition,
    read_traced,
    trace_of,
    traced_batch,
    traced_plan,
    traced_step,
)
from ledger.telemetry.tracing import Span, Tracer, current_context, install_tracer

TRACE = BatchTrace("http://127.0.0.1:9", 1.0)
NAME = TracedBatch("query-1", 7)
ROWS = pa.record_batch({"a": [1, 2, 3]})


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    """Have this process trace already, as a program that says so itself."""
    spans: list[Span] = []
    install_tracer(Tracer(1.0, spans.append))
    yield spans
    install_tracer(None)


def options(**given: str) -> Any:
    return parse_options({"log": "orders", **given}, is_stream=True)


def test_a_query_traces_where_its_options_or_the_environment_say_so() -> None:
    assert trace_of(options(), {}) is None
    assert trace_of(options(traceRate="1"), {}) is None
    assert trace_of(options(otlpUrl="http://a"), {}) == BatchTrace("http://a", 0.01)
    environment = {"RSM_OTLP_URL": "http://b", "RSM_TRACE_RATE": "0.5"}
    assert trace_of(options(), environment) == BatchTrace("http://b", 0.5)
    assert trace_of(options(otlpUrl="http://a", traceRate="0"), environment) == BatchTrace("http://a", 0.0)
    for text in ("2", "-1", "nan", "much"):
        with pytest.raises(OptionError, match="traceRate"):
            options(traceRate=text)
        with pytest.raises(OptionError, match="RSM_TRACE_RATE"):
            trace_of(options(), {**environment, "RSM_TRACE_RATE": text})


def test_all_processes_know_the_same_trace_by_the_name_of_the_batch() -> None:
    context = TRACE.context(NAME)
    assert context == BatchTrace("http://elsewhere", 1.0).context(NAME)
    others = (TracedBatch("query-1", 8), TracedBatch("query-2", 7))
    assert context.trace_id not in {TRACE.context(one).trace_id for one in others}
    assert not BatchTrace("http://a", 0.0).context(NAME).is_sampled


def test_partitions_of_a_query_that_does_not_trace_are_as_they_were() -> None:
    partitions = [InputPartition(1), InputPartition(2)]
    assert traced_plan(None, lambda: partitions) is partitions
    assert list(read_traced(partitions[0], lambda one: iter([one.value]))) == [1]


def test_the_task_of_the_first_partition_tells_the_plan_too(ended: list[Span]) -> None:
    partitions = traced_plan(TRACE, lambda: [InputPartition(1), InputPartition(2)], NAME)
    assert all(isinstance(one, TracedPartition) for one in partitions)
    for one in reversed(partitions):
        assert list(read_traced(one, lambda _: iter([ROWS, ROWS]))) == [ROWS, ROWS]
    context = TRACE.context(NAME)
    assert [(span.name, span.attributes.get("rsm.part"), span.parent_id) for span in ended] == [
        ("read part", 1, context.span_id), ("plan", None, 0), ("read part", 0, context.span_id),
    ]  # fmt: skip
    plan = ended[1]
    assert (plan.context, plan.attributes["rsm.count"]) == (context, 2)
    assert ended[0].attributes["rsm.count"] == 6
    assert plan.start_ns <= plan.end_ns <= ended[0].start_ns


def test_a_part_that_fails_and_one_that_nobody_wants_are_told_as_what_they_are(ended: list[Span]) -> None:
    def broken(_: InputPartition) -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise OSError("the bookie is gone, password=hunter22")

    _, second = traced_plan(TRACE, lambda: [InputPartition(1), InputPartition(2)], NAME)
    with pytest.raises(OSError, match="gone"):
        list(read_traced(second, broken))
    left = read_traced(second, broken)
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert [span.error for span in ended] == ["OSError: the bookie is gone, password=***", ""]


def test_without_a_task_of_a_stream_nothing_is_told(ended: list[Span]) -> None:
    (only,) = traced_plan(TRACE, lambda: [InputPartition(1)])
    assert list(read_traced(only, lambda _: iter([ROWS]))) == [ROWS]
    assert not ended


def test_steps_are_what_is_current_and_the_batch_is_told_at_its_end(ended: list[Span]) -> None:
    with traced_batch(TRACE, NAME, 5, log="orders"):
        with traced_step(TRACE, NAME, "write part", part=0) as step:
            assert step is not None
            assert current_context() == step.context
        assert current_context() == TRACE.context(NAME)
    with pytest.raises(ValueError, match="no"), traced_batch(TRACE, NAME, 6):
        raise ValueError("no")
    assert [(span.name, span.parent_id, span.error) for span in ended] == [
        ("write part", TRACE.context(NAME).span_id, ""), ("micro-batch", 0, ""), ("micro-batch", 0, "ValueError: no"),
    ]  # fmt: skip
    assert ended[1].context == TRACE.context(NAME)
    assert (ended[1].start_ns, ended[1].attributes["rsm.log"]) == (5, "orders")


def test_of_a_batch_that_is_not_told_nothing_is(ended: list[Span]) -> None:
    for trace, name in ((None, NAME), (TRACE, TracedBatch("", 7)), (BatchTrace("http://a", 0.0), NAME)):
        with traced_batch(trace, name, 5), traced_step(trace, name, "commit") as step:
            assert step is None
            assert trace is None or not name.query or current_context() is not None
    assert not ended


def test_a_process_that_traces_already_goes_on_as_it_does(ended: list[Span], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_batches, "start_telemetry", lambda *_: pytest.fail("it has begun anew"))
    with traced_step(TRACE, NAME, "commit"):
        pass
    assert len(ended) == 1
