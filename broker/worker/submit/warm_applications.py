"""Applications of mode "connect": programs that have a session of their tenant's warm server, and no own driver."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from broker.machine.commands import EndedRun
from broker.worker.code.folder import PoolFolder
from broker.worker.context import TaskError
from broker.worker.submit.application import Application, ApplicationRefusedError
from broker.worker.submit.kept import KILLED
from broker.worker.submit.payload import ApplicationPayload, conf_text
from broker.worker.submit.settings import SubmitSettings
from broker.worker.submit.submitted_run import SubmittedRun
from broker.worker.submit.warm_programs import WarmProgram, WarmPrograms
from broker.worker.submit.warm_server import WarmServer
from broker.worker.submit.warm_servers import WarmServers

_OF_SESSIONS = "spark.sql."


class WarmApplications:
    """See the module. Used on one loop.

    Args:
        settings: The operator's.
        home: Where folders of servers and programs are made.
        environment: Variables of servers and programs, given the folder of one.
        properties: Returns settings of all servers; it blocks, and may raise `TaskError`.

    """

    def __init__(
        self,
        settings: SubmitSettings,
        home: PoolFolder,
        environment: Callable[[str], dict[str, str]],
        properties: Callable[[], str],
    ) -> None:
        count_max, idle_s = settings.warm_servers, settings.warm_idle_s
        self._servers = WarmServers(
            settings.master,
            home,
            count_max=count_max,
            idle_s=idle_s,
            environment=environment,
            properties=properties,
        )
        self._programs = WarmPrograms(home, count_max=count_max, idle_s=idle_s, environment=environment)

    async def end_of(self, job: SubmittedRun, application: Application, payload: ApplicationPayload) -> EndedRun:
        """Run an application, and return its end when its sessions are closed.

        Raises:
            ApplicationRefusedError: It is none of this mode.
            TaskError: It says what it may not, or there is no server to be had.
            OSError: No process can be started.

        """
        if application.main_class:
            raise ApplicationRefusedError(
                "a warm server runs programs in Python: submit a JAR to a worker in client or cluster mode"
            )
        for name in payload.conf:
            if not name.startswith(_OF_SESSIONS):
                raise TaskError(
                    f"spark_submit: conf {name[:80]!r} is of a whole driver, and in mode connect an application has a "
                    f"session of one: leave it out, or say it by --submit-properties; settings of a session begin with "
                    f"{_OF_SESSIONS}"
                )
        # It loads what it needs while the server is waited for.
        program = await self._programs.take(job.code, job.jails)
        server: WarmServer | None = None
        try:
            job.kept = program.kept
            server = await self._entered(job, payload)
            if server is None:
                return job.told(KILLED, 0.0)
            return await self._run(job, program, application, payload)
        finally:
            program.end()
            await program.wait()
            if server is not None:
                await self._servers.leave(server, job.run)

    async def close(self) -> None:
        """End servers, and programs that wait."""
        await self._programs.close()
        await self._servers.close()

    async def _run(
        self, job: SubmittedRun, program: WarmProgram, application: Application, payload: ApplicationPayload
    ) -> EndedRun:
        assert job.session is not None, "it has entered"
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        program.be(
            application.path,
            payload.args,
            {**job.variables, **job.session.environment},
            on_output=job.output.feed,
            on_log=job.log.feed,
        )
        self._programs.provide(job.code, job.jails)
        code = await program.wait()
        return job.told(code, loop.time() - began_s)

    async def _entered(self, job: SubmittedRun, payload: ApplicationPayload) -> WarmServer | None:
        """Return the server at which a run has a session; None = it was to end before it had one."""
        conf = {name: conf_text(value) for name, value in payload.conf.items()} | job.conf
        entering = self._servers.enter(job.run, job.jails, conf, functools.partial(_on_lost, job))
        task = job.entering = asyncio.get_running_loop().create_task(entering, name=f"rsm-enter-{job.run.task_id}")
        if job.is_to_end:
            job.end()
        await asyncio.wait([task])
        job.entering = None
        if task.cancelled():
            return None
        server, job.session = task.result()
        job.port = job.session.port
        return server


def _on_lost(job: SubmittedRun, why: str) -> None:
    job.lost = why
    job.end()
