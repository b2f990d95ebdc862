"""Runs tasks of type `spark_submit`: one spark-submit each, kept, watched, and ended with its run.

the payload      says arguments and settings, within bounds: `payload`
the application  lies in a code pool's archive, or in a place that the operator has opened: `application`
the worker       says master, mode, bounds: `settings`
the keeper       ends what was submitted when the run is over, whatever became of this process: `keeper`
mode "connect"   a program has a session of its tenant's driver instead: `warm_applications`
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.code.folder import PoolFolder
from broker.worker.context import TaskError
from broker.worker.core.effects import StopReason
from broker.worker.executors.executor import RunListener
from broker.worker.jail.jails import Jails, JailSettings
from broker.worker.outcomes import failed, refused
from broker.worker.submit.application import (
    Application,
    ApplicationRefusedError,
    allowed_application,
    deployed_application,
)
from broker.worker.submit.keeper import PROPERTIES_FILE, KeeperPlan
from broker.worker.submit.kept import KeptSubmission
from broker.worker.submit.pages import free_port
from broker.worker.submit.payload import ApplicationPayload, read_application
from broker.worker.submit.settings import SubmitSettings
from broker.worker.submit.submitted_run import SubmittedRun
from broker.worker.submit.warm_applications import WarmApplications
from broker.worker.submit.warm_programs import connectors_folder
from broker.worker.submit.words import SubmitPlace, kill_words, submit_words

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 2.0
_FIRST_LOOK_S = 0.5
"""Until the driver has told its id."""
_PASSED_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP",
    "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "HADOOP_CONF_DIR", "HADOOP_HOME", "YARN_CONF_DIR", "KUBECONFIG",
)  # fmt: skip


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
        self._home = PoolFolder(None)
        self._warm: WarmApplications | None = None
        if settings.is_connect:
            self._warm = WarmApplications(settings, self._home, self._environment, self._properties)
        self._jobs: dict[int, SubmittedRun] = {}
        self._is_closed = False

    def jail(self, settings: JailSettings) -> JailSettings:
        """Return the jail of a driver: as that of other code, with Spark to be read and bounds of its own."""
        named = [os.environ.get(name, "") for name in ("JAVA_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "HADOOP_HOME")]
        # Where a system's packages of Java keep what their own folder has links to.
        of_java = map(str, Path("/etc").glob("java*"))
        places = [self._place.home, *named, *of_java, connectors_folder() if self._warm is not None else ""]
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

        self._begin(SubmittedRun(run, listener, self._settings), find)

    def run_deployed(self, run: AssignedRun, listener: RunListener, folder: str, jails: Jails | None) -> None:
        """Begin a run whose application a code pool has.

        Args:
            run: Its mode names the application; the archive declares it.
            listener: Hears of it.
            folder: Where the archive was unpacked.
            jails: For its driver; None = the code is trusted, or the cluster runs the driver.

        """
        own = jails if not self._settings.is_cluster else None

        def find(payload: ApplicationPayload) -> Application:
            if payload.application:
                raise ApplicationRefusedError("the task names a code pool, and its payload another application")
            return deployed_application(run.mode, folder if own is None else own.code_inside)

        self._begin(SubmittedRun(run, listener, self._settings, code=folder, jails=own), find)

    def stop(self, assignment_id: int, reason: StopReason) -> bool:
        """End a run; return whether it is here."""
        job = self._jobs.get(assignment_id)
        if job is None:
            return False
        job.reason = reason
        job.end()
        return True

    async def close(self) -> None:
        """End all of them; no end is told any more."""
        self._is_closed = True
        jobs = list(self._jobs.values())
        for job in jobs:
            job.end()
        if tasks := [job.task for job in jobs if job.task is not None]:
            await asyncio.wait(tasks)
        if self._warm is not None:
            await self._warm.close()
        await asyncio.to_thread(self._home.remove)

    # ---- a run

    def _begin(self, job: SubmittedRun, find: Callable[[ApplicationPayload], Application]) -> None:
        self._jobs[job.run.assignment_id] = job
        job.task = asyncio.get_running_loop().create_task(
            self._run(job, find), name=f"rsm-application-{job.run.task_id}"
        )

    async def _run(self, job: SubmittedRun, find: Callable[[ApplicationPayload], Application]) -> None:
        run = job.run
        loop = asyncio.get_running_loop()
        timer = loop.call_later(job.limit_s, self._on_time_over, job)
        watching = loop.create_task(self._watch(job), name=f"rsm-watch-{run.task_id}")
        try:
            payload = read_application(run.payload, self._settings.conf)
            application = await asyncio.to_thread(find, payload)
            if self._warm is not None:
                end = await self._warm.end_of(job, application, payload)
            else:
                end = await self._end_of(job, application, payload)
        except TaskError as error:
            end = failed(run.task_id, run.assignment_id, error)
        except ApplicationRefusedError as error:
            end = refused(run.task_id, run.assignment_id, str(error))
        except Exception as error:
            # Whatever it is: a run whose end nobody tells would be a task that runs for ever.
            _LOGGER.exception("application of task %d", run.task_id)
            end = failed(run.task_id, run.assignment_id, error)
        finally:
            timer.cancel()
            watching.cancel()
            await asyncio.wait([watching])
            self._jobs.pop(run.assignment_id, None)
        if not self._is_closed:
            job.listener.on_ended([end])

    async def _end_of(self, job: SubmittedRun, application: Application, payload: ApplicationPayload) -> EndedRun:
        """Run an application by spark-submit, and return its end."""
        if self._settings.is_standalone and not application.main_class:
            raise ApplicationRefusedError(
                "a standalone cluster runs no drivers in Python: submit a JAR, or to a worker in client mode"
            )
        loop = asyncio.get_running_loop()
        job.port = free_port()
        properties = await asyncio.to_thread(self._properties)
        made = await asyncio.to_thread(self._home.make)
        folder = str(made / "home")
        jail, leave = job.jails.enter() if job.jails is not None else (None, _nothing)
        inside = folder if jail is None else jail.scratch_inside
        words = submit_words(
            msgspec.structs.replace(self._place, properties=f"{inside}/{PROPERTIES_FILE}" if properties else ""),
            application,
            name=f"rsm task {job.run.task_id}",
            own_conf=self._own_conf(job),
            conf=payload.conf,
            args=payload.args,
        )
        began_s = loop.time()
        try:
            plan = KeeperPlan(
                words=words,
                environment={**self._environment(folder), **job.variables},
                folder=folder,
                properties=properties,
                jail=jail,
                lock=self._home.lock,
            )
            job.kept = await KeptSubmission.start(plan, job.output.feed, functools.partial(self._on_log, job))
            if job.is_to_end:
                job.end()
            code = await job.kept.wait()
        finally:
            leave()
            await asyncio.to_thread(self._home.discard, made)
        return job.told(code, loop.time() - began_s)

    def _properties(self) -> str:
        """Return the operator's settings: a jailed driver is a user who could not read their file."""
        file = self._settings.properties
        if file is None:
            return ""
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"spark_submit: the settings of this worker cannot be read: {file}: {error}") from None

    def _own_conf(self, job: SubmittedRun) -> dict[str, str]:
        own = {
            "spark.ui.port": str(job.port),
            "spark.ui.killEnabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **job.conf,
        }
        if self._settings.is_cluster:
            # The launcher stays until the driver has ended, and says how.
            own["spark.standalone.submit.waitAppCompletion"] = "true"
            own["spark.yarn.submit.waitAppCompletion"] = "true"
            own["spark.kubernetes.submission.waitAppCompletion"] = "true"
        return own

    def _environment(self, folder: str) -> dict[str, str]:
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
        }

    # ---- while it runs

    def _on_log(self, job: SubmittedRun, chunk: bytes) -> None:
        known = job.log.submission_id
        job.log.feed(chunk)
        if self._settings.is_cluster and job.log.submission_id != known and job.kept is not None:
            job.kept.remember(kill_words(self._place, job.log.submission_id))

    def _on_time_over(self, job: SubmittedRun) -> None:
        job.is_timed_out = True
        job.end()

    async def _watch(self, job: SubmittedRun) -> None:
        """Tell how far it is, when that has changed, and that it is alive as often as the task wants to hear it."""
        run = job.run
        loop = asyncio.get_running_loop()
        told, told_s = "", loop.time()
        beat_s = run.heartbeat_ms / 3000 if run.heartbeat_ms else float("inf")
        while True:
            await asyncio.sleep(min(beat_s, _LOOK_S if job.state is not None else _FIRST_LOOK_S))
            await job.look()
            fraction, message = job.progress()
            if message != told or loop.time() - told_s >= beat_s:
                told, told_s = message, loop.time()
                job.listener.on_progress(ProgressOf(run.task_id, run.assignment_id, fraction, message))


def _nothing() -> None:
    pass
