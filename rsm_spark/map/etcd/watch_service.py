"""etcd's Watch service: many watches on a stream, each told all changes of its range, once, in order.

    made       has an id; begins at a revision                                  answered `created`
    behind     reads the log, or the ring of recent entries, by its own cursor
    synced     has been told all that is confirmed here                         of these alone progress is told
    ended      cancelled by its client, or because its beginning is gone        answered `canceled`

What a watch that is not read holds is one message: it reads on when that has left. Of the watches of a stream that are
behind one at a time holds events, so that who opens thousands of them holds no more than who opens one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.errors import InvalidCommandError, MissingLogError, RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, EtcdCaller, abort, parsed
from rsm_spark.map.etcd.etcd_pb2 import Event, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse
from rsm_spark.map.etcd.events import KeyEvent
from rsm_spark.map.etcd.past_keys import OldEvent, PastKeys
from rsm_spark.map.etcd.ranges import key_value
from rsm_spark.map.etcd.requests import holds, span_of
from rsm_spark.map.etcd.view import KeyShown
from rsm_spark.runtime.change_feed import FeedCursor, FeedEntry
from rsm_spark.transport.caller_turns import CallerTurns

WATCHES_MAX = 10_000
"""Of one replica; one caller has a quarter of them at most."""
PROGRESS_S = 60.0
"""A watch that has asked for it is told so often that there is nothing new."""
_MESSAGE_BYTES = 1024 * 1024
_EVENT_BYTES = 64
_NO_WATCH = -1
_IDLE_S = 10.0
_ENTRIES_AT_ONCE = 4
"""A watch that has more of them to look through is behind, and does it in its caller's turn."""


class KeyWatch:
    """One watch of a stream.

    Attributes:
        watch_id: Its number on the stream.
        span: Keys that it is told of.
        filters: Kinds of changes that it is not told of.
        first_revision: It is told of none before.
        told: All up to here has been told, or does not concern it.
        sent: Revision of the last event that was, or is being, told.
        task: Serves it.

    """

    def __init__(self, watch_id: int, request: WatchCreateRequest, first_revision: int) -> None:
        self.watch_id = watch_id
        self.span = span_of(request.key or b"\0", request.range_end)
        self.filters = frozenset(request.filters)
        self.wants_old = request.prev_kv
        self.wants_progress = request.progress_notify
        self.takes_fragments = request.fragment
        self.first_revision = first_revision
        self.told = first_revision - 1
        self.sent = 0
        self.task: asyncio.Task[None] | None = None

    def wants(self, event: KeyEvent) -> bool:
        """Return whether it is to be told of an event."""
        kind = WatchCreateRequest.NODELETE if event.entry is None else WatchCreateRequest.NOPUT
        return event.revision >= self.first_revision and kind not in self.filters and holds(self.span, event.key)


class EtcdWatchService:
    """See the module.

    Args:
        backend: The map.

    Attributes:
        turns: At making messages.
        watch_count: Watches under way.
        events_sent: Since the process began.

    """

    def __init__(self, backend: EtcdBackend) -> None:
        self.backend = backend
        self.turns = CallerTurns()
        self.watch_count = 0
        self.events_sent = 0
        self._of: dict[str, int] = {}

    def handler(self, method: str, handlers: CallHandlers) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of the streams."""

        async def handle(_requests: Any, context: Any) -> None:
            try:
                caller = handlers.caller(method, context)
                await _WatchStream(self, caller, context).run()
            except (RsmError, LedgerError, OverflowError) as error:
                await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(handle)

    def take(self, owner: str) -> bool:
        """Return whether a caller may have one more watch; it then has it."""
        held = self._of.get(owner, 0)
        if self.watch_count >= WATCHES_MAX or held >= WATCHES_MAX // 4:
            return False
        self.watch_count += 1
        self._of[owner] = held + 1
        return True

    def give_back(self, owner: str) -> None:
        self.watch_count -= 1
        self._of[owner] -= 1
        if not self._of[owner]:
            del self._of[owner]


class _WatchStream:
    """The watches of one stream."""

    def __init__(self, service: EtcdWatchService, caller: EtcdCaller, context: Any) -> None:
        self._service = service
        self._backend = service.backend
        self._caller = caller
        self._context = context
        self._watches: dict[int, KeyWatch] = {}
        self._next_id = 0
        self._writing = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._progress_wanted: int | None = None
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve the stream to its end.

        Raises:
            RsmError, LedgerError: A watch cannot go on; its client goes on elsewhere.

        """
        reader = asyncio.get_running_loop().create_task(self._read())
        try:
            await asyncio.wait([reader, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()
            # Who asks for nothing more is still told: its call ends when it leaves.
            await self._failure
        finally:
            tasks = [reader, *(watch.task for watch in self._watches.values() if watch.task is not None)]
            for watch in list(self._watches.values()):
                self._forget(watch)
            self._failure.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while (text := await self._context.read()) is not grpc.aio.EOF:
            request = parsed(WatchRequest, text)
            match request.WhichOneof("request_union"):
                case "create_request":
                    await self._create(request.create_request)
                case "cancel_request":
                    await self._cancel(request.cancel_request.watch_id)
                case "progress_request":
                    self._progress_wanted = self._backend.feed.revision
                    await self._tell_progress()

    # ---- watches come and go

    async def _create(self, request: WatchCreateRequest) -> None:
        feed = self._backend.feed
        watch = KeyWatch(self._next_id, request, request.start_revision or feed.revision + 1)
        start, end = watch.span
        if request.start_revision < 0:
            await self._refuse(e.COMPACTED_TEXT)
        elif not self._caller.may_read(watch.span):
            await self._refuse(e.DENIED)
        elif end is not None and end <= start:
            await self._refuse(e.EMPTY_WATCH)
        elif request.watch_id and request.watch_id in self._watches:
            await self._refuse(e.DUPLICATE_WATCH)
        elif not self._service.take(self._caller.owner):
            await self._refuse(e.TOO_MANY_REQUESTS)
        else:
            watch.watch_id = request.watch_id or self._free_id()
            self._watches[watch.watch_id] = watch
            await self._send(WatchResponse(watch_id=watch.watch_id, created=True), feed.revision)
            if watch.watch_id in self._watches:
                watch.task = asyncio.get_running_loop().create_task(self._serve(watch))
                watch.task.add_done_callback(self._served)

    def _free_id(self) -> int:
        while self._next_id in self._watches:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    async def _refuse(self, reason: str) -> None:
        refusal = WatchResponse(watch_id=_NO_WATCH, created=True, canceled=True, cancel_reason=reason)
        await self._send(refusal, self._backend.feed.revision)

    async def _cancel(self, watch_id: int) -> None:
        # While nobody writes: a write that is broken off leaves its stream half-way, and other watches are told on it.
        async with self._writing:
            watch = self._watches.get(watch_id)
            if watch is None:
                return
            self._forget(watch)
            if watch.task is not None:
                watch.task.cancel()
        if watch.task is not None:
            await asyncio.wait([watch.task])
        await self._send(WatchResponse(watch_id=watch_id, canceled=True), self._backend.feed.revision)
        await self._tell_progress()

    def _forget(self, watch: KeyWatch) -> None:
        if self._watches.pop(watch.watch_id, None) is not None:
            self._service.give_back(self._caller.owner)

    def _served(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._failure.done():
            self._failure.set_exception(task.exception())  # type: ignore[arg-type]  # it is one

    # ---- one watch

    async def _serve(self, watch: KeyWatch) -> None:
        compacted = self._backend.compacted
        if watch.first_revision < compacted:
            await self._end(watch, compacted)
            return
        cursor = self._backend.feed.cursor(watch.first_revision)
        olds = PastKeys(self._backend.events, self._backend.past, watch.span, self._caller.owner)
        try:
            await self._tell(watch, cursor, olds)
        except MissingLogError as error:
            await self._end(watch, (error.last_revision or 0) + 1)
        except InvalidCommandError as error:
            await self._end(watch, 0, f"rsm: {error}")
        finally:
            olds.close()
            await cursor.close()

    async def _end(self, watch: KeyWatch, compact_revision: int, reason: str = e.COMPACTED_TEXT) -> None:
        self._forget(watch)
        ended = WatchResponse(
            watch_id=watch.watch_id, canceled=True, compact_revision=compact_revision, cancel_reason=reason
        )
        await self._send(ended, self._backend.feed.revision)
        await self._tell_progress()

    async def _tell(self, watch: KeyWatch, cursor: FeedCursor, olds: PastKeys) -> None:
        feed, clock = self._backend.feed, asyncio.get_running_loop().time
        told_at = clock()
        while True:
            entries = await cursor.read(min(_IDLE_S, max(0.0, told_at + PROGRESS_S - clock())))
            if feed.is_closed:
                raise e.unavailable(e.STOPPED)
            if len(entries) > _ENTRIES_AT_ONCE:
                async with self._catching_up:
                    has_told = await self._tell_entries(watch, entries, olds)
            else:
                has_told = await self._tell_entries(watch, entries, olds)
            told_at = clock() if has_told else told_at
            watch.told = max(watch.told, cursor.next_revision - 1)
            if self._progress_wanted is not None:
                await self._tell_progress()
            if clock() - told_at >= PROGRESS_S:
                if watch.wants_progress and feed.is_fresh:
                    await self._send(WatchResponse(watch_id=watch.watch_id), min(watch.told, feed.revision))
                told_at = clock()

    async def _tell_entries(self, watch: KeyWatch, entries: Sequence[FeedEntry], olds: PastKeys) -> bool:
        """Tell what a watch wants of entries; return whether that was anything."""
        has_told = False
        async for part, up_to in self._parts(watch, entries, olds):
            messages = self._responses(watch, part, up_to)
            while part:
                # Many watches may have much to tell at once: all else goes on in between.
                async with self._service.turns.of(self._caller.owner):
                    message = next(messages, None)
                if message is None:
                    break
                watch.sent = message[0].events[-1].kv.mod_revision
                await self._send(*message)
                has_told = True
        return has_told

    async def _parts(
        self, watch: KeyWatch, entries: Sequence[FeedEntry], olds: PastKeys
    ) -> AsyncIterator[tuple[list[OldEvent], int]]:
        """Yield events of entries that a watch is told of, each part with the revision that it reaches."""
        if not watch.wants_old:
            if len(entries) <= _ENTRIES_AT_ONCE:
                events = self._wanted(watch, entries)
            else:
                async with self._service.turns.of(self._caller.owner):
                    events = self._wanted(watch, entries)
            yield events, entries[-1].last_revision if entries else 0
            return
        if not entries:
            return
        held: list[OldEvent] = []
        async for part in olds.told(entries):
            if held:
                yield held, held[-1].event.revision
            held = [one for one in part if watch.wants(one.event)]
        yield held, entries[-1].last_revision

    def _wanted(self, watch: KeyWatch, entries: Sequence[FeedEntry]) -> list[OldEvent]:
        events = (event for entry in entries for event in self._backend.events.of(entry))
        return [OldEvent(event, None) for event in events if watch.wants(event)]

    def _responses(self, watch: KeyWatch, events: list[OldEvent], up_to: int) -> Iterator[tuple[WatchResponse, int]]:
        """Yield messages of events, each with the revision up to which all has then been told.

        Events of one command are in one message, unless the watch takes fragments.
        """
        response, held = WatchResponse(watch_id=watch.watch_id), 0
        for place, (event, before) in enumerate(events):
            told = self._event(event, before)
            size = told.ByteSize() + _EVENT_BYTES
            is_inside = place > 0 and events[place - 1].event.revision == event.revision
            if held and held + size > _MESSAGE_BYTES and (watch.takes_fragments or not is_inside):
                response.fragment = is_inside
                yield response, events[place - 1].event.revision
                response, held = WatchResponse(watch_id=watch.watch_id), 0
            response.events.append(told)
            held += size
        if held:
            self._service.events_sent += len(events)
            yield response, up_to

    def _event(self, event: KeyEvent, before: KeyShown | None) -> Event:
        shown = self._backend.events.shown(event)
        if shown is None:
            told = Event(type=Event.DELETE, kv=KeyValue(key=event.key, mod_revision=event.revision))
        else:
            told = Event(type=Event.PUT, kv=key_value(shown))
        if before is not None:
            told.prev_kv.CopyFrom(key_value(before))
        return told

    # ---- telling

    async def _tell_progress(self) -> None:
        """Tell of progress, if that was asked for and every watch has been told all up to then.

        What is told holds for all watches: none has been told of a later event, and none is told of one up to there any
        more.
        """
        if self._progress_wanted is None:
            return
        async with self._writing:  # Nothing may be told between the look and the word.
            wanted, revision = self._progress_wanted, self._backend.feed.revision
            for watch in self._watches.values():
                revision = min(revision, watch.told)
            if wanted is None or revision < max([wanted, *(watch.sent for watch in self._watches.values())]):
                return
            self._progress_wanted = None
            await self._write(WatchResponse(watch_id=_NO_WATCH), revision)

    async def _send(self, response: WatchResponse, revision: int) -> None:
        async with self._writing:
            await self._write(response, revision)

    async def _write(self, response: WatchResponse, revision: int) -> None:
        response.header.CopyFrom(self._backend.header(revision))
        await self._context.write(response.SerializeToString())
