"""The file store with contents in ledgers, in virtual time; bugs planted into it must be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.sim import file_plants as plants
from tests.sim.file_scenario import run_file_seed
from tests.sim.planted_bugs import find

_SEEDS = 6

HUNTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, int]] = {
    plants.deletes_a_ledger_that_a_snapshot_names: ("ledger-in-use", 0),
    plants.takes_the_ledger_of_a_writer_that_still_writes: ("open-writer", 0),
    plants.does_not_check_what_it_reads: ("right-bytes", 1),
    plants.loses_what_is_renamed_over_a_file: ("file-lost", 2),
    plants.never_gives_up_a_silent_upload: ("space-freed", 1),
    plants.shows_a_file_before_its_ledger_is_closed: ("whole-file", 0),
    plants.looks_once_for_ledgers_of_dead_servers: ("space-freed", 35),
    plants.never_looks_for_ledgers_of_dead_servers: ("space-freed", 21),
}
"""By which invariant, and which seed has found it before."""


def test_files_are_whole_and_where_they_belong_and_their_ledgers_go_in_time() -> None:
    counts: Counter[str] = Counter()
    for seed in range(_SEEDS):
        outcome = run_file_seed(seed)
        assert outcome.broken is None, outcome.report()
        counts += outcome.counts
    wanted = ("written", "renamed", "removed", "read", "named", "deleted ledgers", "tampered", "refused")
    assert all(counts[name] >= _SEEDS for name in wanted), counts


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", [pytest.param(plant, id=plant.__name__) for plant in HUNTS])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    name, known = HUNTS[plant]
    plant(monkeypatch)
    find(run_file_seed, 40, known=known, name=name)
