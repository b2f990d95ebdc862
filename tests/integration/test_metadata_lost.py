"""Logs that begin again with a replica's folder or a lake, after the metadata store has lost them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.exit_codes import ExitCode
from rsm_spark.core.chain import chain_path
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.client.client import MapClient
from rsm_spark.snapshots.opening import lake_snapshots
from tests.integration.backed_up_log import BackupCommand, rows_of
from tests.integration.store_processes import stores
from tests.integration.test_backup import QUICK, Load, served

pytestmark = pytest.mark.asyncio


class Lost:
    """A log that was served for a while, its snapshots, and the command that begins it again."""

    def __init__(self, uri: str, log: str, folder: Path) -> None:
        self.commands = BackupCommand(uri, folder / "backups")
        self.uri = uri
        self.log = log
        self.folder = folder
        self.data = folder / "live" / "a"
        self.rows: dict[bytes, bytes] = {}

    async def serve(self, *options: str, lake: str = "") -> None:
        """Serve it until snapshots, also in the lake, hold all that was written."""
        if lake:
            options = (*options, "--lake", lake, "--lake-s", "1")
        async with served(self.uri, self.log, self.folder / "live", *options) as store:
            await Load(21).run(self.log, self.uri, 300)
            self.rows = await rows_of(self.log, self.uri)
            written = (await store.status())["revision"]
            async with asyncio.timeout(60):
                while (await store.status())["snapshot_revision"] < written:
                    await asyncio.sleep(0.1)
                while lake and not any(one.revision >= written for one in lake_snapshots(lake, self.log).manifests()):
                    await asyncio.sleep(0.1)

    async def lose(self, *, with_ledgers: bool) -> str:
        """Delete what the metadata store has of it; return its id."""
        async with await LedgerClient.connect(self.uri) as client:
            chain, _ = await ChainStore(client.store, self.log).read()
            await client.store.delete(chain_path(self.log))
            for ledger in chain.ledgers if with_ledgers else ():
                await client.delete(ledger.ledger_id)
            return chain.log_id

    async def restore(self, *options: str, uri: str = "") -> tuple[int, list[dict], str]:  # type: ignore[type-arg]
        return await self.commands.run(
            "snapshot", "restore", self.log, *options, "--metadata-uri", uri or self.uri, "--json"
        )

    async def refused(self, *options: str) -> str:
        code, _, errors = await self.restore(*options)
        assert code in set(ExitCode), errors
        return errors


async def test_a_replicas_folder_begins_the_log_again_and_a_second_replica_joins(
    cluster: DevCluster, start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    lost = Lost(cluster.metadata_uri, unique_name, tmp_path)
    await lost.serve()
    place, new = ("--from", str(lost.data)), tmp_path / "new"
    target = ("--data-dir", str(new / "a"), "--accept-loss")
    assert "it is still there" in await lost.refused(*place, *target)
    old_id = await lost.lose(with_ledgers=True)
    code, (said,), errors = await lost.restore(*place)
    assert (code, "say --accept-loss" in errors) == (1, True)
    assert said["snapshot"]["log_id"] == old_id
    assert said["left"]["ledger_ids"] == []
    assert "the metadata store knows no ledger of the log" in " ".join(said["lost"])
    elsewhere = start_cluster(bookie_count=2).metadata_uri
    for uri, folder in ((lost.uri, new), (elsewhere, tmp_path / "elsewhere")):
        code, lines, errors = await lost.restore(*place, "--data-dir", str(folder / "a"), "--accept-loss", uri=uri)
        assert code == 0, errors
        begun = lines[-1]["begun"]
        with stores(uri, lost.log, folder) as replicas:
            first = await asyncio.to_thread(replicas.start, "a", *QUICK)
            assert first.ready["log_id"] == begun["log_id"] != old_id
            assert await rows_of(lost.log, uri) == lost.rows
            second = await asyncio.to_thread(replicas.start, "b", *QUICK)
            async with await MapClient.connect(lost.log, uri) as client:
                assert await client.put(b"new", b"here") > begun["revision"]
            async with asyncio.timeout(60):
                while (await first.status())["snapshot_revision"] <= begun["revision"]:
                    await asyncio.sleep(0.1)
            revision = (await second.status())["revision"]
            assert len({one["digest"] for one in await replicas.agree(revision)}) == 1
        commands = BackupCommand(uri, tmp_path / f"backups-{folder.name}")
        info = await commands.done("log", "info", lost.log, "--metadata-uri", uri, "--json")
        assert [(one["log_id"], one["revision"]) for one in info["origins"]] == [(old_id, begun["snapshot_revision"])]
        assert info["whole"] is False
        made = await commands.create(lost.log, "--data-dir", str(folder / "a"))
        assert made["first_revision"] == begun["snapshot_revision"] + 1
        assert (await commands.verify(lost.log))["ok"]
    assert "there is one already" in await lost.refused(*place, "--data-dir", str(tmp_path / "x"), "--accept-loss")


async def test_a_replica_without_the_state_does_not_begin_empty(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    lost = Lost(cluster.metadata_uri, unique_name, tmp_path)
    await lost.serve()
    await lost.lose(with_ledgers=True)
    options = ("--data-dir", str(tmp_path / "new" / "a"), "--accept-loss")
    code, _, errors = await lost.restore("--from", str(lost.data), *options)
    assert code == 0, errors
    with pytest.raises(AssertionError, match="are missing"):
        async with served(lost.uri, lost.log, tmp_path / "empty"):
            pass


async def test_a_lake_begins_a_log_and_ledgers_that_are_left_are_told(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    lost, lake = Lost(cluster.metadata_uri, unique_name, tmp_path), str(tmp_path / "lake")
    await lost.serve(lake=lake)
    old_id = await lost.lose(with_ledgers=False)
    code, (said,), _ = await lost.restore("--from", lake)
    assert code == 1
    assert said["left"]["ledger_ids"]
    assert said["snapshot"]["log_id"] == old_id
    assert said["left"]["last_revision"] >= said["snapshot"]["revision"]
    assert said["is_proven"]
    new = f"{lost.log}-new"
    assert "the lake holds snapshots" in await lost.refused("--from", lake, "--lake", lake, "--accept-loss")
    code, _, errors = await lost.restore("--from", lake, "--as", new, "--lake", lake, "--accept-loss")
    assert code == 0, errors
    async with served(lost.uri, new, tmp_path / "new", "--lake", lake):
        assert await rows_of(new, lost.uri) == lost.rows


async def test_a_log_with_a_key_needs_it_and_a_word_of_the_log_or_of_the_operator(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    lost, lake = Lost(cluster.metadata_uri, unique_name, tmp_path), str(tmp_path / "lake")
    key = ("--log-key", str(tmp_path / "log.key"))
    await lost.commands.done("log", "key", "new", "--file", key[1], "--json")
    await lost.serve(*key, lake=lake)
    async with await LedgerClient.connect(lost.uri) as client:
        ledgers = [one.ledger_id for one in (await ChainStore(client.store, lost.log).read())[0].ledgers]
    await lost.lose(with_ledgers=False)
    new = f"{lost.log}-new"
    named = ("--from", lake, "--as", new, "--lake", lake, "--accept-loss")
    assert "has a key" in await lost.refused(*named)
    code, lines, errors = await lost.restore(*named, *key)
    assert code == 0, errors  # A sealed checkpoint in the ledgers that are left names it.
    assert lines[0]["is_proven"]
    for letter in ("a", "b"):  # Both take the state from the lake, and ask the new log whether it is right.
        async with served(lost.uri, new, tmp_path / f"new-{letter}", "--lake", lake, *key):
            assert await rows_of(new, lost.uri)
    async with await LedgerClient.connect(lost.uri) as client:
        for ledger_id in ledgers:
            await client.delete(ledger_id)
    target = ("--data-dir", str(tmp_path / "again" / "a"), "--accept-loss", *key)
    assert "no sealed checkpoint" in await lost.refused("--from", lake, *target, "--accept-unproven")
    assert "say --accept-unproven" in await lost.refused("--from", str(lost.data), *target)
    code, _, errors = await lost.restore("--from", str(lost.data), *target, "--accept-unproven")
    assert code == 0, errors
    async with served(lost.uri, lost.log, tmp_path / "again", *key):
        assert await rows_of(lost.log, lost.uri) == lost.rows


async def test_a_folder_that_somebody_changed_begins_nothing(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    lost = Lost(cluster.metadata_uri, unique_name, tmp_path)
    await lost.serve()
    await lost.lose(with_ledgers=True)
    whole, copy = lost.data / "snapshots", tmp_path / "copy"
    new = ("--data-dir", str(tmp_path / "new"), "--accept-loss")
    newest = max(one.name for one in whole.iterdir() if one.is_dir() and not one.name.startswith("."))
    others = sorted(one.name for one in whole.iterdir() if one.is_dir() and not one.name.startswith("."))
    async with await LedgerClient.connect(lost.uri) as client:
        before = await client.list()
        for change in ("cut", "swapped", "gone"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            table = copy / newest / "map.parquet"
            if change == "cut":
                table.write_bytes(table.read_bytes()[:-20])
            elif change == "swapped":
                shutil.copy(copy / others[0] / "_sessions.parquet", table)
            else:
                table.unlink()
            refusal = await lost.refused("--from", str(copy), *new)
            assert "a newer snapshot is damaged" in refusal or "there is no whole snapshot" in refusal
        refusal = await lost.refused("--from", str(whole), "--at-least", "1000000000", *new)
        assert "an older state in the place of a newer" in refusal
        assert sorted(await client.list()) == sorted(before)
    assert not (tmp_path / "new").exists()
