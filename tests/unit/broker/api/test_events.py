"""Events as they are streamed: in order, once, one's own, from any revision that there is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from broker.api.event_hub import EventHub
from broker.api.shared import SharedState
from broker.machine.statuses import TaskStatus, WorkerStatus
from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from rsm_spark.core.machine import FieldType
from rsm_spark.core.records import KernelRecord
from tests.unit.broker.api.stand import SECRETS, Caller, Feed, StandIn, serving, task, write_tokens
from tests.wall_clock import SetClock

_BLANK: dict[FieldType, Any] = {
    FieldType.INT: 0, FieldType.STR: "", FieldType.BYTES: b"", FieldType.FLOAT: 0.0, FieldType.BOOL: False,
}  # fmt: skip
_RECORDS = {record.type: record for record in BROKER_DESCRIPTION.records}


def _record(number: int, **values: Any) -> tuple[int, tuple[Any, ...]]:
    return number, tuple(values.get(field.name, _BLANK[field.type]) for field in _RECORDS[number].fields)


def _submitted(task_id: int, tenant: str = "acme", **values: Any) -> tuple[int, tuple[Any, ...]]:
    return _record(RecordType.TASK_SUBMITTED, task_id=task_id, tenant=tenant, type="mail", **values)


def _ended(task_id: int, status: int = TaskStatus.FINISHED) -> tuple[int, tuple[Any, ...]]:
    return _record(RecordType.TASK_ENDED, task_id=task_id, status=int(status), result=b"secret result")


@pytest.fixture(autouse=True)
def _no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


class Event(NamedTuple):
    id: int
    name: str
    fields: dict[str, Any]


class _Ended(Exception):
    """The stream is over."""


class Stream:
    """Reads events of one connection."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.comments: list[str] = []
        self._text = b""

    @classmethod
    async def of(cls, server: Any, query: str = "", token: str = "", headers: str = "") -> Stream:
        caller = await Caller.of(server)
        head = f"GET /api/v1/events{query} HTTP/1.1\r\nHost: {caller.host}\r\n{headers}"
        head += f"Authorization: Bearer {SECRETS[token]}\r\n" if token else ""
        caller.writer.write(head.encode() + b"\r\n")
        first = (await caller.reader.readuntil(b"\r\n\r\n")).decode()
        assert " 200 " in first.split("\r\n")[0], first
        assert "text/event-stream" in first
        return cls(caller)

    async def next(self) -> Event:
        """The next event."""
        while True:
            block = await self._block()
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            self.comments += [line[2:] for line in block.split("\n") if line.startswith(":")]
            if "data" in fields:
                return Event(int(fields.get("id", -1)), fields["event"], msgspec.json.decode(fields["data"]))

    async def take(self, count: int) -> list[Event]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Event]:
        """What comes until the stream ends in an orderly way."""
        events = []
        while True:
            try:
                events.append(await self.next())
            except _Ended:
                return events

    async def _block(self) -> str:
        async with asyncio.timeout(60):
            while b"\n\n" not in self._text:
                size = int(await self.caller.reader.readuntil(b"\r\n"), 16)
                chunk = await self.caller.reader.readexactly(size + 2)
                if not size:
                    raise _Ended
                self._text += chunk[:-2]
        block, _, self._text = self._text.partition(b"\n\n")
        return block.decode()


def _run(scenario: Callable[[Any, StandIn, Feed], Awaitable[None]], feed: Feed | None = None, **settings: Any) -> None:
    async def run() -> None:
        broker = StandIn()
        broker.changes = feed or Feed()
        async with serving(broker, **settings) as (server, _):
            await scenario(server, broker, broker.changes)

    asyncio.run(run())


def test_events_carry_revision_name_and_fields_without_what_tasks_carry() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        feed.log(_submitted(1, payload=b"secret payload", priority=5), _ended(1), logged_ms=9_000)
        first, second = await (await Stream.of(server, "?from_revision=1")).take(2)
        assert (first.id, first.name) == (1, "task_submitted")
        assert (first.fields["tenant"], first.fields["priority"], first.fields["logged_ms"]) == ("acme", 5, 9_000)
        assert (second.id, second.name, second.fields["status"]) == (2, "task_ended", "finished")
        assert not {"payload", "result"} & (first.fields.keys() | second.fields.keys())

    _run(scenario)


def test_a_reader_that_names_no_revision_sees_what_comes() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        feed.log(_submitted(1))
        stream = await Stream.of(server)
        feed.log(_submitted(2))
        assert (await stream.next()).id == 2

    _run(scenario)


def test_a_reader_that_comes_again_misses_nothing_and_sees_nothing_twice() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        for first in range(1, 40, 3):
            feed.log(*[_submitted(first + place) for place in range(3)])
        seen: list[int] = []
        last = ""
        for count in (5, 1, 7, 26):
            stream = await Stream.of(server, "?from_revision=1", headers=last)
            seen += [event.id for event in await stream.take(count)]
            last = f"Last-Event-ID: {seen[-1]}\r\n"
            stream.caller.close()
        assert seen == list(range(1, 40))

    _run(scenario)


def test_a_tenant_sees_its_own_events_only(tmp_path: Path) -> None:
    async def scenario(server: Any, broker: StandIn, feed: Feed) -> None:
        broker.tasks[900] = task(900, "acme")  # submitted before anybody looked
        broker.tasks[901] = task(901, "bolt")
        stream = await Stream.of(server, token="acme")
        everything = await Stream.of(server, token="admin")
        records = [
            _submitted(1), _submitted(2, "bolt"), _ended(1), _ended(2), _ended(900), _ended(901), _ended(999),
            _record(RecordType.SLOT_TAKEN, tenant="bolt", slot="s", task_id=2),
            _record(RecordType.TENANT_SET, tenant="bolt"), _record(RecordType.HOLD_SET, tenant=""),
            _record(RecordType.WORKER_CONNECTED, worker_id="w"), _record(RecordType.RESOURCE_LIMITED, resource="db"),
            _record(RecordType.TRANSACTION_BEGUN, transaction=31, tenant="bolt"),
            _record(RecordType.TRANSACTION_COMMITTED, transaction=31),
            _record(RecordType.TRANSACTION_BEGUN, transaction=32, tenant="acme"),
            _record(RecordType.TRANSACTION_COMMITTED, transaction=32),
            _record(RecordType.TASK_REMOVED, task_id=2), _record(RecordType.TASK_REMOVED, task_id=1),
            _submitted(3),
        ]  # fmt: skip
        feed.log(*records)
        assert [event.id for event in await stream.take(7)] == [1, 3, 5, 15, 16, 18, 19]
        assert [event.id for event in await everything.take(len(records))] == list(range(1, len(records) + 1))
        asked = len([query for query in broker.queries if type(query).__name__ == "GetTask"])
        assert asked == 3, "whose a task is, is asked only when it was not seen, once for all readers"

    _run(scenario, tokens_file=write_tokens(tmp_path / "tokens.toml"))


def test_what_the_broker_and_the_log_tell_themselves_is_no_event() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        feed.log((int(KernelRecord.LEADER_STARTED), ("a", "b")), _record(RecordType.REQUEST_NOTED, tenant="a"))
        feed.log(_record(RecordType.WORKER_CONNECTED, worker_id="w", status=int(WorkerStatus.CONNECTED)))
        event = await (await Stream.of(server, "?from_revision=1")).next()
        assert (event.id, event.name, event.fields["status"]) == (3, "worker_connected", "connected")

    _run(scenario)


def test_every_record_that_is_told_can_be() -> None:
    async def run() -> None:
        feed = Feed()
        cursor = feed.cursor(1)
        feed.log(*[_record(number) for number in _RECORDS])
        (entry,) = await cursor.read(0)
        hub = EventHub(StandIn())
        assert len(await hub.events(entry, "", 1)) == len(_RECORDS) - 2
        assert len(await hub.events(entry, "", len(_RECORDS))) == 1
        assert set(await hub.counts(entry, "", 1)) == {
            record.name for record in _RECORDS.values() if not record.name.startswith("request_")
        }

    asyncio.run(run())


def test_a_page_is_told_how_much_happened_and_not_each_event(tmp_path: Path) -> None:
    async def scenario(server: Any, broker: StandIn, feed: Feed) -> None:
        broker.tasks[900] = task(900, "acme")
        everything = await Stream.of(server, "?summary=true", token="admin")
        own = await Stream.of(server, "?summary=true", token="acme")
        feed.log(*[_submitted(number, "bolt") for number in range(1, 500)], _submitted(500), _ended(900), _ended(3))
        for stream, submitted, ended in ((everything, 500, 2), (own, 1, 1)):
            event = await stream.next()
            assert (event.id, event.name, event.fields["revision"]) == (502, "summary", 502)
            assert event.fields["counts"] == {"task_submitted": submitted, "task_ended": ended}
        feed.log(_submitted(501, "bolt"))
        feed.log(_submitted(502, "acme"))
        assert (await own.next()).fields["counts"] == {"task_submitted": 1}

    _run(scenario, tokens_file=write_tokens(tmp_path / "tokens.toml"))


@pytest.mark.parametrize(("query", "headers"), [("?from_revision=3", ""), ("", "Last-Event-ID: 2\r\n")])
def test_a_beginning_that_has_been_trimmed_is_gone_and_the_oldest_is_named(query: str, headers: str) -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        for task_id in range(1, 40):
            feed.log(_submitted(task_id))
        caller = await Caller.of(server)
        caller.writer.write(f"GET /api/v1/events{query} HTTP/1.1\r\nHost: {caller.host}\r\n{headers}\r\n".encode())
        answer = await caller.answer()
        assert (answer.status, answer.json["reason"]) == (410, "trimmed")
        oldest = answer.json["oldest_revision"]
        assert oldest > 3
        stream = await Stream.of(server, f"?from_revision={oldest}")
        assert (await stream.next()).id == oldest

    _run(scenario, Feed(ring_bytes=1_000))


def test_a_reader_that_falls_behind_what_is_kept_is_told_so() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        stream = await Stream.of(server)
        # One entry beyond the ring at once: the reader was never in time for it.
        feed.log(*[_submitted(task_id) for task_id in range(1, 30)])
        for task_id in range(30, 60):
            feed.log(_submitted(task_id))
        names = [event.name for event in await stream.rest()]
        assert names[-1] == "trimmed"

    _run(scenario, Feed(ring_bytes=1_000))


def test_a_silent_stream_shows_that_it_lives() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        stream = await Stream.of(server)
        assert "heartbeat" in await stream._block()
        assert await stream._block() == ": heartbeat"
        feed.log(_submitted(1))
        assert (await stream.next()).id == 1

    _run(scenario, heartbeat_s=0.02)


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("change", ["taken back", "expired", "another's"])
def test_a_stream_ends_soon_when_its_token_is_no_longer_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, *, is_busy: bool
) -> None:
    path = tmp_path / "tokens.toml"
    clock = SetClock(monkeypatch, SharedState)
    line = f"expires = {clock.in_an_hour}" if change == "expired" else ""

    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        async def happen() -> None:
            while True:
                feed.log(_submitted(1))
                await asyncio.sleep(0.01)

        stream = await Stream.of(server, token="acme")
        other = await Stream.of(server, token="bolt")
        happening = asyncio.create_task(happen()) if is_busy else None
        reading = asyncio.create_task(stream.rest())
        await asyncio.sleep(0.05)
        blocks = path.read_text().split("[[token]]")
        if change == "taken back":
            path.write_text("[[token]]".join(block for block in blocks if 'name = "acme"' not in block))
        elif change == "another's":
            path.write_text("[[token]]".join(blocks).replace('tenant = "acme"', 'tenant = "bolt"'))
        else:
            clock.pass_that_hour()
        events = await reading
        assert bool(events) == is_busy
        assert server.edge.shared.streams.held == 1, "another's stream goes on"
        if happening is not None:
            happening.cancel()
        other.caller.close()

    _run(scenario, tokens_file=write_tokens(path, acme=line))


def test_a_stream_whose_reader_takes_nothing_ends_with_its_token_too(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"

    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        stream = await Stream.of(server, token="acme")
        for _ in range(60):
            feed.log(*[_submitted(1, key="k" * 200) for _ in range(500)])
        path.write_text("")
        async with asyncio.timeout(60):
            while server.edge.shared.streams.held:
                await asyncio.sleep(0.01)
        stream.caller.close()

    _run(scenario, Feed(ring_bytes=100_000_000), tokens_file=write_tokens(path))


def test_streams_end_when_the_server_stops() -> None:
    async def scenario(server: Any, _stand_in: StandIn, __: Feed) -> None:
        stream = await Stream.of(server)
        async with asyncio.timeout(60):
            await server.stop()
            assert await stream.caller.closed()

    _run(scenario)


def test_nothing_is_kept_of_a_reader_that_has_gone() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        streams = [await Stream.of(server) for _ in range(5)]
        assert (server.edge.shared.streams.held, feed.reader_count) == (5, 5)
        for stream in streams:
            stream.caller.close()
        async with asyncio.timeout(60):
            while server.edge.shared.streams.held or feed.reader_count:
                await asyncio.sleep(0.005)

    _run(scenario)


def test_a_reader_that_takes_nothing_is_left_after_a_while_and_holds_no_memory() -> None:
    async def scenario(server: Any, _stand_in: StandIn, feed: Feed) -> None:
        stream = await Stream.of(server)
        for _ in range(60):
            feed.log(*[_submitted(1, key="k" * 200) for _ in range(500)])
        async with asyncio.timeout(60):
            while server.edge.shared.streams.held:
                await asyncio.sleep(0.01)
        assert feed.reader_count == 0
        stream.caller.close()

    _run(scenario, Feed(ring_bytes=100_000_000), write_s=0.1)


def test_a_stream_has_no_head_of_its_own() -> None:
    async def scenario(server: Any, _stand_in: StandIn, __: Feed) -> None:
        caller = await Caller.of(server)
        assert (await caller.ask("HEAD", "/api/v1/events")).status == 405

    _run(scenario)


def test_more_streams_than_allowed_are_turned_away() -> None:
    async def scenario(server: Any, _stand_in: StandIn, __: Feed) -> None:
        first = await Stream.of(server)
        caller = await Caller.of(server)
        answer = await caller.ask("GET", "/api/v1/events")
        assert (answer.status, answer.json["reason"]) == (503, "too-many-streams")
        first.caller.close()  # Held until here: a stream that nobody holds ends.

    _run(scenario, events_max=1)


@pytest.mark.parametrize("last", ["x", "-1", "9" * 40])
def test_an_id_that_is_none_is_refused(last: str) -> None:
    async def scenario(server: Any, _stand_in: StandIn, __: Feed) -> None:
        caller = await Caller.of(server)
        assert (await caller.ask("GET", "/api/v1/events", headers={"Last-Event-ID": last})).status == 400

    _run(scenario)
