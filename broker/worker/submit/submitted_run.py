"""A run of a task of type `spark_submit` as it is told: how far it is, and how it has ended."""

from __future__ import annotations

import asyncio
import os
import socket

import msgspec

from broker.machine.commands import EndedRun
from broker.machine.worker_messages import AssignedRun
from broker.worker.context import MESSAGE_LENGTH_MAX
from broker.worker.core.effects import StopReason
from broker.worker.executors.executor import RunListener
from broker.worker.jail.jails import Jails
from broker.worker.outcomes import failed, finished, stopped, timed_out
from broker.worker.submit.kept import KeptSubmission
from broker.worker.submit.log import ApplicationLog, OutputTail
from broker.worker.submit.pages import DriverState, driver_state
from broker.worker.submit.result import LOG_BYTES, OUTPUT_BYTES, SubmittedResult, failure_text
from broker.worker.submit.settings import SubmitSettings
from broker.worker.submit.warm_server import WarmServer, WarmSession

_END_S = 15.0
_END_FAR_S = 90.0
"""Time of a keeper to end what it keeps, before it is killed: on a cluster that takes a command of Spark's."""
_FIELDS = ("task_id", "assignment_id", "tenant", "attempt", "slot", "key")


class SubmittedRun:
    """See the module. Used on one loop.

    Args:
        run: That the broker has assigned.
        listener: Hears of it.
        settings: The operator's.
        code: Folder of its code pool; "" = it has none.
        jails: Of the code pool; None = the code is trusted, or the operator's.

    Attributes:
        task: Carries it out.
        entering: While it waits for a session of a warm server.
        session: That it has there; None = it has a driver of its own.
        kept: What was started for it.
        reason: Why it is to end; None = nobody has asked for that.
        is_timed_out: Whether its time is over.
        is_to_end: Whether it was to end, for whatever reason.
        lost: Why it cannot go on; "" = it can.
        port: Of the driver's pages; 0 = not known.

    """

    def __init__(
        self,
        run: AssignedRun,
        listener: RunListener,
        settings: SubmitSettings,
        *,
        code: str = "",
        jails: Jails | None = None,
    ) -> None:
        self.run = run
        self.listener = listener
        self.code = code
        self.jails = jails
        self._settings = settings
        self.task: asyncio.Task[None] | None = None
        self.entering: asyncio.Task[tuple[WarmServer, WarmSession]] | None = None
        self.session: WarmSession | None = None
        self.kept: KeptSubmission | None = None
        self.reason: StopReason | None = None
        self.is_timed_out = False
        self.is_to_end = False
        self.lost = ""
        self.log = ApplicationLog(LOG_BYTES)
        self.output = OutputTail(OUTPUT_BYTES)
        self.port = 0
        self.state: DriverState | None = None
        self.ui = ""

    @property
    def application_id(self) -> str:
        if self.session is not None:
            return self.session.application_id
        return self.state.application_id if self.state is not None else self.log.application_id

    @property
    def conf(self) -> dict[str, str]:
        """Settings by which an application finds its run."""
        return {"spark.rsm.task": str(self.run.task_id), "spark.rsm.assignment": str(self.run.assignment_id)}

    @property
    def variables(self) -> dict[str, str]:
        """Variables by which an application finds its run."""
        return {f"RSM_{field.upper()}": str(getattr(self.run, field)).replace("\0", "") for field in _FIELDS}

    @property
    def limit_s(self) -> float:
        """Longest time that it may take."""
        own_s = self.run.timeout_ms / 1000 if self.run.timeout_ms else float("inf")
        return min(self._settings.time_s, own_s)

    def end(self) -> None:
        """Have it end, by force if it takes long; what is started for it later is ended then."""
        self.is_to_end = True
        # Once: it may be on its way out, which nobody is to break off.
        entering, self.entering = self.entering, None
        if entering is not None:
            entering.cancel()
        if self.kept is not None:
            self.kept.end()
            after_s = _END_FAR_S if self._settings.is_cluster else _END_S
            asyncio.get_running_loop().call_later(after_s, self.kept.kill)

    # ---- how far it is

    async def look(self) -> None:
        """Ask the driver's pages how far it is."""
        host, shown, tag = self._driver_host()
        if not host or not self.port:
            return
        state = await asyncio.to_thread(driver_state, host, self.port, tag=tag)
        if state is not None:
            self.state = state
            self.ui = f"http://{shown}:{self.port}"

    def progress(self) -> tuple[float, str]:
        """Return how far it is: a share, -1 if that is not known, and words."""
        state, log = self.state, self.log
        session = f"session {self.session.session_id}" if self.session is not None else ""
        known = [*filter(None, (self.application_id, log.submission_id, session, self.ui))]
        if state is not None:
            return state.fraction, _shown(" · ".join([*known, state.words]))
        return -1.0, _shown(" · ".join([*known, log.last_line or "starts"]))

    def _driver_host(self) -> tuple[str, str, str]:
        """Return the host that is asked, the one that is shown, and the tag of jobs that count."""
        if self._settings.is_cluster:
            return self.log.driver_host, self.log.driver_host, ""
        asked = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
        shown = os.environ.get("SPARK_PUBLIC_DNS") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
        return asked, shown, self.session.jobs if self.session is not None else ""

    # ---- how it has ended

    def told(self, code: int, seconds: float) -> EndedRun:
        """Return its end.

        Args:
            code: Of what was started.
            seconds: It took.

        """
        run, log = self.run, self.log
        if self.is_timed_out:
            return timed_out(run.task_id, run.assignment_id, int(self.limit_s * 1000), "it was ended")
        if self.reason is not None and code != 0:
            return stopped(run.task_id, run.assignment_id, self.reason)
        names = (self.application_id, log.submission_id)
        if how := self._fault(code):
            text = failure_text(how, names, log=log.troubles, output=self.output.text)
            return failed(run.task_id, run.assignment_id, text)
        result = SubmittedResult(
            *names,
            self.ui,
            round(seconds, 3),
            self.output.text,
            log.text,
            self.session.session_id if self.session is not None else "",
        )
        return finished(run.task_id, run.assignment_id, msgspec.json.encode(result))

    def _fault(self, code: int) -> str:
        """Return how an application has failed; "" = it has not."""
        if self.lost and code != 0:
            return self.lost
        if code >= 128:
            return f"it was killed by signal {code - 128}"
        if code != 0:
            return f"exit code {code}"
        end = self.log.driver_end
        # The launcher of a standalone cluster ends well, however its driver did.
        if self._settings.is_standalone and end != "FINISHED":
            return f"the cluster says of the driver: {end}" if end else "nobody said how the driver ended"
        return ""


def _shown(text: str) -> str:
    """Return a message of one line that people can read."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MESSAGE_LENGTH_MAX]
