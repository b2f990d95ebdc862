"""Records of a log over HTTP: appended, read a page at a time, and tailed as server-sent events.

    id: 4711
    event: record
    data: {"position":4711,"txid":7,"key":null,"payload":"cGFnZT0v","logged_ms":1760000000000}

The id is the position: who comes again with `Last-Event-ID` misses nothing and sees nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import HttpReply, json_reply
from ledger.rights.table import Right
from rsm_spark.core.partition_layout import PARTITIONS_MAX, partition_of
from rsm_spark.core.plain_log import LogRecord
from rsm_spark.core.producers import RecordSource
from rsm_spark.errors import MissingLogError
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute
from rsm_spark.gateway.held_logs import AppendRoute
from rsm_spark.logs.record_reader import PlainLogReader

_BATCH_MAX = 10_000
_PAGE_MAX = 10_000
_WAIT_S_MAX = 30.0
_READ_MAX = 256
_CHUNK_BYTES = 256 * 1024
_READMIT_S = 2.0
_READING_S = 0.005
"""Of the event loop, that a step of reading is taken to need before that is known."""
_PACE_S = 0.02
"""After each step of a tail, so that others have a turn."""
_DIGITS_MAX = 16
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]
_ENCODER = msgspec.json.Encoder()


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record to append.

    Attributes:
        payload: In base64.
        text: Instead of it, as UTF-8.
        key: In base64.

    """

    payload: bytes | None = None
    text: str | None = None
    key: bytes | None = None


class AppendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records of a producer.

    Attributes:
        producer: Its id.
        sequence: Of the first record; the others follow it.
        records: Appended together.
        partition: Of a partitioned log: where they go. Left out, it is that of their keys.
        partitions: How many partitions it was chosen by.

    """

    producer: str
    sequence: int
    records: Annotated[list[RecordBody], Meta(min_length=1, max_length=_BATCH_MAX)]
    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)] | None = None
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None


class RecordsQuery(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """A page of records.

    Attributes:
        begin: "begin", "end", or the first position.
        limit: At most so many records.
        wait_s: How long to wait for the first one.

    """

    begin: str = "begin"
    limit: Annotated[int, Meta(ge=1, le=_PAGE_MAX)] = 1_000
    wait_s: Annotated[float, Meta(ge=0, le=_WAIT_S_MAX)] = 0.0


class TailQuery(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """Begin of a stream: "begin", "end", or a position. A `Last-Event-ID` goes before it."""

    begin: str = "end"


class RawQuery(msgspec.Struct, frozen=True):
    """Producer and sequence of the one record that the body holds, byte by byte; of a partitioned log also the way."""

    producer: str
    sequence: int
    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)] | None = None
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None


async def _append(call: GatewayCall) -> HttpReply:
    body: AppendBody = call.body
    payloads = [_payload(record) for record in body.records]
    source = RecordSource(body.producer, call.owner, body.sequence)
    keys = [record.key for record in body.records]
    route = _route(body.partition, body.partitions, keys)
    return json_reply({"positions": await call.state.held.append(call.log, source, payloads, keys, route)})


async def _append_raw(call: GatewayCall) -> HttpReply:
    query: RawQuery = call.query
    source = RecordSource(query.producer, call.owner, query.sequence)
    route = _route(query.partition, query.partitions, [None])
    return json_reply({"positions": await call.state.held.append(call.log, source, [call.body], [None], route)})


def _route(partition: int | None, count: int | None, keys: Sequence[bytes | None]) -> AppendRoute | None:
    """Return the way of records into a partitioned log; None = none is named."""
    if count is None:
        if partition is not None:
            raise HttpProblem(400, "invalid", "partition needs partitions: how many there are, by whoever chose it")
        return None
    if partition is None:
        places = {partition_of(key, count) for key in keys if key is not None}
        if len(places) != 1:
            raise HttpProblem(
                400, "invalid", "name a partition: keys of these records go to several, or they have no keys"
            )
        (partition,) = places
    return AppendRoute(partition, count)


def _payload(record: RecordBody) -> bytes:
    if (record.payload is None) == (record.text is None):
        raise HttpProblem(400, "invalid", "a record has a payload, in base64, or a text: one of them")
    return record.payload if record.text is None else record.text.encode()  # type: ignore[return-value]


# ---- reading


async def _page(call: GatewayCall) -> HttpReply:
    query: RecordsQuery = call.query
    found: list[dict[str, Any]] = []
    size, left = 0, call.state.settings.page_bytes
    until_s = call.state.clock_s() + query.wait_s
    async with _reading(call), await _reader(call, _start(query.begin)) as reader:
        while len(found) < query.limit and size < left:
            async with _turn(call):
                records = await reader.read(min(_READ_MAX, query.limit - len(found)))
                found += map(_document, records)
            size += sum(len(record.payload) for record in records)
            if not records:
                wait_s = until_s - call.state.clock_s()
                if found or wait_s <= 0 or reader.is_ended or call.state.closing.done():
                    break
                await reader.wait(min(wait_s, _READMIT_S))
        return json_reply({"records": found, "next": reader.position + 1, "is_ended": reader.is_ended})


async def _tail(call: GatewayCall) -> HttpReply | None:
    if call.scope["method"] == "HEAD":
        raise HttpProblem(405, "method-not-allowed", "a stream has no length to tell", headers=((b"allow", b"GET"),))
    query: TailQuery = call.query
    last = call.headers.get(b"last-event-id")
    if last is not None and (not last.isdigit() or len(last) > _DIGITS_MAX):
        raise HttpProblem(400, "invalid", "Last-Event-ID: the id of an event is a number")
    async with _reading(call), await _reader(call, _start(query.begin) if last is None else int(last) + 1) as reader:
        gone = asyncio.get_running_loop().create_task(_gone(call))
        try:
            await _stream(call, reader, gone)
        finally:
            gone.cancel()
            await asyncio.wait([gone])
    return None


async def _stream(call: GatewayCall, reader: PlainLogReader, gone: asyncio.Task[None]) -> None:
    """Send what comes until the reader leaves, takes nothing, may no longer read, or the log ends."""
    state, loop = call.state, asyncio.get_running_loop()
    heartbeat_s = state.settings.http.heartbeat_s
    try:
        await call.send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await _write(call, b"retry: 1000\n: heartbeat\n\n")
        sent_s = loop.time()
        while not (gone.done() or state.closing.done()):
            async with _turn(call):
                records = await reader.read(_READ_MAX)
                chunks = list(_chunks(records))
            state.readmit(call.caller, call.headers, call.scope)
            for chunk in chunks:
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
        pass  # The token was taken back: the stream ends.
    except MissingLogError as error:
        oldest = _ENCODER.encode({"oldest_position": (error.last_revision or 0) + 1, "reason": "trimmed"})
        await _write(call, b"event: trimmed\ndata: %s\n\n" % oldest)
    except TimeoutError:
        _abort(call)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await call.send({"type": "http.response.body", "body": b"", "more_body": False})


def _chunks(records: list[LogRecord]) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for record in records:
        text = b"id: %d\nevent: record\ndata: %s\n\n" % (record.position, _ENCODER.encode(_document(record)))
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


@contextlib.asynccontextmanager
async def _reading(call: GatewayCall) -> AsyncIterator[None]:
    """Have a place among those who read while the block runs.

    Raises:
        HttpProblem: 429, 503: there is none.

    """
    streams, holder = call.state.streams, call.holder
    if not streams.has(1):
        raise HttpProblem(503, "too-many-readers", "so many read here that no more go", headers=retry_after(1))
    if not streams.has_for(1, holder):
        raise HttpProblem(
            429, "too-many-readers", "the readers of this token, or from this address, are as many as its part allows",
            headers=retry_after(1),
        )  # fmt: skip
    streams.take(1, holder)
    try:
        yield
    finally:
        streams.give(1, holder)


@contextlib.asynccontextmanager
async def _turn(call: GatewayCall) -> AsyncIterator[None]:
    """Have a turn of the event loop while the block runs: whoever reads much waits for those who read little."""
    clock_s = call.state.clock_s
    async with call.state.turns.turn(call.owner, _READING_S) as work:
        began_s = clock_s()
        yield
        work.cost_s = max(_READING_S, min(1.0, clock_s() - began_s))


async def _reader(call: GatewayCall, start: int | Literal["begin", "end"]) -> PlainLogReader:
    async with _turn(call):
        return await call.state.logs.reader(call.log, start)


def _start(text: str) -> int | Literal["begin", "end"]:
    if text == "begin":
        return "begin"
    if text == "end":
        return "end"
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        raise HttpProblem(400, "invalid", "from: begin, end, or a position")
    return max(1, int(text))


def _document(record: LogRecord) -> dict[str, Any]:
    return record._asdict()


def record_routes() -> list[GatewayRoute]:
    """Return what is served of records."""
    path = "/v1/logs/{log}"
    return [
        GatewayRoute("POST", f"{path}/records", _append, Right.STATE_WRITE, body=AppendBody),
        GatewayRoute("POST", f"{path}/record", _append_raw, Right.STATE_WRITE, query=RawQuery, body=bytes),
        GatewayRoute("GET", f"{path}/records", _page, Right.STATE_READ, query=RecordsQuery),
        GatewayRoute("GET", f"{path}/tail", _tail, Right.STATE_READ, query=TailQuery),
    ]
