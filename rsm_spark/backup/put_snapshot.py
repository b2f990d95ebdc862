"""Snapshot of a log that is being made: written on a thread, and gone again if the log does not come to be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rsm_spark.errors import SnapshotError
from rsm_spark.snapshots.manifest import LakeStore

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")


async def to_its_end(work: Callable[[], _T]) -> _T:
    """Run blocking work on a thread; who is cancelled waits for its end, since it cannot be stopped."""
    running = asyncio.get_running_loop().create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


async def remove_from_lake(lake: LakeStore | None, log_id: str) -> None:
    """Remove what was written into a lake for a log that does not come to be; what cannot be removed is told."""
    if lake is None:
        return
    try:
        await asyncio.to_thread(lake.remove, log_id)
    except SnapshotError as error:
        _LOGGER.warning("a snapshot of a log that was not made stays: %s", error)
