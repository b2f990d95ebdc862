"""Consumers that hold a log under faults: nothing that they have not read is trimmed, whoever leads.

Consumers register where the log begins, read on, go away and come back, several times a second, while ledgers roll and
are trimmed and replicas are killed, paused and cut off. Every version of the chain is compared with what they hold.
Bugs planted into the agreement between leader and consumers must be found.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from ledger.errors import LedgerError
from ledger.ports import MetadataStore
from rsm_spark.core import trimming
from rsm_spark.core.chain import decode_chain
from rsm_spark.core.trimming import ConsumerHold, TrimRules
from rsm_spark.log import trim_notice
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import ConsumerError, LogConsumers, TrimNotice, trimmed_revision
from rsm_spark.runtime import log_maintenance as upkeep
from rsm_spark.testing.cluster import LOG
from tests.sets import hunt_order
from tests.sim.replica_scenario import Outcome, Scenario, run_seed
from tests.sim.test_replica_trimming import _SETTINGS

_TROUBLE_S = 25.0
_SEEDS = 8
_CONSUMERS = 3
_READ_MAX = 20


class _Reader:
    """A consumer, and what it may count on."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.held: int | None = None  # The log is there behind this revision; None = it counts on nothing.
        self.registrations = 0
        self.advances = 0
        self._rng = rng
        self._name = name

    async def run(self, store: MetadataStore) -> None:
        while True:
            try:
                chain, _ = await ChainStore(store, LOG).read()
                consumers = LogConsumers(store, chain.log_id, wall_ms=lambda: 0)
                begin = trimmed_revision(chain)
                self.held = begin = await consumers.register(LOG, self._name, begin, what="a reader", holder="r")
                self.registrations += 1
                for _ in range(self._rng.choice((0, 0, 1, 3))):
                    await asyncio.sleep(self._rng.uniform(0.0, 0.3))
                    self.held = begin = begin + self._rng.randrange(_READ_MAX)
                    await consumers.advance(self._name, begin, holder="r")
                    self.advances += 1
                self.held = None
                await consumers.remove(self._name)
            except (LedgerError, ConsumerError):
                self.held = None  # What it asked for may have been done, or not.
            await asyncio.sleep(self._rng.uniform(0.0, 0.6))


def _run(seed: int, **settings: Any) -> Outcome:
    readers: list[_Reader] = []
    tasks: list[asyncio.Task[None]] = []

    def watch(scenario: Scenario) -> None:
        rng = scenario.simulation.random("consumers")
        readers.extend(_Reader(random.Random(rng.random()), f"reader-{one}") for one in range(_CONSUMERS))

        async def start() -> None:
            store = await scenario.simulation.metadata.connect(session_timeout_ms=4000)
            tasks.extend(asyncio.get_running_loop().create_task(reader.run(store)) for reader in readers)

        def judge(value: bytes, _version: int) -> None:
            gone = trimmed_revision(decode_chain(value, log_name=LOG))
            for number, reader in enumerate(readers):
                if reader.held is not None and gone > reader.held:
                    what = f"up to revision {gone} is trimmed, reader-{number} holds all behind {reader.held}"
                    scenario.cluster.ghosts.fail("held-is-kept", what)

        scenario.chain.listeners.append(judge)

        def begin() -> None:
            tasks.append(asyncio.get_running_loop().create_task(start()))

        scenario.simulation.after(0.1, begin)

    faults = {"lose_disk": 0.0, "rot_snapshot": 0.0}
    outcome = run_seed(seed, _TROUBLE_S, settings=_SETTINGS | settings, faults=faults, beats=False, watch=watch)
    outcome.counts["registrations"] = sum(reader.registrations for reader in readers)
    outcome.counts["advances"] = sum(reader.advances for reader in readers)
    return outcome


def test_what_consumers_hold_is_never_trimmed_and_the_rest_is() -> None:
    outcomes = [_run(seed) for seed in range(_SEEDS)]
    for outcome in outcomes:
        assert outcome.broken is None, outcome.report()
        assert outcome.counts["registrations"] > 20
    assert sum(outcome.counts["advances"] for outcome in outcomes) > 20
    assert sum(outcome.counts["trimmed"] > 0 for outcome in outcomes) >= _SEEDS // 4


def _asks_before_it_tells(patch: pytest.MonkeyPatch) -> None:
    async def agreed(consumers: LogConsumers, epoch: int, plan: trim_notice.Plan) -> tuple[Any, int]:
        holds = await trim_notice._holds(consumers)
        wanted = plan(holds)
        await trim_notice._told(consumers, TrimNotice(epoch, wanted))
        return holds, wanted

    patch.setattr(upkeep, "agreed_trim", agreed)


def _tells_nobody(patch: pytest.MonkeyPatch) -> None:
    async def tell(self: LogConsumers, notice: TrimNotice, version: int | None) -> None:
        return

    patch.setattr(LogConsumers, "tell", tell)


def _looks_before_it_registers(patch: pytest.MonkeyPatch) -> None:
    write, look = LogConsumers._write, LogConsumers._first_held
    seen: dict[str, int] = {}

    async def first(self: LogConsumers, path: str, name: str, note: Any) -> None:
        seen[name] = await look(self, LOG, name, note.revision)
        await write(self, path, name, note)

    async def known(_self: LogConsumers, _log: str, name: str, _revision: int) -> int:
        return seen[name]

    patch.setattr(LogConsumers, "_write", first)
    patch.setattr(LogConsumers, "_first_held", known)


def _holds_too_little(patch: pytest.MonkeyPatch) -> None:
    def is_held(end: Any, hold: ConsumerHold, _rules: TrimRules, _now_ms: int, _behind: int) -> bool:
        return bool(end.last_revision > hold.revision + 20)

    patch.setattr(trimming, "is_held", is_held)


def _misses_one(patch: pytest.MonkeyPatch) -> None:
    names = LogConsumers._names

    async def fewer(self: LogConsumers) -> list[str]:
        return (await names(self))[1:]

    patch.setattr(LogConsumers, "_names", fewer)


@pytest.mark.parametrize(("plant", "budget", "known"), [
    (_asks_before_it_tells, 120, 100),
    (_tells_nobody, 40, 4),
    (_looks_before_it_registers, 40, 10),
    (_holds_too_little, 40, 6),
    (_misses_one, 40, 11),
])  # fmt: skip
def test_planted_bugs_of_the_agreement_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], budget: int, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seeds = hunt_order(budget, known)
    # The budgets are of leaders that write entries for reads.
    found = (_run(seed, check_reads=False).broken or "" for seed in seeds)
    assert any("held-is-kept" in broken for broken in found), f"not found in {budget} seeds"
