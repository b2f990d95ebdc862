"""Counts of the runs of a worker, by task type; types are tenants' to name, so that only so many are kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from broker.machine.commands import EndedRun
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun

_TYPES_MAX: Final = 100
_OTHER: Final = "other"


class RunCounts:
    """See the module.

    Attributes:
        begun: Runs that were begun, by type.
        ended: Runs that ended, by (type, status).
        running: Runs that have not ended, by type.

    """

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.running: Counter[str] = Counter()
        self._types: dict[int, str] = {}

    def begin(self, runs: Sequence[AssignedRun]) -> None:
        """Count runs that begin."""
        for run in runs:
            type_name = run.type if run.type in self.begun or len(self.begun) < _TYPES_MAX else _OTHER
            self._types[run.assignment_id] = type_name
            self.begun[type_name] += 1
            self.running[type_name] += 1

    def end(self, ends: Sequence[EndedRun]) -> None:
        """Count ends; each run's once."""
        for end in ends:
            type_name = self._types.pop(end.assignment_id, None)
            if type_name is not None:
                self.running[type_name] -= 1
                self.ended[type_name, TaskStatus(end.status).name.lower()] += 1
