"""Beats over gRPC: heard by whoever may listen, of the process that is meant, by so many and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rsm_spark.core.beats import BeatAnswer
from rsm_spark.errors import ConnectionLostError, InvalidCommandError
from rsm_spark.transport import beat_codec, beat_pb2
from rsm_spark.transport.beat_client import GrpcBeats
from rsm_spark.transport.beat_service import LISTENERS_MAX, BeatService
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import ReplicaServer

LOG = "orders"
ME, OTHER = "a" * 32, "b" * 32


@asynccontextmanager
async def beating(interval_s: float = 0.01) -> AsyncIterator[str]:
    server = ReplicaServer(LOG)
    answers = {OTHER: BeatAnswer.SILENT, ME: BeatAnswer.HEARS}
    BeatService(LOG, ME, interval_s, lambda process: answers.get(process, BeatAnswer.UNKNOWN)).add_to(server)
    backend: Any = None
    await server.start(backend, lambda: b"{}")
    try:
        yield server.address
    finally:
        await server.stop(0)


async def heard(address: str, incarnation: str = ME, *, beats: int = 3, log: str = LOG) -> None:
    """Return when so many beats were heard."""
    count = 0
    enough = asyncio.Event()

    def count_beat() -> None:
        nonlocal count
        count += 1
        if count >= beats:
            enough.set()

    listening = asyncio.create_task(GrpcBeats(log, Security()).listen(address, incarnation, count_beat))
    waiting = asyncio.create_task(enough.wait())
    try:
        await asyncio.wait([listening, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=30)
        if listening.done():
            listening.result()
        assert enough.is_set()
    finally:
        listening.cancel()
        waiting.cancel()
        await asyncio.gather(listening, waiting, return_exceptions=True)


@pytest.mark.asyncio
async def test_beats_are_heard_of_the_process_that_is_meant() -> None:
    async with beating() as address:
        await heard(address)
        with pytest.raises(ConnectionLostError, match="another process serves here now"):
            await heard(address, OTHER)
        with pytest.raises(ConnectionLostError, match="serves the log 'orders', the call is meant for 'bills'"):
            await heard(address, log="bills")
    with pytest.raises(ConnectionLostError):
        await heard(address)


@pytest.mark.asyncio
async def test_so_many_listen_and_those_who_do_go_on_while_others_are_refused() -> None:
    async with beating(0.5) as address:
        count = 0

        def count_beat() -> None:
            nonlocal count
            count += 1

        beats = GrpcBeats(LOG, Security())
        victim = asyncio.create_task(beats.listen(address, ME, count_beat))
        async with asyncio.timeout(200):
            while not count:  # It has its place before the others come.
                await asyncio.sleep(0.01)
        others = [asyncio.create_task(beats.listen(address, ME, lambda: None)) for _ in range(2 * LISTENERS_MAX)]
        try:
            async with asyncio.timeout(200):
                refused: set[asyncio.Task[None]] = set()
                while len(refused) < LISTENERS_MAX:
                    refused = {task for task in others if task.done()}
                    await asyncio.sleep(0.01)
            for task in refused:
                with pytest.raises(ConnectionLostError, match=f"{LISTENERS_MAX} listen already"):
                    task.result()
            before = count
            async with asyncio.timeout(200):
                while count < before + 3:
                    await asyncio.sleep(0.01)
        finally:
            for task in (victim, *others):
                task.cancel()
            await asyncio.gather(victim, *others, return_exceptions=True)
        async with asyncio.timeout(200):  # Their places are free again.
            while True:
                try:
                    await heard(address, beats=1)
                except ConnectionLostError:
                    await asyncio.sleep(0.01)
                else:
                    break


@pytest.mark.asyncio
async def test_a_replica_says_what_it_hears_of_others() -> None:
    async with beating() as address:
        beats = GrpcBeats(LOG, Security())
        assert await beats.ask(address, OTHER, 30) is BeatAnswer.SILENT
        assert await beats.ask(address, ME, 30) is BeatAnswer.HEARS
        assert await beats.ask(address, "c" * 32, 30) is BeatAnswer.UNKNOWN
        with pytest.raises(ConnectionLostError):
            await GrpcBeats("bills", Security()).ask(address, OTHER, 30)


def test_words_of_other_versions_are_unknown_and_nonsense_is_one_clear_error() -> None:
    newer = beat_pb2.AskAnswer()
    newer.ParseFromString(b"\x08\x63")
    assert beat_codec.decode_ask_answer(newer.SerializeToString()) is BeatAnswer.UNKNOWN
    for decode in (beat_codec.decode_listen, beat_codec.decode_ask, beat_codec.decode_ask_answer):
        with pytest.raises(InvalidCommandError):
            decode(b"\xff\xff")
