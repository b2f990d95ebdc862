"""Events as server-sent events: the records of the log, as they are confirmed, from any retained revision on.

    id: 4711
    event: task_ended
    data: {"revision":4711,"logged_ms":1760000000000,"task_id":4690,"status":"finished",…}

The id is the revision: a reader that comes again with `Last-Event-ID` misses nothing and sees nothing twice. A tenant
sees its own only; see `broker.api.event_hub`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.routes import Access, Route
from broker.api.task_bodies import Name
from ledger.errors import LedgerError
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import HttpReply
from rsm_spark.errors import MissingLogError, RsmError
from rsm_spark.runtime.change_feed import FeedCursor, FeedEntry

_LOGGER = logging.getLogger(__name__)
_FINISH_S = 1.0

_CHUNK_BYTES = 256 * 1024
_PACE_S = 0.02
"""After each write: so a reader costs at most fifty wake-ups a second, whatever the rate of entries."""
_SUMMARY_PACE_S = 0.25
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]


class EventsQuery(msgspec.Struct, frozen=True):
    """Begin of an event stream, and its filter.

    Attributes:
        from_revision: First revision wanted; 0 = what comes from now on. A `Last-Event-ID` goes before it.
        tenant: Only this one's; only of the administrator.
        summary: Not each event, but four times a second at most how many there were of each name: what a page that
            reads again what has changed needs, at any rate of events.

    """

    from_revision: Annotated[int, Meta(ge=0, le=2**53)] = 0
    tenant: Name = ""
    summary: bool = False


async def _events(call: ApiRequest) -> HttpReply | None:
    if call.scope["method"] == "HEAD":
        raise HttpProblem(405, "method-not-allowed", "a stream has no length to tell", headers=((b"allow", b"GET"),))
    shared = call.shared
    tenant = call.tenant_to_see(call.query.tenant)
    holder = call.holder()
    if not shared.streams.has(1):
        raise HttpProblem(
            503, "too-many-streams", f"{shared.streams.held} streams of events are open here: ask another broker",
            headers=retry_after(5),
        )  # fmt: skip
    if not shared.streams.has_for(1, holder):
        raise HttpProblem(
            429, "too-many-streams", "the streams of events of this token, or from this address, are as many as its "
            f"part allows ({shared.streams.token_max} of a token): close some", headers=retry_after(5),
        )  # fmt: skip
    feed = shared.broker.feed()
    cursor = feed.cursor(_first_wanted(call) or feed.revision + 1)
    shared.streams.take(1, holder)
    try:
        first = await _first_entries(cursor)
        stream = _Stream(call, tenant, cursor)
        try:
            await call.race(asyncio.get_running_loop().create_task(stream.run(first)))
        except HttpProblem as problem:
            who = call.caller.name or "somebody"
            _LOGGER.info("a stream of events of %s ends: %s", who, problem, extra={"tenant": tenant})
        await stream.finish()
    finally:
        shared.streams.give(1, holder)
        await cursor.close()
    return None


def _first_wanted(call: ApiRequest) -> int:
    last = call.headers.get(b"last-event-id")
    if last:
        if not last.isdigit() or len(last) > 16:
            raise HttpProblem(400, "invalid", "Last-Event-ID: the id of an event is a number")
        return int(last) + 1
    wanted: int = call.query.from_revision
    return wanted


async def _first_entries(cursor: FeedCursor) -> tuple[int, list[FeedEntry]]:
    """Return the first revision wanted, and what is there already; or say that it has been trimmed."""
    wanted = cursor.next_revision
    try:
        return wanted, await cursor.read(0)
    except MissingLogError as error:
        oldest = (error.last_revision or 0) + 1
        raise HttpProblem(
            410, "trimmed", f"{error}; begin at revision {oldest}", oldest_revision=oldest, from_revision=wanted
        ) from None


class _Stream:
    """One reader's stream, once its beginning has been found."""

    def __init__(self, call: ApiRequest, tenant: str, cursor: FeedCursor) -> None:
        self._call = call
        self._tenant = tenant
        self._cursor = cursor
        self._is_summary: bool = call.query.summary

    async def run(self, first: tuple[int, list[FeedEntry]]) -> None:
        """Send what comes, until it is cancelled, the reader takes nothing, or the log cannot be read."""
        try:
            await self._run(*first)
        except TimeoutError:
            self._abort()
        except (RsmError, LedgerError) as error:
            _LOGGER.warning("a stream of events ends: %s", error, extra={"tenant": self._tenant})

    async def _run(self, wanted: int, entries: list[FeedEntry]) -> None:
        shared = self._call.shared
        heartbeat_s = shared.settings.heartbeat_s
        await self._call.send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await self._write(b"retry: 1000\n: heartbeat\n\n")
        while not shared.broker.feed().is_closed:
            for chunk in await self._chunks(entries, wanted):
                await self._write(chunk)
            wanted = self._cursor.next_revision
            if entries:
                await asyncio.sleep(_SUMMARY_PACE_S if self._is_summary else _PACE_S)
            try:
                entries = await self._cursor.read(heartbeat_s)
            except MissingLogError as error:
                oldest = (error.last_revision or 0) + 1
                gone = msgspec.json.encode({"oldest_revision": oldest, "reason": "trimmed"})
                await self._write(b"event: trimmed\ndata: %s\n\n" % gone)
                return
            if not entries:
                await self._write(b": heartbeat\n\n")

    async def finish(self) -> None:
        """End the stream in an orderly way, if the reader takes that much."""
        try:
            async with asyncio.timeout(_FINISH_S):
                await self._call.send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._abort()

    async def _chunks(self, entries: list[FeedEntry], wanted: int) -> list[bytes]:
        hub = self._call.shared.hub
        if self._is_summary:
            counts: Counter[str] = Counter()
            for entry in entries:
                counts.update(await hub.counts(entry, self._tenant, wanted))
            return [_summary(counts, entries[-1])] if counts else []
        texts: list[bytes] = []
        for entry in entries:
            texts += await hub.events(entry, self._tenant, wanted)
        return list(_chunked(texts))

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._call.shared.settings.write_s):
            await self._call.send({"type": "http.response.body", "body": text, "more_body": True})

    def _abort(self) -> None:
        """Break off: the reader takes nothing any more."""
        abort = self._call.scope.get("extensions", {}).get("rsm.abort")
        if abort is not None:
            abort()


def _summary(counts: Counter[str], last: FeedEntry) -> bytes:
    told = {"revision": last.last_revision, "logged_ms": last.logged_ms, "counts": counts}
    return b"id: %d\nevent: summary\ndata: %s\n\n" % (last.last_revision, msgspec.json.encode(told))


def _chunked(texts: list[bytes]) -> Iterator[bytes]:
    begin, size = 0, 0
    for place, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK_BYTES:
            yield b"".join(texts[begin : place + 1])
            begin, size = place + 1, 0
    if begin < len(texts):
        yield b"".join(texts[begin:])


def routes() -> list[Route]:
    """Return what is served of events."""
    last = ("Last-Event-ID", "Id of the last event seen: go on after it.")
    return [
        Route("GET", "/api/v1/events", _events, access=Access.READ, tag="events", query=EventsQuery, headers=[last],
              is_read=False, summary="Watch what happens, as server-sent events", problems=[410, 503],
              answers=[(200, "text/event-stream", "Events, until one side leaves.")]),
    ]  # fmt: skip
