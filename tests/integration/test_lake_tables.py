"""Typed tables in the lake on real ground: killed writers, a store that refuses, replicas of a map."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.dev import DevCluster
from rsm_spark.core.row_tables import DescribedTables
from rsm_spark.errors import SnapshotError
from rsm_spark.map.client.client import MapClient
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.snapshots.tables.lake_tables import LakeTables
from rsm_spark.snapshots.tables.naming import tables_place
from tests.integration.s3_server import DENIED, SECRETS, Asked, Bucket, HarmfulProxy, harmful, times
from tests.integration.test_snapshot_care import Group, until
from tests.unit.rsm_spark.snapshots.tables.test_lake_tables import SHOP, manifest_at, note, order

WAIT_S = 120.0


def state_at(revision: int) -> list[Any]:
    """Return rows that change in each way: orders grow, and the first ones go; of notes one changes."""
    orders = [order(number, f"item {number}", "1.50", number) for number in range(revision // 4, revision + 1)]
    return [*orders, note("a", b"%d" % revision, revision), note("b", b"x", 1)]


def write_on(place: str, first: int, options: dict[str, str] | None = None) -> None:
    """Write one revision after the other, for ever."""
    lake = LakeTables(place, storage_options=options, retention_hours=0, pace=lambda: no_pace)
    for revision in range(first, sys.maxsize):
        lake.write(manifest_at(revision), lambda at=revision: iter(state_at(at)), DescribedTables(SHOP))


def rows_of(place: str, table: str, version: int, options: dict[str, str] | None = None) -> list[dict[str, Any]]:
    found: pa.Table = DeltaTable(f"{place}/{table}", version=version, storage_options=options).to_pyarrow_table()
    return sorted(found.to_pylist(), key=lambda row: str(next(iter(row.values()))))


def check_named(place: str, options: dict[str, str] | None = None) -> int:
    """Compare every version that is named with the state at its revision; return the newest revision."""
    named = LakeTables(place, storage_options=options).versions()
    for one in named:
        state = [row for row in state_at(one.revision) if row.table == one.table]
        found = rows_of(place, one.path, one.version, options)
        assert len(found) == len(state) == one.rows, (one.table, one.version, one.revision)
        assert {row["_revision"] for row in found} == {row.revision for row in state}
        if one.table == "notes":
            assert found[0]["text"] == b"%d" % one.revision
    assert {one.table for one in named if one.revision == named[0].revision} == {"orders", "notes"}
    return named[0].revision


def test_a_writer_that_is_killed_anywhere_leaves_no_half_revision(tmp_path: Path) -> None:
    place, newest = tables_place(str(tmp_path / "shop")), 0
    for kill, table in enumerate(("orders", "notes", "_revisions")):
        log = Path(place) / table / "_delta_log"
        before = len(list(log.glob("*.json")))
        victim = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from tests.integration.test_lake_tables import *; write_on({place!r}, {newest + 1})",
            ],
            cwd=Path(__file__).parents[2],
        )
        try:
            deadline = time.monotonic() + WAIT_S
            # Right behind a commit of this table: those of the others are not there yet, or are.
            while len(list(log.glob("*.json"))) < before + 3 + kill % 2:
                assert time.monotonic() < deadline, "it does not write"
                assert victim.poll() is None
                time.sleep(0.001)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        found = check_named(place)
        assert found > newest
        newest = found
    lake = LakeTables(place, retention_hours=0, pace=lambda: no_pace)
    lake.write(manifest_at(newest + 5), lambda: iter(state_at(newest + 5)), DescribedTables(SHOP))
    assert check_named(place) == newest + 5


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[HarmfulProxy]:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    with harmful(bucket.url) as between:
        yield between


def written(bucket: Bucket, revision: int, url: str | None = None) -> None:
    place = tables_place(f"{bucket.uri}/lake/shop")
    lake = LakeTables(place, storage_options=bucket.options(url), retention_hours=0, pace=lambda: no_pace)
    lake.write(manifest_at(revision), lambda: iter(state_at(revision)), DescribedTables(SHOP))


def test_tables_in_s3_are_written_let_go_and_removed_with_their_snapshots(bucket: Bucket) -> None:
    place = tables_place(f"{bucket.uri}/lake/shop")
    for revision in (1, 2, 3, 8):
        written(bucket, revision)
    assert check_named(place, bucket.options()) == 8
    named = LakeTables(place, storage_options=bucket.options()).versions()
    assert sorted({one.revision for one in named}) == [2, 3, 8]
    parts = [key for key in bucket.objects() if "/notes/" in key and key.endswith(".parquet")]
    assert len(parts) == 3, "what nobody names was let go"


def test_a_store_that_refuses_is_one_line_and_readers_keep_what_they_had(bucket: Bucket, proxy: HarmfulProxy) -> None:
    place = tables_place(f"{bucket.uri}/lake/shop")
    written(bucket, 1)
    writes = ("PUT", "POST")
    for rule in (
        times(1000, DENIED),
        times(1000, DENIED, lambda asked: asked.method in writes),
        times(1000, DENIED, lambda asked: asked.method in writes and "/notes/" in asked.path),
        times(1000, DENIED, lambda asked: asked.method in writes and "/_revisions/" in asked.path),
    ):
        proxy.rule = rule
        with pytest.raises(SnapshotError) as raised:
            written(bucket, 2, proxy.url)
        told = str(raised.value)
        assert "refuses these credentials" in told
        assert "\n" not in told
        assert not [secret for secret in SECRETS if secret in told]
        assert check_named(place, bucket.options()) == 1
    proxy.rule = times(0, DENIED)
    written(bucket, 3, proxy.url)
    assert check_named(place, bucket.options()) == 3


def test_a_slow_store_holds_no_other_thread_up(bucket: Bucket, proxy: HarmfulProxy) -> None:
    written(bucket, 1)
    held: list[str] = []

    def wait(asked: Asked) -> None:
        ran.clear()
        if not ran.wait(5):
            held.append(f"{asked.method} {asked.path}")

    ran, over = threading.Event(), threading.Event()

    def run() -> None:
        while not over.wait(0.001):
            ran.set()

    beside = threading.Thread(target=run)
    beside.start()
    try:
        proxy.rule = wait
        written(bucket, 2, proxy.url)
    finally:
        over.set()
        beside.join()
    assert held == []


@pytest.mark.asyncio
@pytest.mark.slow
async def test_the_tables_of_a_map_are_the_map_at_that_revision(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    group = Group(cluster, unique_name, tmp_path)
    lake = LakeSnapshots(lake_place(str(tmp_path / "lake"), unique_name))
    live: dict[bytes, bytes] = {}
    try:
        for name in ("a", "b"):
            await group.start(name)
        async with await MapClient.connect(group.log, group.uri) as client:
            for step in range(200):
                key = b"k%d" % (step % 40)
                if step % 7 == 3 and key in live:
                    await client.delete(key)
                    del live[key]
                else:
                    live[key] = b"v%d" % step
                    await client.put(key, live[key])
                await asyncio.sleep(0.02)
            revision = await client.put(b"last", b"x")
            live[b"last"] = b"x"
        await until(lambda: lake.tables.newest_revision() >= revision)
    finally:
        await group.stop()
    (found,) = [one for one in lake.tables.versions() if one.table == "map" and one.revision >= revision][:1]
    rows = rows_of(lake.tables.place, found.path, found.version)
    assert {row["key"]: row["value"] for row in rows} == live
    snapshot = next(one for one in lake.manifests() if one.revision == found.revision)
    assert (snapshot.prefix_hash, snapshot.ledger_id, snapshot.entry_id) == (
        found.prefix_hash, found.ledger_id, found.entry_id,
    )  # fmt: skip
