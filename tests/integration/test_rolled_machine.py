"""A user's machine is rolled from its first release to the third, and back, while it is called and replicas are killed.

Whole processes: leader and followers end by kill -9 at random moments. Each command that was answered is in the log
once, whatever release was running; all replicas, of whatever release, have the same digest.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark import ServiceClient
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import decode_description
from rsm_spark.core.records import KernelRecord, Record, decode_records
from rsm_spark.errors import InvalidCommandError, NoLeaderError, OutcomeUnknownError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.log.key_file import KeyFile
from tests.integration.rolled_bank import PAID
from tests.integration.store_processes import StoreProcess, Stores, stores

pytestmark = pytest.mark.asyncio

_ROOT = Path(__file__).parents[2]
_MACHINES = "tests.integration.rolled_bank"
_OPTIONS = ("--snapshot-s", "3", "--checkpoint-records", "100", "--session-timeout-ms", "2000")
_ACCOUNTS = 4


class _Caller:
    """One account's commands, one after the other.

    Attributes:
        told: Replies, by number of the command.
        unknown: Numbers of commands of which nobody knows whether they were applied; of the one under way too.
        refused: Numbers of commands that were not.

    """

    def __init__(self, client: ServiceClient, account: str, rng: random.Random) -> None:
        self.account = account
        self.told: dict[int, int] = {}
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self._client, self._rng = client, rng

    async def run(self) -> None:
        for number in range(1, 1_000_000):
            # Only the second release and those after it keep the email; until the log is of it, that is refused.
            email = f" {self.account}@x" if self._rng.random() < 0.1 else ""
            command, timeout_s = f"{self.account} {number}{email}", self._rng.choice((1.0, 3.0, 20.0))
            self.unknown.add(number)
            with suppress(OutcomeUnknownError):
                try:
                    self.told[number] = int((await self._client.execute(command.encode(), timeout_s=timeout_s)).payload)
                except (InvalidCommandError, NoLeaderError):
                    self.refused.add(number)
                self.unknown.remove(number)
            await asyncio.sleep(self._rng.expovariate(1 / 0.02))


class _Load:
    """Callers that go on all the time."""

    def __init__(self, callers: list[_Caller]) -> None:
        self.callers = callers

    @property
    def told(self) -> int:
        return sum(len(caller.told) for caller in self.callers)

    async def more(self, count: int) -> None:
        """Wait until so many more commands were answered."""
        wanted = self.told + count
        async with asyncio.timeout(90):
            while self.told < wanted:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def _load(uri: str, log: str, seed: int) -> AsyncIterator[_Load]:
    async with await ServiceClient.connect(log, uri, timeout_s=60) as client:
        callers = [_Caller(client, f"acc{n}", random.Random(f"{seed}.{n}")) for n in range(_ACCOUNTS)]
        tasks = [asyncio.get_running_loop().create_task(caller.run()) for caller in callers]
        try:
            yield _Load(callers)
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


class _Roll:
    """The replicas of the log, each of a release."""

    def __init__(self, replicas: Stores, load: _Load, key: Path, rng: random.Random) -> None:
        self.replicas, self.load, self.rng = replicas, load, rng
        self._options = (*_OPTIONS, "--log-key", str(key))
        self._release: dict[str, str] = {}
        self.keeps: tuple[str, ...] = (
            "--keep-version",
        )  # Else a crash of the last old replica would end the way back.

    async def start(self, name: str, release: str) -> None:
        self._release[name] = release
        command = ("rsm_spark", "serve", f"{_MACHINES}:{release}")
        await asyncio.to_thread(self.replicas.start, name, *self._options, *self.keeps, command=command)
        async with asyncio.timeout(60):  # It is ready a moment before it is a member of that version.
            while not await self._is_member(name, int(release.removeprefix("Bank"))):
                await asyncio.sleep(0.05)

    async def _is_member(self, name: str, version: int) -> bool:
        code, status, said = await _rsm(self.replicas, "status", "--log", self.replicas.log)
        assert code == 0, said
        return {"replica_id": name, "machine_version": version}.items() <= next(
            (one for one in status["replicas"] if one["replica_id"] == name), {}
        ).items()

    async def kill_one(self) -> None:
        """End the leader, or another one, as a power cut does; it comes back as what it was."""
        leader = await self.replicas.leader()
        others = [one for one in self.replicas.alive.values() if one is not leader]
        victim = leader if self.rng.random() < 0.5 or not others else self.rng.choice(others)
        await asyncio.sleep(self.rng.uniform(0.0, 0.2))
        await asyncio.to_thread(self.replicas.gone(victim.replica_id).kill)
        await self.load.more(self.rng.randrange(20))
        await self.start(victim.replica_id, self._release[victim.replica_id])

    async def replace(self, name: str, release: str) -> None:
        """Give a replica another release: it is asked to end, or killed."""
        ended = self.replicas.gone(name)
        if self.rng.random() < 0.5:
            await asyncio.to_thread(ended.kill)
        else:
            assert await asyncio.to_thread(ended.stop) == 0
        await self.start(name, release)
        await self.load.more(20)

    async def raise_version(self, *options: str) -> tuple[int, dict[str, Any], str]:
        return await _rsm(self.replicas, "log", "raise-version", self.replicas.log, *options)


async def _rsm(replicas: Stores, *arguments: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "rsm_spark", *arguments, "--metadata-uri", replicas.metadata_uri, "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, check=False, text=True, timeout=120, cwd=_ROOT
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


async def _to_the_second(roll: _Roll, kills: int) -> None:
    """Roll; one goes back, the way is open while an old one lives; when the last has gone, the version is raised."""
    for name in "ab":
        await roll.replace(name, "Bank2")
        code, _, said = await roll.raise_version()
        assert code == 1
        assert "Upgrade them first" in said or "A newer one is run by" in said, said
        for _ in range(kills):
            await roll.kill_one()
    await roll.replace("a", "Bank1")
    for _ in range(kills):
        await roll.kill_one()
    roll.keeps = ()  # From here on the leader raises the version by itself; the command waits for that too.
    for name in "cab":
        await roll.replace(name, "Bank2")
    code, said_version, said = await roll.raise_version()
    async with asyncio.timeout(60):  # A replica that was killed is a member until its session has ended.
        while code and "Upgrade them first" in said:
            code, said_version, said = await roll.raise_version()
    assert (code, said_version.get("version")) == (0, 2), said


async def _to_the_third(roll: _Roll, kills: int) -> None:
    """Roll two; an operator raises the version while the last one runs the second release: it follows, never leads."""
    order, roll.keeps = roll.rng.sample("abc", 3), ("--keep-version",)
    for name in order[:2]:
        await roll.replace(name, "Bank3")
        for _ in range(kills):
            await roll.kill_one()
    while True:  # The old one may lead: it is no leader who could raise it.
        leader = await roll.replicas.leader()
        if leader.replica_id != order[2]:
            break
        await asyncio.to_thread(roll.replicas.gone(order[2]).kill)
        await roll.start(order[2], "Bank2")
    code, _, said = await roll.raise_version()
    assert (code, order[2] in said) == (1, True), said
    code, raised, said = await roll.raise_version("--force")
    assert (code, raised.get("version")) == (0, 3), said
    await roll.load.more(50)
    old = roll.replicas.alive[order[2]]
    assert old.process.poll() is None
    for name in order[:2]:
        await asyncio.to_thread(roll.replicas.gone(name).kill)
    await _until_it_declines(old)
    for name in order[:2]:
        await roll.start(name, "Bank3")
    await roll.load.more(50)
    for _ in range(kills):
        await roll.kill_one()


async def _until_it_declines(old: StoreProcess) -> None:
    """Alone with the log, it says why it does not lead."""
    async with asyncio.timeout(60):
        while "of version 3 of machine 'bank', this replica runs version 2: it follows, and does not lead" not in str(
            (said := await old.status())["alarms"]
        ):
            await asyncio.sleep(0.05)
    assert said["role"] == "follower"


async def _records(replicas: Stores) -> list[Record]:
    """Return all records of the log."""
    found: list[Record] = []
    end = max([(await one.status())["revision"] for one in replicas.alive.values()])
    async with await LedgerClient.connect(replicas.metadata_uri) as client:
        keys = KeyFile.read(replicas.folder / "log.key")
        reader = LogReader(client, ChainStore(client.store, replicas.log), keys=keys)
        while reader.revision < end:
            for entry in await reader.read():
                found += decode_records(body_of(entry.payload))
        await reader.close()
    return found


async def _check(replicas: Stores, load: _Load, public: Path) -> None:
    """Every command that was answered was applied once, none that was refused; the log's word is its leaders'."""
    records = await _records(replicas)
    applied = Counter((record.fields[0], record.fields[1]) for record in records if record.type == PAID)
    assert set(applied.values()) == {1}, [one for one, count in applied.items() if count > 1]
    async with await ServiceClient.connect(replicas.log, replicas.metadata_uri, timeout_s=60) as client:
        for caller in load.callers:
            of_it = {number for account, number in applied if account == caller.account}
            assert caller.told.keys() <= of_it
            assert of_it <= caller.told.keys() | caller.unknown
            assert not caller.refused & of_it
            in_order = [caller.told[number] for number in sorted(caller.told)]
            assert in_order == sorted(set(in_order)), "each reply counts one command more"
            assert int((await client.query(caller.account.encode())).payload) == len(of_it)
    described = [decode_description(r.fields[0]).version for r in records if r.type == KernelRecord.MACHINE_DESCRIBED]
    assert described == sorted(described)
    assert sorted(set(described)) == [1, 2, 3]
    code, proof, said = await _rsm(replicas, "log", "verify", replicas.log, "--public-key", str(public))
    assert code == 0, said
    assert proof["signatures"] > 0
    unknown = sum(len(caller.unknown) for caller in load.callers)
    print(f"{load.told} commands answered, {unknown} of unknown outcome, {len(records)} records")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 1), *(pytest.param(seed, 4, marks=pytest.mark.slow) for seed in range(2, 5))]
)
async def test_three_releases_are_rolled_and_taken_back_under_load_and_kills(
    cluster: DevCluster, unique_name: str, tmp_path: Path, seed: int, kills: int
) -> None:
    uri, log, key, public = cluster.metadata_uri, unique_name, tmp_path / "log.key", tmp_path / "log.pub"
    for what, into in (("new", None), ("show-public", public)):
        made = subprocess.run(
            [sys.executable, "-m", "rsm_spark", "log", "key", what, "--file", str(key)],
            capture_output=True, text=True, check=True, cwd=_ROOT,
        )  # fmt: skip
        if into is not None:
            into.write_text(made.stdout)
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            command = ("rsm_spark", "serve", f"{_MACHINES}:Bank1")
            replicas.start(name, *_OPTIONS, "--log-key", str(key), command=command)
        async with _load(uri, log, seed) as load:
            roll = _Roll(replicas, load, key, random.Random(seed))
            roll._release = dict.fromkeys("abc", "Bank1")
            await load.more(20)
            await _to_the_second(roll, kills)
            await _to_the_third(roll, kills)
        await _start_those_that_cannot(roll)
        await roll.start("fresh", "Bank1")  # All of the log, by code that is two releases old.
        revision = max([(await one.status())["revision"] for one in replicas.alive.values()])
        said = await replicas.agree(revision, timeout_s=60)
        assert len({one["digest"] for one in said}) == 1, said
        await _check(replicas, load, public)


async def _start_those_that_cannot(roll: _Roll) -> None:
    """Start releases that cannot go on with the log: each says so at its start, by name."""
    for release, fault in (
        (
            "Rigid",
            "the log is of version 3 of machine 'bank', this replica runs version 1: start it with the newer one",
        ),
        ("Other", "in place of column 'times' stands 'count'"),
    ):
        with pytest.raises(AssertionError, match=fault):
            await roll.start(release.lower(), release)
        with suppress(KeyError):
            roll.replicas.gone(release.lower())
