"""Drops what belongs to deleted ledgers, and never anything else (safety 26).

Local ledgers are listed first, then `sync`, then the metadata: so a ledger that is created meanwhile is not
even looked at. Each that is missing in the listing is read once more by itself; only "no such node" deletes it.
Any other answer ends the round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from ledger.errors import LedgerError, NoSuchLedgerError
from ledger.storage.entry_store import EntryStore
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_PAGE = 10_000
T = TypeVar("T")


class Submit(Protocol):
    """An executor's `submit`."""

    def __call__(self, fn: Callable[[], T]) -> asyncio.Future[T]: ...


class Collected(msgspec.Struct, frozen=True):
    """Ledgers and segments that one round of collection dropped."""

    ledger_ids: list[int]
    segment_ids: list[int]


class Collector:
    """Collects deleted ledgers of one store.

    Args:
        store: The storage.
        ledgers: The metadata.
        submit: Runs blocking reads.
        now_ms: Wall clock.

    Attributes:
        collected_count: Ledgers that were deleted and whose entries were dropped, since the process began.

    """

    def __init__(self, store: EntryStore, ledgers: LedgerStore, *, submit: Submit, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._ledgers = ledgers
        self._submit = submit
        self._now_ms = now_ms
        self._wanted = asyncio.Event()
        self.collected_count = 0

    @property
    def is_wanted(self) -> bool:
        """A round was asked for, and has not begun."""
        return self._wanted.is_set()

    def want(self, *, minor: bool, major: bool) -> None:
        """Ask for a round now; with what the minor, or the major interval of compactions asks for."""
        self._store.compactor.make_due(minor=minor, major=major)
        self._wanted.set()

    async def run(self, interval_s: float) -> None:
        """Collect again and again; an error ends a round, not the collector."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                collected = await self.collect()
                await self._store.deletions.forget(self._now_ms())
                compacted = await self._store.compactor.compact_when_due(self._now_ms())
            except (LedgerError, OSError) as error:
                _LOGGER.warning("collection of deleted ledgers put off: %s", error)
                continue
            if compacted:
                _LOGGER.info("segments compacted", extra={"segments": compacted})
            if collected.ledger_ids:
                _LOGGER.info(
                    "deleted ledgers collected",
                    extra={"ledgers": len(collected.ledger_ids), "segments": collected.segment_ids},
                )

    async def collect(self) -> Collected:
        """Run one round.

        Raises:
            LedgerError: The metadata could not be read for sure; what was not dropped yet stays.

        """
        local = await self._local_ids()
        await self._ledgers.store.sync(self._ledgers.root)
        named = dict.fromkeys(await self._ledgers.list())
        gone = [i for i in local if i not in named and await self._is_gone(i)]
        now_ms = self._now_ms()
        dropped = await self._store.deletions.delete(gone, now_ms) if gone else []
        self.collected_count += len(dropped)
        return Collected(dropped, await self._store.compactor.compact(0.0, now_ms))

    async def _local_ids(self) -> list[int]:
        index = self._store.index
        found: list[int] = []
        first = 0
        while page := await self._submit(lambda first=first: index.ledger_ids(first, _PAGE)):  # type: ignore[misc]
            found += page
            first = page[-1] + 1
        return found

    async def _is_gone(self, ledger_id: int) -> bool:
        try:
            await self._ledgers.read(ledger_id, sync=True)
        except NoSuchLedgerError:
            return True
        return False
