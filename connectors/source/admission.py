"""Admission of a micro-batch: whether and how much it takes, as Kafka's source decides it. Pure: time is an argument.

1. `Trigger.Once` takes everything, whatever the limits are: Spark asks for it so.
2. `Trigger.AvailableNow` takes what was there when it began, in micro-batches up to the limits; it knows no minimum.
3. Any other trigger waits for `minOffsetsPerTrigger`, but not longer than `maxTriggerDelay` after the micro-batch
   before. The first one after a start waits for nothing.
4. The smallest of `maxOffsetsPerTrigger`, `maxBytesPerTrigger` and of what is there goes.
"""

from __future__ import annotations

import msgspec

from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits

EVERYTHING = MicroBatchLimits()
"""No limits, no minimum."""


def limits_of(options: SourceOptions) -> MicroBatchLimits:
    """Return the limits that the options of a query set."""
    return MicroBatchLimits(
        options.offsets_per_trigger_max,
        options.bytes_per_trigger_max,
        options.offsets_per_trigger_min,
        options.trigger_delay_max_s,
    )


def tighten(
    limits: MicroBatchLimits, *, offsets_max: int | None = None, bytes_max: int | None = None
) -> MicroBatchLimits:
    """Return limits that are at least as tight as each of two."""
    return msgspec.structs.replace(
        limits,
        offsets_max=_smaller(limits.offsets_max, offsets_max),
        bytes_max=_smaller(limits.bytes_max, bytes_max),
    )


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


class BatchAdmission:
    """Holds micro-batches back until they are worth it. One query; the clock begins anew with each start of it."""

    def __init__(self) -> None:
        # When the last micro-batch was let go.
        self._last_s: float | None = None

    def admits(self, waiting: int, limits: MicroBatchLimits, now_s: float) -> bool:
        """Return whether what waits goes now; it counts as gone then.

        Args:
            waiting: Records or entries that could be read, at least one entry.
            limits: `offsets_min` and `trigger_delay_max_s` count here.
            now_s: Monotonic seconds.

        """
        is_enough = limits.offsets_min is None or waiting >= limits.offsets_min
        is_due = self._last_s is None or now_s - self._last_s >= limits.trigger_delay_max_s
        if is_enough or is_due:
            self._last_s = now_s
            return True
        return False
