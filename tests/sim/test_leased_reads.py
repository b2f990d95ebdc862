"""Reads by a lease while another leader takes over, played move by move: it takes over when the lease is over.

The old leader is asked again when its successor has confirmed a write, and in some plays all the time before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.freshness import STALE
from rsm_spark.runtime import settings
from rsm_spark.runtime.replica import Replica
from rsm_spark.testing.counter_map import command, unpack
from tests.sim import lease_plants as plants
from tests.sim.replica_scenario import run_seed
from tests.sim.test_read_checks import _Mail, depose
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

_GET = Query(command("k"))
_LEASE_MS = 1_000
"""Far longer than a take-over: one that does not wait for it comes to its end within a lease."""


async def _keep_asking(replica: Replica) -> None:
    while True:
        await replica.submit([_GET])
        await asyncio.sleep(0.002)


def _play(
    patch: pytest.MonkeyPatch, *, roll: bool = False, late: bool = False, asked: bool = False, lease_ms: int = _LEASE_MS
) -> Answer:
    """Return what the old leader answers to a read that comes after its successor's write.

    Args:
        patch: Of the test.
        roll: The leader has gone on in another ledger while its lease of the former one holds.
        late: What bookies promised last is on its way while all of it happens.
        asked: The old leader is asked all the time.
        lease_ms: Of each lease.

    """
    told: list[Answer] = []
    patch.setattr(settings, "LEASE_MS_MAX", _LEASE_MS)
    mail = _Mail(patch)

    async def scenario(world: LogWorld) -> None:
        old = world.leader
        await world.add(1 - unpack((await old.submit([_GET], freshness=STALE))[0].payload))
        await old.submit([_GET])
        before = old.status().reads_by_lease
        (answer,) = await old.submit([_GET])
        assert unpack(answer.payload) == 1
        assert old.status().reads_by_lease > before or late
        if roll:
            await world.roll()
            await world.add(1 - unpack((await old.submit([_GET], freshness=STALE))[0].payload))
        if late:
            await asyncio.sleep(lease_ms / 1000)  # No lease holds.
            mail.is_held = True
            waiting = old.submit([_GET])
            await world.until(lambda: bool(mail.held))
        asking = asyncio.get_running_loop().create_task(_keep_asking(old)) if asked else None
        await depose(world, old, is_unaware=False)
        if asking is not None:
            asking.cancel()
        if late:
            mail.release()
            await waiting
        told.extend(await old.submit([_GET]))

    options: dict[str, Any] = {"idle_entry_s": 60.0, "give_up_s": 1e6, "explicit_lac_s": 1e6, "trim_s": 1e6}
    run(scenario, roll_records=30 if roll else 10_000_000, read_leases_ms=lease_ms, **options)
    (after,) = told
    return after


def _is_stale(answer: Answer) -> bool:
    return answer.status is AnswerStatus.OK and unpack(answer.payload) < 2


@pytest.mark.parametrize("play", [{}, {"asked": True}, {"roll": True}, {"late": True}], ids=str)
def test_a_deposed_leader_has_no_lease_any_more(play: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _play(monkeypatch, **play).status is AnswerStatus.NOT_LEADER


@pytest.mark.parametrize("plant", [getattr(plants, name) for name in plants.__all__], ids=lambda plant: plant.__name__)
def test_a_planted_bug_answers_what_is_stale(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    play: dict[str, Any] = {"roll": plant is plants.looks_at_a_former_ledger}
    play["late"] = plant is plants.counts_from_the_answer
    if plant is plants.looks_before_a_pause:
        play["lease_ms"] = 250  # The old leader hears of its successor a second later.
    assert _is_stale(_play(monkeypatch, **play))


@pytest.mark.parametrize("seed", range(3))
def test_every_promise_is_kept_with_leases_whatever_fails(seed: int) -> None:
    outcome = run_seed(seed, 20.0, leases=True)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["leased"]
