"""The change feed of a follower as Spark reads it: what the log's records did to rows, commit by commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.delta.materialize import Materializer
from jobs import materialize as job
from tests.spark.streams import drain
from tests.spark.test_materialize import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ("_commit_version", "_change_type", "key", "value", "_revision")


def _told_by(spark: SparkSession, log: Any, ends: dict[int, int]) -> list[tuple[Any, ...]]:
    """Return what a dict has changed at each commit, by the log's own records.

    Args:
        spark: Session.
        log: Its records are read.
        ends: Last revision that is in a version of the table, by version.

    """
    options = log.options(rows="table")
    rows = spark.read.format("ledger").options(**options).load().orderBy("_revision").collect()
    told: list[tuple[Any, ...]] = []
    state: dict[bytes, tuple[bytes, int]] = {}
    after = 0
    for version, end in sorted(ends.items()):
        before = dict(state)
        for row in rows:
            if after < row["_revision"] <= end:
                state.pop(row.key, None)
                if row["_fold"] == "upsert":
                    state[bytes(row.key)] = (bytes(row.value), row["_revision"])
        after = end
        for key in before.keys() | state.keys():
            old, new = before.get(key), state.get(key)
            if old is not None and new is not None and old[0] == new[0]:
                state[key] = old
                continue
            if old is not None:
                told.append((version, "delete" if new is None else "update_preimage", key, *old))
            if new is not None:
                told.append((version, "insert" if old is None else "update_postimage", key, *new))
    return sorted(told)


def test_the_feed_is_the_log_in_batches_and_streams_and_history_says_the_revisions(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.fill(6)
    log.delete(b"key-3", b"nobody")
    log.fill(2)
    log.delete(b"key-3", b"key-4")
    log.fill(1)
    settings = settings_of(log, tmp_path, records_per_batch_max=20, has_change_feed=True)
    Materializer(spark, settings, report=lambda _progress: None).run()
    place = settings.place
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").select("version", "userMetadata").collect()
    said = {row.version: json.loads(row.userMetadata) for row in history}
    assert said[max(said)]["prefix_hash"] == log.hash.hex()
    assert {(one["log"], one["log_id"], one["table"]) for one in said.values()} == {
        (log.name, log.log_id.hex(), "map")
    }  # fmt: skip
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").first()
    assert detail is not None
    assert detail.description.startswith(f"table map of log {log.name} (id {log.log_id.hex()})")
    assert detail.properties["delta.enableChangeDataFeed"] == "true"

    expected = _told_by(spark, log, {version: one["revision"] for version, one in said.items()})
    feed = {"readChangeFeed": "true", "startingVersion": "0"}
    read = spark.read.format("delta").options(**feed).load(place).select(*_COLUMNS)
    assert sorted(tuple(row) for row in read.collect()) == expected
    assert {kind for _, kind, *_ in expected} == {"insert", "update_preimage", "update_postimage", "delete"}
    streamed: list[tuple[Any, ...]] = []
    stream = spark.readStream.format("delta").options(**feed).load(place).select(*_COLUMNS)
    drain(stream, lambda frame, _: streamed.extend(map(tuple, frame.collect())), tmp_path / "of-the-feed")
    assert sorted(streamed) == expected


def test_the_job_switches_it_on(log: Any) -> None:
    given = ["--log", log.name, "--table", "/t", "--metadata-uri", log.metadata_uri]
    parse = job._parser().parse_args
    assert job._settings(parse([*given, "--change-feed"])).has_change_feed
    assert not job._settings(parse(given)).has_change_feed
