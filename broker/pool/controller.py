"""The keeper of a pool: has workers started and told to end, as many as there is work for, until it is stopped.

What is decided is decided in `broker.pool.core`; here are the clock, the connections and whatever starts workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from broker.client.client import AsyncBrokerClient
from broker.pool.backlog import BacklogWatch, PoolBacklog
from broker.pool.channel import ControllerEnd
from broker.pool.core.membership import Cancel, Effect, Fail, Launch, PoolMembership, Tell
from broker.pool.core.messages import FromMember, Hello, Left, Order, Report
from broker.pool.core.sizing import PoolBounds, PoolLoad, PoolSizer
from broker.pool.member import MemberSpec
from broker.pool.member_server import MemberServer
from broker.worker.worker import Worker
from ledger.errors import UsageError
from rsm_spark.errors import RsmError

_LOGGER = logging.getLogger(__name__)
_TICK_S_MAX = 1.0
_SAY_S = 5.0
"""Interval at which the pool reports its state if nothing but figures has changed."""
_CANCEL_S = 15.0
"""Time that a cancelled launch may take to end; the driver's end takes the rest with it."""


class Launcher(Protocol):
    """Starts workers somewhere, and ends them by force."""

    def launch(self, index: int, launch: int, spec_text: str, on_over: Callable[[int, int, str], None]) -> None:
        """Have `broker.pool.member.run_member` called somewhere.

        Args:
            index: Place in the pool.
            launch: Which start this is.
            spec_text: For `run_member`.
            on_over: Called once, on any thread, with index, launch and what it returned or why it failed.

        """
        ...

    def cancel(self, index: int, launch: int) -> None:
        """End a start by force, soon; `on_over` is called when it is over."""
        ...


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a pool.

    Attributes:
        bounds: How large it may be.
        spec: Of its workers; place and launch are filled in.
        bind: Where to listen for them.
        advertise: How they reach that address; "" = as it is bound.
        port: 0 = any that is free.
        other_types: Task types that its workers are not meant to run: no reason to have more of them.
        until_idle_s: When nothing has waited or run for so long, the pool ends; 0 = it goes on.

    """

    bounds: PoolBounds
    spec: MemberSpec
    bind: str = "127.0.0.1"
    advertise: str = ""
    port: int = 0
    other_types: tuple[str, ...] = ()
    until_idle_s: float = 0.0


class PoolShape(msgspec.Struct, frozen=True):
    """State of a pool at a moment.

    Attributes:
        wanted: Workers that there should be.
        serving: Workers that a broker serves.
        starting: Workers on their way.
        leaving: Workers that drain.
        running: Tasks that run.
        waiting: Tasks that wait and that they could run; -1 = not known.
        ended: Tasks that they have run to an end.
        trouble: What keeps a worker from working, as far as known.

    """

    wanted: int
    serving: int
    starting: int
    leaving: int
    running: int
    waiting: int
    ended: int
    trouble: str = ""


class PoolSummary(msgspec.Struct, frozen=True):
    """Summary of a pool's life.

    Attributes:
        ended: Tasks that its workers have run to an end.
        serving_max: Workers at once at most.
        launched: Workers started; those that Spark started again after a loss are in `lost` only.
        lost: Workers that were lost or ended by themselves.
        cancelled: Workers that did not end in time and were cancelled.

    """

    ended: int
    serving_max: int
    launched: int
    lost: int
    cancelled: int


class PoolController:
    """See the module.

    Args:
        settings: What the pool is.
        launcher: Starts its workers.
        client: Of the broker, to ask what waits; None = it always has `workers_min` workers.
        say: Called with how the pool is, when that has changed.
        companion: A worker in this process, which is drained with the others; it has been started.

    """

    def __init__(
        self,
        settings: PoolSettings,
        launcher: Launcher,
        client: AsyncBrokerClient | None,
        say: Callable[[PoolShape], None],
        companion: Worker | None = None,
    ) -> None:
        self._settings = settings
        self._launcher = launcher
        self._client = client
        self._say = say
        self._companion = companion
        self._loop = asyncio.get_running_loop()
        self._roster = PoolMembership(drain_s=settings.spec.work.worker.drain_s)
        self._sizer = PoolSizer(settings.bounds)
        self._desk = MemberServer(bytes.fromhex(settings.spec.secret), self._on_said, self._on_lost)
        self._port = 0
        self._backlog: PoolBacklog | None = None
        self._idle_since_s = float("inf")
        self._wake = asyncio.Event()
        self._fault: RsmError | UsageError | None = None
        self._is_stopping = False
        self._serving_max = 0
        self._said: PoolShape | None = None
        self._said_s = 0.0

    def stop(self) -> None:
        """Drain every worker, then end; the second time: wait for nobody."""
        if self._is_stopping:
            self._roster.hurry(self._loop.time())
            if self._companion is not None:
                self._companion.stop()
        elif self._companion is not None:
            self._companion.drain()
        self._is_stopping = True
        self._roster.stop()
        self._wake.set()

    async def run(self) -> PoolSummary:
        """Keep the pool until it is stopped, or idle for long enough.

        Raises:
            UsageError: The pool cannot listen, or what its workers were given cannot be used.
            RsmError: Its workers fail again and again.

        """
        self._port = await self._desk.listen(self._settings.bind, self._settings.port)
        watching = None
        if self._client is not None:
            watching = self._loop.create_task(BacklogWatch(self._client, self._on_backlog).run())
            watching.add_done_callback(self._on_watch_over)
        try:
            self._roster.want(self._sizer.wanted)
            while not (self._is_stopping and self._roster.is_empty and self._has_companion_left):
                self._turn()
                if self._is_given_up:
                    break
                await self._rest()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
            await self._desk.close()
        self._tell(force=True)
        if self._fault is not None:
            raise self._fault
        roster = self._roster
        return PoolSummary(
            roster.ended_count, self._serving_max, roster.launched_count, roster.lost_count, roster.cancelled_count
        )

    # ---- what is heard

    def _on_said(self, link: ControllerEnd, message: FromMember) -> None:
        if isinstance(message, Hello):
            self._apply(self._roster.heard(link, message))
        elif isinstance(message, Report):
            self._roster.reported(link, message)
        elif isinstance(message, Left):
            if message.why:
                _LOGGER.warning("a worker leaves: %s", message.why)
            self._apply(self._roster.left(link, message))
            self._desk.tell(link, Order.STOP)  # It has been heard.
        self._wake.set()

    def _on_lost(self, link: ControllerEnd) -> None:
        self._roster.lost(link)
        self._wake.set()

    def _on_over(self, index: int, launch: int, error: str) -> None:
        """Hear, on any thread, that a start is over."""
        self._loop.call_soon_threadsafe(self._on_over_here, index, launch, error)

    def _on_over_here(self, index: int, launch: int, error: str) -> None:
        if error and not self._is_stopping:
            pool = self._settings.spec.pool
            extra = {"pool": pool, "worker": f"{pool}-{index}"}
            _LOGGER.warning("worker %s-%d is over: %s", pool, index, error, extra=extra)
        self._apply(self._roster.over(index, launch, error, self._loop.time()))
        self._wake.set()

    def _on_backlog(self, backlog: PoolBacklog) -> None:
        self._backlog = backlog
        self._wake.set()

    def _on_watch_over(self, watching: asyncio.Task[None]) -> None:
        if not watching.cancelled() and (error := watching.exception()) is not None:
            self._fail(f"the broker does not say what waits: {error}")

    # ---- what is done

    def _turn(self) -> None:
        now_s = self._loop.time()
        if self._companion is not None and self._companion.has_left and not self._is_stopping:
            self._fail(f"the worker {self._companion.worker_id} in this process has ended")
        if not self._is_stopping:
            self._size(now_s)
            self._look_idle(now_s)
        self._apply(self._roster.plan(now_s))
        self._serving_max = max(self._serving_max, self._roster.served)
        self._tell()

    def _size(self, now_s: float) -> None:
        if self._client is not None and self._backlog is not None:
            roster = self._roster
            load = PoolLoad(
                waiting=self._waiting,
                running=roster.running_to_stay,
                served=roster.served,
                starting=roster.starting,
                is_type_full=self._is_type_full(self._backlog),
            )
            self._roster.want(self._sizer.look(now_s, load))

    @property
    def _waiting(self) -> int:
        if self._backlog is None:
            return -1
        return self._backlog.count("waiting", self._types, without=self._settings.other_types)

    @property
    def _types(self) -> list[str] | None:
        given = self._settings.spec.work.type_amounts
        if "*" in given:
            return None
        return list(given) if given else self._roster.types

    def _is_type_full(self, backlog: PoolBacklog) -> bool:
        served = self._roster.served
        for name, threads in self._settings.spec.work.type_amounts.items():
            by_status = backlog.by_type.get(name, {})
            if served and threads and by_status.get("waiting", 0) and by_status.get("running", 0) >= threads * served:
                return True
        return False

    def _look_idle(self, now_s: float) -> None:
        if not self._settings.until_idle_s or self._backlog is None:
            return
        types = self._types
        if types is not None and self._companion is not None:
            types = [*types, *self._settings.other_types]
        open_count = sum(self._backlog.count(status, types) for status in ("waiting", "delayed", "running"))
        if open_count or self._roster.running:
            self._idle_since_s = float("inf")
        elif self._idle_since_s == float("inf"):
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s >= self._settings.until_idle_s:
            _LOGGER.info("nothing was to be done for %g s: the pool ends", self._settings.until_idle_s)
            self.stop()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Launch():
                    self._launch(effect.index, effect.launch)
                case Cancel():
                    self._launcher.cancel(effect.index, effect.launch)
                case Tell():
                    assert isinstance(effect.link, ControllerEnd)
                    self._desk.tell(effect.link, effect.order)
                case Fail():
                    self._fail(effect.why)

    def _launch(self, index: int, launch: int) -> None:
        settings = self._settings
        host = settings.advertise or settings.bind
        spec = msgspec.structs.replace(settings.spec, index=index, launch=launch, host=host, port=self._port)
        self._launcher.launch(index, launch, msgspec.json.encode(spec).decode(), self._on_over)

    def _fail(self, why: str) -> None:
        if self._fault is None:
            self._fault = RsmError(why)
            _LOGGER.error("the pool ends: %s", why)
        if not self._is_stopping:
            self.stop()

    # ---- time and words

    @property
    def _has_companion_left(self) -> bool:
        return self._companion is None or self._companion.has_left

    @property
    def _is_given_up(self) -> bool:
        """True if all launches that are left were cancelled long ago."""
        return self._is_stopping and self._roster.cancelled_for_s(self._loop.time()) > _CANCEL_S

    async def _rest(self) -> None:
        """Wait until something has happened, or time has."""
        now_s = self._loop.time()
        due_s = [now_s + _TICK_S_MAX]
        due_s += [at_s for at_s in (self._roster.next_due_s, self._sizer.next_due_s) if at_s is not None]
        try:
            async with asyncio.timeout(max(0.0, min(due_s) - now_s)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _tell(self, *, force: bool = False) -> None:
        roster = self._roster
        shape = PoolShape(
            0 if self._is_stopping else self._sizer.wanted,
            roster.served,
            roster.starting,
            roster.leaving,
            roster.running,
            self._waiting,
            roster.ended_count,
            roster.trouble,
        )
        last, now_s = self._said, self._loop.time()
        is_news = last is None or _crew(shape) != _crew(last)
        if is_news or (shape != last and (force or now_s - self._said_s >= _SAY_S)):
            self._said, self._said_s = shape, now_s
            self._say(shape)


def _crew(shape: PoolShape) -> tuple[object, ...]:
    return shape.wanted, shape.serving, shape.starting, shape.leaving, shape.trouble
