"""Snapshots on real processes' ground: ZooKeeper, bookies, gRPC, disks, a lake: verified, trimmed, booted from."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map import map_service
from rsm_spark.map.client.client import MapClient
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]
WAIT_S = 60.0
SETTINGS = ReplicaSettings(
    snapshot_s=1.0, verify_s=0.3, lake_s=1.0, trim_s=0.5, retention_ms=4_000, roll_records=300, checkpoint_records=100
)


class Group:
    """Replicas in this process, each with its own session, server and disk."""

    def __init__(self, cluster: DevCluster, log: str, folder: Path) -> None:
        self.uri, self.log, self.folder = cluster.metadata_uri, log, folder
        self.services: dict[str, StoreService] = {}
        self.clients: dict[str, LedgerClient] = {}

    def lake(self) -> LakeSnapshots:
        return LakeSnapshots(lake_place(str(self.folder / "lake"), self.log), retention_hours=0)

    async def start(self, name: str) -> StoreService:
        self.clients[name] = await LedgerClient.connect(self.uri, session_timeout_ms=4_000)
        settings = StoreSettings(log=self.log, replica_id=name, data_dir=self.folder / name, replica=SETTINGS)
        service = map_service(self.clients[name], settings, self.lake())
        await service.start()
        self.services[name] = service
        return service

    async def stop(self, *names: str) -> None:
        for name in names or list(self.services):
            await self.services.pop(name).stop()
            await self.clients.pop(name).close()

    @property
    def verified(self) -> dict[str, int]:
        for service in self.services.values():
            if service.replica.role is ReplicaRole.LEADER:
                return {place: one.revision for place, one in service.replica._context.state.verified.items()}
        return {}

    async def first_revision(self) -> int:
        client = next(iter(self.clients.values()))
        chain, _ = await ChainStore(client.store, self.log).read()
        return chain.ledgers[0].first_revision if chain.ledgers else 1


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.05)


async def run_cli(*arguments: str) -> tuple[int, list[Any], str]:
    """Run `rsm snapshot`; return exit code, JSON lines, and what it complained of."""
    code = (
        "import rsm_spark.cli.main as cli, rsm_spark.cli.snapshot as of\n"
        "try: of.app()\nexcept Exception as error: cli._end(error)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, "--json", cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert b"Traceback" not in errors, errors.decode()
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in out.splitlines()], errors.decode()


async def test_snapshots_are_verified_the_log_is_trimmed_and_the_lake_brings_all_back(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    group = Group(cluster, unique_name, tmp_path)
    try:
        for name in ("a", "b", "c"):
            await group.start(name)
        expected: dict[bytes, bytes] = {}
        async with await MapClient.connect(group.log, group.uri) as client:
            deadline = time.monotonic() + WAIT_S
            while not (len(group.verified) == 4 and await group.first_revision() > 1):
                assert time.monotonic() < deadline, (group.verified, await group.first_revision())
                for number in range(50):
                    key = b"k%d" % (len(expected) % 500 + number)
                    expected[key] = b"v%d" % len(expected)
                    await client.put(key, expected[key])
        await check_command(group)
        await group.stop()
        for name in ("a", "b", "c"):
            shutil.rmtree(tmp_path / name)
        service = await group.start("b")
        await until(lambda: service.replica.role is ReplicaRole.LEADER)
        async with await MapClient.connect(group.log, group.uri) as client:
            assert {entry.key: entry.value async for entry in client.scan()} == expected
        (tmp_path / "c").mkdir()
        third = await group.start("c")  # From the peer, or the lake.
        await until(lambda: third.replica.revision >= service.replica.revision - 1)
    finally:
        await group.stop()


async def check_command(group: Group) -> None:
    """`rsm snapshot` shows and verifies what is there."""
    at = ("--metadata-uri", group.uri)
    code, listed, _ = await run_cli("list", "--log", group.log, *at)
    assert code == 0
    assert [one["place"] for one in listed] == ["replica:a", "replica:b", "replica:c"]
    assert all(len(one["snapshots"]) >= 1 and one["damaged"] == [] for one in listed)
    code, verdicts, errors = await run_cli("verify", "--log", group.log, *at)
    assert (code, [one["ok"] for one in verdicts]) == (0, [True] * 3), errors
    assert {one["checkpoint"] for one in verdicts} <= {"agrees", "none for this revision"}
    code, (shown,), _ = await run_cli("show", "--lake", str(group.folder / "lake"), "--log", group.log)
    assert (code, shown["machine"]["name"]) == (0, "map")
    code, (verdict,), _ = await run_cli("verify", "--data-dir", str(group.folder / "a"), *at)
    assert (code, verdict["ok"]) == (0, True)
    code, _, errors = await run_cli("verify", "--lake", str(group.folder / "lake"), "--log", group.log, *at, "--report")
    assert code == 0 or "there already" in errors, errors
    copy = group.folder / "copy"
    shutil.copytree(group.folder / "a" / "snapshots", copy)
    newest = max(path for path in copy.iterdir() if not path.name.startswith("."))
    (newest / "map.parquet").write_bytes((newest / "map.parquet").read_bytes()[:-1])
    code, (held,), _ = await run_cli("list", "--data-dir", str(copy))
    assert code == 0
    assert newest.name in held["damaged"][0]
    code, _, errors = await run_cli("verify", str(int(newest.name[:20])), "--data-dir", str(copy))
    assert code == 4
    assert "no whole snapshot of revision" in errors
