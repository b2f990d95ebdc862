"""One seed of the broker simulation: clients, workers and brokers in trouble, then calm, then judgement.

`python -m tests.sim.broker_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from broker.machine.statuses import TaskStatus
from rsm_spark.core.state import ReplicatedState
from rsm_spark.errors import RsmError
from rsm_spark.testing.ghosts import BrokenInvariantError
from tests.broker_sim.witness import fail
from tests.broker_sim.world import BrokerWorld
from tests.sim.outcome import SeedOutcome

__all__ = ["BOUND", "LOCKED", "Outcome", "run_seed"]

TROUBLE_MS = 25_000
CALM_MS_MAX = 120_000
_ENDED_MIN = 20
LOCKED: Mapping[str, Any] = MappingProxyType({"lift": 0.5, "tenant_bytes_max": 4_000})
"""Work of tenants that try to lift an operator's ban, and have a quota that they reach."""
BOUND: Mapping[str, Any] = MappingProxyType({"bound_workers": 0.8})
"""Work for workers most of which may run the tasks of some tenants alone."""
_AS_DRAWN: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Outcome(SeedOutcome):
    command: str = "tests.sim.broker_scenario"

    @property
    def is_worth_counting(self) -> bool:
        return self.counts["ended"] >= _ENDED_MIN and self.counts["faults"] >= 1


def run_seed(
    seed: int,
    trouble_ms: int = TROUBLE_MS,
    *,
    has_faults: bool = True,
    faults: Mapping[str, Any] = _AS_DRAWN,
    work: Mapping[str, Any] = _AS_DRAWN,
    network: Mapping[str, Any] = _AS_DRAWN,
    watch: Callable[[BrokerWorld], None] = lambda _world: None,
) -> Outcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_ms: How long anything fails.
        has_faults: Whether anything fails at all.
        faults: Attributes of `BrokerFaults` that are not as the seed draws them.
        work: Attributes of `Workload`, likewise.
        network: Attributes of `NetworkRates`, likewise.
        watch: Called with the world before it begins.

    """
    world = BrokerWorld(seed, faults if has_faults else None, work, network)
    outcome = Outcome(seed)
    watch(world)
    try:
        _run(world, trouble_ms)
    except (BrokenInvariantError, RsmError, AssertionError, KeyError, IndexError) as error:
        text = str(error) or repr(error)
        outcome.broken = text if isinstance(error, BrokenInvariantError) else f"no-crash: {_place(error)}{text}"
    outcome.story = list(world.story)
    outcome.signature = world.time.signature
    outcome.simulated_s = world.time.now_ms / 1000
    outcome.counts = world.witness.counts + world.auditor.counts + world.nemesis.counts + Counter(world.log.counts)
    outcome.counts["entries"] = len(world.log.entries)
    outcome.counts["promotions"] = world.witness.promotions
    return outcome


def _place(error: BaseException) -> str:
    """Return the innermost lines of an error that nobody planned."""
    trace, places = error.__traceback__, []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__} at {' > '.join(places[-5:])}: "


def _run(world: BrokerWorld, trouble_ms: int) -> None:
    world.begin()
    world.time.run(trouble_ms)
    world.calm()
    world.time.run(trouble_ms + CALM_MS_MAX, lambda: world.is_settled)
    _judge(world)


def _judge(world: BrokerWorld) -> None:
    """Judge what everything came to."""
    auditor, witness = world.auditor, world.witness
    if not world.is_settled:
        left = {
            one: (TaskStatus(auditor.tasks[one].status).name, auditor.tasks[one].worker_id)
            for one in auditor.unfinished[:5]
        }
        fail(
            "at-least-once",
            f"{CALM_MS_MAX / 1000:.0f} s of calm did not do: tasks {left} have not ended, clients that wait: "
            f"{[client.name for client in world.clients if not client.is_done]}, transactions open: "
            f"{list(auditor.transactions.values()).count(1)}",
        )
    machine = world.make_machine()
    state = ReplicatedState(machine, world.log.log_id)
    for entry in world.log.entries:
        state.apply_entry(entry)
    witness.on_state("a replay from the beginning", state)
    machine.validate()
    state.validate()
    for broker in world.brokers:
        broker.machine.validate()
    for sent in witness.sent.values():
        if sent.task_id and sent.task_id not in auditor.tasks and auditor.ids[sent.spec.payload] != sent.task_id:
            fail("nothing-lost", f"task {sent.task_id} is gone")


def _main(arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run_seed(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run_seed(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])
