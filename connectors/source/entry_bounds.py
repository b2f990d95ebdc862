"""Bounds on entries that a query asks for, by their ids and envelopes. Pure, import-light; pickled to tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    # Plans are made without numpy and without blocks: what reads them has both.
    import numpy as np
    from numpy.typing import NDArray

    from connectors.source.link import BlockHeads


_MIN, _MAX = -(2**63), 2**63 - 1


class Interval(msgspec.Struct, frozen=True):
    """Whole numbers from `low` to `high`, both inclusive; empty if `low` is above `high`."""

    low: int = _MIN
    high: int = _MAX

    def __and__(self, other: Interval) -> Interval:
        """Return what both have."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def has(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which values lie inside."""
        return (values >= self.low) & (values <= self.high)

    @property
    def is_everything(self) -> bool:
        """True if it leaves nothing out."""
        return self.low == _MIN and self.high == _MAX

    @property
    def is_empty(self) -> bool:
        """True if it leaves everything out."""
        return self.low > self.high


class EntryBounds(msgspec.Struct, frozen=True):
    """Bounds of a query on entries.

    Attributes:
        ledger_id: Of their ledger.
        entry_id: Of them.
        revision: Of records; with rows=raw of each entry's first one.
        logged_ms: Logged time.
        leader_epoch: Of the leader that proposed them.

    """

    ledger_id: Interval = Interval()
    entry_id: Interval = Interval()
    revision: Interval = Interval()
    logged_ms: Interval = Interval()
    leader_epoch: Interval = Interval()

    @property
    def is_everything(self) -> bool:
        """True if nothing is left out."""
        return all(interval.is_everything for interval in self._all())

    @property
    def is_empty(self) -> bool:
        """True if everything is left out."""
        return any(interval.is_empty for interval in self._all())

    def _all(self) -> tuple[Interval, ...]:
        return (self.ledger_id, self.entry_id, self.revision, self.logged_ms, self.leader_epoch)

    def mask(self, entry_ids: NDArray[np.int64], heads: BlockHeads | None) -> NDArray[np.bool_]:
        """Return which entries of a block are asked for, by everything but the ledger.

        Of what an entry that cannot be read would say nothing is known: it is left out where that is asked for.

        """
        found = self.entry_id.has(entry_ids)
        if heads is None:
            return found
        asked: list[tuple[Interval, NDArray[Any]]] = [
            (self.revision, heads.first_revisions),
            (self.logged_ms, heads.logged_ms),
            (self.leader_epoch, heads.epochs),
        ]
        for interval, values in asked:
            if not interval.is_everything:
                found &= interval.has(values)
                found[list(heads.errors)] = False
        return found
