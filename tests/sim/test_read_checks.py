"""Reads without an entry while another leader takes over, played move by move.

Random trouble meets this rarely: an idle leader has to be asked between the first write of its successor and its own
next entry. Here the answers to one check are on their way while all of that happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.freshness import STALE
from rsm_spark.log.election import election_path
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.counter_map import command, unpack
from rsm_spark.testing.ledger_twin import TwinWriter
from tests.sim import read_plants as plants
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

_GET = Query(command("k"))
_SUCCESSOR = b"t" * 16


class _Mail:
    """Answers of bookies to fence checks, which can be kept on their way."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_held = False
        self.held: list[Callable[[], None]] = []
        tell = TwinWriter._tell

        def tell_later(writer: TwinWriter, future: asyncio.Future[bool], is_open: bool) -> None:
            if self.is_held:
                self.held.append(lambda: tell(writer, future, is_open))
            else:
                tell(writer, future, is_open)

        patch.setattr(TwinWriter, "_tell", tell_later)

    def release(self) -> None:
        self.is_held = False
        for arrive in self.held:
            arrive()


def candidates(world: LogWorld) -> list[str]:
    """Return the nodes of the election, `<incarnation>-<number>`, in the order in which they would lead."""
    return sorted(world.simulation.metadata.leader.names(election_path(LOG)), key=lambda name: name[-10:])


async def depose(world: LogWorld, old: Replica, *, is_unaware: bool = True) -> Replica:
    """Have another replica lead, and confirm an increment; the old leader does not know, unless somebody asks it."""
    node = f"{election_path(LOG)}/{candidates(world)[0]}"
    world.simulation.metadata.commit(world.simulation.metadata.leader.delete(node, -1))

    def successors() -> list[Replica]:
        return [one for one in world.cluster.replicas.values() if one is not old and one.role is ReplicaRole.LEADER]

    await world.until(lambda: bool(successors()))
    (new,) = successors()
    await new.submit([OpenSession(_SUCCESSOR)])
    (answer,) = await new.submit([Command(_SUCCESSOR, 1, 0, command("add", "k", 1))])
    assert (answer.status, unpack(answer.payload)) == (AnswerStatus.OK, 2)
    assert old.role is ReplicaRole.LEADER or not is_unaware, "it is to be asked while it believes in itself"
    return new


def _play(patch: pytest.MonkeyPatch, *, roll: bool = False) -> tuple[Answer, Answer, Answer]:
    """Return the old leader's answers: to a read from before the take-over, to one from after it, to a later one."""
    told: list[Answer] = []
    mail = _Mail(patch)

    async def scenario(world: LogWorld) -> None:
        old = world.leader
        await old.submit([_GET])
        if roll:
            await world.roll()
        await world.add(1 - unpack((await old.submit([_GET], freshness=STALE))[0].payload))
        (answer,) = await old.submit([_GET])
        assert unpack(answer.payload) == 1
        assert old.status().reads_by_check >= 1
        mail.is_held = True
        before = old.submit([_GET])
        await world.until(lambda: bool(mail.held) or before.done())  # Some plants ask nobody.
        await depose(world, old)
        after = old.submit([_GET])
        await asyncio.sleep(0.05)
        mail.release()
        told.extend([*await before, *await after, *await old.submit([_GET])])

    options: dict[str, Any] = {"idle_entry_s": 60.0, "give_up_s": 1e6, "explicit_lac_s": 1e6, "trim_s": 1e6}
    run(scenario, roll_records=30 if roll else 10_000_000, **options)
    before, after, later = told
    return before, after, later


def _is_stale(answer: Answer) -> bool:
    return answer.status is AnswerStatus.OK and unpack(answer.payload) < 2


@pytest.mark.parametrize("roll", [False, True])
def test_a_deposed_leader_answers_what_came_before_and_nothing_that_came_after(
    roll: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, later = _play(monkeypatch, roll=roll)
    assert (before.status, unpack(before.payload)) == (AnswerStatus.OK, 1)  # As it was when the read came.
    assert after.status is later.status is AnswerStatus.NOT_LEADER


@pytest.mark.parametrize("plant", [getattr(plants, name) for name in plants.__all__], ids=lambda plant: plant.__name__)
def test_a_planted_bug_answers_what_is_stale(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    _, after, later = _play(monkeypatch, roll=plant is plants.asks_about_a_former_ledger)
    assert _is_stale(after) or _is_stale(later)
