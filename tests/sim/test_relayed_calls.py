"""Clients that do not reach each replica: a follower passes on what is for the leader, in random trouble."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Request
from rsm_spark.testing.cluster import UnreachableError
from rsm_spark.testing.relays import call_by
from rsm_spark.testing.sessions import SessionClient
from tests.sim import relay_plants as plants
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import Outcome, Scenario, run_scenario

_SEEDS_AT_EFFORT_1 = 4
_SEEDS_FOR_A_BUG = 12
_TROUBLE_S = 25.0
_CUT_S = 6.0


class _CutClient(SessionClient):
    """A client that reaches one replica only for some seconds, then another one, or all."""

    relayed = 0
    """Messages that were answered by way of a replica that was asked alone."""
    _reached: str | None = None
    _until_s = 0.0

    async def _ask(self, requests: list[Request]) -> Sequence[Answer] | None:
        now_s, rng, cluster = self._now(), self._rng, self._cluster
        if now_s >= self._until_s:
            self._until_s = now_s + rng.uniform(0.5, 1.0) * _CUT_S
            self._reached = None if self.is_calm or rng.random() < 0.2 else rng.choice(cluster.hosts).name
        if self._reached is None:
            return await super()._ask(requests)
        try:
            answers = await call_by(cluster, self._reached, requests, rng.choice((0.3, 1.0, 5.0)), rng)
        except UnreachableError:
            answers = None
        if answers is None or any(answer.status is AnswerStatus.NOT_LEADER for answer in answers):
            await asyncio.sleep(rng.uniform(0.01, 0.3))
        else:
            self.relayed += 1
        return answers


class _RelayedScenario(Scenario):
    """One seed's world, with such clients."""

    def make_client(self, rng: random.Random, name: str) -> SessionClient:
        """Return a client."""
        return _CutClient(self.cluster, rng, name)


def run_relayed_seed(seed: int) -> Outcome:
    """Run one seed."""
    scenario = _RelayedScenario(seed, on_bookies=False, trouble_s=_TROUBLE_S, faults={}, settings={})
    outcome = run_scenario(scenario, limit_s=_TROUBLE_S + 6 * CALM_S_MAX)
    outcome.counts["relayed"] = sum(client.relayed for client in scenario.clients if isinstance(client, _CutClient))
    return outcome


@pytest.mark.timeout(24 * 3600)
def test_each_command_is_applied_once_and_reads_are_fresh_whichever_way_they_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = hunt(first_seed(), wanted_seeds(_SEEDS_AT_EFFORT_1), what="relayed calls", run=run_relayed_seed)
    assert_kept(found, capsys)
    counts: Counter[str] = found.counts
    assert counts["relayed"] > 10 * _SEEDS_AT_EFFORT_1


@pytest.mark.timeout(24 * 3600)
def test_what_is_passed_on_twice_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.passes_on_twice(monkeypatch)
    outcome = run_relayed_seed(3)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["relayed"] > 10


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize(
    "plant", [plants.answers_whoever_leads, plants.forgets_what_was_applied], ids=lambda plant: plant.__name__
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(_SEEDS_FOR_A_BUG):
        if run_relayed_seed(seed).broken is not None:
            return
    pytest.fail(f"not found in {_SEEDS_FOR_A_BUG} seeds")


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_what_is_passed_on_is_applied_once_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="relayed calls", run=run_relayed_seed), capsys)
