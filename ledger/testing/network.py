"""TCP in virtual time: ordered streams with latency, fragments, one-way cuts, resets and half-open connections.

What is modelled: the kernel takes up to `_KERNEL_BYTES` of what a program writes, also on its behalf after it was
killed; a cut direction stalls, is retransmitted and goes on after it heals, or ends the connection after
`_GIVE_UP_S`; a host that lost power says nothing, and answers old connections with a reset once it is back.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledger.testing.loop import SimLoop, SimProcess, current_process, outside
from ledger.testing.transport import SimTransport

_FIRST_FREE_PORT = 40_000
_CONNECT_S_MAX = 60.0
_RETRANSMIT_S = 0.2
"""Linux's shortest wait for an acknowledgement."""


@dataclass(frozen=True)
class NetworkRates:
    """Rates of the network's faults.

    Attributes:
        latency_s_min: One way.
        latency_s_max: One way.
        slow_rate: Probability that a delivery takes up to `slow_s_max`.
        slow_s_max: See `slow_rate`.
        loss_rate: Probability that a packet is lost, and sent again after a time that doubles.
        fragment_rate: Probability that a delivery stops at a random byte.
        reset_rate: Probability that a delivery finds the connection reset.

    """

    latency_s_min: float = 0.0002
    latency_s_max: float = 0.002
    slow_rate: float = 0.0
    slow_s_max: float = 1.0
    loss_rate: float = 0.0
    fragment_rate: float = 0.1
    reset_rate: float = 0.0


class _Listener(NamedTuple):
    process: SimProcess | None
    factory: Callable[[], Any]
    context: Context


class SimServer(asyncio.AbstractServer):
    """A listening port; connections that it accepted outlive it."""

    def __init__(self, network: SimNetwork, loop: SimLoop, address: tuple[str, int]) -> None:
        self._network = network
        self._loop = loop
        self._address: tuple[str, int] | None = address
        self._closed: asyncio.Future[None] = loop.create_future()
        self.sockets = (_SimSocket(address),)

    def close(self) -> None:
        """Listen no more."""
        if self._address is not None:
            self._network.stop_listening(self._address)
            self._address = None
            self._closed.set_result(None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._address is not None

    async def start_serving(self) -> None:
        """Do nothing: it listens from the start."""

    async def serve_forever(self) -> None:
        """Wait until it is closed."""
        await asyncio.shield(self._closed)

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await asyncio.shield(self._closed)


class _SimSocket:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimNetwork:
    """All hosts' TCP. A host's name is its address; whoever is no host (the test) is called "outside".

    Args:
        loop: Whose time it is.
        rates: How bad the network is; may be replaced at any time.

    """

    def __init__(self, loop: SimLoop, rates: NetworkRates | None = None) -> None:
        self.loop = loop
        self.rates = rates or NetworkRates()
        self.rng: random.Random = loop.random_for("network")
        self._listeners: dict[tuple[str, int], _Listener] = {}
        # In the order of their making; a set would iterate by address.
        self._transports: dict[SimTransport, None] = {}
        self._blocked: dict[tuple[str, str], None] = {}
        self._powerless: dict[str, None] = {}
        self._next_port = _FIRST_FREE_PORT
        self.delivered_bytes = 0
        loop.network = self

    # --- faults

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from `source` to `target`; the other direction stays."""
        self._blocked[source, target] = None

    def unblock(self, source: str, target: str) -> None:
        """Undo `block`."""
        self._blocked.pop((source, target), None)

    def partition(self, one: str, two: str) -> None:
        """Let nothing pass between two hosts."""
        self.block(one, two)
        self.block(two, one)

    def heal(self) -> None:
        """Let everything pass."""
        self._blocked.clear()

    def is_blocked(self, source: str, target: str) -> bool:
        """Return whether nothing passes in this direction."""
        return (source, target) in self._blocked or target in self._powerless or source in self._powerless

    def reset(self, one: str, two: str) -> None:
        """Reset all connections between two hosts."""
        for transport in list(self._transports):
            if (transport.host, transport.peer.host) == (one, two):
                transport.reset()

    def end_process(self, process: SimProcess, *, power_lost: bool) -> None:
        """Do what the kernel does when a process is killed, or nothing if its host went dark."""
        for address in [a for a, listener in self._listeners.items() if listener.process is process]:
            del self._listeners[address]
        if power_lost:
            self._powerless[process.name] = None
        for transport in [t for t in self._transports if t.process is process]:
            transport.orphan(power_lost=power_lost)

    def power_on(self, host: str) -> None:
        """Let a host answer again; its old connections are reset when somebody uses them."""
        self._powerless.pop(host, None)

    # --- what transports ask

    def delay_s(self) -> float:
        """Draw the latency of one delivery."""
        rates = self.rates
        delay_s = self.rng.uniform(rates.latency_s_min, rates.latency_s_max)
        if rates.slow_rate and self.rng.random() < rates.slow_rate:
            delay_s += self.rng.uniform(0.0, rates.slow_s_max)
        if rates.loss_rate:
            retry_s = _RETRANSMIT_S
            while self.rng.random() < rates.loss_rate:
                delay_s += retry_s
                retry_s *= 2
        return delay_s

    def forget(self, transport: SimTransport) -> None:
        """Drop a connection's end that is over."""
        self._transports.pop(transport, None)

    # --- what the loop asks

    def listen(self, factory: Callable[[], Any], host: str | None, port: int) -> SimServer:
        """Listen on the host that is running; 0 picks a free port."""
        process = current_process()
        name = process.name if process else (host or "outside")
        if port == 0:
            port = self._free_port()
        if (name, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{name}:{port} is in use")
        self._listeners[name, port] = _Listener(process, factory, copy_context())
        return SimServer(self, self.loop, (name, port))

    def stop_listening(self, address: tuple[str, int]) -> None:
        """Refuse connections to an address from now on."""
        self._listeners.pop(address, None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        """Connect from the host that is running.

        Raises:
            ConnectionRefusedError: Nobody listens there.
            TimeoutError: No answer for a minute.

        """
        process = current_process()
        name = process.name if process else "outside"
        await self._shake_hands(name, host)
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host}:{port})")
        local = self._free_port()
        near = SimTransport(self, process, copy_context(), (name, local), (host, port))
        far = SimTransport(self, listener.process, listener.context.copy(), (host, port), (name, local))
        near.peer, far.peer = far, near
        self._transports[near] = None
        self._transports[far] = None
        self.loop.call_soon(far.accept, listener.factory, context=far.context)
        protocol = factory()
        near.set_protocol(protocol)
        self.loop.call_soon(near.begin, context=near.context)
        connected: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_soon(_finish, connected)
        try:
            await connected
        except BaseException:
            near.close()
            raise
        return near, protocol

    async def _shake_hands(self, name: str, host: str) -> None:
        """Wait for the three packets, sent again at growing intervals."""
        retry_s, waited_s = 1.0, 0.0
        while True:
            await asyncio.sleep(self.delay_s() + self.delay_s())
            if name == host or not (self.is_blocked(name, host) or self.is_blocked(host, name)):
                return
            if waited_s > _CONNECT_S_MAX:
                raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed ({host})")
            await asyncio.sleep(retry_s)
            waited_s += retry_s
            retry_s *= 2

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Run what the network itself does: no kill stops it."""
        self.loop.call_later(delay_s, callback, *arguments, context=outside())


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
