"""The ledgers that a bookie has in memory: loaded from the index when asked for, let go when they are idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.disk import DiskExecutor
from ledger.storage.index import Index, LedgerRow

_ABSENT_MAX = 20_000


class ResidentLedgers:
    """See the module.

    Args:
        index: Where the others are.
        readers: Waits for the index.
        count_max: Ledgers kept; those with entries in a journal file stay beyond it.
        is_fenced_by_limbo: Tells whether a ledger counts as fenced for what was lost once.
        on_error: Hears of an index that cannot be read.

    Attributes:
        ledgers: By id.

    Invariants: a ledger of which anything lies in a live generation is in `ledgers`; an id is never both in
    `ledgers` and in `_absent`.

    """

    def __init__(
        self,
        index: Index,
        readers: DiskExecutor,
        count_max: int,
        is_fenced_by_limbo: Callable[[int], bool],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._index = index
        self._readers = readers
        self._count_max = count_max
        self._is_fenced_by_limbo = is_fenced_by_limbo
        self._on_error = on_error
        self._absent: dict[int, None] = {}
        self._eviction_count = 0
        self.ledgers: dict[int, BookieLedger] = {}

    def is_known_absent(self, ledger_id: int) -> bool:
        """Return whether the index was asked and holds nothing of the ledger."""
        return ledger_id in self._absent

    def load(self, ledger_ids: Sequence[int]) -> asyncio.Future[None]:
        """Bring ledgers from the index into memory, or note that they are absent; one trip for all."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._load(list(ledger_ids), done)
        return done

    def _load(self, ledger_ids: list[int], done: asyncio.Future[None]) -> None:
        evictions = self._eviction_count
        index = self._index
        future = self._readers.submit(lambda: [index.ledger(i) for i in ledger_ids])

        def finish(rows: asyncio.Future[list[LedgerRow | None]]) -> None:
            error = rows.exception()
            if error is not None:
                self._on_error(error)
                if not done.done():
                    done.set_exception(error)
            elif evictions != self._eviction_count:
                self._load(ledger_ids, done)  # A ledger may have moved to the index after it was read.
            else:
                self._install(ledger_ids, rows.result())
                if not done.done():
                    done.set_result(None)

        future.add_done_callback(finish)

    def _install(self, ledger_ids: list[int], rows: list[LedgerRow | None]) -> None:
        for ledger_id, row in zip(ledger_ids, rows, strict=True):
            if ledger_id in self.ledgers:
                continue
            if row is None:
                if len(self._absent) >= _ABSENT_MAX:
                    self._absent.clear()
                self._absent[ledger_id] = None
            else:
                self.ledgers[ledger_id] = BookieLedger(
                    ledger_id,
                    row.master_key,
                    is_fenced=row.is_fenced or self._is_fenced_by_limbo(ledger_id),
                    is_deleted=row.deleted_at_ms > 0,
                    last_entry_id=row.last_entry_id,
                    last_add_confirmed=row.last_add_confirmed,
                    explicit_lac=row.explicit_lac,
                )

    def create(self, ledger_id: int, master_key: bytes) -> BookieLedger:
        """Bring a ledger into being."""
        self._absent.pop(ledger_id, None)
        ledger = self.ledgers[ledger_id] = BookieLedger(ledger_id, master_key)
        return ledger

    def evict(self, oldest_generation: int) -> None:
        """Let ledgers go whose whole state is in the index, if there are too many; the oldest first."""
        excess = len(self.ledgers) - self._count_max
        if excess <= 0:
            return
        self._drop(
            [i for i, x in self.ledgers.items() if x.generation < oldest_generation and not x.waiters][
                : excess + self._count_max // 10
            ]
        )

    def forget(self, ledger_ids: Sequence[int], oldest_generation: int) -> None:
        """Let ledgers go that the index has forgotten, unless they are in use again."""
        self._drop([i for i in ledger_ids if i in self.ledgers and self.ledgers[i].generation < oldest_generation])

    def _drop(self, ledger_ids: list[int]) -> None:
        for ledger_id in ledger_ids:
            del self.ledgers[ledger_id]
        self._eviction_count += 1
