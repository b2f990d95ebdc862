"""One seed of watches that ask for old values: of a map that remembers little, from snapshots and the log.

* `old-value`   a change says what its key held right before it, and which revision had written that; a watcher is sent
                on only where records were trimmed

`python -m tests.sim.old_values SEED` replays one seed.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rsm_spark.map.machine import MapMachine
from rsm_spark.map.row_ring import RowRing
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.runtime.past_rows import PastRows
from tests.sim.map_clients import Watcher
from tests.sim.map_scenario import MapScenario
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import TROUBLE_S, Outcome, run_scenario

_Old = tuple[bytes | None, int]
_AS_DRAWN: Mapping[str, Any] = {}


class ForgetfulMap(MapMachine):
    """Remembers the last few changes."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced = RowRing(300)


class OldValueWatcher(Watcher):
    """Watches as `Watcher`, and compares what it is told of what was before."""

    wants_old = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._told: list[tuple[int, _Old]] = []
        self._true: dict[int, _Old] = {}
        self._newest: dict[bytes, _Old] = {}
        self._known = 0  # Changes of the truth that are in these.
        self.old_count = 0

    def note(self, change: TableChange) -> None:
        self._told.append((change.revision, (change.old_row, change.old_revision)))

    def _compare(self) -> None:
        super()._compare()
        changes = self._truth.changes
        for change in changes[self._known :]:
            self._true[change.revision] = self._newest.get(change.key, (None, 0))
            self._newest[change.key] = (None, 0) if change.row is None else (change.row, change.revision)
        self._known = len(changes)
        last = changes[-1].revision if changes else 0
        ahead: list[tuple[int, _Old]] = []
        for revision, old in self._told:
            if revision > last:
                ahead.append((revision, old))
            elif self._true.get(revision) != old:
                self.cluster.ghosts.fail(
                    "old-value", f"{self._name} is told that {old} was before {revision}, it was {self._true[revision]}"
                )
            else:
                self.old_count += old[0] is not None
        self._told = ahead

    def skip(self, first: int) -> None:
        """Go on at the first change whose old value can be told, of a log that was trimmed."""
        if self._first_retained() <= 1:
            self.cluster.ghosts.fail("old-value", f"{self._name} is sent on to {first}, and nothing was trimmed")
        wanted = self._place.next_revision
        if first <= wanted:
            self.fail(f"at {wanted} is sent back to {first}")
        self._compare()
        self.skipped_count += 1
        self._place.begin_behind(first - 1)
        while self._at < len(self._truth.changes) and self._truth.changes[self._at].mod_revision < first:
            self._at += 1


class OldValueScenario(MapScenario):
    """One seed's world."""

    watcher_class = OldValueWatcher

    def __init__(self, seed: int, **drawn: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rsm-old-values-"))
        self.pasts: list[PastRows] = []
        super().__init__(seed, machine=ForgetfulMap, on_bookies=False, **drawn)

    def olds_of(self, feed: ChangeFeed, who: str) -> dict[str, Any]:
        machine = feed.context.machine
        assert isinstance(machine, MapMachine)
        past = PastRows(feed.context, self.folder / who)
        self.pasts.append(past)
        return {"row_before": machine.row_before, "past": past}

    def count(self) -> Counter[str]:
        olds = sum(one.old_count for one in self.watchers if isinstance(one, OldValueWatcher))
        return super().count() + Counter(olds=olds, opened=sum(past.opened_count for past in self.pasts))


def run_old_values(
    seed: int,
    trouble_s: float = TROUBLE_S / 2,
    *,
    faults: Mapping[str, Any] | None = _AS_DRAWN,
    settings: Mapping[str, Any] = _AS_DRAWN,
) -> Outcome:
    """Run one seed; see `tests.sim.map_scenario.run_map_seed`."""
    scenario = OldValueScenario(seed, trouble_s=trouble_s, faults=faults, settings=settings)
    try:
        return run_scenario(scenario, limit_s=trouble_s + 9 * CALM_S_MAX, command="tests.sim.old_values")
    finally:
        shutil.rmtree(scenario.folder, ignore_errors=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for number in map(int, sys.argv[1:]):
        outcome = run_old_values(number)
        print(outcome.report() if outcome.broken else f"seed {number} holds: {dict(outcome.counts)}")
