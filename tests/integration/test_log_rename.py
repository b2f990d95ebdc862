"""`rsm log rename` on real replicas: refused while one runs; all go on under the new name, and the old one tells it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.errors import NoLeaderError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.client.client import MapClient
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from tests.integration.backed_up_log import rows_of
from tests.integration.store_processes import StoreProcess
from tests.integration.test_backup import Load, served
from tests.integration.test_log_fork import ForkCommand, new_key

pytestmark = pytest.mark.asyncio


async def test_a_log_its_forks_and_its_backups_go_on_under_another_name(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new, fork = cluster.metadata_uri, unique_name, f"{unique_name}-new", f"{unique_name}-fork"
    commands = ForkCommand(uri, tmp_path / "backups")
    key = await new_key(commands, tmp_path)
    audit = ("--audit-file", str(tmp_path / "audit"), "--reason", "moved")
    async with served(uri, log, tmp_path / "live", *key):
        await Load(4).run(log, uri, 400)
        await commands.create(log)
        await commands.fork(log, fork, *key)
        assert "its replica a still runs" in await commands.log_refused("rename", log, new)
        rows = await rows_of(log, uri)
    assert "there is one already" in await commands.log_refused("rename", log, fork)
    records = await commands.cat(log)
    assert (await commands.log("rename", log, new, *audit))["was_done"] is False
    assert (await commands.log("rename", log, new))["was_done"] is True
    assert "moved" in (tmp_path / "audit").read_text()
    # Its fork uses its ledgers, and is renamed too.
    renamed = await commands.log("rename", fork, f"{fork}-new")
    assert [one["log"] for one in (await commands.log("info", new))["used_by"]] == [f"{fork}-new"]

    for what in ("info", "delete", "trim"):
        said = await commands.log_refused(what, log, *(("--yes",) if what == "delete" else ()))
        assert f"use the name {new}" in said
    async with await MapClient.connect(log, uri, timeout_s=2) as client:
        with pytest.raises(NoLeaderError, match=f"use the name {new}"):
            await client.get(b"k")
    for folder in ("live", "empty"):
        (tmp_path / folder).mkdir(exist_ok=True)
        with pytest.raises(AssertionError, match=f"use the name {new}"):
            await asyncio.to_thread(StoreProcess, uri, log, tmp_path / folder, "a", *key)

    assert await commands.cat(new) == records
    async with served(uri, new, tmp_path / "live", *key):
        assert await rows_of(new, uri) == rows
        await Load(5).run(new, uri, 50)
        again = await commands.create(new)
        assert (again["first_revision"], again["log"]) == (1, log), "the series goes on where it lies"
        assert again["new_entries"] < len(records) // 2
        assert len(await commands.backups(new)) == len(await commands.backups(log)) == 2
        more = await commands.cat(new)
        assert more[: len(records)] == records
    async with served(uri, f"{fork}-new", tmp_path / "fork", *key):
        assert (await rows_of(f"{fork}-new", uri)).items() >= rows.items()
    for source, name in ((log, "old"), (new, "young")):
        restored = await commands.restore(source, f"{new}-{name}", *key)
        assert await commands.cat(f"{new}-{name}") == [one for one in more if one["revision"] <= restored["revision"]]
    assert (await commands.verify(new))["ok"]

    # The former name is another log's once a command says so, and that is deleted without touching this one.
    await commands.fork(f"{fork}-new", log, *key)
    await commands.log("delete", log, "--yes")
    assert renamed["log_id"] == (await commands.log("info", f"{fork}-new"))["log_id"]
    await commands.log("delete", new, "--yes")
    async with served(uri, f"{fork}-new", tmp_path / "fork", *key):
        assert (await rows_of(f"{fork}-new", uri)).items() >= rows.items()


async def test_snapshots_in_a_lake_go_on_under_another_name(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new, at = cluster.metadata_uri, unique_name, f"{unique_name}-new", tmp_path / "lake"
    keeping, lake = ("--lake", str(at), "--lake-s", "1"), LakeSnapshots(lake_place(str(at), log))
    async with served(uri, log, tmp_path / "live", *keeping):
        await Load(6).run(log, uri, 100)
        while not lake.manifests():
            await asyncio.sleep(0.5)
        rows, before = await rows_of(log, uri), lake.manifests()[0].revision
    commands = ForkCommand(uri, tmp_path / "backups")
    await commands.log("rename", log, new)
    async with served(uri, new, tmp_path / "empty", *keeping):
        assert await rows_of(new, uri) == rows
        assert "booted from a snapshot: lake" in (tmp_path / "empty" / "a.log").read_text()
        await Load(7).run(new, uri, 100)
        while lake.manifests()[0].revision <= before:
            await asyncio.sleep(0.5)
        made = await commands.create(new, "--lake", str(at))
    assert made["snapshots"]
    assert sorted(path.name for path in at.iterdir()) == [log]
    assert lake.manifests()[0].log_name == new


async def test_a_renaming_that_is_killed_has_happened_or_not(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, names, rng = cluster.metadata_uri, [unique_name, f"{unique_name}-new"], random.Random(3)
    async with served(uri, unique_name, tmp_path / "live"):
        await Load(2).run(unique_name, uri, 50)
        rows = await rows_of(unique_name, uri)
    async with await LedgerClient.connect(uri) as client:
        old = 0
        for _ in range(6):
            command = ["log", "rename", names[old], names[1 - old], "--metadata-uri", uri]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rsm_spark", *command, stderr=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, cwd=Path(__file__).parents[2],
            )  # fmt: skip
            await asyncio.sleep(rng.uniform(0.3, 1.2))
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
            there = []
            for name in names:
                with contextlib.suppress(NoSuchLogError):
                    await ChainStore(client.store, name).read()
                    there.append(names.index(name))
            (old,) = there
    async with served(uri, names[old], tmp_path / "live"):
        assert await rows_of(names[old], uri) == rows
