"""Delta tables that follow a log, in S3, against a real server: each goes on from itself alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from connectors.delta.follower import FollowerTable
from connectors.delta.place import APPEND_MODE, MERGE_MODE
from tests.integration.s3_server import SECRETS, Bucket
from tests.unit.connectors.delta.logged import LOG_ID, MAP, gone, put, records


def follower(bucket: Bucket, mode: str = MERGE_MODE) -> FollowerTable:
    return FollowerTable(
        f"{bucket.uri}/tables/map", log_id=LOG_ID, log="orders", table=MAP, position_interval_s=0, mode=mode,
        storage_options=bucket.options(),
    )  # fmt: skip


def content(bucket: Bucket) -> list[tuple[Any, ...]]:
    table = DeltaTable(f"{bucket.uri}/tables/map", storage_options=bucket.options())
    rows = pa.RecordBatchReader.from_stream(table.scan(columns=["key", "value", "_revision"])).read_all().to_pylist()
    return sorted((row["_revision"], row["key"], row["value"]) for row in rows)


def test_a_table_in_a_bucket_follows_and_goes_on_from_itself_alone(bucket: Bucket) -> None:
    first = records([put(b"a", b"1"), put(b"b", b"2"), gone(b"a")])
    follower(bucket).apply(first)
    assert content(bucket) == [(2, b"b", b"2")]
    assert not follower(bucket).apply(first).is_new, "run again it changes nothing"
    follower(bucket).apply(records([put(b"a", b"4")], 4))
    assert content(bucket) == [(2, b"b", b"2"), (4, b"a", b"4")]
    position = follower(bucket).position()
    assert position is not None
    assert position.revision == 4
    assert not [secret for secret in SECRETS if secret.encode() in bucket.all_bytes()]


def test_a_history_in_a_bucket_keeps_every_change(bucket: Bucket) -> None:
    follower(bucket, mode=APPEND_MODE).apply(records([put(b"a", b"1"), gone(b"a")]))
    follower(bucket, mode=APPEND_MODE).apply(records([put(b"a", b"3")], 3))
    assert [(revision, key) for revision, key, _ in content(bucket)] == [(1, b"a"), (2, b"a"), (3, b"a")]
