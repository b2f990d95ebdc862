"""CPU of an operation at the map's client, in µs, without sockets and replicas: a busy machine changes it little.

    RSM_BENCH_ROUNDS=12 .venv/bin/python -m tests.bench.bench_client_cpu

64 callers with one call outstanding share eight clients; then one caller asks for 1,000 keys at once. What all clients
have to send is encoded as for the framed port, and answered at once; the answers are made beside the measured time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import uvloop

from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.operation import Message, count_of
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from tests.bench.figure import print_figure, say
from tests.bench.store_load import CLIENT_COUNT_MAX, KEYS, VALUE

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "12"))
CALLER_COUNT = 64
CALL_COUNT = 150
_MANY = 1_000
_FOUND = Answer(AnswerStatus.OK, 9, m.encode(m.Found(VALUE, 5, 5, 1)))
_WRITTEN = Answer(AnswerStatus.OK, 9, m.encode(m.Written(9)))


class _Nobody:
    """Finds no leader: nothing is connected."""

    trouble = ""

    async def find(self, on_change: Callable[[], None]) -> str | None:  # noqa: ARG002 - as `LeaderFinder` has it
        await asyncio.Event().wait()
        return None

    async def find_framed(self, address: str) -> str:  # noqa: ARG002
        return ""


class _Exchange:
    """Stands in for the stream to a replica; `spent_s` is the processor time of the replica's part."""

    address = "127.0.0.1:1"
    is_framed = True

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._ready: dict[Any, None] = {}
        self._is_due = False

    def ready(self, user: Any) -> None:
        self._ready[user] = None
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin_turn)

    def detach(self, user: Any, *, is_suspect: bool = False) -> None:
        """Nothing is shared here."""

    async def wait_closed(self) -> None:
        """There is nothing to close."""

    def _begin_turn(self) -> None:
        self._loop.call_soon(self._turn)  # Behind the callers that have their answers, as the stream's writer is.

    def _turn(self) -> None:
        self._is_due = False
        sent: list[tuple[Any, Message]] = []
        while self._ready:
            user = next(iter(self._ready))
            message = user.compose()
            if message is None:
                self._ready.pop(user)
            else:
                sent.append((user, message))
        texts = [PACKED_EXCHANGE.encode_requests(message, "bench", at) for at, (_, message) in enumerate(sent)]
        PACKED_EXCHANGE.join(texts)
        began_s = time.thread_time()
        text = PACKED_EXCHANGE.join([piece for _, message in sent for piece in _answers(message)])
        self.spent_s += time.thread_time() - began_s
        for (user, _), received in zip(sent, PACKED_EXCHANGE.decode_answer_batch(text), strict=True):
            user.on_answers(received)


def _answers(message: Message) -> list[bytes]:
    written = message.opens_session + count_of(message.commands)
    answers = [_WRITTEN] * written + [_FOUND] * count_of(message.queries)
    return PACKED_EXCHANGE.encode_answers(message.message_id, answers, None)


async def _call(callers: list[MapClient], call: Callable[[MapClient, bytes], Any]) -> int:
    """Let all callers call; return how many calls there were."""

    async def one(number: int, client: MapClient) -> None:
        for key in KEYS[number * CALL_COUNT : (number + 1) * CALL_COUNT]:
            await call(client, key)

    await asyncio.gather(*(one(number, client) for number, client in enumerate(callers)))
    return len(callers) * CALL_COUNT


async def main() -> None:
    """Measure and print a line per figure; the least of the rounds is what other work has disturbed least."""
    exchange: Any = _Exchange()
    clients = [MapClient(_Nobody(), "bench") for _ in range(CLIENT_COUNT_MAX)]
    for client in clients:
        client._link._exchange = exchange
        await client.put(KEYS[0], VALUE)
    callers = [clients[number % len(clients)] for number in range(CALLER_COUNT)]
    items = [(key, VALUE) for key in KEYS[:_MANY]]

    async def get_many() -> int:
        return len(await clients[0].get_many(KEYS[:_MANY]))

    async def put_many() -> int:
        return len(await clients[0].put_many(items))

    parts: dict[str, Callable[[], Any]] = {
        "client_get_cpu_us": lambda: _call(callers, lambda client, key: client.get(key)),
        "client_put_cpu_us": lambda: _call(callers, lambda client, key: client.put(key, VALUE)),
        "client_get_many_cpu_us": get_many,
        "client_put_many_cpu_us": put_many,
    }
    figures: dict[str, list[float]] = defaultdict(list)
    for number in range(ROUND_COUNT):
        say(f"client: round {number + 1} of {ROUND_COUNT}")
        for name, part in parts.items():
            exchange.spent_s = 0.0
            began_s = time.thread_time()
            count = await part()
            figures[name].append((time.thread_time() - began_s - exchange.spent_s) / count * 1e6)
    for name, values in figures.items():
        print_figure(name, values, "µs")
        say(f"  {name}: least {min(values):.2f}")
    for client in clients:
        await client.close()


if __name__ == "__main__":
    uvloop.run(main())
