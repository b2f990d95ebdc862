"""Counters whose leader can be made to hang: `rsm serve tests.integration.hanging_counters:HangingCounters`."""

from __future__ import annotations

import time
from pathlib import Path

from examples.counter import Counters
from rsm_spark import Decision

_HANG_S = 8.0


class HangingCounters(Counters):
    """A command that is the path of a file removes it, and stands still with the whole event loop; once."""

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        path = Path(command.decode())
        if path.is_absolute() and path.exists():
            path.unlink()
            time.sleep(_HANG_S)
        return super().decide(command, revision, now_ms)
