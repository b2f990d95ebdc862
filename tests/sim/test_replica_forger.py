"""A forger and a foreign fencer among those who reach the ledger: with a key nothing of theirs is ever applied.

Planted bugs, each to be found within a recorded number of seeds: an entry without a seal is taken in a log with a key;
a seal is not looked at; an entry that is set aside is applied all the same; each leader tells again who did that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rsm_spark.core.chain import LogChain
from rsm_spark.core.commands import Audited
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState
from rsm_spark.log import commit_log
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.log.quarantine import told_by_next_leader
from rsm_spark.runtime import leader_notes
from tests.sim.ledger_seeds import first_seed
from tests.sim.replica_forger import run_forged_seed

_SEEDS = 12
_ON_BUDGET = 25


def _run(count: int, first: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = run_forged_seed(seed)
        assert outcome.broken is None, outcome.report()
        total += outcome.counts
    return total


@pytest.mark.parametrize("count", [_SEEDS, pytest.param(1_000, marks=pytest.mark.slow)])
def test_nothing_that_is_forged_is_ever_applied_and_the_log_goes_on(count: int) -> None:
    total = _run(count, first_seed())
    assert total["forged"] >= count // 2
    assert total["set aside"] >= count // 4
    assert total["fences refused"] >= count


def _takes_what_has_no_seal(patch: pytest.MonkeyPatch) -> None:
    original = LogReader._judge

    def judge(self: LogReader, place: LogPosition, payload: bytes) -> LogEntry:
        envelope = decode_envelope(payload)
        return LogEntry(place, payload, envelope) if not envelope.key_id else original(self, place, payload)

    def check(self: ReplicatedState, envelope: Envelope) -> None:
        self.is_sealed = False
        checked(self, envelope)

    checked = ReplicatedState._check
    patch.setattr(LogReader, "_judge", judge)
    patch.setattr(ReplicatedState, "_check", check)


def _does_not_look_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_log, "check_seal", lambda *_: None)


def _applies_what_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    def take(self: LogReader, place: LogPosition, payload: bytes, *, is_final: bool) -> bool:
        if place in self._aside:
            self._unexposed.append(LogEntry(place, payload, decode_envelope(payload)))
            return True
        return original(self, place, payload, is_final=is_final)

    original = LogReader._take
    patch.setattr(LogReader, "_take", take)


def _tells_again(patch: pytest.MonkeyPatch) -> None:
    def told(chain: LogChain, _last_epoch: int, log_name: str) -> list[Audited]:
        return told_by_next_leader(chain, -1, log_name)

    patch.setattr(leader_notes, "told_by_next_leader", told)


@pytest.mark.parametrize(
    "plant",
    [_takes_what_has_no_seal, _does_not_look_at_the_seal, _applies_what_is_set_aside, _tells_again],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(_ON_BUDGET):
        broken = run_forged_seed(seed).broken
        if broken is not None:
            # Taken, or refused by replicas that then cannot go on: whichever comes first.
            assert broken.startswith(("foreign-entry", "no-crash", "convergence", "audited-once")), broken
            return
    pytest.fail(f"{plant.__name__} was not found in {_ON_BUDGET} seeds")
