"""The connections of one client, one per bookie, and what they share: transaction numbers and the sweep."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from ledger.client.connection import BookieConnection, Operation, Resolve
from ledger.client.settings import ClientSettings
from ledger.wire.packets import Request
from ledger.wire.v3 import encode_request
from ledger.wire.varint import encode_varint

__all__ = ["ConnectionPool", "Sweepable"]


class Sweepable(Protocol):
    """What looks for its own time-outs now and then."""

    def sweep(self, now: float) -> None:
        """Fail what is overdue at loop time `now`."""
        ...


class ConnectionPool:
    """Opens connections when they are first needed.

    Transaction numbers are the pool's, not a connection's: one encoded request serves several bookies.

    Args:
        resolve: Bookie id -> (host, port).
        rng: For the jitter of reconnects.
        settings: Limits and times.

    """

    def __init__(self, resolve: Resolve, rng: random.Random, settings: ClientSettings | None = None) -> None:
        self.settings = settings or ClientSettings()
        self._resolve = resolve
        self._rng = rng
        self._connections: dict[str, BookieConnection] = {}
        self._sweeps: list[Sweepable] = []
        self._next_txn = 1
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def get(self, bookie_id: str) -> BookieConnection:
        """Return the connection to a bookie; it opens with the first request."""
        connection = self._connections.get(bookie_id)
        if connection is None:
            connection = BookieConnection(bookie_id, self._resolve, self._rng, self.settings, self._peek_txn)
            self._connections[bookie_id] = connection
            if self._timer is None and not self._is_closed:
                self._plan_sweep()
        return connection

    def take_txns(self, count: int) -> int:
        """Reserve `count` consecutive transaction numbers and return the first."""
        first = self._next_txn
        self._next_txn = first + count
        return first

    def suspects(self) -> frozenset[str]:
        """Return the bookies whose last sign was a failure: readers ask them last. For look-ups only."""
        return frozenset(bookie_id for bookie_id, c in self._connections.items() if c.is_suspect)

    def ask(self, bookie_id: str, request: Request, operation: Operation) -> None:
        """Send one request; its transaction must come from `take_txns`."""
        self.get(bookie_id).send(encode_request(request), {encode_varint(request.txn_id): operation})

    def poll(self, bookie_id: str, request: Request, operation: Operation, timeout_s: float) -> None:
        """Send one request that the bookie may hold for `timeout_s`."""
        txn = encode_varint(request.txn_id)
        self.get(bookie_id).poll(encode_request(request), txn, operation, timeout_s)

    def add_sweep(self, sweep: Sweepable) -> None:
        """Have `sweep.sweep(now)` called every `settings.sweep_interval_s` until it is removed."""
        self._sweeps.append(sweep)

    def remove_sweep(self, sweep: Sweepable) -> None:
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

    def _peek_txn(self) -> int:
        return self._next_txn

    def _plan_sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.settings.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        for connection in list(self._connections.values()):
            connection.sweep()
        now = asyncio.get_running_loop().time()
        for sweep in list(self._sweeps):
            sweep.sweep(now)
        self._plan_sweep()
