from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from connectors.source.telemetry import StreamTelemetry

ANEW = {"log": "b", "from": 7, "to": None, "count": None}


def progress(batch_id: int = 0, rows: int = 10, seconds: float = 0.3, **more: Any) -> dict[str, Any]:
    latest = {"version": 1, "log": {}, "behindRecords": 7, "behindBytes": 700, "behindMs": 1500}
    return {
        "id": "id-1",
        "name": "orders",
        "batchId": batch_id,
        "durationMs": {"addBatch": 1, "triggerExecution": int(1000 * seconds)},
        "sources": [{"numInputRows": rows, "latestOffset": latest}],
        **more,
    }


def text_of(telemetry: StreamTelemetry) -> list[str]:
    registry = CollectorRegistry()
    registry.register(telemetry)
    return generate_latest(registry).decode().splitlines()


def test_progress_becomes_metrics() -> None:
    telemetry = StreamTelemetry()
    telemetry.begin("id-1", "orders", 5.0)
    telemetry.note(progress(0), 6.0)
    telemetry.note(progress(1, rows=5, seconds=2.0), 7.0)
    text = text_of(telemetry)
    for line in (
        'rsm_stream_active{query="orders"} 1.0',
        'rsm_stream_batches_total{query="orders"} 2.0',
        'rsm_stream_batch_seconds_bucket{le="0.5",query="orders"} 1.0',
        'rsm_stream_batch_seconds_sum{query="orders"} 2.3',
        'rsm_stream_progress_timestamp_seconds{query="orders"} 7.0',
        'rsm_stream_rows_total{query="orders",source="0"} 15.0',
        'rsm_stream_behind_records{query="orders",source="0"} 7.0',
        'rsm_stream_behind_bytes{query="orders",source="0"} 700.0',
        'rsm_stream_behind_seconds{query="orders",source="0"} 1.5',
        'rsm_stream_lost_records{query="orders",source="0"} 0.0',
    ):
        assert line in text


def test_offsets_that_come_as_text_are_understood_and_those_of_other_sources_left_alone() -> None:
    telemetry = StreamTelemetry()
    mine = {"behindRecords": 1, "behindBytes": 2, "losses": [{"log": "a", "from": 1, "to": 3, "count": 3}, ANEW]}
    sources = [{"numInputRows": 1, "latestOffset": json.dumps(mine)}, {"numInputRows": 2, "latestOffset": "17"}]
    telemetry.note(progress(sources=[*sources, {"numInputRows": 3, "latestOffset": "no JSON"}]), 1.0)
    text = text_of(telemetry)
    assert 'rsm_stream_lost_records{query="orders",source="0"} 3.0' in text
    assert 'rsm_stream_rows_total{query="orders",source="2"} 3.0' in text
    assert not [line for line in text if "behind" in line and 'source="1"' in line]
    assert not [line for line in text if line.startswith("rsm_stream_behind_seconds{")], "ledgers know no time"


def test_a_progress_without_a_micro_batch_counts_none() -> None:
    telemetry = StreamTelemetry()
    telemetry.note(progress(4), 1.0)
    telemetry.note(progress(5, rows=0, durationMs={"triggerExecution": 5}), 2.0)
    assert 'rsm_stream_batches_total{query="orders"} 1.0' in text_of(telemetry)


def test_the_end_of_a_query_and_its_failure_are_told_and_a_restart_goes_on_counting() -> None:
    telemetry = StreamTelemetry()
    telemetry.begin("id-1", "orders", 1.0)
    telemetry.note(progress(0), 2.0)
    telemetry.end("id-1", has_failed=True)
    text = text_of(telemetry)
    assert 'rsm_stream_active{query="orders"} 0.0' in text
    assert 'rsm_stream_failures_total{query="orders"} 1.0' in text
    telemetry.begin("id-1", "orders", 3.0)
    telemetry.note(progress(0), 4.0)
    text = text_of(telemetry)
    assert 'rsm_stream_batches_total{query="orders"} 2.0' in text, "the micro-batch was run again"
    assert 'rsm_stream_active{query="orders"} 1.0' in text


def test_queries_without_a_name_go_by_their_id_and_are_forgotten_some_day() -> None:
    telemetry = StreamTelemetry()
    for number in range(1_500):
        telemetry.begin(f"id-{number}", None, 1.0)
        telemetry.end(f"id-{number}", has_failed=False)
    text = text_of(telemetry)
    assert 'rsm_stream_active{query="id-1499"} 0.0' in text
    assert len([line for line in text if line.startswith("rsm_stream_active{")]) <= 1_001
