"""What a writer's callers give and get: payloads, and one future per call of append, however many it has."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from ledger.errors import LedgerError, UsageError
from ledger.wire.entry import check_payload

__all__ = ["check_payloads", "check_room", "confirm_appends", "fail_append", "has_failed", "insert_append", "wake_all"]

_PAYLOAD_TYPES: Final = frozenset({bytes})
_OVERRUN: Final = 4
"""Appends beyond this many times `in_flight_bytes_max` are refused: the caller never waits for `drain`."""


def check_payloads(payloads: Sequence[bytes], ledger_id: int) -> None:
    """Refuse, before anything is changed, what cannot be appended.

    Raises:
        EntryTooLargeError: A payload does not fit an entry.
        UsageError: There are none, or one is not bytes.

    """
    if not payloads:
        raise UsageError("append_many needs at least one payload", ledger_id=ledger_id)
    is_one = len(payloads) == 1  # nearly always, and then a third of the time
    if type(payloads[0]) is not bytes or not (is_one or set(map(type, payloads)) <= _PAYLOAD_TYPES):
        raise UsageError(f"ledger {ledger_id}: a payload must be bytes", ledger_id=ledger_id)
    check_payload(payloads[0] if is_one else max(payloads, key=len), ledger_id)


def check_room(in_flight_bytes: int, in_flight_bytes_max: int, ledger_id: int) -> None:
    """Refuse to take more from a caller who never waits.

    Raises:
        UsageError: Far more is in flight than the settings allow.

    """
    limit = _OVERRUN * in_flight_bytes_max
    if in_flight_bytes > limit:
        raise UsageError(
            f"{in_flight_bytes} bytes of ledger {ledger_id} are in flight, over {limit}: wait with "
            "`await handle.drain()` between appends",
            ledger_id=ledger_id,
        )


def insert_append(
    futures: deque[tuple[int, asyncio.Future[int]]], last_entry_id: int, future: asyncio.Future[int]
) -> None:
    """Put a future among the others, which are in the order of their entries; most belong to the end."""
    if not futures or futures[-1][0] <= last_entry_id:
        futures.append((last_entry_id, future))
    else:
        futures.insert(bisect_right(futures, last_entry_id, key=_entry_of), (last_entry_id, future))


def _entry_of(append: tuple[int, asyncio.Future[int]]) -> int:
    return append[0]


def confirm_appends(futures: deque[tuple[int, asyncio.Future[int]]], last_entry_id: int) -> None:
    """Resolve, and take off the front, the appends whose last entry is at or below `last_entry_id`."""
    while futures and futures[0][0] <= last_entry_id:
        entry_id, future = futures.popleft()
        if not future.done():
            future.set_result(entry_id)


def fail_append(future: asyncio.Future[int], error: LedgerError) -> None:
    """Fail an append that is still waiting."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # the handle keeps the failure: a future that nobody awaits is no news


def has_failed(task: asyncio.Task[int]) -> bool:
    """Whether a task that is done has no result."""
    return task.cancelled() or task.exception() is not None


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Resolve those that still wait, and empty the list: who has to wait on adds itself again."""
    woken = list(waiters)
    waiters.clear()
    for waiter in woken:
        if not waiter.done():
            waiter.set_result(None)
