"""Watches that ask for old values, of a map that remembers little: each is what the key held right before.

Snapshots that rot and are taken anew, a log that is trimmed, replicas that are killed, cut off and built anew. Planted
bugs must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from rsm_spark.core.chain import LogChain
from rsm_spark.errors import MissingLogError
from rsm_spark.map.row_ring import RowRing
from rsm_spark.runtime import past_rows
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.range_rows import OldRow, RangeRows
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore
from tests.sim.ledger_seeds import first_seed
from tests.sim.old_values import run_old_values
from tests.sim.planted_bugs import find

_SEEDS = 10


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_old_values_are_what_was_there_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_old_values(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    assert counts["olds"] > 20 * seed_count, "too few for this to mean anything"
    assert counts["opened"] > seed_count, "too little comes from snapshots and the log"


def _believes_its_memory(patch: pytest.MonkeyPatch) -> None:
    """What the machine has forgotten counts as not there."""
    before = RowRing.before

    def before_or_none(self: RowRing, revision: int) -> Any:
        try:
            return before(self, revision)
        except MissingLogError:
            return None

    patch.setattr(RowRing, "before", before_or_none)


def _begins_with_any_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The newest snapshot is taken, whether the watch begins behind it or not."""
    reachable = past_rows.reachable_snapshots

    def newest(
        known: Iterable[tuple[SnapshotStore, SnapshotManifest]], chain: LogChain, revision: int
    ) -> list[tuple[SnapshotStore, SnapshotManifest]]:
        found = list(known)
        latest = max((one.revision for _, one in found), default=revision)
        return reachable(found, chain, max(latest, revision))

    patch.setattr(past_rows, "reachable_snapshots", newest)


def _keeps_what_was_removed(patch: pytest.MonkeyPatch) -> None:
    """A key that is removed stays among the rows of the past."""
    replace = RangeRows._replace

    def put_only(self: RangeRows, table: int, change: TableChange) -> OldRow | None:
        if change.row is None:
            return self._find(bytes((table,)) + change.key)
        return replace(self, table, change)

    patch.setattr(RangeRows, "_replace", put_only)


def _opens_where_the_replica_is(patch: pytest.MonkeyPatch) -> None:
    """The past is opened at the end of the log, not before the first change that is told."""
    opened = PastRows.open

    async def open_late(self: PastRows, *chosen: ChangeFilter, revision: int, **more: Any) -> RangeRows:
        return await opened(self, *chosen, revision=max(revision, self._context.tip.revision), **more)

    patch.setattr(PastRows, "open", open_late)


class _Hunt(NamedTuple):
    """How a bug is looked for: seeds, and who found it before."""

    budget: int
    known: int = 0


@pytest.mark.parametrize(("plant", "hunt"), [
    (_believes_its_memory, _Hunt(20)),
    (_begins_with_any_snapshot, _Hunt(60)),
    (_keeps_what_was_removed, _Hunt(20)),
    (_opens_where_the_replica_is, _Hunt(20)),
])  # fmt: skip
def test_planted_bugs_of_old_values_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], hunt: _Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find(run_old_values, hunt.budget, known=hunt.known, name="old-value")
