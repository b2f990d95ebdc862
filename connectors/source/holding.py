"""Hold of a streaming query on its logs: what it has not delivered yet is not trimmed, within limits. Driver only.

The position is registered before the query plans from it, and moves when Spark says that a micro-batch is done. It is
written at most every few seconds: a hold that lags keeps a little more than is needed, never less. Nothing is let go of
when the query stops: it may go on from its checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from connectors.source.offsets import LogPosition, SnapshotOffset
from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.log.consumers import ConsumerError, ConsumerState

_LOGGER = logging.getLogger(__name__)
MOVE_S = 5.0
"""A position is written at most so often, unless a query has another wish."""


class ConsumerAccess(Protocol):
    """Access to the consumers of logs; `access.DriverAccess` is the real one."""

    def register_consumer(self, log: str, name: str, state: ConsumerState) -> int:
        """Hold a log from a position on; see `LogConsumers.register`."""
        ...

    def move_consumer(self, log: str, name: str, revision: int, holder: str) -> bool:
        """Let go of what was read; see `LogConsumers.advance`."""
        ...


class QueryHold:
    """Positions that one query holds, in one log or several.

    Args:
        name: Of the consumer, in each log.
        access: To the logs' consumers.
        hold_ms: See `ConsumerHold`.
        hold_bytes: See `ConsumerHold`.
        move_s: A position is written at most so often.
        clock: Monotonic seconds.

    """

    def __init__(
        self,
        name: str,
        access: ConsumerAccess,
        *,
        hold_ms: int,
        hold_bytes: int,
        move_s: float = MOVE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._access = access
        self._limits = hold_ms, hold_bytes
        self._clock = clock
        self._move_s = move_s
        self._holder = os.urandom(16).hex()
        self._known: dict[str, int] = {}  # Revision that is written down, by log.
        self._wanted: dict[str, int] = {}
        self._lost: dict[str, str] = {}  # Logs that are not held any more, and why.
        self._moved_s = clock()

    def begin(self, positions: Mapping[str, LogPosition]) -> None:
        """Hold the logs in which the query stands, unless that is done.

        Raises:
            ConsumerError, LedgerError: A log cannot be held.

        """
        for log, position in positions.items():
            if log not in self._known and log not in self._lost:
                what = f"Spark stream, process {os.getpid()} on {socket.gethostname()}"
                hold_ms, hold_bytes = self._limits
                state = ConsumerState(_read(position), what, self._holder, hold_ms, hold_bytes)
                self._known[log] = self._access.register_consumer(log, self._name, state)

    def move(self, positions: Mapping[str, LogPosition]) -> None:
        """Let go of what is before these positions, now or soon; hold logs that are new.

        Raises:
            ConsumerError, LedgerError: A new log cannot be held.

        """
        self.begin(positions)
        self._wanted = {log: _read(position) for log, position in positions.items()}
        if self._clock() - self._moved_s >= self._move_s:
            self.flush()

    def flush(self) -> None:
        """Write down where the query stands; what cannot be written is told in the driver's log."""
        self._moved_s = self._clock()
        for log, revision in self._wanted.items():
            if log not in self._known or self._known[log] >= revision:
                continue
            try:
                self._access.move_consumer(log, self._name, revision, self._holder)
                self._known[log] = revision
            except ConsumerError as error:
                # Somebody wants it so, or has the same name: the query goes on, without a hold.
                del self._known[log]
                self._lost[log] = str(error)
                _LOGGER.warning(
                    "log %s is not held for this query any more: %s",
                    log,
                    error,
                    extra={"log": log, "reader": self._name},
                )
            except (LedgerError, RsmError) as error:
                said = "log %s: what this query has read could not be written down: %s"
                _LOGGER.warning(said, log, error, extra={"log": log, "reader": self._name})


def _read(position: LogPosition) -> int:
    """Return the last revision that is not needed any more; 0 = all are."""
    return position.revision if isinstance(position, SnapshotOffset) else max(0, position.revision - 1)
