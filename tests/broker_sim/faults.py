"""Trouble: how often what goes wrong, drawn for each seed, and who does it."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.broker_sim.world import BrokerWorld

__all__ = ["BrokerFaults", "BrokerNemesis"]

_STEP_MS = 100
_PER_MINUTE = (0.0, 0.0, 2.0, 6.0, 15.0)


class BrokerFaults(msgspec.Struct, kw_only=True):
    """Rates of faults, each per minute unless it says otherwise.

    Attributes:
        kill_leader: The leader is killed, and starts again later.
        kill_broker: Any broker is.
        pause_leader: The leader is stopped for a while; another one is elected meanwhile if it takes long.
        pause_broker: Any broker is.
        elect_wrongly: Another broker claims the log though the leader is well.
        kill_worker: A worker is killed; another incarnation comes later.
        pause_worker: A worker is stopped for a while.
        drain_worker: A worker is asked to leave, and comes back later.
        break_stream: The stream of a worker breaks.
        jump_clock: The wall clock of a broker jumps.
        lose_disk: A broker loses its snapshot.
        change_offer: A worker offers something else.
        pause_ms: Longest pause.
        refuse_rate: Share of connections that are refused.
        overload_rate: Share of what a broker commands of its workers that is not taken, or whose answer is not heard.

    """

    kill_leader: float = 0.0
    kill_broker: float = 0.0
    pause_leader: float = 0.0
    pause_broker: float = 0.0
    elect_wrongly: float = 0.0
    kill_worker: float = 0.0
    pause_worker: float = 0.0
    drain_worker: float = 0.0
    break_stream: float = 0.0
    jump_clock: float = 0.0
    lose_disk: float = 0.0
    change_offer: float = 0.0
    pause_ms: float = 3_000.0
    refuse_rate: float = 0.0
    overload_rate: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> BrokerFaults:
        """Draw them: many are 0."""
        names = [name for name in cls.__struct_fields__ if name[-5:] != "_rate" and name != "pause_ms"]
        rates = {name: rng.choice(_PER_MINUTE) for name in names}
        return cls(
            **rates,
            pause_ms=rng.choice((1_500.0, 5_000.0, 20_000.0)),
            refuse_rate=rng.choice((0.0, 0.2)),
            overload_rate=rng.choice((0.0, 0.0, 0.02, 0.2)),
        )


class BrokerNemesis:
    """Does harm to a world while it may.

    Attributes:
        counts: Of what was done, by name.

    """

    def __init__(self, world: BrokerWorld, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._rng = rng
        self._is_over = False

    def begin(self) -> None:
        """Begin."""
        self._world.time.after(_STEP_MS, self._step)

    def end(self) -> None:
        """Do nothing any more; whoever is paused goes on, whoever is down starts."""
        self._is_over = True
        world = self._world
        for process in (*world.brokers, *world.workers):
            process.go_on()
            if not process.is_up:
                process.start()

    def _step(self) -> None:
        if self._is_over:
            return
        faults = self._world.faults
        for name in faults.__struct_fields__:
            act = getattr(self, f"_{name}", None)
            if act is not None and self._rng.random() < getattr(faults, name) * _STEP_MS / 60_000 and act():
                self.counts[name] += 1
                self.counts["faults"] += 1
                self._world.tell(f"FAULT {name}")
        self._world.time.after(_STEP_MS, self._step)

    # ---- brokers

    def _kill_leader(self) -> bool:
        return self._kill_one(self._world.leader)

    def _kill_broker(self) -> bool:
        return self._kill_one(self._rng.choice(self._world.brokers))

    def _kill_one(self, broker: object) -> bool:
        world = self._world
        for one in world.brokers:
            if one is broker and one.is_up:
                one.kill()
                world.start_again(one)
                return True
        return False

    def _pause_leader(self) -> bool:
        leader = self._world.leader
        return leader is not None and self._pause(leader)

    def _pause_broker(self) -> bool:
        return self._pause(self._rng.choice(self._world.brokers))

    def _pause(self, process: object) -> bool:
        world = self._world
        for one in (*world.brokers, *world.workers):
            if one is process and one.is_up and not one.is_paused:
                one.pause()
                life = one.life
                length_ms = self._rng.uniform(200, world.faults.pause_ms)
                world.time.after(length_ms, lambda one=one, life=life: one.life == life and one.go_on())  # type: ignore[misc]
                return True
        return False

    def _elect_wrongly(self) -> bool:
        world = self._world
        others = [one for one in world.brokers if one is not world.leader and one.is_up and not one.is_paused]
        if not others:
            return False
        self._rng.choice(others).lead()
        return True

    def _jump_clock(self) -> bool:
        self._rng.choice(self._world.brokers).skew_ms = int(self._rng.uniform(-30_000, 30_000))
        return True

    def _lose_disk(self) -> bool:
        self._rng.choice(self._world.brokers).lose_disk()
        return True

    # ---- workers

    def _kill_worker(self) -> bool:
        worker = self._rng.choice(self._world.workers)
        if not worker.is_up:
            return False
        worker.kill()
        self._world.start_again(worker)
        return True

    def _pause_worker(self) -> bool:
        return self._pause(self._rng.choice(self._world.workers))

    def _drain_worker(self) -> bool:
        worker = self._rng.choice(self._world.workers)
        if not worker.is_up or worker.is_paused:
            return False
        worker.drain()
        return True

    def _break_stream(self) -> bool:
        worker = self._rng.choice(self._world.workers)
        if worker.stream is None:
            return False
        worker.stream.break_off()
        return True

    def _change_offer(self) -> bool:
        worker = self._rng.choice(self._world.workers)
        if not worker.is_up or worker.is_paused:
            return False
        worker.change_offer(self._world.draw_offer())
        return True
