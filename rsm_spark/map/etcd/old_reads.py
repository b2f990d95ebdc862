"""Reads at revisions from before what the history of the map remembers, from the nearest snapshot and the log.

The rows of the range at that revision lie in a file (`rsm_spark.runtime.past_rows`). It is kept for a while: for the
next page of the same list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from rsm_spark.core.records import pack
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.etcd_pb2 import RangeRequest, RangeResponse
from rsm_spark.map.etcd.ranges import ANSWER_BYTES_MAX, SORTED_KEYS_MAX, answer_range, is_plain, rows_wanted
from rsm_spark.map.etcd.requests import Span
from rsm_spark.map.etcd.view import KeyShown, RangePart
from rsm_spark.map.records import EXPIRIES_TABLE, MAP_DESCRIPTION, MAP_TABLE
from rsm_spark.map.rows import entry_of
from rsm_spark.runtime.change_filter import ChangeFilter
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.range_rows import RangeRows
from rsm_spark.transport.caller_turns import CallerTurns

_KEPT_S = 30.0
_KEPT_MAX = 2
_ROWS, _LEASES = 0, 1


class _OldRange:
    """Rows of a range at a revision, and how many reads use them now."""

    __slots__ = ("owner", "revision", "rows", "span", "timer", "uses")

    def __init__(self, rows: RangeRows, span: Span, revision: int, owner: str) -> None:
        self.rows = rows
        self.span = span
        self.revision = revision
        self.owner = owner
        self.uses = 0
        self.timer: asyncio.TimerHandle | None = None

    def has(self, span: Span, revision: int) -> bool:
        end = self.span[1]
        return (
            self.revision == revision
            and self.span[0] <= span[0]
            and (end is None or (span[1] is not None and span[1] <= end))
        )


class OldReads:
    """See the module.

    Args:
        past: Of the replica.

    """

    def __init__(self, past: PastRows) -> None:
        self._past = past
        # The one that was used longest ago first.
        self._kept: list[_OldRange] = []
        # One is opened at a time, of callers in turn: to read the log costs others of the process their time. They have
        # as long for themselves before the next.
        self._turns = CallerTurns()
        self._rest_until = 0.0

    async def answer(self, request: RangeRequest, span: Span, revision: int, owner: str) -> RangeResponse:
        """Answer a read, without its header.

        Args:
            request: The read.
            span: Its range.
            revision: That it asks for; it has come, and is not compacted.
            owner: Whose read it is: one may have half of the pasts.

        Raises:
            EtcdError: The answer would be too large.
            MissingLogError: No snapshot and no log that is left leads there.
            InvalidCommandError, ConnectionLostError, LogError: See `PastRows.open`; it waits for its turn.

        """
        async with self._reading(span, revision, owner) as rows:
            return await self._past.run(lambda: _read(rows, request, span))

    async def part(self, span: Span, revision: int, owner: str, *, keys_max: int, bytes_max: int) -> RangePart:
        """Return the first keys of a range, until they are much.

        Args:
            span: The range.
            revision: See `answer`.
            owner: See `answer`.
            keys_max: So many at most.
            bytes_max: Of keys and values; the last one may pass it.

        Raises:
            MissingLogError, InvalidCommandError, ConnectionLostError, LogError: See `answer`.

        """
        async with self._reading(span, revision, owner) as rows:
            return await self._past.run(lambda: _part(rows, span, keys_max=keys_max, bytes_max=bytes_max))

    async def count(self, span: Span, revision: int, owner: str) -> int:
        """Return how many keys a range had; see `answer`."""
        async with self._reading(span, revision, owner) as rows:
            return await self._past.run(lambda: rows.count(_ROWS, *span))

    @asynccontextmanager
    async def _reading(self, span: Span, revision: int, owner: str) -> AsyncIterator[RangeRows]:
        """Have the rows of a range at a revision; they stay a while for the next one."""
        old = self._find(span, revision, owner)
        if old is None:
            async with self._turns.of(owner):
                # Who was before may have read the same.
                old = self._find(span, revision, owner) or await self._open(span, revision, owner)
        if old in self._kept:
            self._kept.remove(old)
        self._kept.append(old)
        old.uses += 1
        if old.timer is not None:
            old.timer.cancel()
        try:
            yield old.rows
        finally:
            old.uses -= 1
            old.timer = asyncio.get_running_loop().call_later(_KEPT_S, self._end, old)
            self._bound()

    def _find(self, span: Span, revision: int, owner: str) -> _OldRange | None:
        return next((one for one in self._kept if one.owner == owner and one.has(span, revision)), None)

    async def _open(self, span: Span, revision: int, owner: str) -> _OldRange:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._rest_until - loop.time())
        began = loop.time()
        try:
            return await self._fill(span, revision, owner)
        finally:
            self._rest_until = 2 * loop.time() - began

    async def _fill(self, span: Span, revision: int, owner: str) -> _OldRange:
        for one in [one for one in self._kept if not one.uses][: max(0, len(self._kept) - _KEPT_MAX + 1)]:
            self._end(one)
        chosen = [ChangeFilter(MAP_DESCRIPTION, table, *span) for table in (MAP_TABLE, EXPIRIES_TABLE)]
        rows = await self._past.open(*chosen, revision=revision, owner=owner, waits=True)
        try:
            await self._past.run(rows.sort)
        except BaseException:
            self._past.close(rows, owner)
            raise
        return _OldRange(rows, span, revision, owner)

    def _bound(self) -> None:
        idle = [one for one in self._kept if not one.uses]
        for one in idle[: max(0, len(self._kept) - _KEPT_MAX)]:
            self._end(one)

    def _end(self, old: _OldRange) -> None:
        if old.uses or old not in self._kept:
            return
        self._kept.remove(old)
        if old.timer is not None:
            old.timer.cancel()
        self._past.close(old.rows, old.owner)

    def close(self) -> None:
        """Give all files back that nobody reads now."""
        for one in list(self._kept):
            self._end(one)


def _read(rows: RangeRows, request: RangeRequest, span: Span) -> RangeResponse:
    count = rows.count(_ROWS, *span)
    if request.count_only:
        return answer_range(request, [], count)
    limit = rows_wanted(request) if is_plain(request) else SORTED_KEYS_MAX + 1
    shown = _listed(rows, span, limit, ANSWER_BYTES_MAX)
    if sum(len(one.key) + len(one.entry.row) for one in shown) > ANSWER_BYTES_MAX:
        raise e.exhausted(
            f"rsm: the rows read would have more than {ANSWER_BYTES_MAX} bytes: ask for parts, by a limit"
        )
    return answer_range(request, shown, count)


def _part(rows: RangeRows, span: Span, *, keys_max: int, bytes_max: int) -> RangePart:
    listed = _listed(rows, span, keys_max + 1, bytes_max)
    if len(listed) > keys_max:
        return RangePart(listed[:keys_max], listed[-1].key)
    after = rows.listed(_ROWS, listed[-1].key + b"\0", span[1], limit=1, bytes_max=0) if listed else []
    return RangePart(listed, after[0][0] if after else None)


def _listed(rows: RangeRows, span: Span, limit: int | None, bytes_max: int) -> list[KeyShown]:
    """Return keys in order; the last one may pass this many bytes."""
    shown: list[KeyShown] = []
    for key, row, revision in rows.listed(_ROWS, *span, limit=limit, bytes_max=bytes_max):
        found = rows.row(_LEASES, pack((key,)))
        shown.append(
            KeyShown(key, entry_of(row, revision), 0 if found is None else msgspec.msgpack.decode(found[0])[0])
        )
    return shown
