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
from collections.abc import Iterator

import msgspec

from ledger.http.problems import HttpProblem
from ledger.rights.table import Right
from rsm_spark.errors import MissingLogError
from rsm_spark.gateway.calls import GatewayRoute, HttpGatewayCall
from rsm_spark.gateway.opened_readers import AnyReader, PlacedRecord, Start, parse_start
from rsm_spark.gateway.reading import follow, read_page
from rsm_spark.gateway_client.shapes import RecordsPage, RecordsQuery, TailQuery, TrimmedNotice

_CHUNK_BYTES = 256 * 1024
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]
_ENCODER = msgspec.json.Encoder()


class _EventStream:
    """Tail as server-sent events.

    Attributes:
        has_begun: The head of the answer was sent.

    """

    def __init__(self, call: HttpGatewayCall) -> None:
        self.has_begun = False
        self._call = call
        self._gone = asyncio.get_running_loop().create_task(_gone(call))

    @property
    def is_gone(self) -> bool:
        return self._gone.done()

    async def begin(self, _reader: AnyReader) -> None:
        self.has_begun = True
        await self._call.send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await self._write(b"retry: 1000\n: heartbeat\n\n")

    async def send(self, records: list[PlacedRecord], _reader: AnyReader) -> None:
        for chunk in _chunks(records):
            await self._write(chunk)

    async def beat(self, _reader: AnyReader) -> None:
        await self._write(b": heartbeat\n\n")

    async def ended(self, _reader: AnyReader) -> None:
        await self._write(b"event: ended\ndata: {}\n\n")

    async def trimmed(self, error: MissingLogError) -> None:
        """Say that the place has left the log."""
        news = TrimmedNotice((error.last_revision or 0) + 1, "trimmed", error.partition)
        await self._write(b"event: trimmed\ndata: %s\n\n" % _ENCODER.encode(news))

    async def finish(self) -> None:
        """End the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._call.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def close(self) -> None:
        """Look no more whether the reader has left."""
        self._gone.cancel()
        await asyncio.wait([self._gone])

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._call.state.settings.http.write_s):
            await self._call.send({"type": "http.response.body", "body": text, "more_body": True})


async def _page(call: HttpGatewayCall) -> RecordsPage:
    page = await read_page(call)
    return RecordsPage([record.shape for record in page.records], page.next, page.is_ended)


async def _tail(call: HttpGatewayCall) -> None:
    if call.scope["method"] == "HEAD":
        raise HttpProblem(405, "method-not-allowed", "a stream has no length to tell", headers=((b"allow", b"GET"),))
    query: TailQuery = call.query
    start = _begin(call, query.begin)
    stream = _EventStream(call)
    try:
        await _follow(call, start, stream)
    finally:
        await stream.close()


async def _follow(call: HttpGatewayCall, start: Start, stream: _EventStream) -> None:
    try:
        await follow(call, start, stream)
    except HttpProblem:
        if not stream.has_begun:
            raise
        # The token was taken back, or the log has more partitions than go: the stream ends.
    except MissingLogError as error:
        if not stream.has_begun:
            raise
        await stream.trimmed(error)
    except TimeoutError:
        if not stream.has_begun:
            raise
        _abort(call)
        return
    await stream.finish()


def _begin(call: HttpGatewayCall, text: str) -> Start:
    """Return where a stream begins: behind the last event that the caller has, or where it wants to."""
    last = call.headers.get(b"last-event-id")
    if last is None:
        return parse_start(text)
    start = parse_start(last.decode("latin-1"))
    if isinstance(start, str):
        raise HttpProblem(400, "invalid", "Last-Event-ID: the id of an event is a number, or partition:number,…")
    return start + 1 if isinstance(start, int) else start


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


def _abort(call: HttpGatewayCall) -> None:
    """Break off: the reader takes nothing any more."""
    abort = call.scope.get("extensions", {}).get("rsm.abort")
    if abort is not None:
        abort()


async def _gone(call: HttpGatewayCall) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


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
