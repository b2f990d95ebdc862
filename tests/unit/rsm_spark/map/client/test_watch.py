"""Watches through real gRPC servers, whose replicas are fed by the test."""

# Longer than 400 lines: one feed of one log, watched in all the ways that there are.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rsm_spark.client import told_attempts
from rsm_spark.client.leader_finder import FixedReplica
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.core.envelope import Envelope, body_of, decode_envelope, encode_envelope
from rsm_spark.core.records import KernelRecord, Record, decode_records, encode_records
from rsm_spark.errors import (
    AccessDeniedError,
    ConnectionLostError,
    InvalidCommandError,
    MissingLogError,
    NoLeaderError,
)
from rsm_spark.map.client import watch as map_watch
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.results import MapValue
from rsm_spark.map.client.watch import MapChange, MapWatch
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import DELETED, EXPIRED, EXPIRY_CLEARED, MAP_DESCRIPTION, PUT
from rsm_spark.runtime import change_feed
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.transport import watch_service
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.watch_codec import decode_watch, encode_changes
from rsm_spark.transport.watch_service import WatchService
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport")]

Fields = tuple[int, tuple[Any, ...]]


class Log:
    """Entries in memory, and replicas that have applied some of them."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.revision = 0

    def append(self, *records: Fields) -> int:
        envelope = Envelope(b"l" * 16, 1, self.revision + 1, self.revision, 5_000, len(records), b"h" * 32)
        self.payloads.append(encode_envelope(envelope, encode_records([Record(t, None, f) for t, f in records])))
        self.revision += len(records)
        return self.revision

    def put(self, key: bytes, value: bytes = b"") -> int:
        return self.append((PUT, (key, value)))


class Watched:
    """A replica's server with a feed, and how far it has applied the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.context: Any = SimpleNamespace(payload_listeners=[], tip=SimpleNamespace(revision=0))
        self.feed = ChangeFeed(cast("Any", self.context))
        self.machine = MapMachine()
        self.service = WatchService(
            "orders", MAP_DESCRIPTION, self.feed, self.machine.row_before, self.machine.said_revision
        )
        self.server = ReplicaServer("orders")
        self.service.add_to(self.server)
        self.applied = 0

    async def start(self) -> None:
        await self.server.start(ReplicaDouble(Group()), lambda: b"{}")

    def catch_up(self) -> None:
        for payload in self.log.payloads[self.applied :]:
            for listener in self.context.payload_listeners:
                listener(payload)
        self.applied = len(self.log.payloads)

    def trim(self, first: int) -> None:
        async def _gone(_reader: Any, revision: int) -> Any:
            raise MissingLogError("gone", first_revision=revision, last_revision=first - 1)

        self.feed._entries = []
        self.feed.read_log = _gone  # type: ignore[assignment, method-assign]


@asynccontextmanager
async def replicas(count: int = 1) -> AsyncIterator[tuple[Log, list[Watched], Finder, MapClient]]:
    log = Log()
    watched = [Watched(log) for _ in range(count)]
    for one in watched:
        await one.start()
    finder = Finder(watched[0].server.address, *(one.server for one in watched))
    client = MapClient(finder, "orders", timeout_s=60)
    try:
        yield log, watched, finder, client
    finally:
        await client.close()
        for one in watched:
            one.service.close()
            await one.server.stop(0)


async def first(watch: MapWatch, count: int) -> list[MapChange]:
    async with asyncio.timeout(60):
        return [await anext(watch) for _ in range(count)]


async def test_changes_come_with_key_value_revision_and_kind() -> None:
    async with replicas() as (log, (one,), _, client):
        log.append((KernelRecord.LEADER_STARTED, ("a", "b")), (PUT, (b"a", b"1")))
        log.append((DELETED, (b"a",)), (PUT, (b"b", b"2")), (EXPIRED, (b"b",)), (EXPIRY_CLEARED, (b"b",)))
        one.catch_up()
        watch = client.watch(from_revision=1)
        assert await first(watch, 4) == [
            MapChange(b"a", b"1", 2, "put", 5_000),
            MapChange(b"a", None, 3, "deleted", 5_000),
            MapChange(b"b", b"2", 4, "put", 5_000),
            MapChange(b"b", None, 5, "expired", 5_000),
        ]
        assert watch.revision == 5
        await watch.aclose()


async def test_only_the_range_is_told_and_quiet_watchers_learn_how_far_it_went() -> None:
    async with replicas() as (log, (one,), _, client):
        watch = client.watch(prefix=b"k/", from_revision=1, progress_ms=100)
        log.put(b"j")
        log.put(b"k/1")
        log.put(b"k0")
        one.catch_up()
        assert [change.key for change in await first(watch, 1)] == [b"k/1"]
        waiting = asyncio.create_task(anext(watch))
        for n in range(20):
            log.put(b"x%d" % n)
            one.catch_up()
        async with asyncio.timeout(60):
            while watch.revision < log.revision:
                await asyncio.sleep(0.02)
        log.put(b"k/2")
        one.catch_up()
        assert (await waiting).revision == log.revision
        async with asyncio.timeout(60):
            while one.service.changes_sent < 2:  # What the client has is counted a moment later.
                await asyncio.sleep(0)
        assert one.service.changes_sent == 2, "the server filters"
        bounded = client.watch(start=b"k/2", end=b"k0", from_revision=1)
        assert [change.key for change in await first(bounded, 1)] == [b"k/2"]
        await watch.aclose()
        await bounded.aclose()


@pytest.mark.parametrize("is_old", [False, True])
async def test_only_changes_of_the_kinds_are_told_also_by_a_replica_that_does_not_know_them(
    is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_old:
        monkeypatch.setattr(watch_service, "decode_watch", lambda text: replace(decode_watch(text), types=()))
    async with replicas() as (log, (one,), _, client):
        log.append((PUT, (b"a", b"1")), (DELETED, (b"a",)), (PUT, (b"b", b"2")), (EXPIRED, (b"b",)))
        log.put(b"c")
        one.catch_up()
        watch = client.watch(from_revision=1, kinds=["expired", "deleted"])
        assert [(change.key, change.kind) for change in await first(watch, 2)] == [(b"a", "deleted"), (b"b", "expired")]
        puts = client.watch(from_revision=1, kinds=["put"])
        assert [change.key for change in await first(puts, 3)] == [b"a", b"b", b"c"]
        while not is_old and one.service.changes_sent < 5:  # What the client has is counted a moment later.
            await asyncio.sleep(0)
        assert is_old or one.service.changes_sent == 5, "the server filters"
        with pytest.raises(InvalidCommandError, match="kinds gone: a change is one of put, deleted, expired"):
            client.watch(kinds=["gone"])  # type: ignore[list-item]
        await watch.aclose()
        await puts.aclose()


async def test_a_watch_without_a_revision_begins_behind_the_present() -> None:
    async with replicas() as (log, (one,), _, client):
        log.put(b"before")
        one.catch_up()
        watch = client.watch()
        waiting = asyncio.create_task(anext(watch))
        async with asyncio.timeout(60):
            while watch.revision != 1:
                await asyncio.sleep(0.01)
        log.put(b"after")
        one.catch_up()
        assert (await waiting).key == b"after"
        await watch.aclose()


async def test_a_watch_goes_on_at_another_replica_without_gap_or_double() -> None:
    async with replicas(2) as (log, (one, two), finder, client):
        for n in range(10):
            log.append((PUT, (b"%d" % n, b"")), (PUT, (b"%d" % n, b"+")))
        one.catch_up()
        watch = client.watch(from_revision=1)
        seen = await first(watch, 7)  # In the middle of an entry.
        finder.move(two.server.address)
        one.service.close()
        await one.server.stop(0)
        for n in range(10):
            log.put(b"late%d" % n)
        rest = asyncio.create_task(first(watch, 23))
        await asyncio.sleep(0.05)
        two.catch_up()
        seen += await rest
        assert [change.revision for change in seen] == list(range(1, 31))
        assert watch.connections >= 2
        assert watch.address == two.server.address
        await watch.aclose()


async def test_a_replica_that_lags_makes_a_watch_wait_not_go_back() -> None:
    async with replicas() as (log, (one,), _, client):
        watch = client.watch(from_revision=3)
        waiting = asyncio.create_task(anext(watch))
        for key in (b"1", b"2"):
            log.put(key)
            one.catch_up()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        log.put(b"3")
        one.catch_up()
        assert (await waiting).key == b"3"
        await watch.aclose()


async def test_a_revision_that_was_trimmed_is_one_error_with_the_first_that_is_there() -> None:
    async with replicas() as (log, (one,), _, client):
        for n in range(5):
            log.put(b"%d" % n)
        one.catch_up()
        one.trim(4)
        with pytest.raises(MissingLogError) as raised:
            await anext(client.watch(from_revision=2))
        assert (raised.value.first_revision, raised.value.last_revision) == (2, 3)


async def test_a_watcher_that_stands_still_is_sent_little_and_loses_nothing() -> None:
    async with replicas() as (log, (one,), _, client):
        watch = client.watch(from_revision=1)
        log.put(b"first")
        one.catch_up()
        assert len(await first(watch, 1)) == 1
        value = b"v" * 100_000
        for n in range(400):
            log.put(b"%d" % n, value)
            if n % 40 == 0:
                one.catch_up()
                await asyncio.sleep(0.01)
        one.catch_up()
        await asyncio.sleep(0.3)
        assert one.service.changes_sent < 300, "the server sent 30 MB to somebody who does not read"

        async def _from_log(reader: Any, revision: int) -> Any:
            entries = []
            for payload in log.payloads[max(0, revision - 1) : revision + 3]:
                entries.append(SimpleNamespace(payload=payload, envelope=decode_envelope(payload)))
            return reader or SimpleNamespace(close=_nothing, wait=_nothing), entries

        one.feed.read_log = _from_log  # type: ignore[method-assign]
        assert [change.revision for change in await first(watch, 400)] == list(range(2, 402))
        await watch.aclose()


async def _nothing(*_: Any) -> None:
    return None


async def test_a_silent_replica_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_watch, "_SILENCE_S_MIN", 0.3)
    monkeypatch.setattr(change_feed, "FRESH_S", 0.1)
    async with replicas(2) as (log, (one, two), finder, client):
        log.put(b"a")
        one.catch_up()
        watch = client.watch(from_revision=1, progress_ms=100)
        assert len(await first(watch, 1)) == 1
        log.put(b"b")
        two.catch_up()
        finder.move(two.server.address)
        assert (await first(watch, 1))[0].key == b"b"
        await watch.aclose()


async def test_nobody_there_ends_a_watch_whose_patience_is_bounded() -> None:
    client = MapClient(FixedReplica("127.0.0.1:1"), "orders")
    try:
        with pytest.raises(NoLeaderError, match="no replica tells of changes"):
            await anext(client.watch(patience_s=0.2))
    finally:
        await client.close()


async def test_who_has_no_right_to_watch_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_attempts, "_DENIED_S_MAX", 0.2)
    monkeypatch.setattr(watch_service, "watch_fault", lambda *_: "reader may not read it")
    async with replicas() as (_, _, _, client):
        with pytest.raises(AccessDeniedError, match="reader may not read it"):
            await first(client.watch(from_revision=1), 1)


async def test_a_replica_that_learns_of_a_right_last_does_not_end_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def fault(*_: Any) -> str:
        nonlocal asked
        asked += 1
        return "" if asked > 3 else "nobody told me yet"

    monkeypatch.setattr(watch_service, "watch_fault", fault)
    async with replicas() as (log, (one,), _, client):
        log.put(b"a")
        one.catch_up()
        assert (await first(client.watch(from_revision=1), 1))[0].key == b"a"
    assert asked == 4


async def test_a_watch_that_makes_no_sense_is_refused() -> None:
    async with replicas() as (_, _, _, client):
        with pytest.raises(InvalidCommandError, match="first revision"):
            client.watch(from_revision=0)
        with pytest.raises(InvalidCommandError, match="not both"):
            client.watch(prefix=b"a", end=b"b")
        watch = client.watch()
        watch._request = type(watch._request)("orders", "no such table")
        with pytest.raises(InvalidCommandError, match="no table 'no such table'"):
            await anext(watch)


async def test_too_many_watches_are_refused_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_service, "WATCHERS_MAX", 1)
    async with replicas() as (log, (one,), _, client):
        log.put(b"a")
        one.catch_up()
        held = client.watch(from_revision=1)
        assert len(await first(held, 1)) == 1
        other = client.watch(from_revision=1)
        waiting = asyncio.create_task(anext(other))
        async with asyncio.timeout(60):
            while not one.service.refused_count:
                await asyncio.sleep(0.01)
        await held.aclose()
        async with asyncio.timeout(60):
            assert (await waiting).key == b"a"
        await other.aclose()
        async with asyncio.timeout(60):
            while one.service.watcher_count:
                await asyncio.sleep(0.01)


async def test_the_blocking_client_watches_too() -> None:
    async with replicas() as (log, (one,), _, client):
        for n in range(3):
            log.put(b"%d" % n)
        one.catch_up()

        async def _make() -> MapClient:
            return MapClient(FixedReplica(one.server.address), "orders")

        def _work() -> list[bytes]:
            blocking = BlockingMapClient(_make)
            try:
                changes = blocking.watch(from_revision=1)
                return [next(changes).key for _ in range(3)]
            finally:
                blocking.close()

        assert await asyncio.to_thread(_work) == [b"0", b"1", b"2"]
        del client


async def test_changes_of_a_command_have_one_revision_and_one_of_them_is_the_last() -> None:
    async with replicas() as (log, (one,), _, client):
        log.append((PUT, (b"a", b"1", 1, 1, None)))
        log.append((PUT, (b"a", b"2", 1, 2, 5)), (PUT, (b"b", b"", 5, 1, 5)), (DELETED, (b"a", 5)), (DELETED, (b"b",)))
        one.catch_up()
        watch = client.watch(from_revision=1)
        seen = [(change.key, change.revision, change.is_last, watch.revision) async for change in _some(watch, 5)]
        assert seen == [(b"a", 1, True, 1), *[(key, 5, False, 1) for key in (b"a", b"b", b"a")], (b"b", 5, True, 5)]
        for within in (3, 5):  # Whoever begins within a command is told all of it.
            later = client.watch(from_revision=within)
            assert [change.revision for change in await first(later, 4)] == [5] * 4
            await later.aclose()
        narrow = client.watch(prefix=b"b", kinds=["put"], from_revision=2)
        assert [(change.revision, change.is_last) for change in await first(narrow, 1)] == [(5, True)]
        await narrow.aclose()
        await watch.aclose()


async def _some(watch: MapWatch, count: int) -> AsyncIterator[MapChange]:
    for _ in range(count):
        (change,) = await first(watch, 1)
        yield change


async def test_a_stream_that_breaks_within_a_command_is_taken_up_without_gap_or_double(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, sent = encode_changes, 0

    def encode(changes: Any, up_to: int, **more: Any) -> bytes:
        nonlocal sent
        sent += 1
        if sent == 4:
            raise ConnectionLostError("the third message with changes is never sent")
        return plain(changes, up_to, **more)

    monkeypatch.setattr(watch_service, "encode_changes", encode)
    async with replicas(2) as (log, both, _, client):
        log.put(b"before")
        log.append(*((PUT, (b"%02d" % n, b"", 21, 1, None if n == 19 else 21)) for n in range(20)))
        for each in both:
            each.service._message_bytes = 100
            each.catch_up()
        watch = client.watch(from_revision=2)
        seen = await first(watch, 20)
        assert [change.key for change in seen] == [b"%02d" % n for n in range(20)]
        assert [change.is_last for change in seen] == [False] * 19 + [True]
        assert (watch.connections, watch.revision) == (2, 21)
        await watch.aclose()


async def test_a_log_that_was_raised_is_watched_across() -> None:
    async with replicas() as (log, (one,), _, client):
        log.append((PUT, (b"a", b"1")), (PUT, (b"b", b"1")), (DELETED, (b"b",)))  # As version 2 wrote.
        log.append((PUT, (b"a", b"2", 1, 2)), (DELETED, (b"a",)), (PUT, (b"c", b"1", 6, 1)))  # Version 3.
        log.append((PUT, (b"c", b"2", 6, 2, 9)), (DELETED, (b"c", 9)), (PUT, (b"d", b"1", 9, 1, None)))
        one.catch_up()
        watch = client.watch(from_revision=1)
        seen = await first(watch, 9)
        assert [change.revision for change in seen] == [1, 2, 3, 4, 5, 6, 9, 9, 9]
        assert [change.is_last for change in seen] == [True] * 6 + [False, False, True]
        # Records of before have each a revision of its own: a watch begins at any of them.
        for revision, count in ((2, 8), (5, 5), (6, 4), (7, 3), (9, 3)):
            later = client.watch(from_revision=revision)
            assert await first(later, count) == seen[-count:]
            await later.aclose()
        await watch.aclose()


async def test_a_consumer_lets_go_of_a_command_with_its_last_change() -> None:
    async with replicas() as (log, (one,), _, client):
        said: list[int] = []

        class Consumers:
            async def begin(self, _name: str, revision: int | None) -> int | None:
                return revision

            async def processed(self, _name: str, revision: int) -> None:
                said.append(revision)

            async def flush(self) -> None:
                return

        client._consumers = cast("Any", Consumers())
        log.put(b"before")
        log.append((PUT, (b"a", b"", 3, 1, 3)), (PUT, (b"b", b"", 3, 1, None)))
        one.catch_up()
        watch = client.watch(from_revision=1, consumer="billing")
        for _ in range(3):
            (change,) = await first(watch, 1)
            await client.processed("billing", change.revision)
        assert said == [1, 1, 3]
        await watch.aclose()


def fold(one: Watched) -> None:
    """Have a replica's machine apply what its feed gets."""
    revision = 0
    for payload in one.log.payloads:
        for record in decode_records(body_of(payload)):
            revision += 1
            one.machine.apply(record.type, record.fields, revision)
    one.catch_up()


async def test_changes_come_with_what_their_keys_held_before() -> None:
    async with replicas() as (log, (one,), _, client):
        log.append((PUT, (b"a", b"1", 1, 1, None)), (PUT, (b"b", b"1", 2, 1, None)))
        log.append((PUT, (b"a", b"2", 1, 2, None)), (DELETED, (b"b",)))
        log.append((EXPIRED, (b"a",)), (PUT, (b"a", b"3", 6, 1, None)))
        fold(one)
        watch = client.watch(from_revision=1, old_values=True)
        assert [(change.key, change.old) for change in await first(watch, 6)] == [
            (b"a", None),
            (b"b", None),
            (b"a", MapValue(b"1", 1, 1, 1)),
            (b"b", MapValue(b"1", 2, 2, 1)),
            (b"a", MapValue(b"2", 3, 1, 2)),
            (b"a", None),
        ]
        await watch.aclose()
        silent = client.watch(from_revision=3)
        assert (await first(silent, 1))[0].old is None, "nobody has asked"
        await silent.aclose()


async def test_a_replica_that_does_not_remember_leaves_it_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_attempts, "_PAUSE_FIRST_S", 0.001)
    async with replicas(2) as (log, (one, two), finder, client):
        log.append((PUT, (b"a", b"1", 1, 1, None)))
        log.append((PUT, (b"a", b"2", 1, 2, None)))
        for each in (one, two):
            fold(each)
        one.machine.restore(list(one.machine.rows()))
        one.machine.apply(PUT, (b"a", b"3", 1, 3, None), 3)
        alone = client.watch(from_revision=2, old_values=True)
        with pytest.raises(MissingLogError, match="remembers old values from revision 3 on") as caught:
            await first(alone, 1)
        assert caught.value.last_revision == 2

        async def pick(self: Any, attempt: int) -> str:
            return (one, two)[attempt % 2].server.address

        monkeypatch.setattr(WatchedReplicas, "pick", pick)
        watch = client.watch(from_revision=2, old_values=True)
        assert [change.old for change in await first(watch, 1)] == [MapValue(b"1", 1, 1, 1)]
        assert watch.connections == 2
        await watch.aclose()


async def test_a_replica_of_before_tells_no_old_values_and_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = encode_changes
    monkeypatch.setattr(watch_service, "encode_changes", lambda changes, up_to, **_: plain(changes, up_to))
    async with replicas() as (log, (one,), _, client):
        log.append((PUT, (b"a", b"1", 1, 1, None)))
        fold(one)
        watch = client.watch(from_revision=1, old_values=True, patience_s=0)
        with pytest.raises(NoLeaderError, match="does not tell old values: upgrade it"):
            await first(watch, 1)
