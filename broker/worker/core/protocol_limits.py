"""Times and sizes of a worker's protocol."""

from __future__ import annotations

import msgspec


class ProtocolLimits(msgspec.Struct, frozen=True):
    """Times and sizes of a worker.

    Attributes:
        lease_margin_ms: So long before the lease runs out what can be stopped is stopped; at most half the lease.
        welcome_ms_max: A broker that has not welcomed a stream for so long is given up.
        progress_ms: A run's progress is told at most so often; three times as often as its heartbeat at least.
        message_bytes_max: A message takes no further end above this.

    """

    lease_margin_ms: int = 3_000
    welcome_ms_max: int = 10_000
    progress_ms: int = 1_000
    message_bytes_max: int = 3 * 1024 * 1024
