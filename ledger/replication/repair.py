"""One marked ledger, repaired under its lock.

The mark says which bookies are lost; every bookie that serves is asked what it holds. In rounds, each on metadata read
anew: holes are refilled, places of lost bookies are filled by others, an open ledger whose last segment names a lost
bookie is recovered once its grace is over. The mark goes when a round finds nothing to do. A bookie that is to be
drained counts as lost here, though it serves and copies may come from it.

A place is given to another bookie by compare-and-set, and only when that bookie holds every entry of the place's
share: whoever does this twice, or without the lock, does no harm.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.core.metadata import LedgerMetadata, Segment
from ledger.core.placement import BookieState, choose_replacement, ranked_bookies
from ledger.core.placement_rule import choose_replacement_by_rule
from ledger.errors import (
    BadVersionError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from ledger.replication.copier import copy_entries
from ledger.replication.core.entry_copy import EntryCopy
from ledger.replication.core.held_entries import NOTHING_HELD, HeldEntries
from ledger.replication.core.repair_plan import Refill, RepairPlan, Replace, missing_entries, named_bookies, plan_repair
from ledger.replication.marks import LedgerLock, MarkStore
from ledger.replication.questions import ends_of, list_entries, read_bad_entries
from ledger.replication.settings import ReplicationSettings
from ledger.zookeeper.placement_rules import placement_in_force

_LOGGER = logging.getLogger(__name__)
_ATTEMPTS_MAX: Final = 5
_ROUNDS_MAX: Final = 50
_REFILLS_MAX: Final = 3
_LOOK_S: Final = 2.0
"""Interval at which a copy looks whether the bookie that it replaces is back."""


class RepairOutcome(msgspec.Struct, frozen=True):
    """Result of one repair of a ledger.

    Attributes:
        is_repaired: The mark is gone: nothing was left to do, or the ledger has been deleted.
        wait_s: When to look again at the latest; None is for the worker to decide.
        reason: Why it is not repaired.
        entry_count: Entries copied.
        swap_count: Places given to another bookie.

    """

    is_repaired: bool
    wait_s: float | None = None
    reason: str = ""
    entry_count: int = 0
    swap_count: int = 0


class LedgerRepair:
    """The repair of one ledger.

    Args:
        client: Recovers open ledgers.
        pool: Connections to bookies.
        marks: Where the mark is.
        lock: Of the ledger.
        rng: Chooses among spares.
        settings: Times and limits.
        grace_until_s: Loop time until which the writer of an open ledger may help itself; None from now on.

    """

    def __init__(
        self,
        client: LedgerClient,
        pool: ConnectionPool,
        marks: MarkStore,
        lock: LedgerLock,
        rng: random.Random,
        settings: ReplicationSettings,
        *,
        grace_until_s: float | None = None,
    ) -> None:
        self.ledger_id = lock.ledger_id
        self._client = client
        self._ledgers = client.ledgers
        self._pool = pool
        self._marks = marks
        self._lock = lock
        self._rng = rng
        self._settings = settings
        self._grace_until_s = grace_until_s
        self._entry_count = 0
        self._swap_count = 0
        # Bookies that did not take what was copied to them: no spares any more.
        self._refused: dict[str, None] = {}
        self._refill_counts: dict[str, int] = {}
        self._problems: list[str] = []
        self._looked_s = 0.0

    async def run(self) -> RepairOutcome:
        """Repair as much as can be repaired now.

        Raises:
            LedgerError: The metadata store does not answer, or the lock is gone.

        """
        for _ in range(_ROUNDS_MAX):
            found = await self._marks.read(self.ledger_id)
            if found is None:
                return self._outcome(is_repaired=True)
            mark, mark_version = found
            try:
                metadata, _ = await self._ledgers.read(self.ledger_id, sync=True)
            except NoSuchLedgerError:
                return self._outcome(is_repaired=await self._marks.unmark(self.ledger_id, mark_version))
            registered = await self._registered()
            draining = await self._marks.draining()
            lost = [b for b in mark.bookie_ids or named_bookies(metadata) if b not in registered or b in draining]
            plan, holdings, bad = await self._inspect(metadata, lost, registered)
            if plan.is_empty:
                return self._outcome(is_repaired=await self._marks.unmark(self.ledger_id, mark_version))
            has_changed = await self._carry_out(plan, metadata, lost, holdings, bad)
            if has_changed:
                continue
            if plan.must_settle:
                wait_s = await self._settle(metadata)
                if wait_s is not None:
                    return self._outcome(is_repaired=False, wait_s=wait_s, reason="its writer may help itself yet")
                continue
            reasons = self._problems or [f"{bookie_id} does not say what it holds" for bookie_id in plan.silent]
            return self._outcome(is_repaired=False, reason="; ".join(reasons) or "it changes under our hands")
        return self._outcome(is_repaired=False, reason="it changes under our hands")

    def _outcome(self, *, is_repaired: bool, wait_s: float | None = None, reason: str = "") -> RepairOutcome:
        return RepairOutcome(is_repaired, wait_s, reason, self._entry_count, self._swap_count)

    async def _registered(self) -> list[str]:
        return [*await self._ledgers.writable_bookies(), *await self._ledgers.read_only_bookies()]

    async def _inspect(
        self, metadata: LedgerMetadata, lost: list[str], registered: list[str]
    ) -> tuple[RepairPlan, dict[str, HeldEntries], dict[str, list[int]]]:
        """Ask the bookies that serve what they hold, and whether the ends of it are in good order."""
        serving = [bookie_id for bookie_id in named_bookies(metadata) if bookie_id in registered]
        answers = await list_entries(self._pool, self.ledger_id, serving)
        holdings = {bookie_id: held for bookie_id, held in answers.items() if isinstance(held, HeldEntries)}
        wanted = [(bookie_id, entry_id) for bookie_id in holdings for entry_id in ends_of(metadata, bookie_id)]
        bad = await read_bad_entries(self._pool, self.ledger_id, metadata, wanted)
        told = {bookie_id: holdings.get(bookie_id) for bookie_id in answers}
        return plan_repair(metadata, lost=lost, holdings=told, bad=bad), holdings, bad

    async def _carry_out(
        self,
        plan: RepairPlan,
        metadata: LedgerMetadata,
        lost: list[str],
        holdings: dict[str, HeldEntries],
        bad: dict[str, list[int]],
    ) -> bool:
        """Do what the plan says; return whether anything came of it."""
        self._problems = []
        before = self._entry_count, self._swap_count
        for refill in plan.refills:
            await self._refill(refill, metadata, lost, holdings[refill.bookie_id], bad.get(refill.bookie_id, []))
        for replace in plan.replaces:
            metadata = await self._replace(replace, metadata, lost)
            if await self._is_back(replace.bookie_id):
                return True  # No copy is needed any more; look again at what it holds.
        return (self._entry_count, self._swap_count) != before

    async def _is_back(self, bookie_id: str, *, now_and_then: bool = False) -> bool:
        """Return whether a lost bookie serves again, and is not to be drained.

        With `now_and_then` False is returned between two real looks.
        """
        now_s = asyncio.get_running_loop().time()
        if now_and_then and now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        return bookie_id in await self._registered() and not await self._marks.is_draining(bookie_id)

    # -- copies --------------------------------------------------------------------------------------------

    async def _refill(
        self, refill: Refill, metadata: LedgerMetadata, lost: list[str], held: HeldEntries, bad: list[int]
    ) -> None:
        count = self._refill_counts.get(refill.bookie_id, 0)
        if count == _REFILLS_MAX:
            self._problems.append(f"{refill.bookie_id} has taken entries {count} times and does not give them back")
            return
        self._refill_counts[refill.bookie_id] = count + 1
        missing = missing_entries(metadata, refill.bookie_id, held, bad)
        copy = await self._copy(metadata, missing, refill.bookie_id, lost, self._go_on)
        if copy.stored_count:
            _LOGGER.info(
                "ledger %d: %d entries sent again to %s, which lacked them",
                self.ledger_id,
                copy.stored_count,
                refill.bookie_id,
            )

    async def _replace(self, replace: Replace, metadata: LedgerMetadata, lost: list[str]) -> LedgerMetadata:
        """Fill a lost bookie's place; return the metadata that then stand."""
        share = replace.share(metadata.quorum)
        spare = await self._spare(replace, metadata, lost)
        if spare is None:
            error = NotEnoughBookiesError(
                f"no bookie can take the place of {replace.bookie_id} in {list(replace.fragment.bookies)}: "
                "start one, where the cluster's placement rule allows it"
            )
            self._problems.append(str(error))
            return metadata

        async def go_on() -> bool:
            return await self._go_on() and not await self._is_back(replace.bookie_id, now_and_then=True)

        before = await self._held_by(spare) or NOTHING_HELD  # An attempt that ended half-way may have left something.
        copy = await self._copy(metadata, before.missing(share), spare, lost, go_on)
        if not copy.is_complete or await self._is_back(replace.bookie_id):
            return metadata
        held = await self._held_by(spare)
        lacking = None if held is None else next(held.missing(share), None)
        if held is None or lacking is not None:
            self._problems.append(f"{spare} has taken the entries, but does not say that it holds entry {lacking}")
            return metadata
        return await self._swap(replace, spare) or metadata

    async def _held_by(self, bookie_id: str) -> HeldEntries | None:
        held = (await list_entries(self._pool, self.ledger_id, [bookie_id]))[bookie_id]
        return held if isinstance(held, HeldEntries) else None

    async def _copy(
        self,
        metadata: LedgerMetadata,
        entry_ids: Iterable[int],
        target: str,
        lost: list[str],
        go_on: Callable[[], Awaitable[bool]],
    ) -> EntryCopy:
        copy = await copy_entries(
            self._pool,
            self.ledger_id,
            metadata,
            entry_ids,
            target,
            settings=self._settings,
            last_asked=lost,
            go_on=go_on,
        )
        self._entry_count += copy.stored_count
        self._problems += [str(failure) for failure in copy.failures]
        if copy.failure_count > len(copy.failures):
            self._problems.append(f"and {copy.failure_count - len(copy.failures)} entries more")
        if copy.target_failure is not None:
            self._refused[target] = None
            self._problems.append(f"{target} does not take copies: {copy.target_failure}")
        return copy

    async def _go_on(self) -> bool:
        self._check_lock()
        return True

    def _check_lock(self) -> None:
        if not self._lock.is_held:
            raise MetadataSessionLostError(
                f"the lock of ledger {self.ledger_id} may be gone with its session: its repair stops",
                ledger_id=self.ledger_id,
            )

    async def _spare(self, replace: Replace, metadata: LedgerMetadata, lost: list[str]) -> str | None:
        suspects = self._pool.suspects()
        writable = await self._ledgers.writable_bookies()
        bookies = [BookieState(bookie_id, is_suspect=bookie_id in suspects) for bookie_id in writable]
        rule = await placement_in_force(self._ledgers) if self._pool.settings.keeps_rule else None
        if rule is not None:
            return choose_replacement_by_rule(
                ranked_bookies(bookies, self._settings.placement, self._rng),
                rule,
                ensemble=replace.fragment.bookies,
                excluded=(*lost, *self._refused),
                position=replace.position,
                write_quorum=metadata.quorum.write_quorum,
            )
        return choose_replacement(
            bookies,
            ensemble=replace.fragment.bookies,
            excluded=(*lost, *self._refused),
            policy=self._settings.placement,
            rng=self._rng,
            position=replace.position,
            write_quorum=metadata.quorum.write_quorum,
        )

    # -- metadata ------------------------------------------------------------------------------------------

    async def _swap(self, replace: Replace, spare: str) -> LedgerMetadata | None:
        """Write the spare into the segment; None if the segment is not what it was."""
        for _ in range(_ATTEMPTS_MAX):
            self._check_lock()
            metadata, version = await self._ledgers.read(self.ledger_id, sync=True)
            changed = _with_bookie(metadata, replace, spare)
            if changed is None:
                return None
            if changed == metadata:
                break  # The reply was lost, the write was not.
            try:
                await self._ledgers.write(self.ledger_id, changed, version)
            except (BadVersionError, MetadataUnavailableError) as error:
                _LOGGER.info("ledger %d: a change of its metadata is unsettled: %s", self.ledger_id, error)
                continue
            break
        else:
            return None
        self._swap_count += 1
        _LOGGER.info(
            "ledger %d: %s holds what %s held of the entries from %d on",
            self.ledger_id,
            spare,
            replace.bookie_id,
            replace.fragment.first_entry_id,
        )
        return changed

    async def _settle(self, metadata: LedgerMetadata) -> float | None:
        """Recover the ledger if its grace is over; return how many seconds are left, or None if it is closed."""
        now_s = asyncio.get_running_loop().time()
        if self._grace_until_s is None:
            self._grace_until_s = now_s + self._settings.open_ledger_grace_s
        if now_s < self._grace_until_s:
            return self._grace_until_s - now_s
        self._check_lock()
        _LOGGER.warning("ledger %d names a lost bookie and its writer does nothing: closing it", self.ledger_id)
        await self._client.open(self.ledger_id, password=metadata.password)
        return None

    @property
    def grace_until_s(self) -> float | None:
        """Loop time at which an open ledger will be recovered; None if that was not called for."""
        return self._grace_until_s


def _with_bookie(metadata: LedgerMetadata, replace: Replace, spare: str) -> LedgerMetadata | None:
    """Return the metadata with the spare in the place; None if the place is not what it was when the copy began."""
    segments = list(metadata.segments)
    for index, segment in enumerate(segments):
        if segment.first_entry_id != replace.fragment.first_entry_id:
            continue
        if index == len(segments) - 1 and not metadata.is_closed:
            return None
        if segment.bookies[replace.position] == spare:
            return metadata
        if segment.bookies[replace.position] != replace.bookie_id or spare in segment.bookies:
            return None
        bookies = list(segment.bookies)
        bookies[replace.position] = spare
        segments[index] = Segment(segment.first_entry_id, tuple(bookies))
        return msgspec.structs.replace(metadata, segments=tuple(segments))
    return None
