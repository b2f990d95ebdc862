"""Traces of micro-batches: from the plan over the tasks that read and write to the bookies, and of followers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.sink.foreach_batch import batch_writer
from ledger.dev import DevCluster
from ledger.telemetry import stop_telemetry
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.integration.store_processes import StoreProcess
from tests.spark.streams import SLOW_WORKER, STARTS_MAX, drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PARTS = ("read part", "write part")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running
        stop_telemetry()


@pytest.fixture
def target(
    cluster: DevCluster, receiver: OtlpReceiver, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """A map that traces what clients want to have traced; yields the options of its sink."""
    with monkeypatch.context() as environment:
        environment.setenv("RSM_OTLP_URL", receiver.url)
        environment.setenv("RSM_TRACE_RATE", "0")
        replica = StoreProcess(cluster.metadata_uri, unique_name, tmp_path, "a")
    yield {
        "log": unique_name, "metadataUri": cluster.metadata_uri, "as": "map",
        "otlpUrl": receiver.url, "traceRate": "1",
    }  # fmt: skip
    replica.kill()


def _source(spark: SparkSession, log: Any, receiver: OtlpReceiver, **more: str) -> DataFrame:
    options = {"log": log.name, "metadataUri": log.metadata_uri, "otlpUrl": receiver.url, "traceRate": "1"}
    reader = spark.readStream.format("ledger").options(**options | more, startingOffsets="earliest")
    return reader.load().selectExpr("cast(concat(log, '/', revision) as string) key", "cast('x' as string) value")


def _written(frame: DataFrame, sink: dict[str, str], folder: Path) -> StreamingQuery:
    """Write all there is, and return the query; where Spark's Python did not start in time it is another query."""
    for number in itertools.count():
        query = (
            frame.writeStream.format("ledger").options(**sink, writer=f"{folder.name}-{number}")
            .option("checkpointLocation", str(folder / str(number))).trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            if number > STARTS_MAX or SLOW_WORKER not in str(error):
                raise
        else:
            return query
    raise AssertionError


def _below(spans: list[ReceivedSpan], parent: ReceivedSpan) -> list[ReceivedSpan]:
    return [span for span in spans if (span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id)]


def _path(spans: list[ReceivedSpan], parent: ReceivedSpan, *names: str) -> list[ReceivedSpan]:
    """Return the spans at the end of a path of names below one."""
    found = [parent]
    for name in names:
        found = [span for one in found for span in _below(spans, one) if span.name == name]
    return found


def _roots(spans: list[ReceivedSpan], is_whole: Callable[[list[ReceivedSpan], ReceivedSpan], Any]) -> Any:
    roots = [span for span in spans if span.name == "micro-batch"]
    return roots if roots and all(is_whole(spans, root) for root in roots) else []


def test_a_micro_batch_is_one_trace_from_the_plan_to_the_bookies(
    spark: SparkSession, log: Any, target: dict[str, str], receiver: OtlpReceiver, tmp_path: Path
) -> None:
    log.fill(40)
    frame = _source(spark, log, receiver, maxOffsetsPerTrigger="150", minPartitions="2")
    query = _written(frame, target, tmp_path / "checkpoint")

    def is_whole(spans: list[ReceivedSpan], root: ReceivedSpan) -> bool:
        steps = {span.name for span in _below(spans, root)}
        entries = _path(spans, root, "commit", "command", "serve", "append entry")
        entries += _path(spans, root, "write part", "command", "serve", "append entry")
        # Each process sends its own, so they arrive in any order.
        rows = [sum(one.attributes["rsm.count"] for one in _path(spans, root, name)) for name in _PARTS]
        planned = [one.attributes["rsm.count"] for one in _path(spans, root, "plan")]
        is_all_read = planned == [len(_path(spans, root, "read part"))] and rows == [root.attributes["rsm.count"]] * 2
        return is_all_read and "commit" in steps and bool(entries)

    def all_of_them(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
        mine = [span for span in spans if span.name == "micro-batch" and span.attributes["rsm.query"] == query.id]
        roots = [root for root in mine if is_whole(spans, root)]
        return roots if sum(root.attributes["rsm.count"] for root in roots) == log.revision else []

    roots = receiver.until(all_of_them)
    numbers = sorted(root.attributes["rsm.batch"] for root in roots)
    assert numbers == list(range(len(roots)))
    assert len(roots) >= 2
    spans = list(receiver.spans)
    for root in roots:
        assert (root.parent_id, root.service, root.error) == ("", "rsm-spark", "")
        assert (root.attributes["rsm.log"], root.attributes["rsm.query"]) == (target["log"], query.id)
        (plan,) = _path(spans, root, "plan")
        reads, writes = _path(spans, root, "read part"), _path(spans, root, "write part")
        assert plan.attributes["rsm.count"] == len(reads)
        assert {one.attributes["rsm.log"] for one in reads} == {log.name}
        assert all(plan.end_ns <= one.start_ns <= root.end_ns for one in reads)
        (end,) = _path(spans, root, "commit")
        assert root.start_ns <= min(one.start_ns for one in writes)
        assert max(one.end_ns for one in writes) <= end.start_ns


def test_what_is_not_told_leaves_no_span_and_no_trace_of_its_own(
    spark: SparkSession, log: Any, target: dict[str, str], receiver: OtlpReceiver, tmp_path: Path
) -> None:
    log.fill(5)
    frame = _source(spark, log, receiver, traceRate="0")
    _written(frame, target | {"traceRate": "0"}, tmp_path / "checkpoint")
    told = spark.read.format("ledger").options(log=log.name, metadataUri=log.metadata_uri, otlpUrl=receiver.url,
                                               traceRate="1").load()  # fmt: skip
    assert told.count() == log.revision
    (plan,) = receiver.until(lambda spans: [one for one in spans if one.name == "plan"])
    receiver.until(
        lambda spans: sum(one.attributes["rsm.count"] for one in _path(spans, plan, "read part")) == log.revision
    )
    assert plan.parent_id == ""
    # Whatever the unsampled stream would have told was told before.
    assert {one.name for one in receiver.spans} == {"plan", "read part"}


def test_what_foreach_batch_writes_belongs_to_its_micro_batch(
    spark: SparkSession, log: Any, target: dict[str, str], receiver: OtlpReceiver, tmp_path: Path
) -> None:
    log.fill(5)
    drain(_source(spark, log, receiver), batch_writer(**target, writer="job"), tmp_path / "checkpoint")
    ends = receiver.until(lambda spans: [one for one in spans if one.name == "commit"])
    assert len(ends) == 1
    receiver.until(
        lambda spans: {one.name for one in spans if one.trace_id == ends[0].trace_id} >= {
            "plan", "read part", "write part", "commit", "append entry",
        }
    )  # fmt: skip


def test_a_follower_tells_each_micro_batch(
    spark: SparkSession, log: Any, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    log.fill(10)
    settings = MaterializeSettings(
        log=log.name,
        place=str(tmp_path / "table"),
        source={"metadataUri": log.metadata_uri, "otlpUrl": receiver.url, "traceRate": "1"},
        checkpoint=str(tmp_path / "checkpoint"),
        available_now=True,
        records_per_batch_max=50,
    )
    summary = Materializer(spark, settings, report=lambda _: None).run()

    def is_whole(spans: list[ReceivedSpan], root: ReceivedSpan) -> bool:
        return {"plan", "read part", "apply"} <= {span.name for span in _below(spans, root)}

    roots = receiver.until(lambda spans: len(found := _roots(spans, is_whole)) == summary.batches and found)
    assert all(root.attributes["rsm.log"] == log.name for root in roots)


def test_a_collector_that_hangs_or_answers_garbage_holds_up_no_micro_batch(
    spark: SparkSession, log: Any, target: dict[str, str], receiver: OtlpReceiver, tmp_path: Path
) -> None:
    log.fill(20)
    receiver.garbage = b"\xff" * 100_000
    for number, hangs in enumerate((False, True)):
        if hangs:
            receiver.hangs.set()
        frame = _source(spark, log, receiver, maxOffsetsPerTrigger="100")
        query = _written(frame, target, tmp_path / f"checkpoint-{number}")
        assert sum(one["numInputRows"] for one in query.recentProgress) == log.revision
