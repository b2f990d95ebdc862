"""Snapshots of a lake in S3, against a real server: written, read, removed, and whatever may happen to that."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots import lake_files, table_files
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.lake_files import groups_of_file, read_lake_file, write_lake_file
from tests.integration.s3_server import (
    DENIED,
    EXPIRED,
    SECRETS,
    SLOW_DOWN,
    WRONG_KEY,
    Asked,
    Bucket,
    Harm,
    HarmfulProxy,
    harmful,
    times,
)
from tests.unit.rsm_spark.snapshots.test_lake import manifest_of, rows_at

LOG_ID = "ab" * 16


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[HarmfulProxy]:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    with harmful(bucket.url) as between:
        yield between


def lake_in(bucket: Bucket, url: str | None = None) -> LakeSnapshots:
    return LakeSnapshots(f"{bucket.uri}/lake/orders", storage_options=bucket.options(url), retention_hours=0)


def no_secret(told: str) -> None:
    assert not [secret for secret in SECRETS if secret in told]


def test_snapshots_are_written_read_let_go_and_removed(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    lake = lake_in(bucket)
    assert lake.manifests() == []
    bucket.begin_upload("lake/orders/part-of-a-killed-writer.parquet")
    bucket.begin_upload("lake/others/part.parquet")
    for revision in (10, 20, 30, 40):
        rows = rows_at(revision)
        manifest = manifest_of(rows, revision)
        assert lake.write(manifest, iter(rows)) == manifest
        assert lake.write(manifest, iter(())) == manifest, "what is there is left as it is"
    assert [one.revision for one in lake_in(bucket).manifests()] == [40, 30, 20]
    fresh = lake_in(bucket)
    assert sorted(fresh.read(fresh.manifests()[2])) == sorted(rows_at(20))
    assert bucket.uploads() == ["lake/others/part.parquet"], "those of killed writers are ended"
    part = next(key for key in bucket.objects() if key.endswith(".parquet"))
    bucket.delete(part)
    assert len(fresh.manifests()) == 2
    assert "files are missing or cut" in caplog.text
    bucket.put("lake/others/file", b"x")
    fresh.remove("cd" * 16)
    assert fresh.manifests()
    fresh.remove(LOG_ID)
    assert list(bucket.objects()) == ["lake/others/file"]
    assert lake_in(bucket).manifests() == []


def test_rows_of_many_files_come_in_the_order_in_which_they_were_written(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "FILE_BYTES", 1)
    monkeypatch.setattr(table_files, "ROW_GROUP_ROWS", 1)
    lake, rows = lake_in(bucket), rows_at(9_000, 8_000)
    manifest = manifest_of(rows, 9_000)
    lake.write(manifest, iter(rows))
    assert len([key for key in bucket.objects() if key.endswith(".parquet")]) > 3
    assert list(lake_in(bucket).read(manifest)) == list(rows)


def test_files_that_executors_write_are_added_in_one_commit(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, rows = lake_in(bucket), rows_at(10)
    place, options = f"{bucket.uri}/lake/orders", bucket.options()
    columns = [
        pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), ROW_SCHEMA, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_lake_file(place, broken(), options)
    assert (bucket.objects(), bucket.uploads()) == ({}, [])
    file = write_lake_file(place, [batch], options)
    assert file is not None
    manifest = manifest_of(rows, 10)
    assert lake.write_files(manifest, lambda: [file]) == manifest
    assert sorted(lake.read(manifest)) == sorted(rows)
    (group,) = groups_of_file(place, file, options)
    assert group.rows == len(rows)
    assert sum(one.num_rows for one in read_lake_file(place, file, ROW_SCHEMA.names, options)) == len(rows)
    # Stores that are not S3 go by way of deltalake alone.
    monkeypatch.setattr(lake_files, "is_s3", lambda _place: False)
    other = write_lake_file(place, [batch], options)
    assert other is not None
    assert sum(one.num_rows for one in read_lake_file(place, other, ROW_SCHEMA.names, options)) == len(rows)
    lake_files.remove_lake_files(place, options)
    assert bucket.objects() == {}


@pytest.mark.parametrize(
    ("harm", "words"),
    [(DENIED, "refuses these credentials"), (WRONG_KEY, "refuses these credentials"), (EXPIRED, "have expired")],
)
def test_each_refusal_is_one_line_without_a_secret_and_nothing_is_lost(
    bucket: Bucket, proxy: HarmfulProxy, harm: Harm, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_at(10)
    manifest = manifest_of(rows, 10)
    lake_in(bucket).write(manifest, iter(rows))
    before = bucket.objects()
    lake, place = lake_in(bucket, proxy.url), f"{bucket.uri}/lake/orders"
    options = bucket.options(proxy.url)
    (file,) = lake_files.files_of_version(place, 0, options)
    later, none = rows_at(20), times(0, harm)
    everything = times(1000, harm)
    reads = times(1000, harm, lambda asked: asked.method == "GET" and asked.path.endswith(".parquet"))
    writes = times(1000, harm, lambda asked: asked.method in {"PUT", "POST", "DELETE"})
    for rule, call in (
        (everything, lake.manifests),
        (everything, lambda: lake.remove(LOG_ID)),
        (everything, lambda: lake.write(manifest_of(later, 20), iter(later))),
        (writes, lambda: lake.write(manifest_of(later, 20), iter(later))),
        (writes, lambda: lake.remove(LOG_ID)),
        (reads, lambda: list(lake_in(bucket, proxy.url).read(manifest))),
        (everything, lambda: list(lake_files.files_of_version(place, 0, options))),
        (writes, lambda: write_lake_file(place, [pa.RecordBatch.from_pylist([], schema=ROW_SCHEMA)], options)),
    ):
        proxy.rule = rule
        with pytest.raises(SnapshotError) as raised:
            call()
        told = str(raised.value)
        assert told.startswith(place)
        assert harm.code in told
        assert words in told
        assert "\n" not in told
        assert "\x1b" not in told
        no_secret(told)
        assert not isinstance(raised.value, CorruptSnapshotError), "refused is not damaged"
        assert raised.value.__suppress_context__ or raised.value.__context__ is None
    proxy.rule = none
    assert file.name
    assert bucket.objects() == before
    assert sorted(lake_in(bucket, proxy.url).read(manifest)) == sorted(rows)
    no_secret(caplog.text)


def test_a_store_that_is_busy_is_asked_again_and_holds_no_other_thread_up(bucket: Bucket, proxy: HarmfulProxy) -> None:
    """While the store does not answer, the rest of a replica goes on: it leads, or follows."""
    rows = rows_at(10)
    manifest = manifest_of(rows, 10)
    lake_in(bucket).write(manifest, iter(rows))
    went_on, answered = threading.Event(), threading.Event()

    def wait(asked: Asked) -> None:
        del asked
        answered.clear()
        assert went_on.wait(60), "the asker keeps the whole process from running"

    lake = lake_in(bucket, proxy.url)
    proxy.rule = wait
    asking = threading.Thread(target=lake.manifests)
    asking.start()
    went_on.set()
    asking.join(120)
    assert not asking.is_alive()
    proxy.rule = times(2, SLOW_DOWN)
    assert lake.manifests() == [manifest]
    asked = len(proxy.asked)
    assert lake.manifests() == [manifest]
    assert len(proxy.asked) == asked + 1, "commits are read once"
    proxy.rule = times(2, SLOW_DOWN)
    assert sorted(lake.read(manifest)) == sorted(rows)


def test_a_writer_that_is_killed_leaves_no_snapshot(bucket: Bucket, proxy: HarmfulProxy) -> None:
    rows = rows_at(10)
    lake_in(bucket).write(manifest_of(rows, 10), iter(rows))
    victim = subprocess.Popen(
        [sys.executable, "-c", _WRITER, f"{bucket.uri}/lake/orders"],
        cwd=Path(__file__).parents[2], env=bucket.environment(proxy.url),
    )  # fmt: skip

    def kill(asked: Asked) -> None:
        if asked.method == "PUT" and "_delta_log" in asked.path:
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)
            raise ConnectionAbortedError

    logging.getLogger(__name__).debug("the server's own complaint of the broken connection follows")
    proxy.rule = kill
    try:
        assert victim.wait(120) == -signal.SIGKILL
    finally:
        victim.kill()
        victim.wait()
    lake = lake_in(bucket)
    assert [one.revision for one in lake.manifests()] == [10]
    later = rows_at(20)
    lake.write(manifest_of(later, 20), iter(later))
    assert [one.revision for one in lake_in(bucket).manifests()] == [20, 10]


_WRITER = """
import sys
from rsm_spark.snapshots.lake import LakeSnapshots
from tests.unit.rsm_spark.snapshots.test_lake import manifest_of, rows_at
rows = rows_at(15)
LakeSnapshots(sys.argv[1]).write(manifest_of(rows, 15), iter(rows))
"""
