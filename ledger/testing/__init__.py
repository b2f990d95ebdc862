"""A cluster in one thread and in virtual time: real client, bookie and replica code, simulated everything else.

A simulation is a seed, hosts with programs, and a main coroutine that belongs to no host:

    async def serve(host: SimHost) -> None:                     # the program of a host: real code
        store = await simulation.metadata.connect()             # a session that dies with the process
        handle = host.disk.open("/file", create=True)           # a `ledger.storage.disk.Disk` that outlives it
        await host.executor().submit(lambda: host.disk.fdatasync(handle))
        ...
        await asyncio.get_running_loop().create_future()        # serves until it is killed

    async def main() -> None:
        bookie = simulation.host("b0", serve)                   # a host's name is its network address
        bookie.start()
        await simulation.host("client").spawn(load())           # a host without a program: only `spawn`
        bookie.kill()                                           # SIGKILL: no `finally` runs, the page cache stays
        bookie.start()                                          # the same program again, on what the disk kept
        bookie.kill(power=True)                                 # power loss: unsynced bytes tear, peers hear nothing
        bookie.pause(); bookie.resume()                         # SIGSTOP, SIGCONT
        bookie.clock_offset_ms = 30_000                         # its wall clock, `host.clock_ms()`, is ahead
        simulation.network.block("b0", "client")                # one way; `partition` cuts both
        simulation.network.partition("client", METADATA_HOST)   # its session expires
        simulation.after(5.0, simulation.network.heal)
        simulation.metadata.set_available(False)                # the metadata store has no quorum

    simulation = Simulation(seed)
    simulation.run(main(), limit_s=600)                         # simulated seconds
    print(simulation.signature)                                 # equal for equal runs

* `simulation.run` raises when code under test left an exception to the loop; `simulation.loop.errors` holds them.
* `simulation.loop.probes` are called after every step: put invariants there.
* `Faults.draw` chooses what goes wrong how often, per seed, with many rates zero; a `Nemesis` carries it out, starts
  servers again, and ends all trouble for the calm in which everything must converge.
* Randomness comes from `simulation.random(purpose)`. What must not happen in code that runs here: threads, real
  clocks, `hash()`, `id()` and the order of sets.
"""

from __future__ import annotations

from ledger.testing.disk import SimDisk
from ledger.testing.executor import SimExecutor
from ledger.testing.faults import Faults
from ledger.testing.hosts import Program, SimHost
from ledger.testing.loop import (
    SimLoop,
    SimulationDeadlockError,
    SimulationError,
    SimulationTimeoutError,
    current_process,
)
from ledger.testing.metadata import METADATA_HOST, MetadataRates, SimMetadata
from ledger.testing.nemesis import Nemesis
from ledger.testing.network import NetworkRates, SimNetwork
from ledger.testing.simulation import Simulation

__all__ = [
    "METADATA_HOST",
    "Faults",
    "MetadataRates",
    "Nemesis",
    "NetworkRates",
    "Program",
    "SimDisk",
    "SimExecutor",
    "SimHost",
    "SimLoop",
    "SimMetadata",
    "SimNetwork",
    "Simulation",
    "SimulationDeadlockError",
    "SimulationError",
    "SimulationTimeoutError",
    "current_process",
]
