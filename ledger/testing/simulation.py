"""One simulated world: the loop, the network, the metadata store and the hosts of one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ledger.testing.hosts import Program, SimHost
from ledger.testing.loop import SimLoop, SimulationError, outside
from ledger.testing.metadata import MetadataRates, SimMetadata
from ledger.testing.network import NetworkRates, SimNetwork

T = TypeVar("T")


class Simulation:
    """Everything that one seed decides; see `ledger.testing` for an example.

    Args:
        seed: Replays the run, with the same commit.
        network_rates: How bad the network is.
        metadata_rates: How bad the metadata store is.

    Attributes:
        seed: As given.
        loop: Virtual time, trace, errors left to the loop.
        network: Partitions, latency, resets.
        metadata: The metadata store.
        hosts: By name, in the order of their making.

    """

    def __init__(
        self,
        seed: int,
        *,
        network_rates: NetworkRates | None = None,
        metadata_rates: MetadataRates | None = None,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(seed)  # type: ignore[abstract]  # what is missing has no meaning in a simulation
        self.network = SimNetwork(self.loop, network_rates)
        self.metadata = SimMetadata(self.loop, self.network, metadata_rates)
        self.hosts: dict[str, SimHost] = {}

    @property
    def signature(self) -> str:
        """Digest of every step: two runs of one seed must agree."""
        return self.loop.signature

    def host(self, name: str, program: Program | None = None) -> SimHost:
        """Return the host of this name, made when first asked for; it is off until `start` or `spawn`."""
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = SimHost(self, name, program)
        elif program is not None:
            host.program = program
        return host

    def random(self, purpose: str) -> random.Random:
        """Return a source of randomness of its own for `purpose`, decided by the seed."""
        return self.loop.random_for(purpose)

    def after(self, delay_s: float, action: Callable[..., Any], *args: Any) -> None:
        """Call a function later, in no process: for faults that end by themselves."""
        self.loop.call_later(delay_s, action, *args, context=outside())

    def run(self, main: Coroutine[Any, Any, T], *, limit_s: float = 3_600.0) -> T:
        """Run `main`, in no process, until it is done; then the world is over.

        Raises:
            SimulationError: It is stuck or over the limit; or code under test left an error to the loop, which
                is a defect of that code.

        """
        result = self.loop.run(main, limit_s=limit_s)
        self.check_errors()
        return result

    def check_errors(self) -> None:
        """Raise if code under test left errors to the loop's exception handler.

        Raises:
            SimulationError: It did; the first one is the cause.

        """
        if self.loop.errors:
            first = self.loop.errors[0]
            where = f"seed {self.seed}, {first.get('process')}, {first['at_s']:.3f} s"
            raise SimulationError(
                f"{where}: {first.get('message')} ({len(self.loop.errors)} errors left to the loop): "
                f"{first.get('exception')!r}"
            ) from first.get("exception")
