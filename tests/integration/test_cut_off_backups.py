"""Backups and restores that were cut off, and one that ends too early: what they leave is found, and removed."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.backup.creating import LogBackup
from rsm_spark.backup.manifest import BackupError, BackupManifest
from rsm_spark.backup.place import BackupPlace
from rsm_spark.log.commit_log import LogReader
from tests.integration.backed_up_log import BackupCommand
from tests.integration.test_backup import Load, ledgers, served

pytestmark = pytest.mark.asyncio


async def test_a_backup_that_is_killed_is_none_and_the_next_one_is_whole(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    load = Load(12)
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live"):
        await load.run(unique_name, cluster.metadata_uri, 200)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rsm_spark", "backup", "create", unique_name, "--rate-mb", "0.001",
            "--place", str(tmp_path / "backups"), "--metadata-uri", cluster.metadata_uri,
        )  # fmt: skip
        await asyncio.sleep(3)  # Long before its end, wherever it is.
        process.kill()
        await process.wait()
        code, found, _ = await commands.run("backup", "list", "--place", str(tmp_path / "backups"), "--json")
        assert (code, found) == (0, [])
        made = await commands.create(unique_name)
        folder = tmp_path / "backups" / unique_name / made["log_id"]
        kept = {path for path in folder.rglob("*") if path.is_file()}
        left = [
            folder / "entries" / f"{1:020d}-{9:020d}-{'ab' * 8}.entries",
            folder / "snapshots" / f"{9:020d}-{'ab' * 4}" / "map.parquet",
            folder / "entries" / f".new-{'ab' * 8}",
        ]
        foreign = [folder / "entries" / "notes.txt", tmp_path / "backups" / left[0].name, folder / left[0].name]
        for path in (*left, *foreign):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x")
        other = f"/rsm/backups/{made['log_id']}-running-other"
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            await client.store.create(other, ephemeral=True, parents=True)
            assert (await commands.create(unique_name))["swept"] == 0, "another one runs, whose files they may be"
            await client.store.delete(other)
            while any("-running-" in name for name in await client.store.children("/rsm/backups")):
                await asyncio.sleep(0.2)  # Until the session of the one that was killed ends.
        made = await commands.create(unique_name, "--no-snapshot")
        assert made["swept"] == len(left)
        there = {path for path in folder.rglob("*") if path.is_file()}
        assert kept | {foreign[0], foreign[2]} <= there
        assert not there & set(left)
    assert (await commands.verify(unique_name))["last_revision"] == made["last_revision"]


async def test_a_restore_that_is_killed_leaves_ledgers_that_the_next_command_sweeps(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    commands, uri = BackupCommand(cluster.metadata_uri, tmp_path / "backups"), cluster.metadata_uri
    async with served(uri, unique_name, tmp_path / "live"):
        await Load(14).run(unique_name, uri, 300)
        await commands.create(unique_name)
        for step in ("_chain", "create_chain"):  # Before there is a chain, and right behind that.
            before = await ledgers(uri)
            new = f"{unique_name}-{step}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _KILLED[step], "backup", "restore", unique_name, "--as", new,
                "--place", str(tmp_path / "backups"), "--metadata-uri", uri,
            )  # fmt: skip
            assert await process.wait() == -signal.SIGKILL
            assert await ledgers(uri) > before
            async with await LedgerClient.connect(uri) as client:
                marks = [name for name in await client.store.children("/rsm/making") if "-alive" not in name]
                assert bool(marks) is (step == "_chain"), "the chain takes the place of the mark"
                while any(name.endswith("-alive") for name in await client.store.children("/rsm/making")):
                    await asyncio.sleep(0.2)  # Until its session ends.
                await commands.create(unique_name)
                assert await client.store.children("/rsm/making") == []
                is_made = new in await client.store.children("/rsm/logs")
            if is_made:
                assert await commands.cat(new)
            else:
                assert before >= await ledgers(uri)
            assert is_made is (step == "create_chain")
    assert (await commands.restore(unique_name, f"{unique_name}-again"))["revision"]


_KILLED = {
    "_chain": """
import os, signal
from rsm_spark.backup import restoring
restoring.LogRestore._chain = lambda _self: os.kill(os.getpid(), signal.SIGKILL)
from rsm_spark.cli.main import main
main()
""",
    "create_chain": """
import os, signal
from rsm_spark.backup.restore_mark import RestoreMark
async def clear(_self): os.kill(os.getpid(), signal.SIGKILL)
RestoreMark.clear = clear
from rsm_spark.cli.main import main
main()
""",
}


class _StopsEarly(LogBackup):
    """A planted bug: it stops behind the first entries that it has read."""

    async def _copy_segment(self, reader: LogReader) -> bool:
        await super()._copy_segment(reader)
        return False


async def test_a_backup_that_lacks_its_tail_is_found(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = BackupCommand(cluster.metadata_uri, tmp_path / "backups")
    place = BackupPlace(str(tmp_path / "backups"))
    async with served(cluster.metadata_uri, unique_name, tmp_path / "live"):
        await Load(6).run(unique_name, cluster.metadata_uri, 300)
        monkeypatch.setattr("rsm_spark.backup.creating._SEGMENT_BYTES", 1)
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            backup = _StopsEarly(client, unique_name, rsm_root="/rsm", place=place, supply=None)
            with pytest.raises(BackupError, match="could be copied up to revision"):
                await backup.make()
            # One whose maker did not look is found by who reads it.
            monkeypatch.setattr(BackupManifest, "last_revision", 1 << 40)
            careless = _StopsEarly(client, unique_name, rsm_root="/rsm", place=place, supply=None)
            outcome = await careless.make()
            monkeypatch.undo()
        made = outcome.manifest
        written = next((tmp_path / "backups").rglob("backups/*.json"))
        written.rename(written.with_name(made.name))
        assert "its tail is missing" in await commands.refused("verify", unique_name)
        assert "its tail is missing" in await commands.refused(
            "restore", unique_name, "--as", "x", "--metadata-uri", cluster.metadata_uri
        )
