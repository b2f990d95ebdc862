"""What goes wrong, and how often: drawn per seed, carried out while the work runs, ended for the calm after it.

Swarm testing: each rate is zero in many seeds. A defect that needs ten quiet seconds between two crashes is never
found where everything fails all the time, and one that needs two faults at once is never found where each is rare.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Self

import msgspec

from ledger.testing.hosts import SimHost
from ledger.testing.metadata import METADATA_HOST, MetadataRates, SimMetadata
from ledger.testing.network import NetworkRates
from ledger.testing.simulation import Simulation

__all__ = ["Faults", "Nemesis"]

_ZERO = 0.0
_ROTTING = (".j", ".seg")
"""Files whose damage a server must live with; a damaged identity is for its operator."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often what goes wrong in one seed.

    Attributes:
        interval_s: Mean time between two events.
        heal_s: Mean time until a cut path or a pause ends.
        restart_s: Longest time that a host stays down.
        kill: Weight of kill -9 of a server among the events.
        power: Weight of a power loss of a server.
        power_all: Weight of a power loss of all servers at once.
        cut: Weight of a cut path, one way or both, between two hosts or around one.
        pause: Weight of a stopped process.
        slow_disk: Weight of a disk that becomes slow, or fast again.
        reset: Weight of the reset of the connections between two hosts.
        expire: Weight of an expired metadata session.
        metadata_down: Weight of an outage of the whole metadata store.
        kill_other: Weight of kill -9 of a host that is no server.
        rot: Weight of a flipped bit in a file of the first server, the only one whose disk
            rots; never in the last batch before a crash, which nobody can tell from a torn tail.
        sync_error_rate: Share of disk syncs that fail.
        write_error_rate: Share of disk writes that find no space.
        metadata: Rates of the metadata store.
        network: Rates of the network.

    """

    interval_s: float = 1.0
    heal_s: float = 2.0
    restart_s: float = 3.0
    kill: float = _ZERO
    power: float = _ZERO
    power_all: float = _ZERO
    cut: float = _ZERO
    pause: float = _ZERO
    slow_disk: float = _ZERO
    reset: float = _ZERO
    expire: float = _ZERO
    metadata_down: float = _ZERO
    kill_other: float = _ZERO
    rot: float = _ZERO
    sync_error_rate: float = _ZERO
    write_error_rate: float = _ZERO
    metadata: MetadataRates = MetadataRates(lag_rate=_ZERO)
    network: NetworkRates = NetworkRates()

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Draw the rates of one seed."""
        weight = (_ZERO, _ZERO, 1.0, 3.0)
        slow = rng.choice((0.002, 0.002, 0.05))
        return cls(
            interval_s=rng.choice((0.25, 0.8, 2.5)),
            heal_s=rng.choice((0.5, 2.0, 8.0)),
            restart_s=rng.choice((0.5, 4.0)),
            kill=rng.choice(weight),
            power=rng.choice(weight),
            power_all=rng.choice((_ZERO, _ZERO, 0.5, 1.0)),
            cut=rng.choice(weight) + 0.1,
            pause=rng.choice((_ZERO, _ZERO, 1.0)),
            slow_disk=rng.choice((_ZERO, _ZERO, 1.0)),
            reset=rng.choice((_ZERO, 1.0)),
            expire=rng.choice((_ZERO, _ZERO, 1.0)),
            metadata_down=rng.choice((_ZERO, _ZERO, 0.3)),
            kill_other=rng.choice(weight),
            rot=rng.choice((_ZERO, _ZERO, 1.0, 3.0)),
            sync_error_rate=rng.choice((_ZERO, _ZERO, _ZERO, 0.002, 0.02)),
            write_error_rate=rng.choice((_ZERO, _ZERO, _ZERO, _ZERO, 0.005)),
            metadata=MetadataRates(
                lost_reply_rate=rng.choice((_ZERO, _ZERO, 0.02, 0.08)),
                lost_request_rate=rng.choice((_ZERO, _ZERO, 0.02)),
                lag_rate=rng.choice((_ZERO, 0.2, 0.8)),
            ),
            network=NetworkRates(
                latency_s_max=slow,
                slow_rate=rng.choice((_ZERO, _ZERO, 0.01)),
                fragment_rate=rng.choice((_ZERO, 0.1, 0.5)),
                reset_rate=rng.choice((_ZERO, _ZERO, _ZERO, 0.002, 0.03)),
            ),
        )


class Nemesis:
    """Carries out the faults of one seed.

    Args:
        simulation: The world.
        metadata: Its metadata store.
        faults: What to do, how often.
        servers: Hosts with a program: killed, and started again.
        others: Further hosts with a program: cut off and paused too, and killed by a weight of their own.

    Attributes:
        counts: Events so far, by name.

    """

    def __init__(
        self,
        simulation: Simulation,
        metadata: SimMetadata,
        faults: Faults,
        *,
        servers: Sequence[SimHost],
        others: Sequence[SimHost] = (),
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._simulation = simulation
        self._metadata = metadata
        self._faults = faults
        self._servers = list(servers)
        self._others = list(others)
        self._rng = simulation.random("faults")
        self._is_calm = False
        for host in [*self._servers, *self._others]:
            host.on_exit.append(self._on_exit)

    async def run(self) -> None:
        """Do one thing after the other until cancelled, or until `calm`."""
        faults = self._faults
        self._simulation.network.rates = faults.network
        self._metadata.rates = faults.metadata
        for host in self._servers:
            host.disk.sync_error_rate = faults.sync_error_rate
            host.disk.write_error_rate = faults.write_error_rate
        events = {
            "kill": (faults.kill, self._kill),
            "power": (faults.power, self._power),
            "power_all": (faults.power_all, self._power_all),
            "cut": (faults.cut, self._cut),
            "pause": (faults.pause, self._pause),
            "slow_disk": (faults.slow_disk, self._slow_disk),
            "reset": (faults.reset, self._reset),
            "expire": (faults.expire, self._expire),
            "metadata_down": (faults.metadata_down, self._metadata_down),
            "kill_other": (faults.kill_other, self._kill_other),
            "rot": (faults.rot, self._rot),
        }
        weights = [weight for weight, _ in events.values()]
        while not self._is_calm and any(weights):
            await asyncio.sleep(self._rng.expovariate(1 / faults.interval_s))
            if self._is_calm:
                return
            name = self._rng.choices(list(events), weights)[0]
            self.counts[name] += 1
            self._simulation.loop.note(name.encode())
            events[name][1]()

    def calm(self) -> None:
        """End all faults: everything heals, and every server is up or comes up by itself."""
        self._is_calm = True
        self._simulation.network.heal()
        self._simulation.network.rates = NetworkRates()
        self._metadata.rates = MetadataRates(lag_rate=_ZERO)
        if not self._metadata.is_available:
            self._metadata.set_available(is_available=True)
        for host in self._servers:
            host.disk.make_healthy()
        for host in [*self._servers, *self._others]:
            host.resume()

    # --- events

    def _kill(self) -> None:
        self._rng.choice(self._servers).kill()

    def _kill_other(self) -> None:
        if self._others:
            self._rng.choice(self._others).kill()

    def _power(self) -> None:
        self._rng.choice(self._servers).kill(power=True)

    def _power_all(self) -> None:
        for host in self._servers:
            host.kill(power=True)

    def _on_exit(self, host: SimHost) -> None:
        """Start a host again a while after its end, whoever ended it."""
        if host in self._servers:
            self.counts["exits"] += 1
        self._simulation.after(self._rng.uniform(0.1, self._faults.restart_s), self._start, host)

    def _start(self, host: SimHost) -> None:
        if not host.is_up and host.program is not None:
            host.start()

    def _cut(self) -> None:
        names = [host.name for host in (*self._servers, *self._others)] + [METADATA_HOST]
        first, second = self._rng.sample(names, 2)
        shape = self._rng.random()
        if shape < 0.4:
            paths = [(first, second)]
        elif shape < 0.8:
            paths = [(first, second), (second, first)]
        else:
            others = [name for name in names if name != first]
            paths = [path for name in others for path in ((first, name), (name, first))]
        network = self._simulation.network
        for path in paths:
            network.block(*path)
        self._simulation.after(self._heal_s(), self._mend, paths)

    def _mend(self, paths: list[tuple[str, str]]) -> None:
        for path in paths:
            self._simulation.network.unblock(*path)

    def _pause(self) -> None:
        host = self._rng.choice([*self._servers, *self._others])
        host.pause()
        self._simulation.after(self._heal_s(), host.resume)

    def _slow_disk(self) -> None:
        self._rng.choice(self._servers).disk.slowness = self._rng.choice((1.0, 1.0, 30.0, 300.0))

    def _rot(self) -> None:
        disk = self._servers[0].disk
        files = [path for path in disk.files() if path.endswith(_ROTTING)]
        if files:
            disk.rot_settled(self._rng.choice(files))

    def _reset(self) -> None:
        first, second = self._rng.sample([host.name for host in (*self._servers, *self._others)], 2)
        self._simulation.network.reset(first, second)

    def _expire(self) -> None:
        alive = self._metadata.session_ids()
        if alive:
            self._metadata.expire(self._rng.choice(alive))

    def _metadata_down(self) -> None:
        if self._metadata.is_available:
            self._metadata.set_available(is_available=False)
            self._simulation.after(self._heal_s(), lambda: self._metadata.set_available(is_available=True))

    def _heal_s(self) -> float:
        return self._rng.expovariate(1 / self._faults.heal_s)
