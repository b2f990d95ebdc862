"""Clients of the map as one process: they call until their input ends, and keep what they asked and heard.

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
from typing import Any, cast

from rsm_spark.errors import NoLeaderError, NotLeaderError, OutcomeUnknownError
from rsm_spark.map.client.client import MapClient
from rsm_spark.testing.history import CallerCall, CallerReply, Kind, encode_history

TIMEOUTS_S = (1.0, 3.0, 20.0)
"""The first two give up before a failover is over: outcomes stay unknown."""
PAUSE_S = 0.02
"""Mean, between two calls of one client: the history, not the machine, is to be loaded."""
COUNTER = b"counter-"
_TELL_S = 0.2


class Caller:
    """One client."""

    def __init__(self, number: int, client: MapClient, rng: random.Random, keys: list[bytes]) -> None:
        self.calls: list[CallerCall] = []
        self.unknown_count = 0
        self._number = number
        self._client = client
        self._rng = rng
        self._keys = keys
        self._fresh = itertools.count()
        self._timeout_s = TIMEOUTS_S[number % len(TIMEOUTS_S)]
        # What it last read: expectations of its compare-and-sets.
        self._known: dict[bytes, tuple[bytes | None, int]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.call()
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def call(self) -> None:
        began_s, key = time.monotonic(), self._rng.choice(self._keys)
        asked = self._increment_or_get(key) if key.startswith(COUNTER) else self._anything_else(key)
        asked = asked._replace(began_s=began_s)
        try:
            reply = await self._ask(asked)
        except OutcomeUnknownError:
            self.unknown_count += 1
            self.calls.append(asked)
        except (NoLeaderError, NotLeaderError):
            pass  # Certainly not applied: it has no place in the history.
        else:
            self.calls.append(asked._replace(ended_s=time.monotonic(), reply=reply))

    def _increment_or_get(self, key: bytes) -> CallerCall:
        kind = self._rng.choices([Kind.INCREMENT, Kind.GET, Kind.DELETE], [8, 4, 1])[0]
        return CallerCall(
            self._number, key, kind, 0.0, argument=self._rng.choice([1, 1, 7, -3]) if kind is Kind.INCREMENT else None
        )

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
        return CallerCall(self._number, key, kind, 0.0, argument=value, expected=expected, by_revision=by_revision)

    async def _ask(self, call: CallerCall) -> CallerReply:
        client, key, timeout_s = self._client, cast("bytes", call.key), self._timeout_s
        argument, expected = cast("Any", call.argument), cast("Any", call.expected)
        match call.kind:
            case Kind.PUT:
                return CallerReply(revision=await client.put(key, argument, timeout_s=timeout_s))
            case Kind.DELETE:
                revision = await client.delete(key, timeout_s=timeout_s)
                return CallerReply(done=revision is not None, revision=revision)
            case Kind.COMPARE_AND_SET:
                done = await client.compare_and_set(key, expected=expected, value=argument, timeout_s=timeout_s)
                return CallerReply(done=done.succeeded, revision=done.revision)
            case Kind.INCREMENT:
                value, revision = await client.increment(key, argument, timeout_s=timeout_s)
                return CallerReply(value=value, revision=revision)
        reply = await read(client, key, timeout_s)
        self._known[key] = (cast("bytes | None", reply.value), reply.revision)
        return reply


async def read(client: MapClient, key: bytes, timeout_s: float) -> CallerReply:
    """Get a key; a counter as the number that it holds."""
    found = await client.get(key, timeout_s=timeout_s)
    if found is None:
        return CallerReply(value=None, revision=0)
    return CallerReply(value=int(found.value) if key.startswith(COUNTER) else found.value, revision=found.revision)


def _tell(callers: list[Caller], clients: list[MapClient]) -> None:
    unknown_count = sum(caller.unknown_count for caller in callers)
    answered_count = sum(len(caller.calls) for caller in callers) - unknown_count
    by_followers = sum(client._link.follower_reads for client in clients)
    told = {"answered": answered_count, "unknown": unknown_count, "by_followers": by_followers}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def main(
    metadata_uri: str, log: str, path: str, seed: str, client_count: str, key_count: str, read_from: str = "leader"
) -> None:
    keys = [b"key-%d" % number for number in range(int(key_count))] + [COUNTER + b"%d" % number for number in range(2)]
    ways: list[Any] = ["leader", read_from]
    clients = [await MapClient.connect(log, metadata_uri, read_from=ways[n % 2]) for n in range(int(client_count))]
    callers = [Caller(n, client, random.Random(f"{seed}/{n}"), keys) for n, client in enumerate(clients)]
    stop = asyncio.Event()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
    tasks = [asyncio.create_task(caller.run(stop)) for caller in callers]
    while not all(task.done() for task in tasks):
        _tell(callers, clients)
        await asyncio.wait(tasks, timeout=_TELL_S)
    for task in tasks:
        task.result()
    for key in keys:  # What is there in the end, read by somebody who waits as long as it takes.
        began_s = time.monotonic()
        reply = await read(clients[0], key, 60)
        callers[0].calls.append(CallerCall("end", key, Kind.GET, began_s, time.monotonic(), reply=reply))
    await asyncio.to_thread(Path(path).write_bytes, encode_history(call for one in callers for call in one.calls))
    _tell(callers, clients)
    for client in clients:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
