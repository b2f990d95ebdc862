"""Forks of logs that are served: what they share is trimmed and deleted by either, and neither misses anything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import NodeExistsError, NoNodeError
from ledger.exit_codes import ExitCode
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.backup.fork_snapshots import ForkRequest
from rsm_spark.backup.forking import LogFork
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.key_file import KeyFile
from rsm_spark.map.client.client import MapClient
from rsm_spark.snapshots.opening import lake_snapshots
from tests.integration.backed_up_log import BackupCommand, rows_of
from tests.integration.store_processes import StoreProcess
from tests.integration.test_backup import Load, served, state_at

pytestmark = pytest.mark.asyncio


class ForkCommand(BackupCommand):
    """Runs `rsm log …` against one cluster."""

    async def fork(self, log: str, new: str, *options: str) -> dict[str, Any]:
        return await self.done("log", "fork", log, "--as", new, *self.where, *options)

    async def log(self, what: str, log: str, *options: str) -> dict[str, Any]:
        return await self.done("log", what, log, *self.where, *options)

    async def log_refused(self, what: str, log: str, *options: str) -> str:
        code, _, errors = await self.run("log", what, log, *self.where, *options)
        assert code in set(ExitCode), errors
        return errors

    @property
    def where(self) -> tuple[str, ...]:
        return ("--metadata-uri", self.metadata_uri, "--json")


async def new_key(commands: ForkCommand, folder: Path) -> tuple[str, ...]:
    key = str(folder / "log.key")
    await commands.done("log", "key", "new", "--file", key, "--json")
    return ("--log-key", key)


async def test_a_log_is_forked_while_it_is_written_and_each_goes_its_own_way(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    load, rng = Load(4), random.Random(4)
    async with served(uri, log, tmp_path / "live", *key):
        await load.run(log, uri, 500)
        writing = asyncio.create_task(load.run(log, uri, 300))
        now = await commands.fork(log, f"{log}-now", *key)
        early = rng.randrange(100, 500)
        cut = await commands.fork(log, f"{log}-cut", *key, "--at-revision", str(early))
        await writing
        last = await commands.fork(
            log,
            f"{log}-last",
            *key,
            "--at-revision",
            str(load.changes[-1][0]),
            "--data-dir",
            str(tmp_path / "last" / "a"),
        )
        assert last["revision"] == load.changes[-1][0]
        assert last["snapshot_revision"] > 0
        assert "it ends with revision" in await commands.log_refused(
            "fork", log, "--as", f"{log}-none", *key, "--at-revision", str(last["revision"] + 1000)
        )
        assert "there is one already" in await commands.log_refused("fork", log, "--as", f"{log}-now", *key)
        records = await commands.cat(log)
        assert now["shared"] > 0
        assert cut["revision"] <= early < now["revision"]
        for made in (now, cut, last):
            assert await commands.cat(made["log"]) == [one for one in records if one["revision"] <= made["revision"]]
            async with served(uri, made["log"], tmp_path / made["log"].removeprefix(f"{log}-"), *key):
                assert await rows_of(made["log"], uri) == state_at(records, made["revision"])
                async with await MapClient.connect(made["log"], uri) as client:
                    assert await client.put(b"new", b"here") > made["revision"]
                    again = await commands.fork(made["log"], f"{made['log']}-again", *key)
            assert again["shared"] > made["shared"] - 1
        booted = (tmp_path / "last" / "a.log").read_text()
        assert "booted from a snapshot: local" in booted
        async with await MapClient.connect(log, uri) as client:
            for number in range(60):
                revision = await client.put(b"big%d" % number, bytes(100_000))
        rolled = await commands.fork(log, f"{log}-rolled", *key)
        assert rolled["revision"] >= revision
        assert rolled["bytes"] <= 4 << 20, "much is never copied: the leader closes its ledger"
        assert b"new" not in await rows_of(log, uri)
    public = tmp_path / "log.pub"
    shown = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec '{sys.executable}' -m rsm_spark log key show-public --file '{key[1]}' > '{public}'"
    )
    assert await shown.wait() == 0
    proven = await commands.log("verify", f"{log}-now-again", *key, "--public-key", str(public))
    assert proven["first_revision"] == 1
    info = await commands.log("info", f"{log}-now-again")
    assert [one["log"] for one in info["origins"]] == [log, f"{log}-now"]
    assert {one["log"] for one in (await commands.log("info", log))["used_by"]} >= {f"{log}-now", f"{log}-cut"}


async def _ledgers(uri: str, log: str) -> list[int]:
    async with await LedgerClient.connect(uri) as client:
        return [ledger.ledger_id for ledger in (await ChainStore(client.store, log).read())[0].ledgers]


async def _all_ledgers(uri: str) -> set[int]:
    async with await LedgerClient.connect(uri) as client:
        return set(await client.list())


async def _trimmed(commands: ForkCommand, log: str, load: Load) -> None:
    """Have a log's leader trim all that it may."""
    before = await _ledgers(commands.metadata_uri, log)
    async with asyncio.timeout(60):
        while before[0] in await _ledgers(commands.metadata_uri, log):
            await load.run(log, commands.metadata_uri, 50)
            await commands.log("trim", log, "--accept-unverified")


async def test_what_is_shared_stays_until_the_last_log_goes(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    options = (*key, "--retention-s", "0")
    load = Load(6)
    async with served(uri, log, tmp_path / "live", *options):
        await load.run(log, uri, 900)
        made = await commands.fork(log, new, *key)
        shared = (await _ledgers(uri, new))[: made["shared"]]
        assert made["shared"] >= 3
        records = await commands.cat(new)
        await _trimmed(commands, log, load)
        gone = set(shared) - set(await _ledgers(uri, log))
        assert gone
        assert set(shared) <= await _all_ledgers(uri), "the origin has trimmed what its fork uses"
        assert await commands.cat(new) == records
        # What was trimmed has to be in a snapshot.
        assert "need a snapshot to begin with" in await commands.log_refused("fork", log, "--as", f"{new}-2", *key)
        later = await commands.fork(log, f"{new}-2", *key, "--lake", str(tmp_path / "lake"))
        expected = await rows_of(log, uri)
        async with served(uri, f"{new}-2", tmp_path / "two", *key, "--lake", str(tmp_path / "lake")):
            assert await rows_of(f"{new}-2", uri) == expected
        assert later["snapshot_revision"] >= later["revision"] - 500
        await commands.log("delete", f"{new}-2", "--yes")
    # A leader that comes afterwards looks for ledgers that no chain names.
    async with served(uri, log, tmp_path / "live", *options):
        await load.run(log, uri, 10)
        await asyncio.sleep(1.0)
        assert set(shared) <= await _all_ledgers(uri), "the origin has swept what its fork uses"
        async with served(uri, new, tmp_path / "new", *options):
            await load.run(new, uri, 10)
            await _trimmed(commands, new, load)
            left = set(shared) - set(await _ledgers(uri, new))
            async with asyncio.timeout(30):
                while left & gone & await _all_ledgers(uri):
                    await asyncio.sleep(0.1)
            assert left - gone <= await _all_ledgers(uri), "the fork has trimmed what its origin uses"
    still = set(await _ledgers(uri, new)) & set(shared)
    deleted = await commands.log("delete", log, "--yes")
    assert set(deleted["kept"]) == still - gone
    assert still <= await _all_ledgers(uri)
    await commands.log("delete", new, "--yes")
    assert not set(shared) & await _all_ledgers(uri)
    async with await LedgerClient.connect(uri) as client:
        with pytest.raises(NoNodeError):
            await client.store.children(f"/rsm/sharing/{deleted['log_id']}")


async def test_a_fork_may_copy_everything_or_share_with_the_logs_password(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path)
    secret = tmp_path / "password"
    secret.write_text("hidden")
    secret.chmod(0o600)
    load = Load(8)
    async with served(uri, log, tmp_path / "live", "--password-file", str(secret)):
        await load.run(log, uri, 300)
        made = await commands.fork(log, new, "--independent", "--password-file", str(secret))
        assert made["shared"] == 0
        assert not set(await _ledgers(uri, new)) & set(await _ledgers(uri, log))
        rows = await rows_of(log, uri)
        assert "have another password" in await commands.log_refused("fork", log, "--as", f"{new}-2")
        made = await commands.fork(log, f"{new}-2", "--password-file", str(secret))
        assert made["shared"] > 0
        for fork in (new, f"{new}-2"):
            async with served(uri, fork, tmp_path / fork, "--password-file", str(secret)):
                assert await rows_of(fork, uri) == rows


async def test_a_fork_that_was_killed_serves_nobody_and_is_undone_by_a_deletion(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    load = Load(2)
    async with served(uri, log, tmp_path / "live", *key):
        await load.run(log, uri, 500)

        def _killed(*_: Any) -> None:
            raise asyncio.CancelledError

        async def _nothing(*_: Any) -> None:
            pass

        monkeypatch.setattr(LogFork, "_finished", _killed)
        monkeypatch.setattr(LogFork, "_undo", _nothing)
        async with await LedgerClient.connect(uri) as client:
            keys = KeyFile.read(Path(key[1]), may_sign=False)
            target = ForkRequest(log=log, name=new, rsm_root="/rsm", keys=keys, by="ops")
            with pytest.raises(asyncio.CancelledError):
                await LogFork(client, target).make()
        before = await _all_ledgers(uri)
        assert "ops" in (await commands.log("info", new))["unfinished"]
        assert f"undo it if the command was killed: rsm log delete {new}" in await commands.log_refused(
            "fork", log, "--as", new, *key
        )
        (tmp_path / "new").mkdir()
        with pytest.raises(AssertionError, match="is making it of another log"):
            await asyncio.to_thread(StoreProcess, uri, new, tmp_path / "new", "a", *key)
        await commands.log("delete", new, "--yes")
        assert set(await _ledgers(uri, log)) <= await _all_ledgers(uri) < before
        assert (await commands.fork(log, new, *key))["shared"] > 0


async def test_deletions_and_forks_need_not_read_what_strangers_have(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    theirs = [
        f"/rsm/logs/{log}-theirs",
        *(f"/rsm/{place}/{secrets.token_hex(16)}" for place in ("sharing", "deleting")),
    ]
    stranger = await connect(MetadataUri.of(uri).hosts, auth=("digest", "stranger:other"))
    try:
        async with served(uri, log, tmp_path / "live", *key):
            await Load(3).run(log, uri, 300)
            await commands.fork(log, f"{new}-1", *key)
            async with await LedgerClient.connect(uri) as client:
                with contextlib.suppress(NodeExistsError):
                    await client.store.create("/rsm/deleting", parents=True)
            for path in theirs:
                await stranger.create(path)
            await commands.fork(log, new, *key)
            deleted = await commands.log("delete", new, "--yes")
            assert set(theirs[1:]) <= set(deleted["unread_notes"])
            listed, names, said = await commands.run("log", "list", *commands.where)
            assert listed == 0
            assert log in [one["log"] for one in names]
            assert f"{log}-theirs: not shown" in said
            shown, statuses, said = await commands.run("status", *commands.where)
            assert shown == 0
            assert log in [one["log"] for one in statuses]
            assert f"{log}-theirs: not shown" in said
            _, findings, _ = await commands.run("doctor", *commands.where)
            judged = {one["what"]: one["verdict"] for one in findings}
            assert judged[f"log {log}-theirs"] == "note"
            assert f"log {log}, replica a" in judged
    finally:
        for path in theirs:
            with contextlib.suppress(NoNodeError):
                await stranger.delete(path)
        await stranger.close()


async def test_a_log_that_is_not_made_leaves_no_snapshot_in_the_lake(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, lake = cluster.metadata_uri, unique_name, tmp_path / "lake"
    commands = ForkCommand(uri, tmp_path / "backups")
    key = await new_key(commands, tmp_path)
    made: list[bool] = []
    async with served(uri, log, tmp_path / "live", *key):
        await Load(2).run(log, uri, 900)
        await commands.create(log)
        cluster_at = ("--metadata-uri", uri, "--lake", str(lake), *key)
        for number, what in enumerate(
            (("log", "fork"), ("backup", "restore", "--place", str(tmp_path / "backups"))) * 2
        ):
            new = f"{log}-{number}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rsm_spark", *what, log, "--as", new, *cluster_at, cwd=Path(__file__).parents[2],
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            while process.returncode is None and not (lake / new).exists():
                await asyncio.sleep(0.001)
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await process.wait()
            async with await LedgerClient.connect(uri) as client:
                made.append(await client.store.exists(f"/rsm/logs/{new}") is not None)
            assert (process.returncode == 0) is made[-1] is bool(lake_snapshots(str(lake), new).manifests()), what
            assert made[-1] or not (lake / new).exists()
    assert not all(made), "each was too quick to be interrupted"
