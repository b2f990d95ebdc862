"""Choice of the broker that a worker tries next, and the pause before: pure, so that a simulation may run it.

A leader that another broker has named is tried first, at once, and once: brokers that name each other in a circle, or
one that died, must not be asked in a tight loop. Then come the given ones in turn. Every failed attempt makes the pause
longer, up to `pause_ms_max`; each pause is spread by chance, so that a thousand workers do not come back together.
"""

from __future__ import annotations

from collections.abc import Sequence

_PAUSE_MS_MIN = 50
_PAUSE_GROWTH = 1.7
_HINTS_IN_A_ROW_MAX = 3


class BrokerRoute:
    """Route to the next broker.

    Args:
        addresses: Brokers that were given, "host:port"; empty where something else finds the leader.
        pause_ms_max: Longest pause.

    """

    def __init__(self, addresses: Sequence[str], *, pause_ms_max: int = 2_000) -> None:
        self._addresses = list(addresses)
        self._pause_ms_max = pause_ms_max
        self._turn = 0
        self._hint = ""
        self._hint_count = 0
        self._pause_ms = 0.0
        # Who served last: tried when nobody else is known, such as while the metadata store is away.
        self._last = ""

    def hint(self, address: str) -> None:
        """Take note of who leads by the word of the broker that was asked."""
        if self._hint_count < _HINTS_IN_A_ROW_MAX:
            self._hint = address
        else:
            self.failed()

    def served(self, address: str) -> None:
        """Take note that a broker serves this worker: it is the first to be tried again."""
        self._pause_ms = 0.0
        self._hint_count = 0
        self._last = address
        if address in self._addresses:
            self._turn = self._addresses.index(address)

    def failed(self) -> None:
        """Take note that the attempt came to nothing."""
        self._pause_ms = min(max(_PAUSE_MS_MIN, self._pause_ms * _PAUSE_GROWTH), float(self._pause_ms_max))

    def next(self, found: str | None, chance: float) -> tuple[str | None, int]:
        """Return (address, pause before it in ms).

        Args:
            found: The leader as the metadata store names it; None = not known, or not asked.
            chance: In [0, 1): spreads the pause over its upper half.

        Returns:
            No address if none is known at present.

        """
        if self._hint:
            address, self._hint = self._hint, ""
            self._hint_count += 1
            return address, 0
        self._hint_count = 0
        pause_ms = int(self._pause_ms * (0.5 + chance / 2))
        if found is not None:
            return found, pause_ms
        if not self._addresses:
            return self._last or None, pause_ms
        address = self._addresses[self._turn % len(self._addresses)]
        self._turn += 1
        return address, pause_ms
