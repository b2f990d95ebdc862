"""An act about a service of one's own: its second release is rolled out while passengers go on flying."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import msgspec

from rsm_demo.child import ChildFailedError
from rsm_demo.stack import PASSENGER_LOG, Stack
from rsm_spark import ServiceClient
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport.channel import ReplicaChannel

_CLIENTS = 8
_BETWEEN = 200
"""Commands answered between two steps at least: each step shall meet a load."""
_CALL_S_MAX = 120.0
_STEP_S_MAX = 300.0
_MILES = b" 500"


class UpgradeOutcome(msgspec.Struct):
    """Part of the last JSON line about the upgrade.

    Attributes:
        ok: Every command was applied once, miles are taken, all replicas have one digest.
        commands: Answered while replicas were replaced, and after.
        applied_wrongly: Passengers that have not as many flights as commands were answered.
        longest_wait_s: Of a command, over three restarts.
        raised_s: From the start of the last replica until miles were taken.
        digests_equal: Of the replicas, at one revision.

    """

    ok: bool
    commands: int
    applied_wrongly: int
    longest_wait_s: float
    raised_s: float
    digests_equal: bool


class _Passenger:
    """A client: one flight after the other."""

    def __init__(self, client: ServiceClient, name: bytes) -> None:
        self.name = name
        self.flights = 0
        self.longest_wait_s = 0.0
        self._client = client

    async def fly(self, until: asyncio.Event) -> None:
        while not until.is_set():
            began_s = time.monotonic()
            reply = await self._client.execute(self.name, timeout_s=_CALL_S_MAX)
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began_s)
            self.flights += 1
            if int(reply.payload) != self.flights:
                said = f"{self.name.decode()}: flight {self.flights} is answered with {reply.payload!r}"
                raise ChildFailedError(said)


class UpgradeAct:
    """One run of it.

    Args:
        stack: The processes; bookies run.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell

    async def run(self) -> UpgradeOutcome:
        """Serve the first release, replace it replica by replica, use what only the second one has."""
        stack = self._stack
        await asyncio.gather(*(stack.start_passengers(name, "FlightCounts") for name in ("p1", "p2", "p3")))
        self._tell("a service of one's own, release 1: three replicas count the flights of passengers")
        over = asyncio.Event()
        async with await ServiceClient.connect(PASSENGER_LOG, stack.metadata_uri) as client:
            passengers = [_Passenger(client, b"passenger-%d" % number) for number in range(_CLIENTS)]
            flying = [asyncio.get_running_loop().create_task(one.fly(over)) for one in passengers]
            try:
                raised_s = await self._roll(client, passengers, flying)
            finally:
                over.set()
                await asyncio.wait(flying)
            for task in flying:
                task.result()
            found = [int((await client.query(one.name)).payload) for one in passengers]
        wrong = sum(have != one.flights for have, one in zip(found, passengers, strict=True))
        equal = await self._agree()
        await self._stack.stop_passengers()  # The tasks need the cores.
        commands, longest_s = sum(one.flights for one in passengers), max(one.longest_wait_s for one in passengers)
        self._tell(f"{commands:,} flights, each counted once; no passenger waited longer than {longest_s:.2f} s")
        return UpgradeOutcome(not wrong and equal, commands, wrong, round(longest_s, 2), round(raised_s, 2), equal)

    async def _roll(
        self, client: ServiceClient, passengers: list[_Passenger], flying: list[asyncio.Task[None]]
    ) -> float:
        """Replace the replicas, the leader last; return how long it took until miles were taken."""
        stack = self._stack
        await self._meet(passengers, flying)
        leader = next(name for name, one in (await self._status()).items() if one["role"] == "leader")
        for name in sorted(stack.passengers, key=lambda name: (name == leader, name)):
            await stack.passengers[name].stop()
            await stack.start_passengers(name, "MileCounts")
            self._tell(f"{name}{', which led,' if name == leader else ''} runs release 2")
            await self._meet(passengers, flying)
        began_s = time.monotonic()
        async with asyncio.timeout(_STEP_S_MAX):
            while True:
                try:
                    await client.execute(b"frequent" + _MILES, timeout_s=_CALL_S_MAX)
                    break
                except InvalidCommandError:  # The log is of version 1 yet.
                    await asyncio.sleep(0.05)
        raised_s = time.monotonic() - began_s
        self._tell("all run release 2: the log is of version 2 of its machine, passengers collect miles")
        return raised_s

    async def _meet(self, passengers: list[_Passenger], flying: list[asyncio.Task[None]]) -> None:
        """Let the load go on for a while."""
        wanted = sum(one.flights for one in passengers) + _BETWEEN
        async with asyncio.timeout(_STEP_S_MAX):
            while sum(one.flights for one in passengers) < wanted:
                for task in flying:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)

    async def _agree(self) -> bool:
        """Wait until all replicas are at one revision; return whether they have one digest there."""
        async with asyncio.timeout(_STEP_S_MAX):
            while True:
                said = list((await self._status()).values())
                if len({one["revision"] for one in said}) == 1:
                    return len({one["digest"] for one in said}) == 1
                await asyncio.sleep(0.05)

    async def _status(self) -> dict[str, dict[str, object]]:
        found = {}
        for name, child in self._stack.passengers.items():
            async with ReplicaChannel(child.said["address"], PASSENGER_LOG) as channel:
                found[name] = json.loads(await channel.status(10))
        return found
