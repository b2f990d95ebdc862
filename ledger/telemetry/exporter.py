"""Spans, log lines and metrics on their way to a collector: a bounded queue for each, and a thread that empties it.

1. Who has something to tell pays for one append. Where the queue is full it is dropped, and counted.
2. A collector that does not take a batch loses it: nothing is sent twice, and nobody waits. It is left alone for a
   while, longer each time, and meanwhile nothing is even encoded.
3. Each kind has a thread and a connection of its own: a collector that takes no log lines gets all spans.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ledger.telemetry.otlp_collector import OtlpCollector, OtlpCollectorError
from ledger.telemetry.tracing import Value

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")

THREADS: Final = "rsm-telemetry"
"""Beginning of the names of the threads that send; what they write into the log is sent to nobody."""
_EVERY_S: Final = 1.0
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0


class OtlpSignal(NamedTuple, Generic[_T]):
    """Kind of what a process tells.

    Attributes:
        name: Of many of them, such as "spans".
        path: Where a collector takes them.
        encode: Makes the request of a batch and of what this process is.
        count_rejected: Reads how many a collector did not take out of its answer.
        weigh: Weight of one in queue and batch.
        queue_max: Weight of those that may wait.
        batch_max: Of a batch; it ends with the one that reaches it.

    """

    name: str
    path: str
    encode: Callable[[Sequence[_T], Mapping[str, Value]], bytes]
    count_rejected: Callable[[bytes], int]
    weigh: Callable[[_T], int]
    queue_max: int
    batch_max: int


class OtlpExporter(Generic[_T]):
    """See the module. `offer` may be called by any thread.

    Args:
        collector: Where it goes.
        resource: What this process is.
        signal: What is told.

    Attributes:
        counts: How many, by what became of them: "sent", "dropped" (no room, or the collector was left alone), "failed"
            (the collector did not take them).

    """

    def __init__(self, collector: OtlpCollector, resource: Mapping[str, Value], signal: OtlpSignal[_T]) -> None:
        self._collector = collector
        self._resource = dict(resource)
        self._signal = signal
        self._queue: deque[_T] = deque()
        self._weight = 0
        self.counts: Counter[str] = Counter(sent=0, dropped=0, failed=0)
        # Who tells something may be interrupted by one who does, too: a signal's handler, a finalizer.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._is_stopping = False
        self._pause_s = 0.0
        self._resting_until_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{THREADS}-{signal.path[-7:]}", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def offer(self, item: _T) -> None:
        """Have something sent, if there is room for it."""
        weight = self._signal.weigh(item)
        with self._lock:
            if self._weight + weight > self._signal.queue_max:
                self.counts["dropped"] += 1
                return
            self._weight += weight
            self._queue.append(item)
        if self._weight >= self._signal.batch_max and not self._wake.is_set():
            self._wake.set()

    def begin_stop(self) -> None:
        """Send what waits, and end; `stop` waits for that."""
        self._is_stopping = True
        self._wake.set()

    def stop(self, wait_s: float) -> None:
        """Send what waits, for so long at most, and end."""
        self.begin_stop()
        self._thread.join(wait_s)
        with self._lock:
            self.counts["dropped"] += len(self._queue)
            self._queue.clear()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(_EVERY_S)
            self._wake.clear()
            self._send_all()
        self._send_all()
        self._collector.close()

    def _send_all(self) -> None:
        signal = self._signal
        while time.monotonic() >= self._resting_until_s and (batch := self._take()):
            try:
                answer = self._collector.post(signal.path, signal.encode(batch, self._resource))
                rejected = signal.count_rejected(answer)
            except OtlpCollectorError as error:
                self._failed(len(batch), str(error))
            except Exception as error:
                _LOGGER.exception("%s cannot be sent", signal.name)
                self._failed(len(batch), type(error).__name__)
            else:
                self._sent(len(batch), min(rejected, len(batch)))

    def _take(self) -> list[_T]:
        """Take a batch out of the queue."""
        batch: list[_T] = []
        weight = 0
        with self._lock:
            while self._queue and weight < self._signal.batch_max:
                batch.append(self._queue.popleft())
                weight += self._signal.weigh(batch[-1])
            self._weight -= weight
        return batch

    def _sent(self, count: int, rejected: int) -> None:
        self._count("sent", count - rejected)
        self._count("failed", rejected)
        if self._pause_s:
            name, dropped = self._signal.name, self.counts["dropped"]
            _LOGGER.warning("the collector takes %s again; %d were dropped so far", name, dropped)
        self._pause_s = 0.0

    def _failed(self, count: int, why: str) -> None:
        self._count("failed", count)
        if not self._pause_s:
            _LOGGER.warning(
                "the collector does not take %s; they are dropped until it does: %s", self._signal.name, why
            )
        self._pause_s = min(_PAUSE_MAX_S, 2 * self._pause_s or _PAUSE_FIRST_S)
        self._resting_until_s = time.monotonic() + self._pause_s

    def _count(self, outcome: str, count: int) -> None:
        with self._lock:
            self.counts[outcome] += count
