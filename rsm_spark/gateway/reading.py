"""Records of a log, read a page at a time and tailed, for HTTP and gRPC: the same bounds, turns and places for both.

A door (`TailDoor`) is what carries a tail to its reader: it writes records as they come, waits while the reader takes
nothing, and knows when it has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from rsm_spark.errors import PartitionedLogError
from rsm_spark.gateway.calls import GatewayCall
from rsm_spark.gateway.opened_readers import (
    AnyReader,
    PlacedPage,
    PlacedRecord,
    ReadingSlots,
    Start,
    open_partitions,
    open_plain,
    parse_start,
)
from rsm_spark.gateway_client.shapes import RecordsQuery

_READ_MAX = 256
_READMIT_S = 2.0
_READING_S = 0.005
"""Of the event loop, that a step of reading is taken to need before that is known."""
_AHEAD_S = 0.000_01
"""Of the event loop, that a record of a partition has needed where it was read ahead."""
_PACE_S = 0.02
"""After each step of a tail, so that others have a turn."""
_LOOK_S = 0.05


class TailDoor(Protocol):
    """See the module. Its methods raise `TimeoutError` when the reader takes nothing any more."""

    @property
    def is_gone(self) -> bool:
        """True once the reader has left."""

    async def begin(self, reader: AnyReader) -> None:
        """Say that the tail begins."""

    async def send(self, records: list[PlacedRecord], reader: AnyReader) -> None:
        """Send records, one at least."""

    async def beat(self, reader: AnyReader) -> None:
        """Say that nothing has come, and that the tail goes on."""

    async def ended(self, reader: AnyReader) -> None:
        """Say that the log has its end mark, and nothing is left before it."""


async def read_page(call: GatewayCall) -> PlacedPage:
    """Return a page of records, as the query says."""
    query: RecordsQuery = call.query
    start = parse_start(query.begin)
    clock_s = call.state.clock_s
    until_s = clock_s() + query.wait_s
    with _seats(call) as seats:
        found: list[PlacedRecord] = []
        async with _opened(call, seats, start, follow=False) as reader:
            await _fill(call, reader, found, until_s)
            page = PlacedPage(found, reader.next, reader.is_ended)
        wait_s = until_s - clock_s()
        if not found and wait_s > 0 and not page.is_ended and isinstance(page.next, str):
            # What partitions hold is known: now for what comes.
            async with _opened(call, seats, parse_start(page.next), follow=True) as reader:
                await _fill(call, reader, found, until_s)
                page = PlacedPage(found, reader.next, reader.is_ended)
        return page


async def _fill(call: GatewayCall, reader: AnyReader, found: list[PlacedRecord], until_s: float) -> None:
    """Read until the page is full, nothing more is there, or the time is over."""
    state, limit = call.state, call.query.limit
    size = 0
    while len(found) < limit and size < state.settings.page_bytes:
        records = await _read(call, reader, min(_READ_MAX, limit - len(found)))
        found += records
        size += sum(len(record.shape.payload) for record in records)
        if not records:
            left_s = until_s - state.clock_s()
            if reader.is_ended or state.closing.done() or reader.gives_up(left_s, is_empty=not found):
                return
            await reader.wait(min(max(left_s, _LOOK_S), _READMIT_S))


async def follow(call: GatewayCall, start: Start, door: TailDoor) -> None:
    """Send what comes until the reader leaves or may no longer read, the log ends, or the gateway stops.

    Raises:
        MissingLogError: The place has left the log.
        TimeoutError: The reader takes nothing any more.
        HttpProblem: It may not read any more, or the log has more partitions now than go.
        RsmError, LedgerError: The log cannot be read.

    """
    state, loop = call.state, asyncio.get_running_loop()
    heartbeat_s = state.settings.http.heartbeat_s
    with _seats(call) as seats:
        async with _opened(call, seats, start, follow=True) as reader:
            await door.begin(reader)
            sent_s = loop.time()
            while not (door.is_gone or state.closing.done()):
                records = await _read(call, reader, _READ_MAX)
                state.readmit(call.caller, call.headers, call.scope)
                seats.fit(reader.partition_count)
                if records:
                    await door.send(records, reader)
                    await asyncio.sleep(_PACE_S)
                elif not reader.is_ended:
                    await reader.wait(min(_READMIT_S, heartbeat_s))
                if reader.is_ended:
                    await door.ended(reader)
                    return
                now_s = loop.time()
                if records:
                    sent_s = now_s
                elif now_s - sent_s >= heartbeat_s:
                    await door.beat(reader)
                    sent_s = now_s


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
        return await open_plain(logs, call.log, start, call.state.held.confirmed(call.log))
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
