"""Code pools: each archive in a folder of its own, run by child processes of its own, kept while it is used.

    FETCHING   downloaded and unpacked; its runs wait        `_Pool.waiting`
    READY      children run its tasks                         `_Pool.children`
    gone       its runs failed with the reason, or nothing used it for a while

The worker itself imports nothing of it. Two archives with modules of the same names do not meet: each has its own
folder and its own processes, which see few variables of the worker's environment and none of its secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from broker.core.commands import EndedRun, ProgressOf
from broker.core.limits import CODE_BYTES_MAX
from broker.core.worker_messages import AssignedRun
from broker.grpc.worker_stream import CodeGoneError, WorkerStream
from broker.worker.code.archive import ArchiveLimits, CodeArchiveError, unpack
from broker.worker.code.folder import PoolFolder
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_messages import SetUp
from broker.worker.executors.children import ChildLimits, Children
from broker.worker.executors.executor import RunListener
from broker.worker.outcomes import failed, refused, stopped
from rsm_spark.errors import ConnectionLostError, RsmError

__all__ = ["CodePools", "PoolLimits"]

_LOGGER = logging.getLogger(__name__)
_RETRY_S = 0.2
_PASSED_VARIABLES = ("PATH", "LANG", "LANGUAGE", "TZ")


class PoolLimits(msgspec.Struct, frozen=True):
    """How code pools are treated.

    Attributes:
        fetch_s: Longest download, over broken connections too; a run whose code is not there then has failed.
        keep_s: A pool that nothing uses is removed after so long.
        check_s: A pool that was not used for so long is compared with the broker's before it is used again.
        children: How its processes are treated.
        archive: Bounds of what is unpacked.

    """

    fetch_s: float = 60.0
    keep_s: float = 300.0
    check_s: float = 2.0
    children: ChildLimits = ChildLimits()
    archive: ArchiveLimits = ArchiveLimits()


class _Pool:
    """One archive."""

    __slots__ = ("active_count", "children", "code", "folder", "free_s", "removal", "sha256", "size", "task", "waiting")

    def __init__(self, code: str) -> None:
        self.code = code
        # Runs that wait or run.
        self.active_count = 0
        self.waiting: list[AssignedRun] = []
        self.children: Children | None = None
        self.folder: Path | None = None
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

    Attributes:
        fetched_count: Archives downloaded.

    """

    def __init__(
        self,
        stream_now: Callable[[], WorkerStream | None],
        *,
        folder: Path | None = None,
        limits: PoolLimits | None = None,
    ) -> None:
        self._stream_now = stream_now
        self._limits = limits if limits is not None else PoolLimits()
        self._home = PoolFolder(folder)
        self._pools: dict[str, _Pool] = {}
        self._of_run: dict[int, _Pool] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._children_max = 1
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

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; the first one of a code fetches it."""
        for run in runs:
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
                pool.children.run([run])
                continue
            pool.waiting.append(run)
            if pool.task is None:
                pool.task = self._loop.create_task(self._prepare(pool), name=f"rsm-code-{run.code}")

    def stop(self, assignment_id: int, reason: StopReason) -> bool:
        """Ask a run to end, and force it; return whether it is one of a code pool."""
        pool = self._of_run.get(assignment_id)
        if pool is None:
            return False
        waiting = next((run for run in pool.waiting if run.assignment_id == assignment_id), None)
        if waiting is not None:
            pool.waiting.remove(waiting)
            self.on_ended([stopped(waiting.task_id, assignment_id, reason)])
        elif pool.children is not None:
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
        if self._ending:
            await asyncio.wait(self._ending)
        await asyncio.to_thread(self._home.remove)

    # ---- RunListener of the children

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        """Hear of ends; see `RunListener`."""
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

    async def _prepare(self, pool: _Pool) -> None:
        """Fetch a pool, or look whether the one here is still the broker's; then have its runs begin."""
        try:
            async with asyncio.timeout(self._limits.fetch_s):
                archive = await self._fetch(pool)
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
        else:
            pool.task = None
            waiting, pool.waiting = pool.waiting, []
            assert pool.children is not None
            if waiting:
                pool.children.run(waiting)
            self._note_free(pool)

    async def _fetch(self, pool: _Pool) -> bytes | None:
        """Return the archive; None if the one here is the same. A download that breaks off goes on where it was."""
        arrived = bytearray()
        sha256 = ""
        while True:
            stream = self._stream_now()
            if stream is None:
                await asyncio.sleep(_RETRY_S)
                continue
            offset = len(arrived) if arrived else pool.size
            try:
                async with contextlib.aclosing(stream.download(pool.code, offset)) as pieces:
                    async for piece in pieces:
                        if sha256 and piece.sha256 != sha256:
                            arrived.clear()  # Another archive by the same name: from the beginning.
                        sha256 = piece.sha256
                        if not arrived and offset:
                            if sha256 == pool.sha256:
                                return None
                            pool.size = offset = 0
                            break
                        arrived += piece.data
                        if max(piece.total_bytes, len(arrived)) > CODE_BYTES_MAX:
                            raise CodeArchiveError(
                                f"it has {piece.total_bytes:,} bytes; {CODE_BYTES_MAX:,} are allowed"
                            )
                        if len(arrived) >= piece.total_bytes:
                            return _verified(bytes(arrived), sha256)
                await asyncio.sleep(_RETRY_S)
            except ConnectionLostError as error:
                _LOGGER.info("download of code %s broke off at byte %d: %s", pool.code, len(arrived), error)
                await asyncio.sleep(_RETRY_S)
            except CodeGoneError:
                if not pool.size:
                    raise
                pool.size = 0  # Another, shorter archive by the same name perhaps.

    async def _install(self, pool: _Pool, archive: bytes) -> None:
        old = (pool.children, pool.folder)
        pool.children = pool.folder = None
        self._end_later(*old)
        folder = await asyncio.to_thread(self._home.make)
        try:
            await asyncio.to_thread(unpack, archive, folder / "code", self._limits.archive)
        except CodeArchiveError:
            await asyncio.to_thread(self._home.discard, folder)
            raise
        self.fetched_count += 1
        pool.folder = folder
        pool.sha256, pool.size = hashlib.sha256(archive).hexdigest(), len(archive)
        limits = self._limits.children
        set_up = SetUp("", str(folder / "code"), limits.memory_bytes_max)
        pool.children = Children(
            set_up,
            self,
            self._children_max,
            limits,
            environment=_environment(folder / "home"),
            folder=str(folder / "home"),
        )

    def _fail(self, pool: _Pool, why: str, *, is_refused: bool = False) -> None:
        """Have the runs that wait fail; the next run of this code tries anew."""
        _LOGGER.warning("%s", why)
        pool.task = None
        if self._pools.get(pool.code) is pool:
            del self._pools[pool.code]
        waiting, pool.waiting = pool.waiting, []
        end = refused if is_refused else failed
        self._end_later(pool.children, pool.folder)
        self.on_ended([end(run.task_id, run.assignment_id, why) for run in waiting])

    def _note_free(self, pool: _Pool) -> None:
        """Have a pool that nothing uses removed in a while."""
        if pool.active_count or pool.task is not None:
            return
        pool.free_s = self._loop.time()
        if self._pools.get(pool.code) is pool and pool.removal is None:
            pool.removal = self._loop.call_later(self._limits.keep_s, self._remove, pool)

    def _remove(self, pool: _Pool) -> None:
        pool.removal = None
        if pool.task is None and self._pools.get(pool.code) is pool:
            del self._pools[pool.code]
            self._end_later(pool.children, pool.folder)

    def _end_later(self, children: Children | None, folder: Path | None) -> None:
        async def end() -> None:
            if children is not None:
                await children.close()
            if folder is not None:
                await asyncio.to_thread(self._home.discard, folder)

        task = self._loop.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _verified(archive: bytes, sha256: str) -> bytes:
    found = hashlib.sha256(archive).hexdigest()
    if found != sha256:
        raise CodeArchiveError(f"what was downloaded has SHA-256 {found}, the broker says {sha256}")
    return archive


def _environment(home: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**passed, "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
