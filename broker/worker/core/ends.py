"""Ends of runs that no leader has acknowledged yet: each is told once on every stream."""

from __future__ import annotations

from collections.abc import Iterable

from broker.machine.commands import EndedRun, HeldRun

_ENDED_BYTES = 64
"""Bytes of an end beside its result and its texts."""


class Ends:
    def __init__(self) -> None:
        # By assignment id, oldest first.
        self._ends: dict[int, EndedRun] = {}
        # Ids that are not on the present stream, oldest first. Invariant: all of them are in `_ends`.
        self._untold: dict[int, None] = {}

    def __len__(self) -> int:
        """Return how many are not acknowledged."""
        return len(self._ends)

    @property
    def assignment_ids(self) -> list[int]:
        """Ids of those that are not acknowledged."""
        return list(self._ends)

    def add(self, end: EndedRun) -> None:
        """Keep an end until it is acknowledged."""
        self._ends[end.assignment_id] = end
        self._untold[end.assignment_id] = None

    def acknowledge(self, assignment_ids: Iterable[int]) -> None:
        """Forget what the log knows."""
        for assignment_id in assignment_ids:
            if self._ends.pop(assignment_id, None) is not None:
                self._untold.pop(assignment_id, None)

    def tell_again(self) -> None:
        """Begin a stream: nothing is on it yet."""
        self._untold = dict.fromkeys(self._ends)

    def take(self, bytes_max: int) -> list[EndedRun]:
        """Return those that are to be told, as many as fit one message; they are on the stream then."""
        if not self._untold:
            return []
        ends: list[EndedRun] = []
        size = 0
        for assignment_id in self._untold:
            if size > bytes_max:
                break
            end = self._ends[assignment_id]
            size += len(end.result) + 4 * len(end.error) + _ENDED_BYTES
            ends.append(end)
        if len(ends) == len(self._untold):
            self._untold.clear()
        else:
            for end in ends:
                del self._untold[end.assignment_id]
        return ends

    def rest(self) -> list[HeldRun]:
        """Return the runs whose ends are still to be told on this stream."""
        return [HeldRun(self._ends[assignment_id].task_id, assignment_id) for assignment_id in self._untold]

    def validate(self) -> None:
        assert self._untold.keys() <= self._ends.keys(), "only what has ended is to be told"
