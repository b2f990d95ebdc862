"""The connections of one writer to its ensemble, by position: who is there, who gets entries now, who has to wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from ledger.client.add_runs import AddBatch
from ledger.client.connection import Watcher
from ledger.client.in_flight import Asker
from ledger.client.pool import ConnectionPool


class EnsembleLinks:
    """Connections to the bookies of an ensemble; they stay open until `detach`.

    Args:
        pool: Where connections come from.
        rng: For the jitter of pauses.
        watcher: Told of every change of a connection.
        bookies: The ensemble.
        write_flags: Of the adds, which decide over which connection they can go.

    """

    def __init__(
        self,
        pool: ConnectionPool,
        rng: random.Random,
        watcher: Watcher,
        bookies: Sequence[str],
        write_flags: int = 0,
    ) -> None:
        self._pool = pool
        self._rng = rng
        self._watcher = watcher
        self._bookies = list(bookies)
        self._write_flags = write_flags
        self._connections = [pool.get(bookie_id, write_flags) for bookie_id in bookies]
        # Positions that get new entries at once, or as soon as the connection is open for the first time; the others
        # get what they missed and is still pending when they are restored.
        self._is_live = [True] * len(bookies)
        self._pause_s = [0.0] * len(bookies)
        for connection in self._connections:
            connection.watch(watcher)

    def position(self, bookie_id: str) -> int | None:
        """Return where a bookie stands in the ensemble; None if it has left."""
        return self._bookies.index(bookie_id) if bookie_id in self._bookies else None

    def is_live(self, position: int) -> bool:
        """Return whether the position gets entries at once."""
        return self._is_live[position]

    def is_connected(self, position: int) -> bool:
        """Return whether the connection is up, even if the position is paused."""
        return self._connections[position].is_connected

    def set_live(self, position: int, *, is_live: bool) -> None:
        """Give a position entries at once, or keep them back."""
        self._is_live[position] = is_live

    def send(self, position: int, data: bytes, batch: AddBatch[Asker]) -> None:
        """Send to one position."""
        self._connections[position].send_adds(data, batch)

    def send_to_all(self, data: bytes, batch: AddBatch[Asker]) -> None:
        """Send the same to every position that is live."""
        for is_live, connection in zip(self._is_live, self._connections, strict=True):
            if is_live:
                connection.send_adds(data, batch)

    def pause(self, position: int, restore: Callable[[str], None]) -> bool:
        """Keep entries back from a connected bookie and have `restore` called with it after a while.

        The pauses grow. Returns whether the position was live until now.
        """
        if not self._is_live[position]:
            return False
        self._is_live[position] = False
        settings = self._pool.settings
        pause_s = max(settings.reconnect_delay_s_min, 2 * self._pause_s[position])
        self._pause_s[position] = min(pause_s, settings.reconnect_delay_s_max)
        delay_s = self._pause_s[position] * self._rng.uniform(0.5, 1.0)
        asyncio.get_running_loop().call_later(delay_s, restore, self._bookies[position])
        return True

    def replace(self, position: int, bookie_id: str) -> None:
        """Put another bookie into a position; what is sent to it waits until it is connected, or has failed."""
        self._connections[position].unwatch(self._watcher)
        connection = self._pool.get(bookie_id, self._write_flags)
        self._bookies[position] = bookie_id
        self._connections[position] = connection
        self._pause_s[position] = 0.0
        self._is_live[position] = True
        connection.watch(self._watcher)

    def detach(self) -> None:
        """Stop watching: the connections close when nobody else needs them."""
        for connection in self._connections:
            connection.unwatch(self._watcher)
