"""The upkeep of a log on a real ZooKeeper and real bookies: trimmed by proof or by order, rolled two thousand times."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession, ReportVerified
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.counter_map import CounterMap, command
from rsm_spark.testing.snapshots import MemorySnapshots

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1200)]

SESSION = b"s" * 16
WAIT_S = 300.0
_COMMAND_S = 300
"""A machine with other work takes long to start a process: only what hangs is ended."""


@asynccontextmanager
async def _replica(cluster: DevCluster, log: str, replica_id: str, **settings: Any) -> AsyncIterator[Replica]:
    async with await LedgerClient.connect(cluster.metadata_uri) as client:
        replica = Replica(
            CounterMap(),
            log=log,
            replica_id=replica_id,
            client=client,
            snapshots=MemorySnapshots(),
            settings=ReplicaSettings(snapshot_s=0, snapshot_bytes=0, **settings),
        )
        async with replica:
            yield replica


async def _until(holds: Any, limit_s: float = WAIT_S) -> None:
    async with asyncio.timeout(limit_s):
        while not holds():
            await asyncio.sleep(0.01)


class _Writer:
    """A client of an embedded replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._sequence = 0

    async def begin(self) -> None:
        await _until(lambda: self._replica.role is ReplicaRole.LEADER)
        await self._replica.submit([OpenSession(SESSION)])

    async def add(self) -> int:
        self._sequence += 1
        add = Command(SESSION, self._sequence, self._sequence - 1, command("add", "k", 1))
        (answer,) = await self._replica.submit([add])
        assert answer.status is AnswerStatus.OK
        return answer.revision


async def _rsm(*arguments: str) -> tuple[int, Any, str]:
    """Run `rsm`; return exit code, what it printed, read if it is JSON, and what it said otherwise."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rsm_spark", *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=_COMMAND_S,
        cwd=Path(__file__).parents[2],
    )
    assert "Traceback" not in done.stderr, done.stderr
    shown = json.loads(done.stdout) if "--json" in arguments and done.stdout else done.stdout
    return done.returncode, shown, done.stderr


async def _snapshot(leader: Replica) -> int:
    """Have the leader take a snapshot, and log its checkpoint; return its revision."""
    manifest = None
    while manifest is None:
        manifest = await leader.snapshot()
        await asyncio.sleep(0.01)
    revision = manifest.revision
    context = leader._context
    await _until(lambda: context.state.checkpoints.get(revision) is not None and context.state_is_confirmed)
    return revision


async def _report(leader: Replica, replica_id: str, revision: int) -> None:
    """Log that a snapshot of this revision was found right on a replica's disk."""
    checkpoint = leader._context.state.checkpoints.get(revision)
    assert checkpoint is not None
    (answer,) = await leader.report(
        ReportVerified(
            f"replica:{replica_id}", replica_id, revision, checkpoint.digest, checkpoint.prefix_hash,
            checkpoint.row_count, "test",
        )
    )  # fmt: skip
    assert answer.status is AnswerStatus.OK, answer.payload


async def test_ledgers_go_when_two_replicas_have_verified_what_they_hold(cluster: DevCluster, unique_name: str) -> None:
    short = {"roll_records": 20, "retention_ms": 500, "trim_s": 0.5}
    async with _replica(cluster, unique_name, "a", **short) as leader:
        writer = _Writer(leader)
        await writer.begin()
        async with _replica(cluster, unique_name, "b", campaign=False, **short) as follower:
            client = leader._context.client
            chains = ChainStore(client.store, unique_name)
            while len((await chains.read())[0].ledgers) < 4:
                await writer.add()
            first = (await chains.read())[0].ledgers[0].ledger_id
            await _until(lambda: bool(leader.status().alarms))
            assert "verified: none" in leader.status().alarms[0]
            await writer.add()
            covered = await _snapshot(leader)
            await _report(leader, "a", covered)
            await _report(leader, "b", covered)
            async with asyncio.timeout(WAIT_S):
                while first in await client.list() or (await chains.read())[0].deleting:
                    await asyncio.sleep(0.05)
            chain, _ = await chains.read()
            assert chain.first_ledger_id == first
            assert leader.status().alarms == ()
            revision = await writer.add()
            await _until(lambda: follower.revision >= revision)
        ids = await client.list()
        assert all(ledger.ledger_id in ids for ledger in chain.ledgers)


async def test_operators_have_the_leader_trim_and_are_told_what_stays_and_why(
    cluster: DevCluster, unique_name: str
) -> None:
    uri = ("--metadata-uri", cluster.metadata_uri)
    async with _replica(cluster, unique_name, "a", roll_records=20, retention_ms=500, trim_s=1_000.0) as leader:
        writer = _Writer(leader)
        await writer.begin()
        chains = ChainStore(leader._context.client.store, unique_name)
        while len((await chains.read())[0].ledgers) < 3:
            await writer.add()
        first = (await chains.read())[0].ledgers[0].ledger_id
        code, said, _ = await _rsm("log", "info", unique_name, *uri, "--json")
        closed = said["ledgers"][0]["closed"]
        assert closed["length_bytes"] == closed["length"] > 0
        await asyncio.sleep(1)  # The retention.
        code, said, _ = await _rsm("log", "trim", unique_name, *uri, "--json")
        assert (code, said["leader"], said["ledger_ids"]) == (0, "a", [])
        assert "verified: none" in said["blocked"][0]["text"]
        async with asyncio.timeout(WAIT_S):
            while await leader.snapshot() is None:  # What the order made it write may be on its way yet.
                await asyncio.sleep(0.01)
        code, said, _ = await _rsm("log", "trim", unique_name, "--accept-unverified", "--dry-run", *uri, "--json")
        assert code == 0
        assert said["dry_run"]
        assert said["ledger_ids"][0] == first
        code, said, _ = await _rsm("log", "trim", unique_name, "--accept-unverified", *uri, "--json")
        assert said["ledger_ids"][0] == first
        assert first not in [ledger.ledger_id for ledger in (await chains.read())[0].ledgers]
        code, said, _ = await _rsm("log", "info", unique_name, *uri, "--json")
        assert (said["whole"], said["format_level"]) == (False, 1)
        assert "\nformat level 1\n" in (await _rsm("log", "info", unique_name, *uri))[1]
        code, said, _ = await _rsm("log", "raise-format", unique_name, *uri, "--json")
        assert (code, said["format_level"]) == (0, FORMAT_LEVEL)
        code, _, errors = await _rsm("log", "raise-format", unique_name, "--level", "9", *uri)
        assert code == 1
        assert "not every live replica knows format level 9" in errors
    code, _, errors = await _rsm("log", "trim", unique_name, "--timeout", "2", *uri)
    assert code == 6
    assert "no leader answered the order within 2 s" in errors
    code, _, errors = await _rsm("log", "trim", f"{unique_name}-none", *uri)
    assert code == 4
    assert "there is no node" in errors


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_chain_of_two_thousand_ledgers_is_written_followed_and_taken_over(
    cluster: DevCluster, unique_name: str
) -> None:
    count = 2_000
    async with _replica(cluster, unique_name, "a", roll_records=2) as leader:
        writer = _Writer(leader)
        await writer.begin()
        chains = ChainStore(leader._context.client.store, unique_name)
        assert leader._driver is not None
        protocol = leader._driver.protocol
        while protocol.chain is None or len(protocol.chain.ledgers) < count:
            revision = await writer.add()
        assert leader.status().alarms == ()
        async with _replica(cluster, unique_name, "b") as heir:  # From empty: through all of them.
            await _until(lambda: heir.revision >= revision, 600)
            leader._driver.resign("the test says so")
            await _until(lambda: heir.role is ReplicaRole.LEADER, 60)
            await _until(lambda: leader.role is ReplicaRole.FOLLOWER and leader.revision == heir.revision)
            assert leader.digest == heir.digest
            chain, _ = await chains.read()
            assert len(chain.ledgers) > count
            assert chain.leader is not None
            assert chain.leader.replica_id == "b"
