"""Interface of what functions of code pools are given at a worker besides context and payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class CodeSupport(Protocol):
    """Gives each run something of its own, in the process that runs it, and takes it back when the run is over."""

    @property
    def giver(self) -> str:
        """Function that the process calls with a run's context, as "module:function".

        It returns a context manager, which is entered for the run: a mapping of arguments by their names.
        """
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the processes."""
        ...

    def begin(self, task_id: int, assignment_id: int) -> None:
        """Hear of a run before its process does."""
        ...

    async def take_back(self, task_id: int, assignment_id: int) -> None:
        """Take back what a run was given, whatever became of its process; what that still does is broken off.

        It raises nothing, and takes seconds at most.
        """
        ...
