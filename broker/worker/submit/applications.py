"""Runs tasks of type `spark_submit`: one spark-submit each, kept, watched, and ended with its run.

the payload      says arguments and settings, within bounds: `payload`
the application  lies in a code pool's archive, or in a place that the operator has opened: `application`
the worker       says master, mode, bounds: `settings`
the keeper       ends what was submitted when the run is over, whatever became of this process: `keeper`
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.context import MESSAGE_LENGTH_MAX, TaskError
from broker.worker.core.effects import StopReason
from broker.worker.executors.executor import RunListener
from broker.worker.jail.jails import Jails, JailSettings
from broker.worker.jail.plan import JailPlan
from broker.worker.outcomes import failed, finished, refused, stopped, timed_out
from broker.worker.submit.application import (
    Application,
    ApplicationRefusedError,
    allowed_application,
    deployed_application,
)
from broker.worker.submit.keeper import PROPERTIES_FILE, KeeperPlan
from broker.worker.submit.kept import KeptSubmission
from broker.worker.submit.log import ApplicationLog, OutputTail
from broker.worker.submit.pages import DriverState, driver_state, free_port
from broker.worker.submit.payload import ApplicationPayload, read_application
from broker.worker.submit.result import LOG_BYTES, OUTPUT_BYTES, SubmittedResult, failure_text
from broker.worker.submit.settings import SubmitSettings
from broker.worker.submit.words import SubmitPlace, kill_words, submit_words

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 2.0
_FIRST_LOOK_S = 0.5
"""Until the driver has told its id."""
_END_S = 15.0
_END_FAR_S = 90.0
"""Time of a keeper to end what it keeps, before it is killed: on a cluster that takes a command of Spark's."""
_PASSED_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP",
    "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "HADOOP_CONF_DIR", "HADOOP_HOME", "YARN_CONF_DIR", "KUBECONFIG",
)  # fmt: skip
_FIELDS = ("task_id", "assignment_id", "tenant", "attempt", "slot", "key")


class _Job:
    __slots__ = ("is_timed_out", "kept", "listener", "log", "output", "port", "reason", "run", "state", "task", "ui")

    def __init__(self, run: AssignedRun, listener: RunListener) -> None:
        self.run = run
        self.listener = listener
        self.task: asyncio.Task[None] | None = None
        self.kept: KeptSubmission | None = None
        self.reason: StopReason | None = None
        self.is_timed_out = False
        self.log = ApplicationLog(LOG_BYTES)
        self.output = OutputTail(OUTPUT_BYTES)
        self.port = 0
        self.state: DriverState | None = None
        self.ui = ""

    @property
    def application_id(self) -> str:
        return self.state.application_id if self.state is not None else self.log.application_id


class SparkApplications:
    """See the module. Used on one loop.

    Args:
        settings: The operator's; with a master.

    """

    def __init__(self, settings: SubmitSettings) -> None:
        self._settings = settings
        self._place = SubmitPlace(
            home=settings.home,
            master=settings.master,
            deploy_mode=settings.deploy_mode,
        )
        self._jobs: dict[int, _Job] = {}
        self._is_closed = False

    def jail(self, settings: JailSettings) -> JailSettings:
        """Return the jail of a driver: as that of other code, with Spark to be read and bounds of its own."""
        named = [os.environ.get(name, "") for name in ("JAVA_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "HADOOP_HOME")]
        # Where a system's packages of Java keep what their own folder has links to.
        of_java = map(str, Path("/etc").glob("java*"))
        places = [self._place.home, *named, *of_java]
        own = self._settings
        return msgspec.structs.replace(
            settings,
            reads=(*settings.reads, *(str(Path(place).absolute()) for place in places if place)),
            memory_bytes=own.memory_bytes,
            scratch_bytes=own.scratch_bytes,
            processes=own.processes,
        )

    def run(self, run: AssignedRun, listener: RunListener) -> None:
        """Begin a run whose payload names its application."""

        def find(payload: ApplicationPayload) -> Application:
            if run.mode:
                raise ApplicationRefusedError(f"mode {run.mode[:200]!r} is of a code pool, and the task names none")
            return allowed_application(payload.application, self._settings.applications)

        self._begin(run, listener, find, None, _nothing)

    def run_deployed(self, run: AssignedRun, listener: RunListener, folder: str, jails: Jails | None) -> None:
        """Begin a run whose application a code pool has.

        Args:
            run: Its mode names the application; the archive declares it.
            listener: Hears of it.
            folder: Where the archive was unpacked.
            jails: For its driver; None = the code is trusted, or the cluster runs the driver.

        """
        plan, leave = jails.enter() if jails is not None and not self._settings.is_cluster else (None, _nothing)

        def find(payload: ApplicationPayload) -> Application:
            if payload.application:
                raise ApplicationRefusedError("the task names a code pool, and its payload another application")
            return deployed_application(run.mode, folder if plan is None else plan.code_inside)

        self._begin(run, listener, find, plan, leave)

    def stop(self, assignment_id: int, reason: StopReason) -> bool:
        """End a run; return whether it is here."""
        job = self._jobs.get(assignment_id)
        if job is None:
            return False
        job.reason = reason
        self._end(job)
        return True

    async def close(self) -> None:
        """End all of them; no end is told any more."""
        self._is_closed = True
        jobs = list(self._jobs.values())
        for job in jobs:
            self._end(job)
        if tasks := [job.task for job in jobs if job.task is not None]:
            await asyncio.wait(tasks)

    # ---- a run

    def _begin(
        self,
        run: AssignedRun,
        listener: RunListener,
        find: Callable[[ApplicationPayload], Application],
        jail: JailPlan | None,
        leave: Callable[[], None],
    ) -> None:
        job = self._jobs[run.assignment_id] = _Job(run, listener)
        job.task = asyncio.get_running_loop().create_task(
            self._run(job, find, jail, leave), name=f"rsm-application-{run.task_id}"
        )

    async def _run(
        self,
        job: _Job,
        find: Callable[[ApplicationPayload], Application],
        jail: JailPlan | None,
        leave: Callable[[], None],
    ) -> None:
        run = job.run
        try:
            payload = read_application(run.payload, self._settings.conf)
            application = await asyncio.to_thread(find, payload)
            self._check(application)
            end = await self._end_of(job, application, payload, jail)
        except TaskError as error:
            end = failed(run.task_id, run.assignment_id, error)
        except ApplicationRefusedError as error:
            end = refused(run.task_id, run.assignment_id, str(error))
        except Exception as error:
            # Whatever it is: a run whose end nobody tells would be a task that runs for ever.
            _LOGGER.exception("application of task %d", run.task_id)
            end = failed(run.task_id, run.assignment_id, error)
        finally:
            leave()
            self._jobs.pop(run.assignment_id, None)
        if not self._is_closed:
            job.listener.on_ended([end])

    def _check(self, application: Application) -> None:
        if self._is_standalone and not application.main_class:
            raise ApplicationRefusedError(
                "a standalone cluster runs no drivers in Python: submit a JAR, or to a worker in client mode"
            )

    async def _end_of(
        self, job: _Job, application: Application, payload: ApplicationPayload, jail: JailPlan | None
    ) -> EndedRun:
        run = job.run
        loop = asyncio.get_running_loop()
        job.port = free_port()
        properties = await asyncio.to_thread(self._properties)
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="rsm-submit-")
        inside = folder if jail is None else jail.scratch_inside
        words = submit_words(
            msgspec.structs.replace(self._place, properties=f"{inside}/{PROPERTIES_FILE}" if properties else ""),
            application,
            name=f"rsm task {run.task_id}",
            own_conf=self._own_conf(job),
            conf=payload.conf,
            args=payload.args,
        )
        began_s = loop.time()
        try:
            plan = KeeperPlan(
                words=words,
                environment=self._environment(run, folder),
                folder=folder,
                properties=properties,
                jail=jail,
            )
            job.kept = await KeptSubmission.start(plan, job.output.feed, functools.partial(self._on_log, job))
            if job.reason is not None or self._is_closed:
                self._end(job)
            limit_s = min(self._settings.time_s, run.timeout_ms / 1000 if run.timeout_ms else float("inf"))
            timer = loop.call_later(limit_s, self._on_time_over, job)
            watching = loop.create_task(self._watch(job), name=f"rsm-watch-{run.task_id}")
            try:
                code = await job.kept.wait()
            finally:
                timer.cancel()
                watching.cancel()
                await asyncio.wait([watching])
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return self._told(job, code, loop.time() - began_s, limit_s)

    def _properties(self) -> str:
        """Return the operator's settings: a jailed driver is a user who could not read their file."""
        file = self._settings.properties
        if file is None:
            return ""
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"spark_submit: the settings of this worker cannot be read: {file}: {error}") from None

    def _own_conf(self, job: _Job) -> dict[str, str]:
        own = {
            "spark.ui.port": str(job.port),
            "spark.ui.killEnabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.rsm.task": str(job.run.task_id),
            "spark.rsm.assignment": str(job.run.assignment_id),
        }
        if self._settings.is_cluster:
            # The launcher stays until the driver has ended, and says how.
            own["spark.standalone.submit.waitAppCompletion"] = "true"
            own["spark.yarn.submit.waitAppCompletion"] = "true"
            own["spark.kubernetes.submission.waitAppCompletion"] = "true"
        return own

    def _environment(self, run: AssignedRun, folder: str) -> dict[str, str]:
        names = (*_PASSED_VARIABLES, *self._settings.environment)
        passed = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **passed,
            "SPARK_HOME": self._place.home,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
            # Each arena reserves addresses, and a JVM has many threads.
            "MALLOC_ARENA_MAX": "2",
            "HOME": folder,
            "TMPDIR": folder,
            "SPARK_LOCAL_DIRS": folder,
            **{f"RSM_{field.upper()}": str(getattr(run, field)).replace("\0", "") for field in _FIELDS},
        }

    def _told(self, job: _Job, code: int, seconds: float, limit_s: float) -> EndedRun:
        run, log = job.run, job.log
        if job.is_timed_out:
            return timed_out(run.task_id, run.assignment_id, int(limit_s * 1000), "it was ended")
        if job.reason is not None and code != 0:
            return stopped(run.task_id, run.assignment_id, job.reason)
        if how := self._fault(job, code):
            names = (job.application_id, log.submission_id)
            text = failure_text(how, names, log=log.troubles, output=job.output.text)
            return failed(run.task_id, run.assignment_id, text)
        result = SubmittedResult(
            job.application_id, log.submission_id, job.ui, round(seconds, 3), job.output.text, log.text
        )
        return finished(run.task_id, run.assignment_id, msgspec.json.encode(result))

    def _fault(self, job: _Job, code: int) -> str:
        """Return how an application has failed; "" = it has not."""
        if code >= 128:
            return f"it was killed by signal {code - 128}"
        if code != 0:
            return f"exit code {code}"
        end = job.log.driver_end
        # The launcher of a standalone cluster ends well, however its driver did.
        if self._is_standalone and end != "FINISHED":
            return f"the cluster says of the driver: {end}" if end else "nobody said how the driver ended"
        return ""

    @property
    def _is_standalone(self) -> bool:
        return self._settings.is_cluster and self._place.master.startswith("spark://")

    # ---- while it runs

    def _on_log(self, job: _Job, chunk: bytes) -> None:
        known = job.log.submission_id
        job.log.feed(chunk)
        if self._settings.is_cluster and job.log.submission_id != known and job.kept is not None:
            job.kept.remember(kill_words(self._place, job.log.submission_id))

    def _on_time_over(self, job: _Job) -> None:
        job.is_timed_out = True
        self._end(job)

    def _end(self, job: _Job) -> None:
        if job.kept is not None:
            job.kept.end()
            after_s = _END_FAR_S if self._settings.is_cluster else _END_S
            asyncio.get_running_loop().call_later(after_s, job.kept.kill)

    async def _watch(self, job: _Job) -> None:
        """Tell how far it is, when that has changed, and that it is alive as often as the task wants to hear it."""
        run = job.run
        loop = asyncio.get_running_loop()
        told, told_s = "", loop.time()
        beat_s = run.heartbeat_ms / 3000 if run.heartbeat_ms else float("inf")
        while True:
            await asyncio.sleep(min(beat_s, _LOOK_S if job.state is not None else _FIRST_LOOK_S))
            host = self._driver_host(job)
            if host:
                state = await asyncio.to_thread(driver_state, host, job.port)
                if state is not None:
                    job.state = state
                    job.ui = f"http://{self._shown_host(job)}:{job.port}"
            fraction, message = self._progress(job)
            if message != told or loop.time() - told_s >= beat_s:
                told, told_s = message, loop.time()
                job.listener.on_progress(ProgressOf(run.task_id, run.assignment_id, fraction, message))

    def _progress(self, job: _Job) -> tuple[float, str]:
        state, log = job.state, job.log
        known = [job.application_id, log.submission_id, job.ui]
        if state is not None:
            return state.fraction, _shown(" · ".join([*filter(None, known), state.words]))
        return -1.0, _shown(" · ".join([*filter(None, known), log.last_line or "starts"]))

    def _driver_host(self, job: _Job) -> str:
        if self._settings.is_cluster:
            return job.log.driver_host
        return os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"

    def _shown_host(self, job: _Job) -> str:
        if self._settings.is_cluster:
            return job.log.driver_host
        return os.environ.get("SPARK_PUBLIC_DNS") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()


def _shown(text: str) -> str:
    """Return a message of one line that people can read."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MESSAGE_LENGTH_MAX]


def _nothing() -> None:
    pass
