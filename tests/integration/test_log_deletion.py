"""`rsm log delete` on real replicas: refused while one runs, then nothing of the log is left, and its name is free."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.errors import RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.remains import ledgers_of
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import stores
from tests.integration.test_store_cluster import run_cli

pytestmark = pytest.mark.asyncio


async def _put(log: str, uri: str, count: int) -> None:
    async with await MapClient.connect(log, uri) as client:
        await client.put_many((b"k%d" % n, b"v") for n in range(count))


async def test_a_log_is_deleted_once_nobody_serves_it(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replica = await asyncio.to_thread(replicas.start, "a", "--roll-records", "20")
        await _put(log, uri, 200)
        audit = ("--audit-file", str(tmp_path / "audit"), "--reason", "no longer used")
        assert run_cli(uri, "log", "delete", log, "--yes", *audit)[0] == 1
        await _put(log, uri, 10)  # The replica serves on.
        async with await LedgerClient.connect(uri) as client:
            chain, _ = await ChainStore(client.store, log).read()
            ours = {ledger.ledger_id for ledger in chain.ledgers}
            assert replica.stop() == 0
            replicas.gone("a")
            code, (said,) = run_cli(uri, "log", "delete", log, "--yes", *audit)
            assert code == 0
            assert said["log_id"] == chain.log_id
            assert ours <= set(said["ledger_ids"])
            assert not ours & set(await client.list())
            for place in ("logs", "services"):
                assert log not in await client.store.children(f"/rsm/{place}")
            assert await client.store.children("/rsm/deleting") == []
        lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        assert [line["outcome"] for line in lines if "no longer used" in json.dumps(line)][-1] == "done"
        assert run_cli(uri, "log", "delete", log, "--yes")[0] == 4  # There is none.
        fresh = await asyncio.to_thread(replicas.start, "b")
        assert fresh.ready["log_id"] != chain.log_id
        await _put(log, uri, 10)
        # Nothing of the deleted log comes back with a replica that has it in its folder.
        await asyncio.to_thread(replicas.start, "a")
        revision = (await fresh.status())["revision"]
        assert len({one["digest"] for one in await replicas.agree(revision)}) == 1
        async with await MapClient.connect(log, uri) as client:
            assert len([row async for row in client.scan()]) == 10


async def test_a_ledger_that_its_leader_never_chained_goes_with_the_log(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    command = ("tests.integration.dies_before_chaining", "run")
    with stores(uri, log, tmp_path) as replicas:
        replica = await asyncio.to_thread(replicas.start, "a", "--roll-records", "20", command=command)
        async with await LedgerClient.connect(uri) as client:
            log_id = replica.ready["log_id"]
            with contextlib.suppress(RsmError, TimeoutError):
                async with asyncio.timeout(60), await MapClient.connect(log, uri) as writer:
                    for number in range(100):
                        await asyncio.wait_for(writer.put(b"k%d" % number, b"v"), 10)
            assert await asyncio.to_thread(replica.process.wait, 60) == -signal.SIGKILL
            replicas.gone("a").kill()
            chain, _ = await ChainStore(client.store, log).read()
            (orphan,) = {*await ledgers_of(client, log_id)} - {ledger.ledger_id for ledger in chain.ledgers}
            while await client.store.children(f"/rsm/services/{log}/members"):
                await asyncio.sleep(0.2)  # Until its session ends.
            code, (said,) = run_cli(uri, "log", "delete", log, "--yes")
            assert code == 0
            assert orphan in said["ledger_ids"]
            assert await ledgers_of(client, log_id) == {}


async def test_nothing_is_deleted_where_nobody_can_be_asked(cluster: DevCluster, unique_name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "rsm_spark", "log", "delete", unique_name, "--metadata-uri", cluster.metadata_uri],
        capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ended.returncode == 2
    assert "say --yes where nobody can be asked" in ended.stderr
