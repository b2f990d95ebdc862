"""Clients of the map as one process: they call until their input ends, and keep what they asked and heard.

Each uses one of the map's doors (see `tests.integration.map_doors`); all have one history.

Writes a JSON line with the number of calls answered and of calls of unknown outcome several times a second; at the end
the history (see `rsm_spark.testing.history`) to the file named. Every value is written once, so that a reader knows
which call it is from.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from pathlib import Path
from typing import cast

import msgspec

from rsm_spark.errors import NoLeaderError, NotLeaderError, OutcomeUnknownError
from rsm_spark.testing.history import CallerCall, Kind, encode_history
from tests.integration.map_doors import COUNTER, ClientDoor, MapDoor, open_door

TIMEOUTS_S = (1.0, 3.0, 20.0)
"""The first two give up before a failover is over: outcomes stay unknown."""
PAUSE_S = 0.02
"""Mean, between two calls of one client: the history, not the machine, is to be loaded."""
_TELL_S = 0.2


class CallersArguments(msgspec.Struct):
    """What the process is told, as JSON.

    Attributes:
        path: Of the history.
        read_from: Of every other client of the map.
        doors: Which the callers use, in turn.
        etcd_addresses: Of the replicas, if etcd's API is one of them.

    """

    metadata_uri: str
    log: str
    path: str
    seed: int
    client_count: int
    key_count: int
    read_from: str = "leader"
    doors: tuple[str, ...] = ("framed",)
    etcd_addresses: tuple[str, ...] = ()


class Caller:
    """One client; its name tells its door."""

    def __init__(self, number: int, name: str, door: MapDoor, rng: random.Random, keys: list[bytes]) -> None:
        self.calls: list[CallerCall] = []
        self.unknown_count = 0
        self._number = number
        self._name = f"{name}-{number}"
        self._door = door
        self._rng = rng
        self._keys = keys
        self._fresh = itertools.count()
        self._timeout_s = TIMEOUTS_S[number % len(TIMEOUTS_S)]
        # What it last read: expectations of its compare-and-sets.
        self._known: dict[bytes, tuple[bytes | int | None, int]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.call()
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def call(self) -> None:
        began_s, key = time.monotonic(), self._rng.choice(self._keys)
        asked = (self._count(key) if key.startswith(COUNTER) else self._anything_else(key))._replace(began_s=began_s)
        try:
            reply = await self._door.ask(asked, self._timeout_s)
        except OutcomeUnknownError:
            self.unknown_count += 1
            self.calls.append(asked)
        except (NoLeaderError, NotLeaderError):
            pass  # Certainly not applied: it has no place in the history.
        else:
            if asked.kind is Kind.GET:
                self._known[key] = (cast("bytes | int | None", reply.value), reply.revision or 0)
            self.calls.append(asked._replace(ended_s=time.monotonic(), reply=reply))

    def _count(self, key: bytes) -> CallerCall:
        """Return a call of a counter: a door that cannot increment compares what it has read, and sets."""
        changes = Kind.INCREMENT if self._door.can_increment else Kind.COMPARE_AND_SET
        kind = self._rng.choices([changes, Kind.GET, Kind.DELETE], [8, 4, 1])[0]
        asked = CallerCall(self._name, key, kind, 0.0)
        amount, (known, _) = self._rng.choice([1, 1, 7, -3]), self._known.get(key, (None, 0))
        if kind is Kind.INCREMENT:
            return asked._replace(argument=amount)
        if kind is Kind.COMPARE_AND_SET:
            return asked._replace(argument=cast("int", known or 0) + amount, expected=known)
        return asked

    def _anything_else(self, key: bytes) -> CallerCall:
        rng = self._rng
        kind = rng.choices([Kind.GET, Kind.PUT, Kind.COMPARE_AND_SET, Kind.DELETE], [8, 4, 5, 1])[0]
        value = None if kind in (Kind.GET, Kind.DELETE) else b"%d/%d" % (self._number, next(self._fresh))
        if kind is Kind.COMPARE_AND_SET and rng.random() < 0.1:
            value = None
        by_revision = kind is Kind.COMPARE_AND_SET and rng.random() < 0.5
        known_value, known_revision = self._known.get(key, (None, 0))
        expected = (known_revision or None) if by_revision else known_value
        if kind is not Kind.COMPARE_AND_SET:
            expected = None
        return CallerCall(self._name, key, kind, 0.0, argument=value, expected=expected, by_revision=by_revision)


def _tell(callers: list[Caller], doors: list[MapDoor]) -> None:
    unknown_count = sum(caller.unknown_count for caller in callers)
    answered_count = sum(len(caller.calls) for caller in callers) - unknown_count
    links = [door.client._link for door in doors if isinstance(door, ClientDoor)]
    told = {
        "answered": answered_count,
        "unknown": unknown_count,
        "by_followers": sum(link.follower_reads for link in links),
        "framed": sum(link.is_framed for link in links),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def main(arguments: CallersArguments) -> None:
    keys = [b"key-%d" % number for number in range(arguments.key_count)] + [COUNTER + b"%d" % n for n in range(2)]
    ways, names = ["leader", arguments.read_from], arguments.doors
    doors = [
        await open_door(
            names[n % len(names)],
            n // len(names),
            arguments.metadata_uri,
            arguments.log,
            read_from=ways[n % 2],
            etcd_addresses=arguments.etcd_addresses,
        )
        for n in range(arguments.client_count)
    ]
    callers = [
        Caller(n, names[n % len(names)], door, random.Random(f"{arguments.seed}/{n}"), keys)
        for n, door in enumerate(doors)
    ]
    stop = asyncio.Event()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
    tasks = [asyncio.create_task(caller.run(stop)) for caller in callers]
    while not all(task.done() for task in tasks):
        _tell(callers, doors)
        await asyncio.wait(tasks, timeout=_TELL_S)
    for task in tasks:
        task.result()
    for key in keys:  # What is there in the end, read by somebody who waits as long as it takes.
        asked = CallerCall("end", key, Kind.GET, time.monotonic())
        reply = await doors[0].ask(asked, 60)
        callers[0].calls.append(asked._replace(ended_s=time.monotonic(), reply=reply))
    history = encode_history(call for one in callers for call in one.calls)
    await asyncio.to_thread(Path(arguments.path).write_bytes, history)
    _tell(callers, doors)
    for door in doors:
        await door.close()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=CallersArguments)))
