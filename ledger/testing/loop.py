"""An event loop in virtual time: the same seed gives the same run, step by step.

* `SimulationError`               the simulation itself could not go on
    * `SimulationDeadlockError`   nothing is scheduled any more, and the main coroutine waits
    * `SimulationTimeoutError`    the main coroutine is not done at the limit, in virtual time or in steps

Rules. (1) Nothing blocks and nothing reads a real clock: when no callback is ready, the clock jumps to the next
timer. (2) Timers due at the same instant run in an order drawn from the seed. (3) A callback belongs to the process
whose context it was scheduled in; callbacks of a dead process are dropped, so that a kill runs no `finally`; those
of a paused process are kept until it goes on. (4) Garbage is not collected while the loop runs: finalizers would
run at moments that no seed decides. (5) Tasks and futures hash by number, so that sets of them, which asyncio's own
`TaskGroup` and `wait` keep, have one order. (6) Every step goes into `signature`.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import heapq
import random
import struct
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ledger.testing.handle import SimHandle

if TYPE_CHECKING:
    # The loop hands connections to the network, and the network plans on the loop: two halves of one world.
    from ledger.testing.network import SimNetwork


T = TypeVar("T")

_PROCESS: ContextVar[SimProcess | None] = ContextVar("simulated_process", default=None)
_STEP = struct.Struct(">d")
_STEPS_AT_ONE_INSTANT_MAX = 1_000_000
_TASKS_KEPT_MIN = 1_000
_RUNS_BETWEEN_COLLECTIONS = 8
"""A full collection costs a tenth of a short run; what a few runs leave behind fits in memory."""


class SimulationError(Exception):
    """The simulation itself could not go on."""


class SimulationDeadlockError(SimulationError):
    """Nothing is scheduled any more, and the main coroutine waits."""


class SimulationTimeoutError(SimulationError):
    """The main coroutine is not done at the limit, in virtual time or in steps."""


class SimProcess:
    """One incarnation of a program on a host: what a kill ends and a pause stops.

    Attributes:
        name: Of the host.
        is_alive: False for good after a kill.
        is_paused: As after SIGSTOP; its callbacks wait in `parked`.
        step_count: Steps that it has run.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.step_count = 0
        self.label = name.encode()
        self.parked: deque[SimHandle] = deque()


class _SimFuture(asyncio.Future[T]):
    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _SimTask(asyncio.Task[T]):
    def __init__(self, number: int, coroutine: Any, loop: SimLoop, name: str, context: Context | None) -> None:
        self._number = number  # first: asyncio's set of all tasks hashes it in the constructor
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


def current_process() -> SimProcess | None:
    """Return the process whose code is running; None outside all of them (the test, the network, the faults)."""
    return _PROCESS.get()


def outside() -> Context:
    """Return a new context that belongs to no process: for what must outlive every kill."""
    return Context()


class SimLoop(asyncio.AbstractEventLoop):
    """Event loop in virtual time; `ledger.testing.Simulation` makes one.

    Args:
        seed: Decides the order of simultaneous timers, and through `random_for` everything else that is random.

    Attributes:
        network: Carries `create_connection` and `create_server`; set by the simulation.
        errors: What product code left to the loop's exception handler: exceptions in callbacks and of tasks
            that nobody awaited.
        probes: Called after every step, to check invariants; they must not schedule anything.

    """

    _run_count = 0

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.network: SimNetwork | None = None
        self.errors: list[dict[str, Any]] = []
        self.probes: list[Callable[[], None]] = []
        self.step_count = 0
        self._rng = random.Random(f"loop/{seed}")
        self._now_s = 0.0
        self._ready: deque[SimHandle] = deque()
        # (due, drawn tie-break, sequence, timer); the sequence makes equal draws comparable.
        self._timers: list[tuple[float, float, int, SimHandle]] = []
        self._timer_count = 0
        self._future_count = 0
        self._instant_step = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_kept = _TASKS_KEPT_MIN
        self._failure: BaseException | None = None
        self._trace = hashlib.blake2b(digest_size=16)
        self._is_over = False

    # --- what the simulation asks

    @property
    def signature(self) -> str:
        """Digest of all steps so far: equal for equal runs."""
        return self._trace.hexdigest()

    def random_for(self, purpose: str) -> random.Random:
        """Return a source of randomness of its own for `purpose`, decided by the seed."""
        return random.Random(f"{purpose}/{self.seed}")

    def note(self, content: bytes) -> None:
        """Add to the signature what a step carried: bytes sent, a fault, a write."""
        self._trace.update(content)

    def fail(self, error: BaseException) -> None:
        """End the run with this error after the step that is running; the first one counts.

        For whoever watches invariants from inside code under test, which may well swallow an exception.
        """
        if self._failure is None:
            self._failure = error

    def spawn(self, process: SimProcess, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as part of a process."""
        context = outside()
        context.run(_PROCESS.set, process)
        return self.create_task(coroutine, context=context)

    def unpark(self, process: SimProcess) -> None:
        """Let what a paused process has missed run, in order."""
        process.is_paused = False
        self._ready.extend(process.parked)
        process.parked.clear()

    def run(self, main: Coroutine[Any, Any, T], *, limit_s: float) -> T:
        """Run until `main` is done, and return its result; then nothing runs any more.

        Args:
            main: Belongs to no process.
            limit_s: Virtual time at which to give up.

        Raises:
            SimulationDeadlockError: Nothing is scheduled, and `main` waits.
            SimulationTimeoutError: `main` is not done at `limit_s`.
            BaseException: What `fail` was given.

        """
        SimLoop._run_count += 1
        if SimLoop._run_count % _RUNS_BETWEEN_COLLECTIONS == 0:
            gc.collect()
        gc.disable()
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        try:
            task = self.create_task(main, context=outside())
            while not task.done():
                if not self._ready:
                    self._advance(limit_s)
                self._step()
                if self._failure is not None:
                    raise self._failure
            result: T = task.result()
            return result
        finally:
            self._dispose()
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)
            gc.enable()

    def _advance(self, limit_s: float) -> None:
        while self._timers:
            when, _, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            if when > limit_s:
                raise SimulationTimeoutError(f"seed {self.seed}: not done after {limit_s} simulated seconds")
            if when > self._now_s:
                self._now_s = when
                self._instant_step = self.step_count
            self._ready.append(timer)
            return
        raise SimulationDeadlockError(f"seed {self.seed}: at {self._now_s:.6f} s nothing is scheduled any more")

    def _step(self) -> None:
        handle = self._ready.popleft()
        if handle.callback is None:
            return
        process = handle.context.get(_PROCESS)
        label = b"-"
        if process is not None:
            if not process.is_alive:
                return
            if process.is_paused:
                process.parked.append(handle)
                return
            label = process.label
            process.step_count += 1
        self.step_count += 1
        self._trace.update(label + _STEP.pack(self._now_s))
        try:
            handle.context.run(handle.callback, *handle.arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  as asyncio's loop does
            message = f"Exception in callback {handle!r}"
            self.call_exception_handler({"message": message, "exception": error, "handle": handle})
        for probe in self.probes:
            probe()
        if self.step_count - self._instant_step > _STEPS_AT_ONE_INSTANT_MAX:
            raise SimulationTimeoutError(
                f"seed {self.seed}: {_STEPS_AT_ONE_INSTANT_MAX} steps at {self._now_s:.6f} s, the last one {handle!r}"
            )

    def _dispose(self) -> None:
        """Close what is still suspended, killed processes included, so that no finalizer runs later."""
        self._is_over = True
        self._ready.clear()
        self._timers.clear()
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            try:
                task.get_coro().close()
            except BaseException:  # noqa: BLE001, S112  the run is over: what clean-up code says has no meaning
                continue
        self._tasks.clear()

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_over:
            self.create_task(generator.aclose())

    # --- what asyncio asks

    def time(self) -> float:
        """Return the virtual time in seconds since the start."""
        return self._now_s

    def get_debug(self) -> bool:
        """Return False: debug mode measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignore: there is no debug mode."""

    def is_running(self) -> bool:
        """Return whether the run goes on."""
        return not self._is_over

    def is_closed(self) -> bool:
        """Return whether the run is over."""
        return self._is_over

    def create_future(self) -> asyncio.Future[Any]:
        self._future_count += 1
        return _SimFuture(self._future_count, self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_options: Any
    ) -> asyncio.Task[Any]:
        """Start a task; it belongs to the process that is running, unless `context` says otherwise."""
        self._future_count += 1
        # A name by number: asyncio's own counter goes on from run to run.
        label = name or f"task-{self._future_count}"
        task: asyncio.Task[Any] = _SimTask(self._future_count, coro, self, label, context)
        self._tasks.append(task)  # asyncio itself holds tasks weakly only
        if len(self._tasks) > self._tasks_kept:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
            self._tasks_kept = max(_TASKS_KEPT_MIN, 2 * len(self._tasks))
        return task

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        """Run a callback after those that are ready now."""
        handle = SimHandle(self._now_s, callback, args, context)
        if not self._is_over:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Do as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback `delay` virtual seconds from now."""
        return self.call_at(self._now_s + delay if delay > 0 else self._now_s, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at virtual time `when`."""
        timer = SimHandle(when, callback, args, context)
        if not self._is_over:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._rng.random(), self._timer_count, timer))
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong, for the test to judge."""
        if not self._is_over:
            process = current_process()
            self.errors.append({**context, "process": process.name if process else None, "at_s": self._now_s})

    def run_in_executor(self, _executor: Any, _func: Any, *_args: Any) -> NoReturn:  # type: ignore[override]
        """Refuse: threads are not simulated, executors are ports."""
        raise RuntimeError("threads are not simulated: inject an executor (ledger.storage.disk.DiskExecutor)")

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **_options: Any
    ) -> tuple[asyncio.Transport, Any]:
        """Connect through the simulated network, where a host's name is its address."""
        assert self.network is not None
        assert host is not None
        assert port is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        **_options: Any,
    ) -> asyncio.AbstractServer:
        """Listen on the simulated host whose code this is; any bind address will do."""
        assert self.network is not None
        return self.network.listen(protocol_factory, host, port or 0)

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators are closed with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: there is none."""
