"""Forks that are detached: served meanwhile, killed on the way, read on by whoever stood in a shared ledger."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.position import LogPosition
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from tests.integration.backed_up_log import rows_of
from tests.integration.test_backup import Load, served, state_at
from tests.integration.test_log_fork import ForkCommand, _all_ledgers, _ledgers, new_key

pytestmark = pytest.mark.asyncio


async def test_a_fork_is_detached_while_it_is_written_and_its_origin_can_go(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path / "backups")
    key = await new_key(commands, tmp_path)
    load = Load(4)
    async with served(uri, log, tmp_path / "live", *key):
        await load.run(log, uri, 900)
        made = await commands.fork(log, new, *key)
        records = await commands.cat(log)
    shared = (await _ledgers(uri, new))[: made["shared"]]
    assert made["shared"] >= 3
    async with await LedgerClient.connect(uri) as client, served(uri, new, tmp_path / "new", *key):
        await commands.create(new)
        reader = LogReader(client, ChainStore(client.store, new), password=None, entries_max=1)
        read = await reader.read()
        assert read[0].position.ledger_id == shared[0]
        writing = asyncio.create_task(load.run(new, uri, 300))
        assert "give the key file" in await commands.log_refused("detach", new)
        done = await commands.log("detach", new, *key)
        await writing
        assert (done["ledgers"], done["log"]) == (made["shared"], new)
        info = await commands.log("info", new)
        assert info["shared"] == 0
        assert not set(shared) & set(await _ledgers(uri, new))
        assert (await commands.log("detach", new, *key))["ledgers"] == 0
        async with asyncio.timeout(60):  # The leader lets go of them.
            while (await commands.log("info", log))["used_by"]:
                await asyncio.sleep(0.2)
        await commands.log("delete", log, "--yes")
        assert not set(shared) & await _all_ledgers(uri)
        # Who stood in a shared ledger goes on in the copy; so does a series of backups.
        while reader.revision < made["revision"]:
            read += await reader.read()
        await reader.close()
        revisions = [entry.envelope.first_revision for entry in read if entry.envelope.record_count]
        assert revisions == sorted(set(revisions))
        assert [one for one in await commands.cat(new) if one["revision"] <= made["revision"]] == [
            one for one in records if one["revision"] <= made["revision"]
        ]
        later = await commands.create(new)
        assert later["first_revision"] == 1
        await commands.verify(new, *key)


async def test_a_killed_detachment_is_gone_on_with_and_a_snapshot_in_a_shared_ledger_still_serves(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    load = Load(5)
    async with served(uri, log, tmp_path / "live", *key):
        await load.run(log, uri, 900)
        made = await commands.fork(log, new, *key, "--data-dir", str(tmp_path / "new" / "a"))
        records = await commands.cat(log)
    shared = (await _ledgers(uri, new))[: made["shared"]]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rsm_spark", "log", "detach", new, *key, "--metadata-uri", uri,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    async with await LedgerClient.connect(uri) as client:
        mark = f"/rsm/detaching/{made['log_id']}"
        async with asyncio.timeout(60):
            while process.returncode is None and await client.store.exists(mark) in {None, 0}:
                await asyncio.sleep(0.001)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        async with asyncio.timeout(60):
            while await client.store.exists(f"{mark}-alive") is not None:
                await asyncio.sleep(0.1)
        await commands.log("detach", new, *key)  # Nobody serves it: the command writes the chain.
        assert await client.store.exists(mark) is None
        assert not set(shared) & set(await _ledgers(uri, new))
        assert (await commands.log("info", new))["shared"] == 0
        reader = LogReader(client, ChainStore(client.store, new), password=None, position=LogPosition(shared[-1], -1))
        assert (await reader.read())[0].position.ledger_id not in shared
        await reader.close()
    await commands.log("delete", log, "--yes")
    async with served(uri, new, tmp_path / "new", *key):
        assert await rows_of(new, uri) == state_at(records, made["revision"])
    assert "booted from a snapshot: local" in (tmp_path / "new" / "a.log").read_text()
