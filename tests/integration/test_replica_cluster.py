"""Replicas as processes on a real ZooKeeper and real bookies: leaders are killed, ledgers roll, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.zookeeper.session import connect
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.log.election import election_path

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


class ReplicaProcess:
    """One replica and the questions on their way to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            number, said = json.loads(line)
            future = self.ready if number == 0 else self._asked.pop(number)
            if not future.done():
                future.set_result(said)
        for future in [*self._asked.values(), self.ready]:
            if not future.done():
                future.set_exception(ConnectionError("the replica is gone"))
                future.exception()

    async def ask(self, *requests: list[Any]) -> Any:
        assert self.process.stdin is not None
        if self._reading.done():
            raise ConnectionError("the replica is gone")
        self._number += 1
        answer = self._asked[self._number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps([self._number, requests]).encode() + b"\n")
        return await asyncio.wait_for(answer, WAIT_S)

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self.ask(["status"])
        return status

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.wait_for(self.process.wait(), WAIT_S) == 0
        await self._reading


class Replicas:
    """The replicas of one log."""

    def __init__(self, cluster: DevCluster, log: str, folder: Path) -> None:
        self._cluster, self._log, self._folder = cluster, log, folder
        self.alive: dict[str, ReplicaProcess] = {}

    async def start(self, name: str) -> ReplicaProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.replica_process", self._cluster.metadata_uri, self._log, name,
            str(self._folder / name), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        replica = self.alive[name] = ReplicaProcess(process)
        await asyncio.wait_for(replica.ready, WAIT_S)
        return replica

    async def leader(self) -> str:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for name, replica in list(self.alive.items()):
                with contextlib.suppress(ConnectionError):
                    if (await replica.status())["role"] == "leader":
                        return name
            await asyncio.sleep(0.02)
        raise AssertionError("nobody leads")

    async def agree(self) -> list[dict[str, Any]]:
        """Return the status of all once they are at the leader's revision."""
        revision = (await self.alive[await self.leader()].status())["revision"]
        deadline = time.monotonic() + WAIT_S
        while True:
            said = [await replica.status() for replica in self.alive.values()]
            if all(one["revision"] >= revision for one in said) and len({one["revision"] for one in said}) == 1:
                return said
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def replicas_of(cluster: DevCluster, log: str, folder: Path) -> AsyncIterator[Replicas]:
    replicas = Replicas(cluster, log, folder)
    try:
        yield replicas
    finally:
        for replica in replicas.alive.values():
            await replica.kill()


class Counting:
    """A session that adds one to its counter, sends again until it knows, and checks each reply."""

    def __init__(self, replicas: Replicas, index: int) -> None:
        self._replicas = replicas
        self._session = bytes([index] * 16).hex()
        self._key = f"counter-{index}"
        self.count = 0

    async def run(self, stop: asyncio.Event) -> None:
        await self._until_ok(["open", self._session])
        while not stop.is_set():
            values = ["add", self._key, 1]
            request = ["command", self._session, self.count + 1, self.count, values]
            assert await self._until_ok(request) == self.count + 1, "lost or applied twice"
            self.count += 1

    async def _until_ok(self, request: list[Any]) -> Any:
        while True:
            with contextlib.suppress(ConnectionError, KeyError):  # Killed meanwhile.
                name = await self._replicas.leader()
                ((status, _, value),) = await self._replicas.alive[name].ask(request)
                if status == AnswerStatus.OK:
                    return value
                assert status in (AnswerStatus.NOT_LEADER, AnswerStatus.OUTCOME_UNKNOWN)
            await asyncio.sleep(0.01)


async def test_acknowledged_commands_outlive_killed_leaders_over_rolls_and_snapshots(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with replicas_of(cluster, unique_name, tmp_path) as replicas:
        for name in "ab":
            await replicas.start(name)
        stop = asyncio.Event()
        sessions = [Counting(replicas, index) for index in range(1, 6)]
        tasks = [asyncio.create_task(session.run(stop)) for session in sessions]
        failovers = []
        for _ in range(2):
            await asyncio.sleep(1.5)
            victim = await replicas.leader()
            await replicas.alive.pop(victim).kill()
            began, before = time.monotonic(), sum(session.count for session in sessions)
            while sum(session.count for session in sessions) <= before + len(sessions):
                assert time.monotonic() - began < WAIT_S, "nothing is acknowledged any more"
                await asyncio.sleep(0.01)
            failovers.append(round(time.monotonic() - began, 2))
            await replicas.start(victim)
        await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*tasks)
        said = await replicas.agree()
        assert len({(one["digest"], one["prefix_hash"]) for one in said}) == 1
        assert max(one["snapshot_revision"] for one in said) > 0
        leader = replicas.alive[await replicas.leader()]
        values = [(await leader.ask(["query", f"counter-{index}"]))[0][2] for index in range(1, len(sessions) + 1)]
        assert values == [session.count for session in sessions]
        print(f"{sum(values)} commands, failovers {failovers} s")


async def test_stopped_leader_hands_over_at_once_and_a_new_replica_catches_up(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with replicas_of(cluster, unique_name, tmp_path) as replicas:
        for name in "ab":
            await replicas.start(name)
        session = Counting(replicas, 9)
        stop = asyncio.Event()
        task = asyncio.create_task(session.run(stop))
        await asyncio.sleep(0.5)
        votes = await connect([cluster.zookeeper], session_timeout_ms=4_000)
        stopping = replicas.alive.pop(await replicas.leader())
        voted = await votes.children(election_path(unique_name))
        await stopping.stop()
        left = await votes.children(election_path(unique_name))
        await votes.close()
        assert len(left) == len(voted) - 1, "an orderly stop must not leave its vote until a session expires"
        before = session.count
        async with asyncio.timeout(WAIT_S):
            while session.count <= before + 1:
                await asyncio.sleep(0.01)
        await replicas.start("c")
        stop.set()
        await task
        said = await replicas.agree()
        assert len({one["digest"] for one in said}) == 1
