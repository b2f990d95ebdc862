"""Bookies that are taken out because an operator asked over HTTP: the work goes on in this process after the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ledger.errors import LedgerError, UsageError
from ledger.replication.decommission import BookieDecommission, LedgersLeft
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
REMOVALS_MAX: Final = 4
"""Bookies at a time: each has every ledger's metadata read."""


class RemovalDesk:
    """See the module. What a removal has marked is copied though the process ends: the cookie is what stays then.

    Args:
        ledgers: Metadata of the cluster.
        wall_ms: Wall clock, for marks.

    """

    def __init__(self, ledgers: LedgerStore, *, wall_ms: Callable[[], int]) -> None:
        self._ledgers = ledgers
        self._wall_ms = wall_ms
        self._running: dict[str, asyncio.Task[None]] = {}

    async def has_cookie(self, bookie_id: str) -> bool:
        """Return whether the cluster has such a bookie, dead or alive."""
        return await self._removal(bookie_id).has_cookie()

    async def begin(self, bookie_ids: Sequence[str], asked_by: str, *, is_cookie_deleted: bool) -> None:
        """Take bookies out, all of them or none; return when what can be told without looking at ledgers is checked.

        Args:
            bookie_ids: The bookies.
            asked_by: Who is named in the line that tells how it ended.
            is_cookie_deleted: At the end, of each.

        Raises:
            UsageError: One of them serves or is being taken out, or too many are.
            LedgerError: Auto-recovery is switched off for the cluster.

        """
        wanted = dict.fromkeys(bookie_ids)
        for bookie_id in wanted:
            await self._removal(bookie_id).check()
        # From here on nothing is waited for: of two that ask at once, one comes too late.
        for bookie_id in wanted:
            if bookie_id in self._running:
                raise UsageError(f"bookie {bookie_id} is being taken out by this process: its log says how it ends")
        if len(self._running) + len(wanted) > REMOVALS_MAX:
            raise UsageError(
                f"{len(self._running)} bookies are being taken out by this process, at most {REMOVALS_MAX} at a time: "
                "wait, or ask another one"
            )
        loop = asyncio.get_running_loop()
        for bookie_id in wanted:
            work = self._remove(bookie_id, asked_by, is_cookie_deleted=is_cookie_deleted)
            self._running[bookie_id] = loop.create_task(work)

    async def stop(self) -> None:
        """Break off what goes on."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _removal(self, bookie_id: str) -> BookieDecommission:
        return BookieDecommission(self._ledgers, bookie_id, wall_ms=self._wall_ms)

    async def _remove(self, bookie_id: str, asked_by: str, *, is_cookie_deleted: bool) -> None:
        try:
            outcome = await self._moved_away(self._removal(bookie_id), is_cookie_deleted=is_cookie_deleted)
        except LedgerError as error:
            _LOGGER.warning("bookie %s, taken out for %s: given up: %s", bookie_id, asked_by, error)
        except asyncio.CancelledError:
            _LOGGER.warning(
                "bookie %s, taken out for %s: broken off, for this process ends; ask another one", bookie_id, asked_by
            )
            raise
        else:
            _LOGGER.info("bookie %s, taken out for %s: %s", bookie_id, asked_by, outcome)
        finally:
            del self._running[bookie_id]

    async def _moved_away(self, work: BookieDecommission, *, is_cookie_deleted: bool) -> str:
        """Return how it stands once no ledger names the bookie."""
        left = await work.wait(await work.begin(), _tell_nobody)
        if left.unread:
            ids = ", ".join(map(str, left.unread[:5]))
            raise LedgerError(f"the metadata of ledgers {ids} are damaged, and may name it: its cookie stays")
        has_gone = is_cookie_deleted and await work.end()
        return f"no ledger names it any more, and its cookie {'is deleted' if has_gone else 'stays'}"


def _tell_nobody(_left: LedgersLeft) -> None:
    pass
