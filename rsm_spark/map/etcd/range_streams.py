"""etcd's `RangeStream`: the keys of a range at one revision, in parts, each read when those before have been taken.

    asked      has room in the bounds of its caller, and of its connection
    waiting    its client takes what was sent; nothing is read, and the room stays
    reading    one part, in its caller's turn
    ended      all was told; or the revision was compacted meanwhile, nothing was taken for a minute, there is no room

What a stream holds, however large its range is, is one part and the rest of the one before. A part is some 128 KiB, or
one key that is larger. An order by revisions, versions or values, where none is said, is that within each part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, EtcdCaller, abort, parsed
from rsm_spark.map.etcd.etcd_pb2 import RangeRequest, RangeResponse
from rsm_spark.map.etcd.key_texts import field_text, key_text
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.ranges import is_in_key_order, is_plain, sort_rows
from rsm_spark.map.etcd.requests import Span, check_range, span_of
from rsm_spark.map.etcd.view import KeyShown, RangePart
from rsm_spark.map.etcd.work_bounds import WorkRoom
from rsm_spark.transport.http2_connection import UNSENT_BYTES_MAX

STREAMS_OF_CONNECTION_MAX = 32
"""Other connections of the same caller have room for some, too."""
PART_BYTES = 128 * 1024
"""The last key of a part may pass it."""
_PART_KEYS = 2_000
"""Keys that are looked at in one go."""
_TAKEN_S = 60.0
"""A stream of which nothing is taken for so long gives its room back."""


class RangeCursor:
    """A range at one revision, and how much of it was told.

    Args:
        request: Of its client.
        revision: That is shown.
        header: Of the answer, in bytes: it is told with the last part.

    Attributes:
        request: The same.
        revision: The same.
        span: What is left.
        count: Keys of the whole range; None = not counted yet.
        is_over: All was told.

    """

    def __init__(self, request: RangeRequest, revision: int, header: bytes) -> None:
        self.request = request
        self.revision = revision
        self.span: Span = span_of(request.key, request.range_end)
        self.count: int | None = None
        self.is_over = False
        self._header = header
        self._told = 0

    @property
    def keys_max(self) -> int:
        """Keys of the next part, at most."""
        limit = self.request.limit
        return min(_PART_KEYS, limit - self._told) if limit > 0 else _PART_KEYS

    def take(self, part: RangePart, text_of: Callable[[KeyShown], bytes]) -> bytes:
        """Return the message of the next keys, as `RangeStreamResponse`.

        Args:
            part: The keys that follow those of the part before.
            text_of: Returns a key as answers tell it.

        Raises:
            EtcdError: There are fewer keys than were counted: this replica stops.

        """
        assert self.count is not None
        rows, next_key = part
        sort_rows(self.request, rows)
        texts = b"".join(map(text_of, rows))
        self._told += len(rows)
        self.is_over = next_key is None or self._told == self.request.limit
        if next_key is None and self._told != self.count:
            raise e.unavailable(e.STOPPED)
        if next_key is not None:
            self.span = (next_key, self.span[1])
        return self.end(texts, has_more=next_key is not None) if self.is_over else field_text(1, texts)

    def end(self, texts: bytes = b"", *, has_more: bool = False) -> bytes:
        """Return the last message: it alone has header and count, and tells of more keys than its client wants."""
        rest = RangeResponse(more=has_more, count=self.count or 0)
        return field_text(1, self._header + texts + rest.SerializeToString())


class EtcdRangeService:
    """See the module.

    Args:
        backend: The map.
        kv: Reads it, too: both have the same turns.

    Attributes:
        stream_count: Streams under way.

    """

    def __init__(self, backend: EtcdBackend, kv: EtcdKvService) -> None:
        self._backend = backend
        self._kv = kv
        self.stream_count = 0
        self._of: dict[str, int] = {}

    def handler(self, method: str, handlers: CallHandlers) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of the streams."""

        async def handle(text: bytes, context: Any) -> None:
            try:
                caller = handlers.caller(method, context)
                request = parsed(RangeRequest, text)
                with self._place(str(context.peer())), handlers.bounds.room(caller.owner, _held(PART_BYTES)) as room:
                    await self._tell(request, caller, room, context)
            except (RsmError, LedgerError, OverflowError) as error:
                await abort(context, error)

        return grpc.unary_stream_rpc_method_handler(handle)

    @contextmanager
    def _place(self, peer: str) -> Iterator[None]:
        """Have one of the places of a connection."""
        held = self._of.get(peer, 0)
        if held >= STREAMS_OF_CONNECTION_MAX:
            raise e.exhausted(e.TOO_MANY_REQUESTS)
        self._of[peer] = held + 1
        self.stream_count += 1
        try:
            yield
        finally:
            self.stream_count -= 1
            self._of[peer] -= 1
            if not self._of[peer]:
                del self._of[peer]

    async def _tell(self, request: RangeRequest, caller: EtcdCaller, room: WorkRoom, context: Any) -> None:
        cursor = await self._begin(request, caller)
        if request.count_only:
            await self._count(cursor, caller.owner)
            await context.write(cursor.end())
            return
        while not cursor.is_over:
            await _until_taken(context)
            message = await self._next(cursor, caller.owner)
            room.resize(_held(len(message)))
            await context.write(message)

    async def _begin(self, request: RangeRequest, caller: EtcdCaller) -> RangeCursor:
        check_range(request)
        if not is_in_key_order(request):
            raise e.EtcdError(grpc.StatusCode.UNIMPLEMENTED, e.NO_ORDERS)
        if not is_plain(request):
            raise e.EtcdError(grpc.StatusCode.UNIMPLEMENTED, e.NO_FILTERS)
        caller.check_read(span_of(request.key, request.range_end))
        if not request.serializable:
            await self._backend.linearizable()
        now = self._backend.revision
        return RangeCursor(request, request.revision if request.revision > 0 else now, self._backend.header_text(now))

    async def _count(self, cursor: RangeCursor, owner: str) -> None:
        """Count the keys of the range, once."""
        old = self._kv.olds if self._is_forgotten(cursor) else None
        if cursor.count is None and old is not None:
            cursor.count = await old.count(cursor.span, cursor.revision, owner)
        elif cursor.count is None:
            async with self._kv.turns.of(owner):
                cursor.count = self._backend.view(cursor.revision).count(cursor.span)

    async def _next(self, cursor: RangeCursor, owner: str) -> bytes:
        """Read the next part; return its message.

        Raises:
            EtcdError: The revision is compacted, has not come yet, or cannot be read any more.

        """
        await self._count(cursor, owner)
        request, bounds = cursor.request, {"keys_max": cursor.keys_max, "bytes_max": PART_BYTES}
        old = self._kv.olds if self._is_forgotten(cursor) else None
        if old is not None:
            part = await old.part(cursor.span, cursor.revision, owner, **bounds)
            return cursor.take(part, partial(_key_text, keys_only=request.keys_only))
        async with self._kv.turns.of(owner):
            view = self._backend.view(cursor.revision)
            part = view.part(cursor.span, keys_only=request.keys_only, **bounds)
            return cursor.take(part, partial(_key_text, keys_only=True) if request.keys_only else view.text)

    def _is_forgotten(self, cursor: RangeCursor) -> bool:
        """Return whether the revision is read from a snapshot and the log: memory has lost it, now or meanwhile."""
        return self._backend.is_forgotten(cursor.revision)


def _key_text(shown: KeyShown, *, keys_only: bool) -> bytes:
    return key_text(*shown, keys_only=keys_only)


def _held(size: int) -> int:
    """Return what a stream holds whose part has so many bytes: the rest of the one before, too."""
    return UNSENT_BYTES_MAX + size


async def _until_taken(context: Any) -> None:
    """Wait until the client has taken what was sent, but for a rest.

    Raises:
        EtcdError: It takes nothing.

    """
    try:
        async with asyncio.timeout(_TAKEN_S):
            await context.drained()
    except TimeoutError:
        raise e.unavailable(f"rsm: nothing of the range was taken for {_TAKEN_S:g} s") from None
