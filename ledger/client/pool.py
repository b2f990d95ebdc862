"""The connections of one client and what they share: transaction numbers, the quarantine, the sweep.

There is one connection per bookie and protocol. With protocol v2, what v2 does not carry goes over a second
connection of protocol v3 to the same bookie, opened when it is first needed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from ledger.client.connection import BookieConnection, Resolve, Shared
from ledger.client.in_flight import Asker, Operation
from ledger.client.settings import ClientSettings
from ledger.telemetry.tracing import tracer
from ledger.tls import ClientContexts
from ledger.wire.add_batch import AddEncoder
from ledger.wire.digests import Digest
from ledger.wire.packets import Request
from ledger.wire.protocol import PROTOCOLS, BatchEncoder, Key, WireProtocol


def _boot_time() -> float:
    """Return seconds since the machine was booted, those in which it slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ConnectionPool:
    """Opens connections when they are first needed.

    Transaction numbers are the pool's, not a connection's: one encoded request serves several bookies.

    Args:
        resolve: Bookie id -> (host, port).
        rng: For the jitter of reconnects.
        settings: Limits and times.
        lease_clock: Seconds by which leases end: a clock that never goes back, and counts on while the machine sleeps.

    Attributes:
        lease_clock: As given.

    Raises:
        UsageError: A file that `settings.tls` names cannot be used.

    """

    def __init__(
        self,
        resolve: Resolve,
        rng: random.Random,
        settings: ClientSettings | None = None,
        *,
        lease_clock: Callable[[], float] = _boot_time,
    ) -> None:
        self.settings = settings or ClientSettings()
        self.lease_clock = lease_clock
        tls = None if self.settings.tls is None else ClientContexts(self.settings.tls)
        self._shared = Shared(resolve, rng, self.settings, tls)
        self._protocol = PROTOCOLS[self.settings.protocol]
        # Protocol v2 has no place for the context of a trace.
        self._traces_adds = tracer() is not None
        # (bookie, protocol) -> connection
        self._connections: dict[tuple[str, str], BookieConnection] = {}
        self._sweeps: list[Callable[[float], None]] = []
        self._next_txn = 1
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def reads_batches(self) -> bool:
        """True if bookies can be asked for many entries at once (`BatchReadRequest`)."""
        return self._protocol is PROTOCOLS["v2"]

    def get(self, bookie_id: str, write_flags: int = 0) -> BookieConnection:
        """Return the connection that adds take to a bookie; it opens with the first request.

        Args:
            bookie_id: The bookie.
            write_flags: Of the adds; protocol v2 has none, so adds with flags take the connection of v3.

        """
        is_v3 = write_flags or self._traces_adds
        return self._connection(bookie_id, PROTOCOLS["v3"] if is_v3 else self._protocol)

    def add_encoder(self, ledger_id: int, master_key: bytes, digest: Digest, write_flags: int = 0) -> BatchEncoder:
        """Return what encodes a ledger's adds for the connections that `get` returns."""
        if write_flags or self._traces_adds:
            return AddEncoder(ledger_id, master_key, digest, write_flags)
        return self._protocol.add_encoder(ledger_id, master_key, digest)

    def take_txns(self, count: int) -> int:
        """Reserve `count` consecutive transaction numbers and return the first."""
        first = self._next_txn
        self._next_txn = first + count
        return first

    def suspects(self) -> frozenset[str]:
        """Return the bookies that failed a moment ago: readers ask them last, new ensembles leave them out.

        For look-ups only.
        """
        quarantined = self._shared.quarantine.suspects(asyncio.get_running_loop().time())
        return quarantined | self.unreachable()

    def unreachable(self) -> frozenset[str]:
        """Return the bookies whose last sign was a failure of the connection."""
        return frozenset([bookie_id for (bookie_id, _), c in self._connections.items() if c.is_suspect])

    def strike(self, bookie_id: str) -> None:
        """Count a failure that only the caller can see, such as a digest that does not fit; three are suspicious."""
        self._shared.quarantine.strike(bookie_id, asyncio.get_running_loop().time())

    def suspect(self, bookie_id: str) -> None:
        """Count a failure that only the caller can see as one of the bookie, for `quarantine_s`."""
        self._shared.quarantine.fail(bookie_id, asyncio.get_running_loop().time())

    def ask(self, bookie_id: str, request: Request, operation: Operation) -> None:
        """Send one request; its transaction must come from `take_txns`.

        Raises:
            UsageError: It is a batch read, and the protocol is v3.

        """
        protocol = self._protocol if self._protocol.carries(request) else PROTOCOLS["v3"]
        data, key = protocol.encode(request)
        self._connection(bookie_id, protocol).send(data, ((key, operation),))

    def ask_all(self, asked: Sequence[tuple[str, Any]], request: Request, asker: Asker) -> None:
        """Send the same request to many bookies, encoded once; `asked` holds each bookie and the asker's token."""
        protocol = self._protocol if self._protocol.carries(request) else PROTOCOLS["v3"]
        data, key = protocol.encode(request)
        for bookie_id, token in asked:
            self._connection(bookie_id, protocol).send(data, ((key, (asker, token)),))

    def ask_entries(self, bookie_id: str, ledger_id: int, entry_ids: Sequence[int], asker: Asker) -> None:
        """Send plain reads of many entries in one go; the tokens are the entry ids."""
        encode = self._protocol.encode_read
        parts: list[bytes] = []
        requests: list[tuple[Key, Operation]] = []
        for txn, entry_id in enumerate(entry_ids, self.take_txns(len(entry_ids))):
            data, key = encode(txn, ledger_id, entry_id)
            parts.append(data)
            requests.append((key, (asker, entry_id)))
        self._connection(bookie_id, self._protocol).send(b"".join(parts), requests)

    def poll(self, bookie_id: str, request: Request, operation: Operation, timeout_s: float) -> None:
        """Send one request that the bookie may hold for `timeout_s`."""
        protocol = PROTOCOLS["v3"]
        data, key = protocol.encode(request)
        self._connection(bookie_id, protocol).poll(data, key, operation, timeout_s)

    def add_sweep(self, sweep: Callable[[float], None]) -> None:
        """Have `sweep(now)` called every `settings.sweep_interval_s` until it is removed."""
        self._sweeps.append(sweep)

    def remove_sweep(self, sweep: Callable[[float], None]) -> None:
        """Undo `add_sweep`."""
        if sweep in self._sweeps:
            self._sweeps.remove(sweep)

    async def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections.values()):
            await connection.close()

    def _connection(self, bookie_id: str, protocol: WireProtocol) -> BookieConnection:
        name = (bookie_id, protocol.name)
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = BookieConnection(bookie_id, self._shared, protocol)
            if self._timer is None and not self._is_closed:
                self._plan_sweep()
        return connection

    def _plan_sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.settings.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        for connection in list(self._connections.values()):
            connection.sweep()
        now = asyncio.get_running_loop().time()
        for sweep in list(self._sweeps):
            sweep(now)
        self._plan_sweep()
