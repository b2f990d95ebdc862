"""Warm servers of a worker: one for each tenant with applications, kept for a while for the next one.

    STARTING   Spark starts; applications of the tenant wait for it
    SERVING    applications have sessions there
    FREE       nobody has; it is ended after `idle_s`, or to make room for another tenant's
    gone       its applications have failed; the next one starts another

No two tenants share one: whoever is let in by its token can ask for any session of the server, bring code along that
runs in its JVM, and end it. There are `count_max` at most. Who finds all of them taken waits, and nobody passes by: not
even a tenant that has a server, so that servers become free.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from broker.machine.worker_messages import AssignedRun
from broker.worker.code.folder import PoolFolder
from broker.worker.jail.jails import Jails
from broker.worker.jail.plan import JailPlan
from broker.worker.jail.reading import jail_path
from broker.worker.submit.keeper import PROPERTIES_FILE, KeeperPlan
from broker.worker.submit.warm_programs import connectors_folder
from broker.worker.submit.warm_server import WarmServer, WarmSession

_LOGGER = logging.getLogger(__name__)
_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from connectors.pool.warm_server import main; main()"


class WarmServers:
    """See the module. Used on one loop.

    Args:
        master: Of all of them.
        home: Where their folders are made.
        count_max: Most at once.
        idle_s: One that nobody has is ended after so long.
        environment: Variables of a server, given its folder.
        properties: Returns settings of all of them, as spark-defaults.conf has them; it blocks, and may raise
            `TaskError`.

    """

    def __init__(
        self,
        master: str,
        home: PoolFolder,
        *,
        count_max: int,
        idle_s: float,
        environment: Callable[[str], dict[str, str]],
        properties: Callable[[], str],
    ) -> None:
        self._master = master
        self._count_max = count_max
        self._idle_s = idle_s
        self._environment = environment
        self._properties = properties
        self._home = home
        self._servers: dict[str, WarmServer] = {}
        self._living: dict[WarmServer, asyncio.Task[None]] = {}
        self._idle: dict[WarmServer, asyncio.TimerHandle] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    async def enter(
        self, run: AssignedRun, jails: Jails | None, conf: Mapping[str, str], on_lost: Callable[[str], None]
    ) -> tuple[WarmServer, WarmSession]:
        """Return a session of the tenant's server for a run, which has to `leave`.

        Args:
            run: Whose.
            jails: Around what the server is put; None = it may do what the worker may.
            conf: Settings of the session.
            on_lost: Hears why, if the server ends before the run has left.

        Raises:
            TaskError: There is no server to be had, or a setting is none of a session.

        """
        async with self._turn:
            while (server := self._server(run.tenant, jails)) is None:
                self._changed.clear()
                await self._changed.wait()
            if timer := self._idle.pop(server, None):
                timer.cancel()
            server.hold(run, on_lost)
        try:
            return server, await server.open(run, conf)
        except BaseException:
            await self.leave(server, run)
            raise

    async def leave(self, server: WarmServer, run: AssignedRun) -> None:
        """End what a run still does at its server; it raises nothing."""
        await server.leave(run)
        if server.is_free and server in self._living:
            self._idle[server] = asyncio.get_running_loop().call_later(self._idle_s, server.end)
        self._changed.set()

    async def close(self) -> None:
        """End all of them."""
        for server in self._living:
            server.end()
        if self._living:
            await asyncio.wait(self._living.values())

    def _server(self, tenant: str, jails: Jails | None) -> WarmServer | None:
        """Return the server of a tenant; None = something has to change before it can have one."""
        server = self._servers.get(tenant)
        if server is not None and not server.is_ending:
            return server
        if len(self._living) < self._count_max:
            server = self._servers[tenant] = WarmServer(tenant)
            loop = asyncio.get_running_loop()
            self._living[server] = loop.create_task(self._live(server, jails), name=f"rsm-warm-server-{tenant}")
            return server
        if not any(one.is_ending for one in self._living):
            free = next((one for one in self._living if one.is_free), None)
            if free is not None:
                free.end()
        return None

    async def _live(self, server: WarmServer, jails: Jails | None) -> None:
        folder: Path | None = None
        leave: Callable[[], None] | None = None
        plan: JailPlan | None = None
        why = "the warm server of this tenant cannot be started"
        try:
            folder = await asyncio.to_thread(self._home.make)
            if jails is not None:
                own = jails.around(folder)
                await asyncio.to_thread(own.open_code)
                plan, leave = own.enter()
            properties = await asyncio.to_thread(self._properties)
            await server.live(self._plan(folder / "home", properties, plan))
        except Exception as error:  # noqa: BLE001 - whatever it is, applications wait for it
            why = f"{why}: {error}"
        finally:
            if leave is not None:
                leave()
            if folder is not None:
                await asyncio.to_thread(self._home.discard, folder)
            if timer := self._idle.pop(server, None):
                timer.cancel()
            del self._living[server]
            if self._servers.get(server.tenant) is server:
                del self._servers[server.tenant]
            self._changed.set()
            server.fail(why)

    def _plan(self, folder: Path, properties: str, jail: JailPlan | None) -> KeeperPlan:
        inside = str(folder) if jail is None else jail.scratch_inside
        words = ["--master", self._master, "--name", "rsm warm server"]
        if properties:
            words += ["--properties-file", f"{inside}/{PROPERTIES_FILE}"]
        path = [*jail_path(), str(Path(connectors_folder()).parent)]
        submitted = {"PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"])}
        return KeeperPlan(
            words=[sys.executable, "-B", "-c", _MAIN, json.dumps(path)],
            environment={**self._environment(str(folder)), **submitted},
            folder=str(folder),
            properties=properties,
            is_asked=True,
            jail=jail,
            lock=self._home.lock,
        )
