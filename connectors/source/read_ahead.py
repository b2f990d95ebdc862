"""Blocks of entries read ahead on an event loop's thread and taken on another."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

from ledger.core.entry_block import EntryBlock
from ledger.loop_thread import LoopThread

_WAITING_MAX: Final = 8
"""Lists of blocks that wait to be taken; a list is what one wake-up brought, mostly a block of 1 MiB."""


def read_ahead(thread: LoopThread, blocks: AsyncGenerator[list[EntryBlock], None]) -> Iterator[EntryBlock]:
    """Yield blocks in order; those behind are received meanwhile, as far as `blocks` and a short queue let them.

    Args:
        thread: Where `blocks` runs.
        blocks: What is read. It is closed at the end, also when the caller stops early.

    Raises:
        LedgerError: What `blocks` raises, behind what came before.

    """
    ready: queue.SimpleQueue[list[EntryBlock] | None] = queue.SimpleQueue()
    room = asyncio.Semaphore(_WAITING_MAX)

    async def pump() -> None:
        try:
            async with aclosing(blocks) as source:
                async for found in source:
                    await room.acquire()
                    ready.put(found)
        finally:
            ready.put(None)

    pumping = thread.start(pump())
    try:
        while (found := ready.get()) is not None:
            thread.call_soon(room.release)
            yield from found
        pumping.result()
    finally:
        pumping.cancel()
