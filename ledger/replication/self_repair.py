"""A bookie that lost something has it again from its peers, by itself: it leaves limbo, and forgets damaged blocks.

In limbo (see `ledger.storage.limbo`) a round looks at every ledger that may be concerned and names this bookie:

1. Not closed, and the last segment names this bookie: it must be recovered, for "not found" would be a lie that may
   cut it short. Its writer has a grace to go elsewhere first.
2. Of all that is settled, the entries that this bookie should hold and does not are read from peers, the digest is
   checked, and they are added to itself, over the network like everybody's, so that each is journalled and synced.
3. When a whole round found nothing missing, limbo is left, durably.

An entry that no peer gives keeps the bookie in limbo; it is named, and tried again. A kill at any point costs nothing
but time: what was added is there, and the next round begins anew.

A ledger that comes to name this bookie only after the loss is of no concern: nothing of it can have been lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.core.metadata import LedgerMetadata
from ledger.errors import LedgerError, NoSuchLedgerError
from ledger.replication.copier import copy_entries
from ledger.replication.core.fragments import fragments_of, share_of
from ledger.replication.core.held_entries import NOTHING_HELD, HeldEntries
from ledger.replication.core.repair_plan import missing_entries, named_bookies
from ledger.replication.questions import list_entries, read_patiently
from ledger.replication.settings import ReplicationSettings
from ledger.storage.damage import Damage
from ledger.storage.entry_store import EntryStore

_LOGGER = logging.getLogger(__name__)
_PROBLEMS_MAX: Final = 20
_LOG_S: Final = 10.0


class RepairProgress(msgspec.Struct):
    """Progress of the repair, for operators.

    Attributes:
        is_in_limbo: Whether the bookie still is.
        ledger_count: Ledgers that the present round has looked at and that name this bookie.
        entry_count: Entries had again since the start.
        problems: What keeps the last round from being the last one.

    """

    is_in_limbo: bool = False
    ledger_count: int = 0
    entry_count: int = 0
    problems: list[str] = []


class SelfRepair:
    """The repair of one bookie.

    Args:
        store: Its storage.
        client: Recovers ledgers; its session is the bookie's.
        pool: The client's connections.
        bookie_id: Of the bookie.
        settings: Times and limits.
        on_progress: Called now and then, and at the end.

    Attributes:
        progress: How far it is.

    """

    def __init__(
        self,
        store: EntryStore,
        client: LedgerClient,
        pool: ConnectionPool,
        bookie_id: str,
        settings: ReplicationSettings,
        *,
        on_progress: Callable[[RepairProgress], None] = lambda _: None,
    ) -> None:
        self.progress = RepairProgress()
        self._store = store
        self._client = client
        self._ledgers = client.ledgers
        self._pool = pool
        self._bookie_id = bookie_id
        self._settings = settings
        self._on_progress = on_progress
        # Loop time at which each open ledger was first seen; its grace runs from there.
        self._open_since_s: dict[int, float] = {}
        self._problems: list[str] = []
        self._problem_count = 0
        self._told_s = 0.0

    async def run(self) -> None:
        """Repair what there is to repair, until cancelled; an error ends a round, not the repair."""
        pause_s = self._settings.retry_s_min
        while True:
            try:
                is_whole = await self._round()
            except (LedgerError, OSError) as error:
                self._problem(str(error))
                is_whole = False
            self._tell(is_end=True)
            pause_s = self._settings.self_repair_s if is_whole else min(self._settings.retry_s_max, 2 * pause_s)
            await asyncio.sleep(pause_s)
            if is_whole:
                pause_s = self._settings.retry_s_min

    async def _round(self) -> bool:
        """Look at everything once; return whether nothing is left to repair."""
        self._problems, self._problem_count = [], 0
        self.progress.ledger_count = 0
        self.progress.is_in_limbo = self._store.limbo.ledger_id_max >= 0
        if self.progress.is_in_limbo:
            ledger_ids = await self._repair_limbo()
            if not self._problem_count:
                await self._store.leave_limbo(ledger_ids)
                self.progress.is_in_limbo = False
                _LOGGER.warning(
                    "this bookie has left limbo: %d ledgers that name it are whole here again, %d entries of them "
                    "came from other bookies",
                    self.progress.ledger_count,
                    self.progress.entry_count,
                )
        for damage in self._store.damages.found():
            await self._repair_damage(damage)
        return not self._problem_count

    # -- limbo ---------------------------------------------------------------------------------------------

    async def _repair_limbo(self) -> list[int]:
        """Look at every ledger that may be concerned; return them."""
        await self._ledgers.store.sync(self._ledgers.root)
        ids = [i for i in await self._ledgers.list() if i <= self._store.limbo.ledger_id_max]
        step = self._settings.metadata_reads
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            found = await asyncio.gather(*[read_patiently(self._ledgers, ledger_id) for ledger_id in part])
            for ledger_id, metadata in zip(part, found, strict=True):
                if metadata is not None and self._bookie_id in named_bookies(metadata):
                    await self._repair_ledger(ledger_id, metadata)
                    self.progress.ledger_count += 1
                    self._tell()
        return ids

    async def _repair_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        if not metadata.is_closed and self._bookie_id in metadata.segments[-1].bookies:
            closed = await self._close(ledger_id, metadata)
            if closed is None:
                return
            metadata = closed
        answer = (await list_entries(self._pool, ledger_id, [self._bookie_id]))[self._bookie_id]
        held = answer if isinstance(answer, HeldEntries) else NOTHING_HELD
        missing = missing_entries(metadata, self._bookie_id, held)
        await self._fetch(ledger_id, metadata, missing)

    async def _close(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """Recover a ledger whose writer had its grace; None if it is not closed."""
        now_s = asyncio.get_running_loop().time()
        since_s = self._open_since_s.setdefault(ledger_id, now_s)
        if now_s - since_s < self._settings.open_ledger_grace_s:
            self._problem(f"ledger {ledger_id} is open; it will be recovered if its writer does not go elsewhere")
            return None
        try:
            handle = await self._client.open(ledger_id, password=metadata.password)
        except NoSuchLedgerError:
            return None
        except LedgerError as error:
            self._problem(str(error))
            return None
        self._open_since_s.pop(ledger_id, None)
        _LOGGER.warning("ledger %d was open when this bookie lost data: recovered and closed", ledger_id)
        return handle.metadata

    async def _fetch(self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Iterable[int]) -> bool:
        """Have entries again; return whether all of them are here."""
        copy = await copy_entries(
            self._pool,
            ledger_id,
            metadata,
            entry_ids,
            self._bookie_id,
            settings=self._settings,
            go_on=self._go_on,
        )
        self.progress.entry_count += copy.stored_count
        for failure in copy.failures:
            self._problem(str(failure))
        if copy.target_failure is not None:
            self._problem(f"ledger {ledger_id}: this bookie does not take its own entries: {copy.target_failure}")
        return copy.is_complete

    # -- damaged blocks ------------------------------------------------------------------------------------

    async def _repair_damage(self, damage: Damage) -> None:
        """Have the entries of a block again, and forget it; an open ledger's are waited for."""
        row = damage.row
        metadata = await read_patiently(self._ledgers, row.ledger_id)
        if metadata is None:
            return  # Deleted: the collector drops it.
        wanted = self._wanted(metadata, row.first_entry_id, row.last_entry_id)
        is_whole = await self._fetch(row.ledger_id, metadata, wanted)
        last = fragments_of(metadata)[-1]
        if not last.is_settled and row.last_entry_id >= last.first_entry_id:
            return  # It may hold entries that nobody may copy yet.
        if is_whole:
            await self._store.forget_damage(damage)
            _LOGGER.warning(
                "ledger %d: %d entries of a damaged block came from other bookies", row.ledger_id, len(wanted)
            )

    def _wanted(self, metadata: LedgerMetadata, first: int, last: int) -> Sequence[int]:
        return [
            entry_id
            for fragment in fragments_of(metadata)
            if fragment.is_settled
            for position, bookie_id in enumerate(fragment.bookies)
            if bookie_id == self._bookie_id
            for entry_id in share_of(fragment, position, metadata.quorum).between(first, last)
        ]

    # -- progress ------------------------------------------------------------------------------------------

    async def _go_on(self) -> bool:
        self._tell()
        return True

    def _problem(self, text: str) -> None:
        self._problem_count += 1
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(text)

    def _tell(self, *, is_end: bool = False) -> None:
        """Tell how far it is, now and then."""
        now_s = asyncio.get_running_loop().time()
        if not is_end and now_s - self._told_s < _LOG_S:
            return
        self._told_s = now_s
        progress = self.progress
        if is_end:
            progress.problems = self._problems
            if self._problem_count > len(self._problems):
                progress.problems = [*self._problems, f"and {self._problem_count - len(self._problems)} more"]
        self._on_progress(progress)
        if progress.is_in_limbo:
            _LOGGER.info(
                "repairing lost entries: %d ledgers looked at in this round, %d entries fetched so far",
                progress.ledger_count,
                progress.entry_count,
            )
        for problem in progress.problems if is_end else ():
            _LOGGER.warning("not repaired yet: %s", problem)
