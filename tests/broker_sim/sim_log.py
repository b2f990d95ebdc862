"""A replicated log as leaders and followers see it: entries that are confirmed, one perhaps in flight, and claims.

Where an entry is:

    in flight   sent by whoever leads       it is stored, or fails; a claim, or its own leader's closing, decides it
    confirmed   part of the log for ever    its leader may hear of it late, or never

A claim fences: whatever an earlier leader sends from then on fails. What was in flight is then part of the log, or is
not: whoever sent it cannot know before it has learned the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

from tests.broker_sim.virtual_time import SimProcess, VirtualTime

__all__ = ["AppendEnd", "LogRates", "SimLog"]


class AppendEnd(Enum):
    """What a leader hears of an entry. STORED: confirmed. FAILED: the end has to be learned. FENCED: deposed."""

    STORED = "stored"
    FAILED = "failed"
    FENCED = "fenced"


class LogRates:
    """How the log behaves.

    Attributes:
        latency_ms: Longest time of an add.
        failed_rate: Share of adds that fail.
        slow_rate: Share of adds of which the leader hears a second late.

    """

    def __init__(self, rng: random.Random) -> None:
        self.latency_ms = rng.choice((2, 10, 40))
        self.failed_rate = rng.choice((0.0, 0.003, 0.02))
        self.slow_rate = rng.choice((0.0, 0.01, 0.05))

    def calm(self) -> None:
        """Let nothing fail any more."""
        self.failed_rate = self.slow_rate = 0.0


class SimLog:
    """The log.

    Args:
        time: In which it lives.
        rng: Draws what becomes of entries.
        log_id: Of it, 16 bytes.

    Attributes:
        entries: Payloads of all that is confirmed.
        epoch: The highest that was claimed.
        listeners: Called after every entry that is confirmed, with its payload.

    """

    def __init__(self, time: VirtualTime, rng: random.Random, log_id: bytes) -> None:
        self.log_id = log_id
        self.entries: list[bytes] = []
        self.epoch = 0
        self.rates = LogRates(rng)
        self.listeners: list[Callable[[bytes], None]] = []
        self.counts = {"entries_failed": 0, "entries_unheard": 0, "entries_lost": 0}
        self._time = time
        self._rng = rng
        self._in_flight: bytes | None = None

    def claim(self) -> int:
        """Claim the log: return the epoch; earlier leaders are fenced, and the end of the log stands."""
        self.epoch += 1
        if self._in_flight is not None:
            self._decide_end()
        return self.epoch

    def _decide_end(self) -> bool:
        """Decide whether what was in flight is part of the log."""
        payload, self._in_flight = self._in_flight, None
        assert payload is not None
        if self._rng.random() < 0.5:
            self.counts["entries_unheard"] += 1
            self._confirm(payload)
            return True
        self.counts["entries_lost"] += 1
        return False

    def _confirm(self, payload: bytes) -> None:
        self.entries.append(payload)
        for listener in self.listeners:
            listener(payload)

    def append(self, leader: SimProcess, epoch: int, payload: bytes, on_end: Callable[[AppendEnd], None]) -> None:
        """Send an entry; `on_end` is called in the leader's process."""
        rng, rates = self._rng, self.rates
        latency_ms = rng.uniform(1, rates.latency_ms)
        if epoch != self.epoch:
            leader.after(latency_ms, lambda: on_end(AppendEnd.FENCED))
            return
        assert self._in_flight is None
        self._in_flight = payload
        if rng.random() < rates.failed_rate:
            self.counts["entries_failed"] += 1
            leader.after(latency_ms + rng.uniform(0, 500), lambda: on_end(AppendEnd.FAILED))
            return
        heard_ms = rng.uniform(1, rates.latency_ms) + (1000 if rng.random() < rates.slow_rate else 0)
        life = leader.life

        def _store() -> None:
            if self._in_flight is not payload or epoch != self.epoch:
                # Decided by a claim meanwhile, one way or the other; its leader hears that it is fenced.
                self._time.after(heard_ms, lambda: leader.happen(life, lambda: on_end(AppendEnd.FENCED)))
                return
            self._in_flight = None
            self._confirm(payload)
            self._time.after(heard_ms, lambda: leader.happen(life, lambda: on_end(AppendEnd.STORED)))

        self._time.after(latency_ms, _store)

    def close(self, epoch: int) -> bool | None:
        """Learn the end after a failed add.

        Returns:
            Whether the entry that failed is part of the log; None if a later epoch was claimed.

        """
        if epoch != self.epoch:
            return None
        return self._decide_end()
