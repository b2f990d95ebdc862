"""The replication worker: takes marked ledgers one by one, each under its lock, and repairs them."""

from __future__ import annotations

import asyncio
import logging
import random

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.errors import LedgerError
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.replication.repair import LedgerRepair, RepairOutcome
from ledger.replication.settings import ReplicationSettings

_LOGGER = logging.getLogger(__name__)


class WorkerCounts(msgspec.Struct):
    """Counts of a worker's work since it started.

    Attributes:
        entry_count: Entries that it copied.
        repaired_count: Ledgers that have all their copies again.
        swap_count: Places of lost bookies that it gave to others.
        failed_count: Attempts at a ledger that came to nothing, or only half-way.

    """

    entry_count: int = 0
    repaired_count: int = 0
    swap_count: int = 0
    failed_count: int = 0


class _Later(msgspec.Struct):
    """A ledger to look at again later."""

    at_s: float
    pause_s: float
    grace_until_s: float | None


class ReplicationWorker:
    """One worker.

    Args:
        client: Recovers open ledgers.
        pool: The client's connections.
        marks: Marks and locks.
        rng: Order of ledgers, choice of spares, jitter.
        settings: Times and limits.

    Attributes:
        counts: What it has done.

    """

    def __init__(
        self,
        client: LedgerClient,
        pool: ConnectionPool,
        marks: MarkStore,
        rng: random.Random,
        settings: ReplicationSettings,
    ) -> None:
        self.counts = WorkerCounts()
        self._client = client
        self._pool = pool
        self._marks = marks
        self._rng = rng
        self._settings = settings
        self._hints = Hints()
        self._later: dict[int, _Later] = {}

    async def run(self) -> None:
        """Work until cancelled; an error ends a round, not the worker."""
        while True:
            try:
                has_worked = await self._marks.is_enabled(self._hints) and await self._round()
            except LedgerError as error:
                _LOGGER.warning("replication put off: %s", error)
                self._hints.forget_all()
                has_worked = False
            if not has_worked:
                await self._hints.wait(self._wait_s())

    async def _round(self) -> bool:
        """Repair a few ledgers side by side; return whether there were any."""
        await self._marks.watch_marks(self._hints)
        now_s = asyncio.get_running_loop().time()
        resting = [ledger_id for ledger_id, later in self._later.items() if later.at_s > now_s]
        excluded = frozenset((*resting, *await self._marks.locked()))
        ids = await self._marks.marked(rng=self._rng, limit=self._settings.ledger_count, excluded=excluded)
        repairs = [self._repair(ledger_id) for ledger_id in ids]
        results = await asyncio.gather(*repairs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return bool(ids)

    async def _repair(self, ledger_id: int) -> None:
        lock = await self._marks.lock(ledger_id)
        if lock is None:
            return
        later = self._later.get(ledger_id)
        repair = LedgerRepair(
            self._client,
            self._pool,
            self._marks,
            lock,
            self._rng,
            self._settings,
            grace_until_s=later.grace_until_s if later else None,
        )
        try:
            outcome = await repair.run()
        except LedgerError as error:
            outcome = RepairOutcome(is_repaired=False, reason=str(error))
        except asyncio.CancelledError:
            await self._marks.unlock(lock)
            raise
        await self._marks.unlock(lock)
        self._note(ledger_id, outcome, repair.grace_until_s)

    def _note(self, ledger_id: int, outcome: RepairOutcome, grace_until_s: float | None) -> None:
        counts = self.counts
        counts.entry_count += outcome.entry_count
        counts.swap_count += outcome.swap_count
        if outcome.is_repaired:
            self._later.pop(ledger_id, None)
            counts.repaired_count += 1
            _LOGGER.info("ledger %d has all its copies (%d entries copied)", ledger_id, outcome.entry_count)
            return
        now_s = asyncio.get_running_loop().time()
        if outcome.wait_s is not None:
            self._later[ledger_id] = _Later(now_s + outcome.wait_s, 0.0, grace_until_s)
            return
        before = self._later.get(ledger_id)
        low, high = self._settings.retry_s_min, self._settings.retry_s_max
        pause_s = min(high, max(low, 2 * before.pause_s if before else 0.0))
        counts.failed_count += 1
        self._later[ledger_id] = _Later(now_s + pause_s * self._rng.uniform(0.5, 1.0), pause_s, grace_until_s)
        _LOGGER.warning(
            "ledger %d still lacks copies, next attempt in at most %.0f s: %s", ledger_id, pause_s, outcome.reason
        )

    def _wait_s(self) -> float:
        """Return how long nothing is to be done, as far as is known."""
        now_s = asyncio.get_running_loop().time()
        wait_s = min([later.at_s - now_s for later in self._later.values()], default=self._settings.poll_s)
        return min(self._settings.poll_s, max(0.05, wait_s))
