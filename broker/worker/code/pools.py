"""Code pools: each archive in a folder of its own, run by child processes of its own, kept while it is used.

    FETCHING   downloaded and unpacked; its runs wait        `_Pool.waiting`
    READY      children run its tasks                         `_Pool.children`
    gone       its runs failed with the reason, or nothing used it for a while

The worker itself imports nothing of it. Two archives with modules of the same names do not meet: each has its own
folder and its own processes, which see few variables of the worker's environment and none of its secrets.
"""

# Longer than 400 lines: where a pool is, and what becomes of its runs there, is one set of cases.
from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.policies import SPARK_PYTHON, SPARK_SUBMIT
from broker.machine.worker_messages import AssignedRun
from broker.worker.code.archive import ArchiveLimits, CodeArchiveError, declared, measure, unpack
from broker.worker.code.download import download
from broker.worker.code.folder import PoolFolder
from broker.worker.code.support import CodeSupport
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_messages import SetUp
from broker.worker.executors.children import ChildLimits, Children
from broker.worker.executors.executor import RunListener
from broker.worker.jail.jails import Jails, JailSettings, MachineJail, look_for_jail
from broker.worker.outcomes import failed, refused, stopped
from broker.worker.stream import CodeGoneError, WorkerStream
from broker.worker.submit.applications import SparkApplications
from rsm_spark.errors import RsmError

_LOGGER = logging.getLogger(__name__)
_NAMED_ENTRIES = 20
"""So many are named to whom asks for another one."""
_PASSED_VARIABLES = ("PATH", "LANG", "LANGUAGE", "TZ")


class PoolLimits(msgspec.Struct, frozen=True):
    """Bounds on code pools at a worker.

    Attributes:
        fetch_s: Longest download, over broken connections too; a run whose code is not there then has failed.
        keep_s: A pool that nothing uses is removed after so long.
        check_s: A pool that was not used for so long is compared with the broker's before it is used again.
        children: How its processes are treated.
        archive: Bounds of what is unpacked.
        unpacked_bytes_max: All pools here together; those that nothing uses make room.

    """

    fetch_s: float = 60.0
    keep_s: float = 300.0
    check_s: float = 2.0
    children: ChildLimits = ChildLimits()
    archive: ArchiveLimits = ArchiveLimits()
    unpacked_bytes_max: int = 1024 * 1024 * 1024


class _Pool:
    """One archive."""

    __slots__ = (
        "active_count", "children", "code", "driver_jails", "entries", "folder", "free_s", "removal", "sha256",
        "size", "task", "unpacked_bytes", "waiting",
    )  # fmt: skip

    def __init__(self, code: str) -> None:
        self.code = code
        # Runs that wait or run.
        self.active_count = 0
        self.waiting: list[AssignedRun] = []
        self.children: Children | None = None
        self.folder: Path | None = None
        # Of the drivers of its applications; None = they need none.
        self.driver_jails: Jails | None = None
        # What its archive declares, and how large its files are.
        self.entries: frozenset[str] = frozenset()
        self.unpacked_bytes = 0
        self.sha256 = ""
        self.size = 0
        # Since when nothing has run.
        self.free_s = 0.0
        self.removal: asyncio.TimerHandle | None = None
        # Fetches, checks or removes it; one at a time.
        self.task: asyncio.Task[None] | None = None


class CodePools:
    """See the module. Used on one loop.

    Args:
        stream_now: Returns the stream to download over; None = there is none at present.
        folder: Where folders are made; None = in the system's place for temporary ones.
        limits: How pools are treated.
        jail: What their code may do.
        support: Gives functions more than context and payload; None = they get nothing else.
        applications: Runs applications of Spark; None = none are run here.

    Attributes:
        fetched_count: Archives downloaded.

    """

    def __init__(
        self,
        stream_now: Callable[[], WorkerStream | None],
        *,
        folder: Path | None = None,
        limits: PoolLimits | None = None,
        jail: JailSettings | None = None,
        support: CodeSupport | None = None,
        applications: SparkApplications | None = None,
    ) -> None:
        self._stream_now = stream_now
        self._applications = applications
        self._support = support
        self._limits = limits if limits is not None else PoolLimits()
        self._jail = jail if jail is not None else JailSettings()
        self._looking: asyncio.Task[MachineJail] | None = None
        self._home = PoolFolder(folder)
        self._pools: dict[str, _Pool] = {}
        self._of_run: dict[int, _Pool] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._taking_back: set[asyncio.Task[None]] = set()
        self._children_max = 1
        self._unpacked_bytes = 0
        self.fetched_count = 0

    @property
    def codes(self) -> list[str]:
        """Names of the pools that are here or on their way."""
        return list(self._pools)

    async def start(self, listener: RunListener, children_max: int) -> None:
        """Get ready.

        Args:
            listener: Hears of the runs.
            children_max: Runs of one pool at once.

        """
        self._listener = listener
        self._children_max = children_max
        self._loop = asyncio.get_running_loop()
        if self._jail.is_code_trusted:
            _LOGGER.warning("code that comes with tasks is trusted: it may do what this worker may")
        else:
            self._looking = self._loop.create_task(look_for_jail(self._jail), name="rsm-jail")

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; the first one of a code fetches it."""
        for run in runs:
            if why := self._refusal(run):
                self._listener.on_ended([refused(run.task_id, run.assignment_id, why)])
                continue
            if self._support is not None:
                self._support.begin(run.task_id, run.assignment_id)
            pool = self._pools.get(run.code)
            if pool is None:
                pool = self._pools[run.code] = _Pool(run.code)
            if pool.removal is not None:
                pool.removal.cancel()
                pool.removal = None
            self._of_run[run.assignment_id] = pool
            pool.active_count += 1
            is_stale = pool.active_count == 1 and self._loop.time() - pool.free_s > self._limits.check_s
            if pool.children is not None and pool.task is None and not is_stale:
                self._begin(pool, [run])
                continue
            pool.waiting.append(run)
            if pool.task is None:
                pool.task = self._loop.create_task(self._prepare(pool), name=f"rsm-code-{run.code}")

    def _refusal(self, run: AssignedRun) -> str:
        """Return why runs of this type have no code here; "" = they have."""
        if run.type == SPARK_SUBMIT and self._support is None:
            return "" if self._applications is not None else "this worker submits nothing to Spark (--submit-master)"
        if self._support is not None and run.type != SPARK_PYTHON:
            return f"code here is for tasks of type {SPARK_PYTHON}, not {run.type!r}"
        if self._support is None and run.type == SPARK_PYTHON:
            return f"this worker has no Spark for tasks of type {SPARK_PYTHON}"
        return ""

    def stop(self, assignment_id: int, reason: StopReason) -> bool:
        """Ask a run to end, and force it; return whether it is one of a code pool."""
        pool = self._of_run.get(assignment_id)
        if pool is None:
            return False
        waiting = next((run for run in pool.waiting if run.assignment_id == assignment_id), None)
        if waiting is not None:
            pool.waiting.remove(waiting)
            self.on_ended([stopped(waiting.task_id, assignment_id, reason)])
        elif self._applications is None or not self._applications.stop(assignment_id, reason):
            assert pool.children is not None
            pool.children.stop(assignment_id, reason)
        return True

    async def close(self) -> None:
        """Kill what runs, and remove every folder."""
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            if pool.removal is not None:
                pool.removal.cancel()
            if pool.task is not None:
                pool.task.cancel()
                await asyncio.wait([pool.task])
            if pool.children is not None:
                await pool.children.close()
        if waited := self._ending | self._taking_back:
            await asyncio.wait(waited)
        if self._looking is not None:
            await asyncio.wait([self._looking])
        await asyncio.to_thread(self._home.remove)

    # ---- RunListener of the children

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        """Hear of ends; see `RunListener`. What a run was given is taken back before its end is told."""
        if self._support is None:
            self._on_over(ends)
            return
        for end in ends:
            task = self._loop.create_task(self._take_back(self._support, end), name=f"rsm-take-back-{end.task_id}")
            self._taking_back.add(task)
            task.add_done_callback(self._taking_back.discard)

    async def _take_back(self, support: CodeSupport, end: EndedRun) -> None:
        await support.take_back(end.task_id, end.assignment_id)
        self._on_over([end])

    def _on_over(self, ends: Sequence[EndedRun]) -> None:
        pools: dict[str, _Pool] = {}
        for end in ends:
            pool = self._of_run.pop(end.assignment_id, None)
            if pool is not None:
                pool.active_count -= 1
                pools[pool.code] = pool
        self._listener.on_ended(ends)
        for pool in pools.values():
            self._note_free(pool)

    def on_progress(self, progress: ProgressOf) -> None:
        """Hear of a sign of life; see `RunListener`."""
        self._listener.on_progress(progress)

    def on_exhausted(self, why: str) -> None:
        """Hear nothing: processes are replaced; see `RunListener`."""

    # ---- a pool's life

    async def _check_jail(self) -> None:
        """Look whether code may run here at all.

        Raises:
            CodeArchiveError: No jail can be made, and the code is not trusted.

        """
        refusal = (await asyncio.shield(self._looking)).support.refusal if self._looking is not None else ""
        if refusal:
            raise CodeArchiveError(refusal)

    async def _jails(self, pool: _Pool, folder: Path, *, wants_network: bool) -> Jails | None:
        """Return what jails a pool's children; None = the code is trusted.

        Raises:
            CodeArchiveError: It asks for what it was not granted.

        """
        if self._looking is None:
            return None
        if wants_network and self._support is None and not self._jail.grants_network(pool.code):
            raise CodeArchiveError(
                f"it asks for the network, which this worker does not grant it (--grant-network {pool.code})"
            )
        jails = Jails(
            await asyncio.shield(self._looking),
            self._jail,
            folder,
            # What is given comes over the network.
            has_network=wants_network or self._support is not None,
            memory_bytes=self._limits.children.memory_bytes_max,
        )
        await asyncio.to_thread(jails.open_code)
        return jails

    async def _driver_jails(self, folder: Path) -> Jails | None:
        """Return jails of drivers of Spark; None = there are no drivers here, or the code is trusted."""
        if self._looking is None or self._applications is None:
            return None
        machine = await asyncio.shield(self._looking)
        jails = Jails(
            machine,
            self._applications.jail(self._jail),
            folder,
            # A driver and its executors talk to each other.
            has_network=True,
            memory_bytes=0,
            has_name=True,
        )
        await asyncio.to_thread(jails.open_code)
        return jails

    async def _prepare(self, pool: _Pool) -> None:
        """Fetch a pool, or look whether the one here is still the broker's; then have its runs begin."""
        try:
            await self._check_jail()
            async with asyncio.timeout(self._limits.fetch_s):
                archive = await download(self._stream_now, pool.code, pool.sha256, pool.size)
            if archive is not None:
                await self._install(pool, archive)
        except TimeoutError:
            self._fail(
                pool, f"CodeUnavailable: code {pool.code!r} could not be downloaded in {self._limits.fetch_s:g} s"
            )
        except (CodeGoneError, CodeArchiveError) as error:
            self._fail(pool, f"code {pool.code!r}: {error}", is_refused=True)
        except (RsmError, OSError) as error:
            self._fail(pool, f"CodeUnavailable: code {pool.code!r}: {error}")
        except Exception as error:
            # Whatever it is: a run that nobody begins would be a task that runs for ever.
            _LOGGER.exception("code %s cannot be prepared", pool.code, extra={"code": pool.code})
            self._fail(pool, f"CodeUnavailable: code {pool.code!r}: {type(error).__name__}: {error}")
        else:
            pool.task = None
            waiting, pool.waiting = pool.waiting, []
            self._begin(pool, waiting)
            self._note_free(pool)

    def _begin(self, pool: _Pool, runs: Sequence[AssignedRun]) -> None:
        """Have children run what the archive declares; refuse the rest before any of its code is started for it."""
        assert pool.children is not None
        allowed = [run for run in runs if run.mode in pool.entries]
        if functions := [run for run in allowed if run.type != SPARK_SUBMIT]:
            pool.children.run(functions)
        for run in allowed:
            if run.type == SPARK_SUBMIT:
                assert self._applications is not None
                assert pool.folder is not None
                self._applications.run_deployed(run, self, str(pool.folder / "code"), pool.driver_jails)
        if len(allowed) < len(runs):
            told = ", ".join(sorted(pool.entries)[:_NAMED_ENTRIES])
            more = ", …" if len(pool.entries) > _NAMED_ENTRIES else ""
            self.on_ended(
                [
                    refused(
                        run.task_id,
                        run.assignment_id,
                        f"mode {run.mode[:200]!r} is not declared by code {pool.code!r}; it declares {told}{more}",
                    )
                    for run in runs
                    if run.mode not in pool.entries
                ]
            )

    async def _install(self, pool: _Pool, archive: bytes) -> None:
        self._end_later(pool)
        size = await asyncio.to_thread(measure, archive, self._limits.archive)
        await self._make_room(size)
        pool.unpacked_bytes = size
        self._unpacked_bytes += size
        # From here on it is the pool's, and goes with it, whatever is raised.
        folder = pool.folder = await asyncio.to_thread(self._home.make)
        await asyncio.to_thread(unpack, archive, folder / "code", self._limits.archive)
        declaration = await asyncio.to_thread(declared, folder / "code")
        pool.entries = frozenset(declaration.entries)
        jails = await self._jails(pool, folder, wants_network=declaration.network)
        pool.driver_jails = await self._driver_jails(folder)
        self.fetched_count += 1
        pool.sha256, pool.size = hashlib.sha256(archive).hexdigest(), len(archive)
        limits = self._limits.children
        giver, given = ("", {}) if self._support is None else (self._support.giver, self._support.environment)
        set_up = SetUp("", str(folder / "code"), limits.memory_bytes_max, giver)
        if jails is not None:
            set_up = SetUp("", jails.code_inside, giver=giver)
        pool.children = Children(
            set_up,
            self,
            self._children_max,
            limits,
            environment={**_environment(folder / "home"), **given},
            folder=str(folder / "home"),
            jails=jails,
        )

    async def _make_room(self, size: int) -> None:
        """Remove pools that nothing uses until so many bytes may be unpacked.

        Raises:
            RsmError: Those that are used leave no room.

        """
        bytes_max = self._limits.unpacked_bytes_max
        while self._unpacked_bytes + size > bytes_max:
            free = [pool for pool in self._pools.values() if not pool.active_count and pool.task is None]
            if free:
                self._remove(min(free, key=lambda pool: pool.free_s))
            elif not self._ending:
                raise RsmError(
                    f"it needs {size:,} bytes unpacked; this worker has room for {bytes_max:,}, of which code that "
                    f"runs here takes {self._unpacked_bytes:,}"
                )
            if self._ending:
                await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)

    def _fail(self, pool: _Pool, why: str, *, is_refused: bool = False) -> None:
        """Have the runs that wait fail; the next run of this code tries anew."""
        _LOGGER.warning("%s", why, extra={"code": pool.code})
        pool.task = None
        if self._pools.get(pool.code) is pool:
            del self._pools[pool.code]
        waiting, pool.waiting = pool.waiting, []
        end = refused if is_refused else failed
        self._end_later(pool)
        self.on_ended([end(run.task_id, run.assignment_id, why) for run in waiting])

    def _note_free(self, pool: _Pool) -> None:
        """Have a pool that nothing uses removed in a while."""
        if pool.active_count or pool.task is not None:
            return
        pool.free_s = self._loop.time()
        if self._pools.get(pool.code) is pool and pool.removal is None:
            pool.removal = self._loop.call_later(self._limits.keep_s, self._remove, pool)

    def _remove(self, pool: _Pool) -> None:
        if pool.removal is not None:
            pool.removal.cancel()
            pool.removal = None
        if pool.task is None and self._pools.get(pool.code) is pool:
            del self._pools[pool.code]
            self._end_later(pool)

    def _end_later(self, pool: _Pool) -> None:
        """End the pool's children, then remove its files; the pool is empty from now on."""
        children, folder, size = pool.children, pool.folder, pool.unpacked_bytes
        pool.children = pool.folder = pool.driver_jails = None
        pool.unpacked_bytes = 0

        async def end() -> None:
            try:
                if children is not None:
                    await children.close()
                if folder is not None:
                    await asyncio.to_thread(self._home.discard, folder)
            finally:
                self._unpacked_bytes -= size

        if children is not None or folder is not None or size:
            task = self._loop.create_task(end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _environment(home: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**passed, "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
