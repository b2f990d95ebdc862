"""Context of a run for the user's function.

* `RunCancelledError(Exception)`   raised by `TaskContext.check` in a run that is to end
* `TaskError(Exception)`           raised by a function to fail with these words, without a trace
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from broker.machine.worker_messages import AssignedRun
from broker.worker.core.effects import StopReason

ProgressListener = Callable[[int, int, float, str], None]
"""Called with task id, assignment id, fraction, message; from any thread."""

MESSAGE_LENGTH_MAX = 240
"""Characters of a progress message; longer ones are cut."""


class RunCancelledError(Exception):
    """Raised by `TaskContext.check` in a run that is to end: let it through, and the run ends as cancelled."""


class TaskError(Exception):
    """Raise it to have a task fail with these words: they are its error, whole, and no trace of the code follows."""


class TaskContext:
    """One run of one task. It may be used from any thread.

    Args:
        run: What was assigned.
        on_progress: Hears of every sign of life.

    Attributes:
        task_id: Id of the task.
        assignment_id: Of this run: rises from run to run, so that it serves as a fencing token.
        attempt: 1 at first.
        tenant: Whose task it is.
        type: Of the task.
        slot: That the task holds; "" = none.
        key: By which the tenant may hold it back; "" = none.
        resources: Amounts that it holds.
        timeout_ms: Longest run; 0 = none.
        is_cancelled: Whether the run is to end: it was cancelled, has taken too long, or the worker ends.
        stop_reason: Why; None while it is not to end.

    """

    __slots__ = (
        "_began_s", "_event", "_on_progress", "_run", "is_cancelled", "stop_reason"
    )  # fmt: skip

    def __init__(self, run: AssignedRun, on_progress: ProgressListener) -> None:
        self._run = run
        self._on_progress = on_progress
        self._event: threading.Event | None = None
        self._began_s = time.monotonic()
        self.is_cancelled = False
        self.stop_reason: StopReason | None = None

    @property
    def task_id(self) -> int:
        """Id of the task."""
        return self._run.task_id

    @property
    def assignment_id(self) -> int:
        """Id of this run: rises from run to run, so that it serves as a fencing token."""
        return self._run.assignment_id

    @property
    def attempt(self) -> int:
        """Number of this run of the task: 1 at first."""
        return self._run.attempt

    @property
    def tenant(self) -> str:
        """Tenant of the task."""
        return self._run.tenant

    @property
    def type(self) -> str:
        """Type of the task."""
        return self._run.type

    @property
    def slot(self) -> str:
        """Slot that the task holds; "" = none."""
        return self._run.slot

    @property
    def key(self) -> str:
        """Key by which the tenant may hold it back; "" = none."""
        return self._run.key

    @property
    def resources(self) -> dict[str, int]:
        """Amounts that it holds, by resource."""
        return dict(self._run.resources)

    @property
    def timeout_ms(self) -> int:
        """Longest run; 0 = none."""
        return self._run.timeout_ms

    @property
    def deadline(self) -> float | None:
        """Time at which the task has to be over, on the clock of `time.monotonic()`; None = never."""
        return self._began_s + self._run.deadline_in_ms / 1000 if self._run.deadline_in_ms else None

    @property
    def cancelled(self) -> threading.Event:
        """Set when the run is to end: wait for it instead of sleeping."""
        event = self._event
        if event is None:
            event = self._event = threading.Event()
            # `stop` may have come between: it sets the mark first, then the event if there is one.
            if self.is_cancelled:
                event.set()
        return event

    def check(self) -> None:
        """Raise if the run is to end.

        Raises:
            RunCancelledError: It is.

        """
        if self.is_cancelled:
            raise RunCancelledError(f"task {self.task_id} is to end: {self.stop_reason}")

    def progress(self, fraction: float = -1.0, message: str = "") -> None:
        """Tell how far the run is; it is a heartbeat too. Costs little: only the newest is sent, once a second.

        Args:
            fraction: 0 to 1; -1 = not known.
            message: For people; cut to 240 characters.

        """
        if fraction != -1.0:
            fraction = min(max(fraction, 0.0), 1.0) if fraction == fraction else -1.0  # noqa: PLR0124 - NaN
        self._on_progress(self._run.task_id, self._run.assignment_id, fraction, message[:MESSAGE_LENGTH_MAX])

    def heartbeat(self) -> None:
        """Tell that the run is alive."""
        self.progress()

    def stop(self, reason: StopReason | None) -> None:
        """Tell the function that the run is to end; None = it has taken too long."""
        self.stop_reason = reason
        self.is_cancelled = True
        if self._event is not None:
            self._event.set()
