"""Spans on their way to a collector: a bounded queue, and a thread that empties it.

1. Who ends a span pays for one append. Where the queue is full the span is dropped, and counted.
2. A collector that does not take a batch loses it: nothing is sent twice, and nobody waits. It is left alone for a
   while, longer each time, and meanwhile nothing is even encoded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ledger.telemetry.otlp_collector import OtlpCollector, OtlpCollectorError
from ledger.telemetry.tracing import Span, Value

_LOGGER = logging.getLogger(__name__)

_BATCH_MAX: Final = 512
_EVERY_S: Final = 1.0
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0
_PATH: Final = "/v1/traces"

Encode = Callable[[Sequence[Span], Mapping[str, Value]], bytes]
CountRejected = Callable[[bytes], int]


class SpanExporter:
    """See the module. `offer` may be called by any thread.

    Args:
        collector: Where spans go.
        resource: What this process is.
        encode: Makes the request of a batch.
        count_rejected: Reads how many a collector did not take out of its answer.
        queue_max: Spans that may wait.

    Attributes:
        counts: Spans by what became of them: "sent", "dropped" (no room, or the collector was left alone), "failed"
            (the collector did not take them).

    """

    def __init__(
        self,
        collector: OtlpCollector,
        resource: Mapping[str, Value],
        encode: Encode,
        count_rejected: CountRejected,
        queue_max: int,
    ) -> None:
        self._collector = collector
        self._resource = dict(resource)
        self._encode = encode
        self._count_rejected = count_rejected
        self._queue_max = queue_max
        self._queue: deque[Span] = deque()
        self.counts: Counter[str] = Counter(sent=0, dropped=0, failed=0)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_stopping = False
        self._pause_s = 0.0
        self._resting_until_s = 0.0
        self._thread = threading.Thread(target=self._run, name="rsm-telemetry", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def offer(self, span: Span) -> None:
        """Have a span that has ended sent, if there is room for it."""
        if len(self._queue) >= self._queue_max:
            self._count("dropped", 1)
            return
        self._queue.append(span)
        if len(self._queue) >= _BATCH_MAX and not self._wake.is_set():
            self._wake.set()

    def stop(self, wait_s: float) -> None:
        """Send what waits, for so long at most, and end."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(wait_s)
        self._count("dropped", len(self._queue))
        self._queue.clear()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(_EVERY_S)
            self._wake.clear()
            self._send_all()
        self._send_all()
        self._collector.close()

    def _send_all(self) -> None:
        while self._queue and time.monotonic() >= self._resting_until_s:
            batch = [self._queue.popleft() for _ in range(min(_BATCH_MAX, len(self._queue)))]
            try:
                rejected = self._count_rejected(self._collector.post(_PATH, self._encode(batch, self._resource)))
            except OtlpCollectorError as error:
                self._failed(len(batch), str(error))
            except Exception as error:
                _LOGGER.exception("spans cannot be sent")
                self._failed(len(batch), type(error).__name__)
            else:
                self._sent(len(batch), min(rejected, len(batch)))

    def _sent(self, count: int, rejected: int) -> None:
        self._count("sent", count - rejected)
        self._count("failed", rejected)
        if self._pause_s:
            _LOGGER.warning("the collector takes spans again; %d were dropped so far", self.counts["dropped"])
        self._pause_s = 0.0

    def _failed(self, count: int, why: str) -> None:
        self._count("failed", count)
        if not self._pause_s:
            _LOGGER.warning("the collector does not take spans; they are dropped until it does: %s", why)
        self._pause_s = min(_PAUSE_MAX_S, 2 * self._pause_s or _PAUSE_FIRST_S)
        self._resting_until_s = time.monotonic() + self._pause_s

    def _count(self, outcome: str, count: int) -> None:
        with self._lock:
            self.counts[outcome] += count
