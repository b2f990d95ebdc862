"""Carries out the faults of one seed while the work runs, and ends them all for the calm after it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from ledger.testing.disk_faults import DiskFaults
from ledger.testing.faults import DAMAGES, EVENTS, Faults
from ledger.testing.hosts import SimHost
from ledger.testing.metadata import METADATA_HOST, MetadataRates, SimMetadata
from ledger.testing.network import NetworkRates
from ledger.testing.simulation import Simulation

_ROTTING = (".j", ".seg")
"""Files whose damage a server must live with; a damaged identity is for its operator."""
_SKEW_MS_MAX = 3_600_000
_ROOM_BYTES = (0, 2_000, 100_000)


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
        damaged: The one server whose disk rots, takes writes in the wrong place, or is lost.
        disk_faults: Those of that server's disk which need to know what a bookie keeps on it; None where it is none.
        on_event: Called with the name of each event and the host that it strikes, if it is one.

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
        self.on_event: Callable[[str, str], None] = lambda _name, _host: None
        self.disk_faults: DiskFaults | None = None
        self._simulation = simulation
        self._metadata = metadata
        self._faults = faults
        self._servers = list(servers)
        self._others = list(others)
        self._rng = simulation.random("faults")
        self._is_calm = False
        self.damaged = self._rng.choice(self._servers)
        for host in [*self._servers, *self._others]:
            host.on_exit.append(self._on_exit)

    @property
    def is_damage_done(self) -> bool:
        """True if a disk may have lost anything that it had synced."""
        return self._faults.read_error_rate > 0 or any(self.counts[name] for name in DAMAGES)

    async def run(self) -> None:
        """Do one thing after the other until cancelled, or until `calm`."""
        faults = self._faults
        self._simulation.network.rates = faults.network
        self._metadata.rates = faults.metadata
        for host in self._servers:
            host.disk.sync_error_rate = faults.sync_error_rate
            host.disk.write_error_rate = faults.write_error_rate
        self.damaged.disk.read_error_rate = faults.read_error_rate
        weights = [getattr(faults, name) for name in EVENTS]
        while not self._is_calm and any(weights):
            await asyncio.sleep(self._rng.expovariate(1 / faults.interval_s))
            if self._is_calm:
                return
            name = self._rng.choices(EVENTS, weights)[0]
            self.counts[name] += 1
            self._simulation.loop.note(name.encode())
            struck = getattr(self, f"_{name}")()
            self.on_event(name, struck.name if isinstance(struck, SimHost) else "")

    def calm(self) -> None:
        """End all faults: everything heals, and every server is up or comes up by itself."""
        self._is_calm = True
        self._simulation.network.heal()
        self._simulation.network.rates = NetworkRates()
        self._metadata.rates = MetadataRates(lag_rate=0.0)
        if not self._metadata.is_available:
            self._metadata.set_available(is_available=True)
        for host in self._servers:
            host.disk.make_healthy()
        for host in [*self._servers, *self._others]:
            host.resume()

    def _on_exit(self, host: SimHost) -> None:
        """Start a host again a while after its end, whoever ended it; in the calm, servers only."""
        if host in self._servers:
            self.counts["exits"] += 1
        elif self._is_calm:
            return
        self._simulation.after(self._rng.uniform(0.1, self._faults.restart_s), self._start, host)

    def _start(self, host: SimHost) -> None:
        if not host.is_up and host.program is not None:
            host.start()

    def _heal_s(self) -> float:
        return self._rng.expovariate(1 / self._faults.heal_s)

    # --- processes and machines

    def _kill(self) -> SimHost:
        host = self._rng.choice(self._servers)
        host.kill()
        return host

    def _kill_other(self) -> SimHost | None:
        if not self._others:
            return None
        host = self._rng.choice(self._others)
        host.kill()
        return host

    def _power(self) -> SimHost:
        host = self._rng.choice(self._servers)
        host.kill(power=True)
        return host

    def _power_all(self) -> None:
        for host in self._servers:
            host.kill(power=True)

    def _pause(self) -> SimHost:
        host = self._rng.choice([*self._servers, *self._others])
        host.pause()
        self._simulation.after(self._heal_s(), host.resume)
        return host

    def _skew(self) -> SimHost:
        host = self._rng.choice([*self._servers, *self._others])
        host.clock_offset_ms = self._rng.randint(-_SKEW_MS_MAX, _SKEW_MS_MAX)
        return host

    # --- disks

    def _slow_disk(self) -> SimHost:
        host = self._rng.choice(self._servers)
        host.disk.slowness = self._rng.choice((1.0, 1.0, 30.0, 300.0))
        return host

    def _full_disk(self) -> SimHost:
        host = self._rng.choice(self._servers)
        host.disk.fill(self._rng.choice(_ROOM_BYTES))
        self._simulation.after(self._heal_s(), host.disk.make_room)
        return host

    def _rot(self) -> SimHost:
        files = self._damaged_files()
        if files:
            self.damaged.disk.rot_settled(self._rng.choice(files))
        return self.damaged

    def _misdirect(self) -> SimHost:
        files = self._damaged_files()
        if files:
            self.damaged.disk.misdirect_settled(self._rng.choice(files))
        return self.damaged

    def _damaged_files(self) -> list[str]:
        return [path for path in self.damaged.disk.files() if path.endswith(_ROTTING)]

    def _wipe(self) -> SimHost:
        self.damaged.kill(power=True)
        self.damaged.disk.lose_everything()
        return self.damaged

    def _truncate(self) -> SimHost:
        return self._strike(DiskFaults.truncate)

    def _delete(self) -> SimHost:
        return self._strike(DiskFaults.delete)

    def _zero(self) -> SimHost:
        return self._strike(DiskFaults.zero)

    def _roll_back(self) -> SimHost:
        return self._strike(DiskFaults.roll_back)

    def _index(self) -> SimHost:
        return self._strike(DiskFaults.index)

    def _spoil(self) -> SimHost:
        return self._strike(DiskFaults.spoil)

    def _strike(self, fault: Callable[[DiskFaults], None]) -> SimHost:
        assert self.disk_faults is not None, "these servers are no bookies"
        fault(self.disk_faults)
        return self.damaged

    # --- network and metadata

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

    def _reset(self) -> None:
        first, second = self._rng.sample([host.name for host in (*self._servers, *self._others)], 2)
        self._simulation.network.reset(first, second)

    def _expire(self) -> None:
        alive = self._metadata.session_ids()
        if alive:
            self._metadata.expire(self._rng.choice(alive))

    def _metadata_move(self) -> SimHost:
        host = self._rng.choice([*self._servers, *self._others])
        self._metadata.drop_connections(host.name)
        return host

    def _metadata_down(self) -> None:
        if self._metadata.is_available:
            self._metadata.set_available(is_available=False)
            self._simulation.after(self._heal_s(), lambda: self._metadata.set_available(is_available=True))
