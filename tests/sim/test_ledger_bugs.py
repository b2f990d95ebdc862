"""Bugs planted into the real code: the simulation must find each within a recorded number of seeds.

A simulation that finds nothing proves nothing until it finds what is known to be there. What random trouble does not
meet in reasonable time is played move by move: `test_lost_fence` (BookKeeper's #2614), `test_bookie_races`
(safety.md 23) and `test_replaced_bookies` (BookKeeper's #4812).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ledger.testing import MetadataRates
from tests.sim import bookie_plants as bookie
from tests.sim import client_plants as client
from tests.sim.ledger_scenario import run_seed
from tests.sim.planted_bugs import find

Plant = Callable[[pytest.MonkeyPatch], None]


_LAGGING = MetadataRates(lag_rate=0.8)


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        budget: Seeds within which it must be found.
        faults: What of the trouble is not as drawn: what the bug needs to show.
        setup: The same of the cluster.
        is_slow: It takes too long for every run.
        known: The seed that has found it before.

    """

    budget: int
    faults: dict[str, Any] = {}
    setup: dict[str, Any] = {}
    is_slow: bool = False
    known: int = 0


HUNTS: dict[Plant, _Hunt] = {
    bookie.ack_before_sync: _Hunt(100, known=48),
    bookie.ignore_fences: _Hunt(40),
    bookie.keep_fences_in_memory: _Hunt(300, is_slow=True),
    bookie.go_on_after_a_failed_sync: _Hunt(60, {"sync_error_rate": 0.02}, known=5),
    bookie.trust_the_page_cache: _Hunt(40, known=4),
    bookie.check_no_sums: _Hunt(40, {"rot": 3.0}),
    bookie.deny_what_cannot_be_read: _Hunt(200, {"rot": 5.0, "read_error_rate": 0.02}, known=31),
    bookie.limit_limbo_to_known_ledgers: _Hunt(60, {"wipe": 1.0}, known=10),
    bookie.start_new_disks_without_limbo: _Hunt(60, {"wipe": 1.0}, known=15),
    bookie.take_any_size_of_journal: _Hunt(60, {"truncate": 5.0}, known=4),
    bookie.forget_which_files_there_were: _Hunt(60, {"delete": 5.0}, known=2),
    bookie.forget_what_cannot_be_read: _Hunt(1500, {"spoil": 8.0}, is_slow=True),
    bookie.believe_any_age: _Hunt(60, {"roll_back": 8.0}, known=3),
    bookie.believe_the_index: _Hunt(100, {"index": 5.0}, known=55),
    # A bookie that asks for new ledgers has seen each of them in the metadata: its list is never so old.
    bookie.collect_by_a_stale_list: _Hunt(
        100, {"metadata": _LAGGING}, {"collect_s": 0.7, "takes_any_ledger": True}, known=15
    ),
    bookie.check_the_fence_before_a_queue: _Hunt(100, known=8),
    client.ack_at_one: _Hunt(40, known=4),
    client.end_at_one_miss: _Hunt(600, is_slow=True),
    client.skip_write_back: _Hunt(150, known=46),
    client.close_over_anything: _Hunt(40, known=4),
    client.take_unknown_for_absent: _Hunt(600, known=8),
    client.take_silence_for_absent: _Hunt(60),
    client.expose_lac_while_recovering: _Hunt(300, known=81),
    client.confirm_what_is_pushed: _Hunt(60, known=2),
}


def _parameters() -> list[Any]:
    return [
        pytest.param(plant, id=plant.__name__, marks=[pytest.mark.slow] if hunt.is_slow else [])
        for plant, hunt in HUNTS.items()
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", _parameters())
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt = HUNTS[plant]
    plant(monkeypatch)
    find(lambda seed: run_seed(seed, faults=hunt.faults, setup=hunt.setup), hunt.budget, known=hunt.known)
