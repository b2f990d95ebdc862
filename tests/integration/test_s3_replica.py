"""Replicas with a lake in S3, and the commands that read it: booted from it, restored, forked, backed up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from tests.integration.backed_up_log import BackupCommand, rows_of
from tests.integration.s3_server import DENIED, SECRETS, Bucket, harmful, times
from tests.integration.store_processes import StoreProcess
from tests.integration.test_backup import QUICK, Load

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1200)]


@asynccontextmanager
async def served(uri: str, log: str, folder: Path, *options: str) -> AsyncIterator[StoreProcess]:
    folder.mkdir(exist_ok=True)
    store = await asyncio.to_thread(StoreProcess, uri, log, folder, "a", *QUICK, *options)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.stop)


async def test_a_replica_keeps_a_lake_in_a_bucket_and_logs_are_made_of_it(
    cluster: DevCluster, unique_name: str, bucket: Bucket, tmp_path: Path
) -> None:
    uri, at, lake_uri = cluster.metadata_uri, ("--metadata-uri", cluster.metadata_uri), f"{bucket.uri}/lake"
    file = ("--storage-options-file", str(bucket.options_file(tmp_path)))
    commands = BackupCommand(uri, f"{bucket.uri}/backups")
    lake = LakeSnapshots(lake_place(lake_uri, unique_name), storage_options=bucket.options())
    keeping = ("--lake", lake_uri, "--lake-s", "1", "--verify-s", "0.5", *file)
    with harmful(bucket.url) as proxy:
        between = tmp_path / "between"
        between.mkdir()
        harmed = ("--storage-options-file", str(bucket.options_file(between, proxy.url)))
        proxy.rule = times(6, DENIED, lambda asked: asked.method == "PUT")
        async with served(uri, unique_name, tmp_path / "live", *keeping, *harmed) as store:
            await Load(31).run(unique_name, uri, 200)
            while not lake.manifests():
                await asyncio.sleep(0.5)
            log = (tmp_path / "live" / "a.log").read_text()
    assert store.process.returncode == 0
    assert not [secret for secret in SECRETS if secret in log]
    assert "Traceback" not in log
    async with served(uri, unique_name, tmp_path / "new", *keeping):
        expected = await rows_of(unique_name, uri)
        booted = (tmp_path / "new" / "a.log").read_text()
    assert "lake" in booted
    newest = lake.manifests()[0].revision
    made = await commands.create(unique_name, "--lake", lake_uri, *file)
    assert newest in made["snapshots"]
    listed = await commands.done("snapshot", "list", "--log", unique_name, "--lake", lake_uri, *file, "--json")
    assert listed["place"] == lake_place(lake_uri, unique_name)
    forked = await commands.done(
        "log", "fork", unique_name, "--as", f"{unique_name}-fork", "--independent", "--from-lake", lake_uri,
        "--lake", lake_uri, *file, *at, "--json",
    )  # fmt: skip
    assert forked["snapshot_revision"] == newest
    new = f"{unique_name}-begun"
    await commands.done(
        "snapshot", "restore", unique_name, "--from", lake_uri, "--as", new, "--lake", lake_uri, "--accept-loss",
        *file, *at, "--json",
    )  # fmt: skip
    async with served(uri, new, tmp_path / "begun", *keeping):
        begun = await rows_of(new, uri)
    assert begun.keys() <= {b"k%d" % number for number in range(200)}
    assert expected
    assert not [secret for secret in SECRETS if secret.encode() in bucket.all_bytes()]
