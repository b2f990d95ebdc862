"""Processes that stand still under load: how long callers wait, and that nothing acknowledged is lost.

    python -P -m tests.bench.bench_freezes

Three replicas, three bookies, 2/2/2; eight writers and eight readers over eight clients. Again and again, at a random
moment, the leader (`freeze_leader`) or some bookie (`freeze_bookie`) is stopped by SIGSTOP and goes on after some
seconds, or the leader is ended by SIGKILL (`kill_leader`). For each:

    …_put, …_get         until the first answer to a put (get) that began afterwards
    …_put_call, …_get_call   the longest put (get) that was under way then or began while it lasted

A replica that has seen leaders change lately buries none, and waits for its session of 2 s: before each leader that is
stopped all three replicas are started anew, so that each figure is that of a quiet cluster. `freeze_leader_in_a_row`
is without that.

Every put writes a number that no other put of its key has, and each key has one put under way at most. A get that tells
less than what was acknowledged before it began ends the bench, and so does a key that holds less in the end, or
replicas that differ.

RSM_BENCH_FREEZES (100), RSM_BENCH_KILLS (20), RSM_BENCH_IN_A_ROW (10) say how many of each, RSM_BENCH_ONLY=leader,
bookie,kill,row which. RSM_BENCH_BOOKIES is `--bookies`. RSM_BENCH_FOLDER keeps what the processes write.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport.channel import ReplicaChannel
from tests.bench.figure import percentile, print_figure, say
from tests.bench.store_load import LOG, start_replica

_COUNTS: Final = {
    "leader": int(os.environ.get("RSM_BENCH_FREEZES", "100")),
    "bookie": int(os.environ.get("RSM_BENCH_FREEZES", "100")),
    "kill": int(os.environ.get("RSM_BENCH_KILLS", "20")),
    "row": int(os.environ.get("RSM_BENCH_IN_A_ROW", "10")),
}
_NAMES: Final = {
    "leader": "freeze_leader",
    "bookie": "freeze_bookie",
    "kill": "kill_leader",
    "row": "freeze_leader_in_a_row",
}
_PARTS: Final = os.environ.get("RSM_BENCH_ONLY", "leader,bookie,kill,row").split(",")
_BOOKIES: Final = os.environ.get("RSM_BENCH_BOOKIES", "2/2/2")
_REPLICAS: Final = ("r1", "r2", "r3")
_CLIENT_COUNT: Final = 8
_SLOT_COUNT: Final = 400
"""Keys of a writer, which it takes in turn: more than it can have puts under way."""
_PAUSE_S: Final = 0.01
_PATIENCE_S: Final = 0.1
"""A caller whose call takes longer begins the next one beside it: some call has to begin after the process stopped."""
_CALL_S: Final = 60.0
_FROZEN_S: Final = (2.0, 4.0)
_REST_S: Final = {"leader": (8.0, 11.0)}
"""Before a process is stopped. Replicas judge a leader's silence by the pauses of its last 100 beats, 10 s: those of
the start must have gone."""
_SHORT_REST_S: Final = (2.5, 4.0)
_CALLS_BETWEEN: Final = 200


class LostWriteError(Exception):
    """A caller was told what cannot be."""


class _Slot:
    """A key that one writer writes: numbers that rise."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.issued = 0
        self.acked = 0


class _Stop:
    """A process is stopped, from `at_s` to `end_s`: what callers see of it, by "put" and "get".

    Attributes:
        at: The same by the wall clock, to look it up in the replicas' logs.
        first_s: Until the first answer to a call that began afterwards.
        longest_s: The longest call that was under way then, or began while it lasted.

    """

    def __init__(self) -> None:
        self.at = time.time()
        self.at_s = time.perf_counter()
        self.end_s = float("inf")
        self.first_s: dict[str, float] = {}
        self.longest_s: dict[str, float] = defaultdict(float)
        self._seen = asyncio.Event()

    def note(self, kind: str, began_s: float, ended_s: float) -> None:
        if ended_s < self.at_s or began_s > self.end_s:
            return
        self.longest_s[kind] = max(self.longest_s[kind], ended_s - began_s)
        if began_s > self.at_s:
            self.first_s.setdefault(kind, ended_s - self.at_s)
            if len(self.first_s) == 2:
                self._seen.set()

    async def is_over(self) -> None:
        """Wait until puts and gets are answered again."""
        await self._seen.wait()


class _Callers:
    """Writers and readers that call until they are stopped."""

    def __init__(self, clients: list[MapClient]) -> None:
        self._clients = clients
        self._slots = [[_Slot(b"w%d/%d" % (n, slot)) for slot in range(_SLOT_COUNT)] for n in range(len(clients))]
        self._rng = random.Random(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._failed: BaseException | None = None
        self.answered_count = 0
        self.stop: _Stop | None = None

    def begin(self) -> None:
        """Let all call."""
        for number in range(len(self._clients)):
            for call in (self._put, self._get):
                self._loops.append(asyncio.create_task(self._run(number, call)))

    async def end(self) -> None:
        """Let every call come to its end, and look at what is there."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._check()
        for slots in self._slots:
            for slot in slots:
                found = await self._clients[0].get(slot.key, timeout_s=_CALL_S)
                _judge(slot, 0 if found is None else int(found.value), slot.acked)

    async def more(self, count: int) -> None:
        """Wait until so many more calls are answered."""
        wanted = self.answered_count + count
        while self.answered_count < wanted:
            await asyncio.sleep(0.02)
            self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    async def _run(self, number: int, call: Callable[[int, int], object]) -> None:
        for turn in itertools.count():
            task: asyncio.Task[None] = asyncio.create_task(call(number, turn))  # type: ignore[arg-type]
            self._tasks.add(task)
            task.add_done_callback(self._done)
            await asyncio.wait([task], timeout=_PATIENCE_S)
            await asyncio.sleep(self._rng.expovariate(1 / _PAUSE_S))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = self._failed or task.exception()

    async def _put(self, number: int, turn: int) -> None:
        slot = self._slots[number][turn % _SLOT_COUNT]
        if slot.issued != slot.acked:
            return  # All of its keys are under way.
        slot.issued = turn + 1
        began_s = time.perf_counter()
        await self._clients[number].put(slot.key, b"%d" % slot.issued, timeout_s=_CALL_S)
        slot.acked = slot.issued
        self._note("put", began_s)

    async def _get(self, number: int, _turn: int) -> None:
        slot = self._rng.choice(self._rng.choice(self._slots))
        before, began_s = slot.acked, time.perf_counter()
        found = await self._clients[number].get(slot.key, timeout_s=_CALL_S)
        _judge(slot, 0 if found is None else int(found.value), before)
        self._note("get", began_s)

    def _note(self, kind: str, began_s: float) -> None:
        self.answered_count += 1
        if self.stop is not None:
            self.stop.note(kind, began_s, time.perf_counter())


def _judge(slot: _Slot, told: int, acked: int) -> None:
    if not acked <= told <= slot.issued:
        raise LostWriteError(f"{slot.key!r} is told to be {told}: {acked} was acknowledged, {slot.issued} was written")


class Freezes:
    """Stops processes of one cluster, and notes what callers see.

    Args:
        cluster: With three bookies.
        folder: For what replicas write.

    """

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._replicas: dict[str, Child] = {}
        self._clients: list[MapClient] = []
        self._rng = random.Random(2)
        self.figures: dict[str, list[float]] = defaultdict(list)

    async def run(self) -> None:
        """Do all that was asked for."""
        await self._start()
        uri = self._cluster.metadata_uri
        self._clients = [await MapClient.connect(LOG, uri, timeout_s=_CALL_S) for _ in range(_CLIENT_COUNT)]
        callers = _Callers(self._clients)
        try:
            callers.begin()
            for part in _PARTS:
                for number in range(_COUNTS[part]):
                    await self._one(callers, part, number)
            await callers.end()
            await self._compare()
        finally:
            for client in self._clients:
                await client.close()

    async def _start(self) -> None:
        options = ("--session-timeout-ms", "2000", "--bookies", _BOOKIES, "--log-level", "info")
        names = [name for name in _REPLICAS if name not in self._replicas]
        started = [start_replica(name, self._cluster, self._folder, *options) for name in names]
        self._replicas |= dict(zip(names, await asyncio.gather(*started), strict=True))

    async def stop(self) -> None:
        """End the replicas."""
        replicas, self._replicas = self._replicas, {}
        await asyncio.gather(*(child.stop() for child in replicas.values()))

    async def _one(self, callers: _Callers, part: str, number: int) -> None:
        if part in ("leader", "kill"):
            await self.stop()
        await self._start()
        await callers.more(_CALLS_BETWEEN)
        await asyncio.sleep(self._rng.uniform(*_REST_S.get(part, _SHORT_REST_S)))
        leader = await self._leader()
        if part == "kill":
            stop = callers.stop = _Stop()
            self._replicas[leader].kill()
            await stop.is_over()
            await self._replicas.pop(leader).stop()
        elif part == "bookie":
            which = self._rng.randrange(len(self._cluster.bookies))
            self._cluster.pause_bookie(which)
            stop = callers.stop = _Stop()
            await self._last(stop)
            self._cluster.resume_bookie(which)
        else:
            os.kill(self._replicas[leader].pid, signal.SIGSTOP)
            stop = callers.stop = _Stop()
            await self._last(stop)
            os.kill(self._replicas[leader].pid, signal.SIGCONT)
        stop.end_s = time.perf_counter()
        await callers.more(_CALLS_BETWEEN)
        name = _NAMES[part]
        for kind in ("put", "get"):
            self.figures[f"{name}_{kind}"].append(stop.first_s[kind])
            self.figures[f"{name}_{kind}_call"].append(stop.longest_s[kind])
        told = ", ".join(
            f"{kind} {stop.first_s[kind]:.2f} s (longest {stop.longest_s[kind]:.2f} s)" for kind in stop.first_s
        )
        when = f"{time.strftime('%H:%M:%S', time.localtime(stop.at))}.{stop.at % 1 * 1000:03.0f}"
        say(f"{name} {number + 1} of {_COUNTS[part]}, at {when}, {leader} led: {told}")

    async def _last(self, stop: _Stop) -> None:
        """Wait as long as a process stands still: until calls are answered again, and some seconds at least."""
        await asyncio.sleep(self._rng.uniform(*_FROZEN_S))
        await stop.is_over()

    async def _leader(self) -> str:
        while True:
            async with await MapClient.connect(LOG, self._cluster.metadata_uri, timeout_s=_CALL_S) as client:
                await client.get(b"w0/0")
                for name, child in self._replicas.items():
                    if child.said["address"] == client.address:
                        return name

    async def _compare(self) -> None:
        """Fail unless all replicas come to the same state."""
        revision = await self._clients[0].put(b"end", b"", timeout_s=_CALL_S)
        while True:
            said = {name: await _status(child.said["address"]) for name, child in self._replicas.items()}
            if min(said.values())[0] >= revision and len({one[0] for one in said.values()}) == 1:
                break
            await asyncio.sleep(0.1)
        if len(set(said.values())) != 1:
            raise LostWriteError(f"replicas differ: {said}")


async def _status(address: str) -> tuple[int, str]:
    """Return revision and digest of a replica."""
    async with ReplicaChannel(address, LOG) as channel:
        said = json.loads(await channel.status(_CALL_S))
    return said["revision"], said["digest"]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    kept = os.environ.get("RSM_BENCH_FOLDER")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="rsm-freezes-") as name:
        yield Path(name)


async def main() -> None:
    """Measure everything and print the figures."""
    with _folder() as folder, DevCluster(folder / "cluster", has_auto_recovery=False) as cluster:
        freezes = Freezes(cluster, folder)
        try:
            await freezes.run()
        finally:
            await freezes.stop()
            for name, values in freezes.figures.items():  # Of one that was broken off, too.
                print_figure(f"{name}_p50_s", values, "s")
                print_figure(f"{name}_p99_s", [percentile(values, 0.99)], "s")


if __name__ == "__main__":
    uvloop.run(main())
