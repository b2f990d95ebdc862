"""Records of a log over HTTP: read a page at a time, and tailed as server-sent events.

    id: 4711
    event: record
    data: {"position":4711,"txid":7,"key":null,"payload":"cGFnZT0v","logged_ms":1760000000000}

The id is the position, or in a partitioned log the next position of each partition: who comes again with
`Last-Event-ID` misses nothing and sees nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply, json_reply
from ledger.rights.table import Right
from rsm_spark.errors import MissingLogError, PartitionedLogError
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute
from rsm_spark.gateway.opened_readers import (
    AnyReader,
    PlacedRecord,
    ReadingSlots,
    Start,
    open_partitions,
    open_plain,
    parse_start,
)
from rsm_spark.gateway_client.shapes import ReadRecord, RecordsPage, RecordsQuery, TailQuery, TrimmedNotice

_READ_MAX = 256
_CHUNK_BYTES = 256 * 1024
_READMIT_S = 2.0
_READING_S = 0.005
"""Of the event loop, that a step of reading is taken to need before that is known."""
_AHEAD_S = 0.000_01
"""Of the event loop, that a record of a partition has needed where it was read ahead."""
_PACE_S = 0.02
"""After each step of a tail, so that others have a turn."""
_LOOK_S = 0.05
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]
_ENCODER = msgspec.json.Encoder()


async def _page(call: GatewayCall) -> HttpReply:
    query: RecordsQuery = call.query
    start = parse_start(query.begin)
    clock_s = call.state.clock_s
    until_s = clock_s() + query.wait_s
    with _seats(call) as seats:
        found: list[ReadRecord] = []
        async with _opened(call, seats, start, follow=False) as reader:
            await _fill(call, reader, found, until_s)
            page = RecordsPage(found, reader.next, reader.is_ended)
        wait_s = until_s - clock_s()
        if not found and wait_s > 0 and not page.is_ended and isinstance(page.next, str):
            # What partitions hold is known: now for what comes.
            async with _opened(call, seats, parse_start(page.next), follow=True) as reader:
                await _fill(call, reader, found, until_s)
                page = RecordsPage(found, reader.next, reader.is_ended)
        return json_reply(page)


async def _fill(call: GatewayCall, reader: AnyReader, found: list[ReadRecord], until_s: float) -> None:
    """Read until the page is full, nothing more is there, or the time is over."""
    state, limit = call.state, call.query.limit
    size = 0
    while len(found) < limit and size < state.settings.page_bytes:
        records = await _read(call, reader, min(_READ_MAX, limit - len(found)))
        found += [record.shape for record in records]
        size += sum(len(record.shape.payload) for record in records)
        if not records:
            left_s = until_s - state.clock_s()
            if reader.is_ended or state.closing.done() or reader.gives_up(left_s, is_empty=not found):
                return
            await reader.wait(min(max(left_s, _LOOK_S), _READMIT_S))


async def _tail(call: GatewayCall) -> HttpReply | None:
    if call.scope["method"] == "HEAD":
        raise HttpProblem(405, "method-not-allowed", "a stream has no length to tell", headers=((b"allow", b"GET"),))
    query: TailQuery = call.query
    with _seats(call) as seats:
        async with _opened(call, seats, _begin(call, query.begin), follow=True) as reader:
            gone = asyncio.get_running_loop().create_task(_gone(call))
            try:
                await _stream(call, seats, reader, gone)
            finally:
                gone.cancel()
                await asyncio.wait([gone])
    return None


def _begin(call: GatewayCall, text: str) -> Start:
    """Return where a stream begins: behind the last event that the caller has, or where it wants to."""
    last = call.headers.get(b"last-event-id")
    if last is None:
        return parse_start(text)
    start = parse_start(last.decode("latin-1"))
    if isinstance(start, str):
        raise HttpProblem(400, "invalid", "Last-Event-ID: the id of an event is a number, or partition:number,…")
    return start + 1 if isinstance(start, int) else start


async def _stream(call: GatewayCall, seats: ReadingSlots, reader: AnyReader, gone: asyncio.Task[None]) -> None:
    """Send what comes until the reader leaves, takes nothing, may no longer read, or the log ends."""
    state, loop = call.state, asyncio.get_running_loop()
    heartbeat_s = state.settings.http.heartbeat_s
    try:
        await call.send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await _write(call, b"retry: 1000\n: heartbeat\n\n")
        sent_s = loop.time()
        while not (gone.done() or state.closing.done()):
            records = await _read(call, reader, _READ_MAX)
            state.readmit(call.caller, call.headers, call.scope)
            seats.fit(reader.partition_count)
            for chunk in _chunks(records):
                await _write(call, chunk)
            if records:
                await asyncio.sleep(_PACE_S)
            elif not reader.is_ended:
                await reader.wait(min(_READMIT_S, heartbeat_s))
            if reader.is_ended:
                await _write(call, b"event: ended\ndata: {}\n\n")
                break
            now_s = loop.time()
            if records:
                sent_s = now_s
            elif now_s - sent_s >= heartbeat_s:
                await _write(call, b": heartbeat\n\n")
                sent_s = now_s
    except HttpProblem:
        pass  # The token was taken back, or the log has more partitions than go: the stream ends.
    except MissingLogError as error:
        news = TrimmedNotice((error.last_revision or 0) + 1, "trimmed", error.partition)
        await _write(call, b"event: trimmed\ndata: %s\n\n" % _ENCODER.encode(news))
    except TimeoutError:
        _abort(call)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await call.send({"type": "http.response.body", "body": b"", "more_body": False})


def _chunks(records: list[PlacedRecord]) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for place, shape in records:
        text = b"id: %s\nevent: record\ndata: %s\n\n" % (place.encode(), _ENCODER.encode(shape))
        parts.append(text)
        size += len(text)
        if size >= _CHUNK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


async def _write(call: GatewayCall, text: bytes) -> None:
    async with asyncio.timeout(call.state.settings.http.write_s):
        await call.send({"type": "http.response.body", "body": text, "more_body": True})


def _abort(call: GatewayCall) -> None:
    """Break off: the reader takes nothing any more."""
    abort = call.scope.get("extensions", {}).get("rsm.abort")
    if abort is not None:
        abort()


async def _gone(call: GatewayCall) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


# ---- readers, in turn


def _seats(call: GatewayCall) -> ReadingSlots:
    return ReadingSlots(call.state.streams, call.holder)


@contextlib.asynccontextmanager
async def _opened(call: GatewayCall, seats: ReadingSlots, start: Start, *, follow: bool) -> AsyncIterator[AnyReader]:
    """Open the reader of a log, of whichever kind it is, for as long as the block runs."""
    async with _turn(call) as turn:
        reader = await _open(call, start)
        if reader is None:
            count = await call.state.logs.partition_count(call.log)
            seats.fit(count)
            turn.more_s = count * _READING_S
            reader = await open_partitions(call.state.partition_logs, call.log, start, follow=follow)
    try:
        yield reader
    finally:
        await reader.close()


async def _open(call: GatewayCall, start: Start) -> AnyReader | None:
    """Open the reader of a plain log; None = it is a partitioned one."""
    logs = call.state.logs
    if isinstance(start, dict) and await logs.is_partitioned(call.log):
        return None
    try:
        return await open_plain(logs, call.log, start)
    except PartitionedLogError:
        return None


async def _read(call: GatewayCall, reader: AnyReader, records_max: int) -> list[PlacedRecord]:
    async with _turn(call) as turn:
        records = await reader.read(records_max)
        if reader.partition_count > 1:
            turn.more_s = len(records) * _AHEAD_S
    return records


class _ReadingTurn:
    """A turn of the event loop; `more_s` of it were used before, or will be."""

    more_s = 0.0


@contextlib.asynccontextmanager
async def _turn(call: GatewayCall) -> AsyncIterator[_ReadingTurn]:
    """Have a turn of the event loop while the block runs: whoever reads much waits for those who read little."""
    clock_s, turn = call.state.clock_s, _ReadingTurn()
    async with call.state.turns.turn(call.owner, _READING_S) as work:
        began_s = clock_s()
        yield turn
        work.cost_s = max(_READING_S, min(1.0, clock_s() - began_s + turn.more_s))


def reading_routes() -> list[GatewayRoute]:
    """Return what is served of reading."""
    path = "/v1/logs/{log}"
    return [
        GatewayRoute(
            "GET", f"{path}/records", _page, Right.STATE_READ, summary="Read a page of records", answer=RecordsPage,
            query=RecordsQuery,
        ),
        GatewayRoute(
            "GET", f"{path}/tail", _tail, Right.STATE_READ, summary="Stream records as server-sent events",
            answer="text/event-stream", query=TailQuery,
        ),
    ]  # fmt: skip
