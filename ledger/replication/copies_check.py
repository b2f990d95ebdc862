"""Check of what bookies hold of each ledger against what they should hold, and of the ends of that by their digest.

What a bookie lacks of settled fragments (see `ledger.replication.core.fragments`) is the workers' affair: the ledger is
marked. What it lacks of the end of an open ledger is sent to it here, and no mark is made: a mark on a bookie that then
goes away would have the ledger recovered, and its writer lives. Nothing is fenced, and only what is confirmed is
copied. An entry may be on its way from the writer: a bookie lacks it only if it still does after `tail_grace_s`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from ledger.client.pool import ConnectionPool
from ledger.core.metadata import NO_ENTRY, LedgerMetadata, LedgerState
from ledger.errors import CorruptMetadataError, NoSuchLedgerError
from ledger.replication.copier import copy_entries
from ledger.replication.core.confirmed_end import confirmed_end
from ledger.replication.core.held_entries import HeldEntries
from ledger.replication.core.repair_plan import missing_entries, named_bookies
from ledger.replication.questions import ask_lacs, ends_of, list_entries, read_bad_entries
from ledger.replication.settings import ReplicationSettings
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_FILL_MAX: Final = 1_000_000
"""Entries that one check sends to one bookie of one open ledger; the next check goes on."""


class _OpenEnd(msgspec.Struct, frozen=True):
    """End of an open ledger of which a bookie lacked something."""

    ledger_id: int
    confirmed: int


class CopiesCheck:
    """One check.

    Args:
        ledgers: Metadata of ledgers and bookies.
        pool: Connections to bookies.
        settings: Times and limits.
        only: Bookies that are checked; None = all that serve.

    Attributes:
        silent: Bookies that did not say what they hold of some ledger, in the order in which they were met.

    """

    def __init__(
        self,
        ledgers: LedgerStore,
        pool: ConnectionPool,
        settings: ReplicationSettings,
        only: Sequence[str] | None = None,
    ) -> None:
        self.silent: dict[str, None] = {}
        self._ledgers = ledgers
        self._pool = pool
        self._settings = settings
        self._only = only
        self._open_ends: list[_OpenEnd] = []

    async def lacking(self, ledger_id: int, metadata: LedgerMetadata, registered: Collection[str]) -> list[str]:
        """Return the bookies that lack settled entries of a ledger, or hold bad ones; one that is silent does not.

        What is lacking of the end of an open ledger is kept in mind for `fill_open_ends`.
        """
        asked = [b for b in named_bookies(metadata) if b in registered and (self._only is None or b in self._only)]
        if not asked:
            return []
        peers: list[str] = []
        lacs: list[int] = []
        if metadata.state == LedgerState.OPEN and any(b in asked for b in metadata.segments[-1].bookies):
            peers = [b for b in metadata.segments[-1].bookies if b in registered]
            # Before they are asked what they hold: what is confirmed by then has had the time of a question to arrive.
            lacs = await ask_lacs(self._pool, ledger_id, metadata, peers)
        holdings = await self._ask(ledger_id, [*asked, *(b for b in peers if b not in asked)])
        if peers:
            confirmed = confirmed_end(metadata, lacs, holdings)
            if any(self._lacks(metadata, b, holdings, confirmed) for b in asked):
                self._open_ends.append(_OpenEnd(ledger_id, confirmed))
        told = {bookie_id: held for bookie_id, held in holdings.items() if bookie_id in asked}
        wanted = [(bookie_id, entry_id) for bookie_id in told for entry_id in ends_of(metadata, bookie_id)]
        bad = await read_bad_entries(self._pool, ledger_id, metadata, wanted)
        return [b for b in told if b in bad or self._lacks(metadata, b, told)]

    async def fill_open_ends(self, registered: Collection[str]) -> list[int]:
        """Send bookies what they lack of ends of open ledgers; return the ledgers that lacked something."""
        if not self._open_ends:
            return []
        await asyncio.sleep(self._settings.tail_grace_s)
        found: list[int] = []
        for one in self._open_ends:
            try:
                metadata, _ = await self._ledgers.read(one.ledger_id, sync=True)
            except (NoSuchLedgerError, CorruptMetadataError):
                continue
            asked = [b for b in named_bookies(metadata) if b in registered and (self._only is None or b in self._only)]
            holdings = await self._ask(one.ledger_id, asked)
            lacking = [b for b in asked if self._lacks(metadata, b, holdings, one.confirmed)]
            if not lacking:
                continue
            found.append(one.ledger_id)
            if metadata.state != LedgerState.OPEN:
                continue  # Whoever recovers it sends it around; after that it is settled.
            for bookie_id in lacking:
                missing = missing_entries(metadata, bookie_id, holdings[bookie_id], confirmed=one.confirmed)
                await self._fill(one.ledger_id, metadata, bookie_id, islice(missing, _FILL_MAX))
        return found

    async def _fill(self, ledger_id: int, metadata: LedgerMetadata, bookie_id: str, entry_ids: Iterator[int]) -> None:
        async def go_on() -> bool:
            return True

        copy = await copy_entries(
            self._pool, ledger_id, metadata, entry_ids, bookie_id, settings=self._settings, go_on=go_on
        )
        _LOGGER.info(
            "ledger %d is open: %d confirmed entries sent to %s, which lacked them",
            ledger_id,
            copy.stored_count,
            bookie_id,
        )
        if not copy.is_complete:
            reasons = [copy.target_failure] if copy.target_failure else [str(failure) for failure in copy.failures]
            _LOGGER.warning("ledger %d: %s still lacks entries: %s", ledger_id, bookie_id, "; ".join(reasons))

    async def _ask(self, ledger_id: int, bookie_ids: Sequence[str]) -> dict[str, HeldEntries]:
        """Return what bookies hold of a ledger; those that do not say are noted."""
        answers = await list_entries(self._pool, ledger_id, bookie_ids)
        self.silent.update((b, None) for b, held in answers.items() if not isinstance(held, HeldEntries))
        return {bookie_id: held for bookie_id, held in answers.items() if isinstance(held, HeldEntries)}

    def _lacks(
        self, metadata: LedgerMetadata, bookie_id: str, holdings: dict[str, HeldEntries], confirmed: int = NO_ENTRY
    ) -> bool:
        held = holdings.get(bookie_id)
        if held is None:
            return False
        return next(missing_entries(metadata, bookie_id, held, confirmed=confirmed), None) is not None
