"""Linearizable reads on replicas that do not lead: three dangers played move by move, then random trouble.

The follower that is asked cannot reach the bookies in each of them, so that it has what was confirmed before, and no
more: whatever answers it gives too early is stale.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.freshness import INDEXED, ReadKind
from rsm_spark.runtime.peers import LogIndex
from rsm_spark.runtime.replica import Replica
from rsm_spark.testing.cluster import UnreachableError
from rsm_spark.testing.counter_map import command, unpack
from rsm_spark.testing.history import CallerCall, CallerReply, Kind
from rsm_spark.testing.peers import SimPeers
from rsm_spark.testing.sessions import SessionClient
from tests.sim import index_plants as plants
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import Outcome, Scenario, run_scenario
from tests.sim.test_read_checks import candidates, depose
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

_GET = Query(command("k"))
_QUIET: dict[str, Any] = {"told_entries": False, "idle_entry_s": 60.0, "give_up_s": 1e6, "trim_s": 1e6}
_SEEDS_AT_EFFORT_1 = 6
_TROUBLE_S = 25.0


Danger = Callable[[LogWorld, Replica], Coroutine[Any, Any, Answer]]


def _play(scenario: Danger) -> Answer:
    """Return what a follower answers that has seen "k" = 1 and is cut off from the bookies."""
    told: list[Answer] = []

    async def play(world: LogWorld) -> None:
        await world.add()
        last = candidates(world)[-1][:-11]  # So that it does not lead when another one has to.
        name, follower = next(one for one in world.cluster.replicas.items() if one[1].incarnation == last)
        await world.until(lambda: follower.revision == world.leader.revision and bool(follower.leader_address))
        world.cluster.clients[name].is_cut_off = True
        told.append(await scenario(world, follower))

    run(play, **_QUIET)
    return told[0]


async def _read(follower: Replica) -> Answer:
    (answer,) = await follower.submit([_GET], freshness=INDEXED)
    return answer


async def _behind(world: LogWorld, follower: Replica) -> Answer:
    """Ask a follower that lacks what the leader has acknowledged."""
    await world.add()
    return await _read(follower)


async def _of_a_deposed_leader(world: LogWorld, follower: Replica) -> Answer:
    """Ask a follower that still takes the former leader for the leader; so does that one."""
    old, address = world.leader, follower.leader_address
    await depose(world, old)
    follower._context.leader_address = address
    return await _read(follower)


async def _while_an_answer_is_on_its_way(world: LogWorld, follower: Replica) -> Answer:
    """Ask while the leader's answer to an earlier question is under way, which knows less."""
    ask, told, arrives = SimPeers.read_index, asyncio.Event(), asyncio.Event()

    async def ask_slowly(peers: SimPeers, address: str) -> LogIndex:
        index = await ask(peers, address)
        told.set()
        await arrives.wait()
        return index

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimPeers, "read_index", ask_slowly)
        before = asyncio.get_running_loop().create_task(_read(follower))
        await told.wait()
        await world.add()
        after = asyncio.get_running_loop().create_task(_read(follower))
        await asyncio.sleep(0.05)
        arrives.set()
        earlier = await before
        assert (earlier.status, unpack(earlier.payload)) == (AnswerStatus.OK, 1)  # As it was when that read came.
        return await after


_DANGERS: dict[Danger, Callable[[pytest.MonkeyPatch], None]] = {
    _behind: plants.answers_without_waiting,
    _of_a_deposed_leader: plants.leader_tells_without_proof,
    _while_an_answer_is_on_its_way: plants.question_covers_reads_that_came_later,
}


@pytest.mark.parametrize("scenario", _DANGERS, ids=lambda scenario: scenario.__name__)
def test_a_follower_answers_nothing_that_is_stale(scenario: Danger) -> None:
    answer = _play(scenario)
    expected = AnswerStatus.NOT_LEADER if scenario is _of_a_deposed_leader else AnswerStatus.TOO_STALE
    assert answer.status is expected


@pytest.mark.parametrize("scenario", _DANGERS, ids=lambda scenario: scenario.__name__)
def test_a_planted_bug_answers_what_is_stale(scenario: Danger, monkeypatch: pytest.MonkeyPatch) -> None:
    _DANGERS[scenario](monkeypatch)
    answer = _play(scenario)
    assert (answer.status, unpack(answer.payload)) == (AnswerStatus.OK, 1)


def test_a_follower_that_comes_after_answers_as_the_leader_would() -> None:
    async def scenario(world: LogWorld) -> None:
        followers = [one for one in world.cluster.replicas.values() if one is not world.leader]
        await world.until(lambda: all(one.leader_address for one in followers))
        for value in range(1, 6):
            revision = await world.add()
            for follower in followers:
                answers = await follower.submit([_GET, _GET], freshness=INDEXED)
                while answers[0].status is not AnswerStatus.OK:  # A message was lost, or the entry is late.
                    answers = await follower.submit([_GET, _GET], freshness=INDEXED)
                assert [(answer.status, unpack(answer.payload)) for answer in answers] == [(AnswerStatus.OK, value)] * 2
                assert all(answer.revision >= revision for answer in answers)
        assert [one.status().reads_by_index for one in followers] == [10, 10]

    run(scenario)


def test_commands_and_reads_without_a_leader_are_for_somebody_else() -> None:
    async def scenario(world: LogWorld) -> None:
        follower = next(one for one in world.cluster.replicas.values() if one is not world.leader)
        await world.until(lambda: bool(follower.leader_address))
        mixed: list[Request] = [Command(b"s" * 16, 1, 0, command("add", "k", 1)), _GET]
        answers = await follower.submit(mixed, freshness=INDEXED)
        assert {answer.status for answer in answers} == {AnswerStatus.NOT_LEADER}
        follower._context.leader_address = None
        assert (await _read(follower)).status is AnswerStatus.NOT_LEADER
        (opened,) = await world.leader.submit([OpenSession(b"t" * 16)], freshness=INDEXED)
        assert opened.status is AnswerStatus.OK, "to a leader it is a read as any other"

    run(scenario)


def test_one_caller_has_half_of_what_may_wait_at_most() -> None:
    async def scenario(world: LogWorld) -> None:
        follower = next(one for one in world.cluster.replicas.values() if one is not world.leader)
        await world.until(lambda: bool(follower.leader_address))
        flood = [follower.submit([_GET] * 10, freshness=INDEXED, owner="attacker") for _ in range(12)]
        victim = follower.submit([_GET] * 10, freshness=INDEXED, owner="victim")
        statuses = [(await one)[0].status for one in flood]
        assert statuses == [AnswerStatus.OK] * 5 + [AnswerStatus.OVERLOADED] * 7
        assert {answer.status for answer in await victim} == {AnswerStatus.OK}

    run(scenario, queue_requests_max=100)


# ---- random trouble


class _IndexedClient(SessionClient):
    """A client that asks any replica for what the leader would answer."""

    async def _read(self, key: str) -> None:
        if self._rng.random() < 0.3:
            await super()._read(key)
            return
        began_s, floor = self._now(), self._ghosts.floor(key)
        target = self._rng.choice(self._cluster.hosts).name
        try:
            (answer,) = await self._cluster.call(target, [Query(command(key))], 1.0, INDEXED)
        except UnreachableError:
            return
        if answer.status is AnswerStatus.OK:
            value = self._take_read(key, answer, ReadKind.INDEXED)
            self._ghosts.shown(key, value, floor, is_added=False)
            reply = CallerReply(value=value or None)
            self.history.append(CallerCall(self._name, key, Kind.GET, began_s, self._now(), reply=reply))


class _IndexedScenario(Scenario):
    """One seed's world, with such clients."""

    def make_client(self, rng: random.Random, name: str) -> SessionClient:
        """Return a client."""
        return _IndexedClient(self.cluster, rng, name)


def run_indexed_seed(seed: int) -> Outcome:
    """Run one seed."""
    scenario = _IndexedScenario(seed, on_bookies=False, trouble_s=_TROUBLE_S, faults={}, settings={})
    return run_scenario(scenario, limit_s=_TROUBLE_S + 6 * CALM_S_MAX)


@pytest.mark.timeout(24 * 3600)
def test_reads_on_followers_are_linearizable_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    found = hunt(first_seed(), wanted_seeds(_SEEDS_AT_EFFORT_1), what="indexed reads", run=run_indexed_seed)
    assert_kept(found, capsys)
    counts: Counter[str] = found.counts
    assert counts["reads indexed"] > 2 * _SEEDS_AT_EFFORT_1, "seeds differ much: 1 to 45 each"


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_reads_on_followers_are_linearizable_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="indexed reads", run=run_indexed_seed), capsys)
