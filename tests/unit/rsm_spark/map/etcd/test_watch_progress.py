"""Progress of the watches of a stream: it holds for all of them, and for none too early or too late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rsm_spark.map.etcd.etcd_pb2 import ResponseHeader, WatchCreateRequest, WatchResponse
from rsm_spark.map.etcd.watch_service import KeyWatch, _WatchStream

pytestmark = pytest.mark.asyncio


class _Told:
    """A stream's other end, and a map of which it is enough that it has a revision."""

    def __init__(self, revision: int) -> None:
        self.messages: list[WatchResponse] = []
        self.feed = SimpleNamespace(revision=revision)
        backend = SimpleNamespace(feed=self.feed, header=lambda shown: ResponseHeader(revision=shown))
        self.stream = _WatchStream(cast("Any", SimpleNamespace(backend=backend)), cast("Any", None), self)

    async def write(self, text: bytes) -> None:
        await asyncio.sleep(0)
        self.messages.append(WatchResponse.FromString(text))

    def watch(self, first: int, told: int, sent: int = 0) -> KeyWatch:
        number = len(self.stream._watches)
        watch = self.stream._watches[number] = KeyWatch(number, WatchCreateRequest(key=b"k"), first)
        watch.told, watch.sent = told, sent
        return watch

    async def asked(self, wanted: int) -> list[int]:
        """Return what is told to who has asked when the map had a revision."""
        self.stream._progress_wanted = wanted
        await self.stream._tell_progress()
        return [one.header.revision for one in self.messages]


async def test_it_waits_for_the_watch_that_is_furthest_behind() -> None:
    told = _Told(50)
    told.watch(1, told=50, sent=40)
    behind = told.watch(1, told=30, sent=30)
    assert await told.asked(45) == []
    behind.told = 50
    await told.stream._tell_progress()
    assert [one.header.revision for one in told.messages] == [50]
    await told.stream._tell_progress()
    assert len(told.messages) == 1, "it was asked for once"


async def test_it_is_never_before_an_event_that_was_told_since_it_was_asked_for() -> None:
    told = _Told(60)
    told.watch(1, told=60, sent=60)
    behind = told.watch(1, told=50, sent=50)
    assert await told.asked(45) == [], "45 is before 60, and 60 is not told to the other watch yet"
    behind.told = 60
    await told.stream._tell_progress()
    assert [one.header.revision for one in told.messages] == [60]


async def test_it_waits_for_an_event_that_is_being_told() -> None:
    told = _Told(60)
    watch = told.watch(1, told=50, sent=50)
    event = WatchResponse(watch_id=0)
    event.events.add().kv.mod_revision = 60
    async with told.stream._writing:
        asking = asyncio.create_task(told.asked(45))
        await asyncio.sleep(0)
        watch.sent = 60
    assert await asking == []
    await told.stream._send(event, 60)
    watch.told = 60
    await told.stream._tell_progress()
    assert [one.header.revision for one in told.messages] == [60, 60]


async def test_a_watch_of_the_future_does_not_say_that_the_future_is_there() -> None:
    told = _Told(50)
    told.watch(1_000, told=999)
    assert await told.asked(50) == [50]


async def test_without_watches_the_map_itself_is_told() -> None:
    assert await _Told(50).asked(48) == [50]
