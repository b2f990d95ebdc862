"""Options of what a worker does, wherever it is started: by `rsm worker run`, or by a pool."""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.worker.executors.executor import Executor
from broker.worker.executors.kinds import check_executor, make_executor
from broker.worker.option_units import amounts
from broker.worker.settings import WorkerSettings
from ledger.options import Option


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks, how they are run, and what is offered to the broker."""

    tasks: Annotated[
        str,
        Option(
            "Modules whose @task functions it runs; or one function, for every type.", metavar="MODULE[:ATTRIBUTE],…"
        ),
    ] = ""
    executor: Annotated[str, Option("thread, process, subprocess, asyncio.")] = "thread"
    command: Annotated[
        str, Option("What --executor subprocess runs: {type}, {task_id} … are filled in.", metavar="TEMPLATE")
    ] = ""
    types: Annotated[
        str,
        Option(
            "Task types, and how many of each at once; * stands for each type that is not named.",
            metavar="TYPE[=N],…",
            shown="all that it has functions for",
        ),
    ] = ""
    codec: Annotated[
        str,
        Option(
            "Function that makes the codec of payloads and results. Clients need the same codec.",
            metavar="MODULE:FUNCTION",
            shown="none",
        ),
    ] = ""
    worker: WorkerSettings = WorkerSettings()

    @property
    def type_amounts(self) -> dict[str, int]:
        """Tasks at once by type, as `types` says."""
        return amounts(self.types, "--types", self.worker.threads)

    def settings(self, worker_id: str, location: str = "") -> WorkerSettings:
        """Return what a worker runs with.

        Args:
            worker_id: Its name, unless it was given one.
            location: Likewise.

        Raises:
            UsageError: A value makes no sense, or modules and executor do not go together.

        """
        settings = msgspec.structs.replace(
            self.worker,
            worker_id=self.worker.worker_id or worker_id,
            location=self.worker.location or location,
            types=self.type_amounts,
        )
        settings.check()
        check_executor(self.executor, self.tasks, self.command)
        return settings

    def make_executor(self) -> Executor:
        """Return what runs the tasks.

        Raises:
            UsageError: There is no such module or function, or the settings make no sense.

        """
        return make_executor(self.executor, self.tasks, self.command, self.worker.children)
