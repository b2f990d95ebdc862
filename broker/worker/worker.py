"""A worker: keeps its one stream to whoever leads, has tasks run, and tells how they ended.

What to say and what to heed is decided in `broker.worker.core.protocol`; `broker.worker.link` is the stream. Here are
the clock, the executors, and the order in which things begin and end.
"""

# Longer than 400 lines: what a worker is made of begins and ends here, in one order.

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.policies import SPARK_SUBMIT, WorkerOffer
from broker.machine.worker_messages import AssignedRun
from broker.worker.code.pools import CodePools, PoolLimits
from broker.worker.code.support import CodeSupport
from broker.worker.codec import opened_run, sealed_end
from broker.worker.core.effects import (
    AskToDrain,
    Effect,
    EndStream,
    FollowLeader,
    ServiceRefused,
    StartRuns,
    StopReason,
    StopRuns,
)
from broker.worker.core.protocol import WorkerProtocol
from broker.worker.executors.executor import Executor
from broker.worker.leader import BrokerFinder
from broker.worker.link import BrokerLink, monotonic_ms
from broker.worker.outcomes import refused
from broker.worker.run_counts import RunCounts
from broker.worker.settings import WorkerSettings
from broker.worker.stream import WorkerStream
from broker.worker.submit.applications import SparkApplications
from broker.worker.traced_runs import RunTraces
from ledger.errors import UsageError
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.errors import RsmError
from rsm_spark.transport.security import Security

_LOGGER = logging.getLogger(__name__)
_TICK_S_MIN = 0.02
_TICK_S_MAX = 0.25
_KILLED_S = 5.0
_ALONE_S_MAX = 3.0
"""Time that the ends of runs which were stopped at the end of a drain may take to be acknowledged."""


class Worker:
    """See the module. Embeddable: `async with Worker(...) as worker: await worker.wait_left()`; or `await run()`.

    Leaving the context stops at once: what runs and can be killed is killed. To end gently, `drain` first.

    Args:
        settings: What it is and offers.
        executor: What runs its tasks.
        brokers: Addresses of any of the brokers; empty = the leader is found through ZooKeeper.
        metadata_uri: Where that is; None = as the environment says.
        security: TLS and token; None = as the environment says.
        codec: Decodes payloads and encodes results; see `broker.worker.codec`.
        support: Gives functions of code pools more than context and payload, and has this worker run no other code.

    Attributes:
        trouble: Why it is not connected, as far as known; "" while it is.
        counts: What it has run.

    Raises:
        UsageError: A setting makes no sense, or a file of `security` cannot be used.

    """

    def __init__(
        self,
        settings: WorkerSettings,
        executor: Executor,
        *,
        brokers: Sequence[str] = (),
        metadata_uri: str | None = None,
        security: Security | None = None,
        codec: PayloadCodec | None = None,
        support: CodeSupport | None = None,
    ) -> None:
        settings.check()
        self._settings = settings
        self._executor = executor
        self._codec = codec
        self._applications = SparkApplications(settings.submit) if settings.submit.master else None
        self._security = security if security is not None else Security.from_environment()
        self._security.check_caller()
        self._finder = BrokerFinder(
            brokers,
            metadata_uri,
            log=settings.log,
            rsm_root=settings.rsm_root,
            rng=random.Random(),  # noqa: S311 - spreads load, guards nothing
        )
        self._protocol = WorkerProtocol(
            settings.worker_id,
            os.urandom(16).hex(),
            settings.location or f"{socket.gethostname()}:{os.getpid()}",
            settings.offer(self._types),
            is_killable=executor.is_killable,
            limits=settings.limits,
        )
        self._pools = CodePools(
            self._stream_now,
            folder=settings.code_dir,
            limits=PoolLimits(children=settings.children),
            jail=settings.jail,
            support=support,
            applications=self._applications,
        )
        self.trouble = "not tried yet"
        self.counts = RunCounts()
        self._traces = RunTraces(settings.log, settings.worker_id)
        self._timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected: asyncio.Event = asyncio.Event()
        self._fault: UsageError | RsmError | None = None
        self._alone_since_ms = 0

    # ---- life

    async def __aenter__(self) -> Self:
        """Start.

        Raises:
            UsageError: The executor cannot start.

        """
        self._loop = asyncio.get_running_loop()
        self._link = BrokerLink(self._protocol, self._security, self._apply, self._note_served)
        await self._executor.start(self, self._settings.threads)
        # What child processes have imported is known only now.
        self._protocol.offer = self._settings.offer(self._types)
        await self._pools.start(self, self._settings.threads)
        self._task = self._loop.create_task(self._run(), name=f"rsm-worker-{self._settings.worker_id}")
        self._on_timer()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop at once."""
        for timer in (self._timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._applications is not None:
            await self._applications.close()
        await self._pools.close()
        await self._executor.close()
        await self._finder.close()

    async def run(self) -> None:
        """Work until the worker has left: after `drain`, or when an operator wanted it to."""
        async with self:
            await self.wait_left()

    async def wait_left(self) -> None:
        """Wait until the worker has left, or gave up leaving in good order.

        Raises:
            UsageError: Another process works by its name.
            RsmError: Its executor could do no more, so that it has drained itself.

        """
        assert self._task is not None, "the worker has not been started"
        await asyncio.wait([self._task])
        if self._fault is not None:
            raise self._fault
        if not self._task.cancelled():
            self._task.result()

    async def wait_connected(self) -> str:
        """Wait until a broker serves this worker; return its address."""
        while True:
            await self._connected.wait()
            if self._link.served is not None:
                return self._link.served.address
            self._connected.clear()

    def drain(self) -> None:
        """Take nothing more, end what runs, tell it, and leave; after `drain_s` what can be killed is.

        While no broker serves it, only for a few seconds: nobody would hear how the tasks end, and the next leader
        takes them for those of a dead worker.
        """
        if self._protocol.is_draining:
            return
        _LOGGER.info("drains: %d tasks run", self._protocol.held_count, extra=self._log_extra())
        self._protocol.drain()
        self._drain_timer = self._loop.call_later(self._settings.drain_s, self._on_drained_long)
        if not self._link.is_open and self._has_nothing_to_say:
            self.stop()
        self._link.wake_up()

    def stop(self) -> None:
        """Leave at once, without a goodbye."""
        if self._task is not None:
            self._task.cancel()

    def change_offer(self, offer: WorkerOffer) -> None:
        """Offer something else from now on: fewer threads, other groups. What runs goes on.

        Raises:
            UsageError: More threads than the executor was started with.

        """
        if offer.threads_max > self._settings.threads:
            raise UsageError(
                f"worker {self.worker_id}: {offer.threads_max} threads cannot be offered, "
                f"it has {self._settings.threads}"
            )
        self._protocol.change_offer(offer)
        self._link.wake_up()

    # ---- what it is

    @property
    def worker_id(self) -> str:
        """Stable name."""
        return self._settings.worker_id

    @property
    def incarnation(self) -> str:
        """Incarnation of this process: 32 hex digits."""
        return self._protocol.incarnation

    @property
    def running(self) -> int:
        """Tasks that run here."""
        return self._protocol.held_count

    @property
    def is_draining(self) -> bool:
        """True if it takes nothing more."""
        return self._protocol.is_draining

    @property
    def has_left(self) -> bool:
        """True if it is over: it has left, or gave up leaving in good order."""
        return self._task is not None and self._task.done()

    @property
    def is_connected(self) -> bool:
        """True if a broker serves it."""
        return self._link.served is not None

    # ---- RunListener

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        """Hear of ends of runs; see `RunListener`."""
        codec = self._codec
        self.counts.end(ends)
        self._traces.end(ends)
        self._protocol.ended(ends if codec is None else [sealed_end(codec, end) for end in ends])
        self._link.wake_up()

    def on_progress(self, progress: ProgressOf) -> None:
        """Hear of a sign of life; see `RunListener`."""
        self._protocol.progressed(progress)
        self._link.wake_up()

    def on_exhausted(self, why: str) -> None:
        """Hear that the executor can do no more; see `RunListener`."""
        if self._fault is None:
            _LOGGER.error("drains by itself: %s", why, extra=self._log_extra())
            # Told when it has left: whoever runs it is to start it anew.
            self._fault = RsmError(f"worker {self.worker_id} has drained itself: {why}")
        self.drain()

    # ---- the stream

    async def _run(self) -> None:
        while not self._has_nothing_to_say:
            address = await self._finder.next()
            why = self._finder.trouble or "no broker is known"
            if address is not None:
                try:
                    why = await self._link.use(address, await self._finder.find_framed(address))
                except UsageError as error:
                    why = str(error)
                self._connected.clear()
            if why:
                self._note_trouble(why)
            # However it ended, the next attempt comes after a pause: a thousand workers lose their broker at once.
            self._finder.route.failed()

    @property
    def _has_nothing_to_say(self) -> bool:
        """True if it has left; or it drains, nothing is left, and there is no broker to say goodbye to."""
        protocol = self._protocol
        is_empty = not protocol.held_count and not protocol.unacknowledged_count
        return protocol.has_left or (protocol.is_draining and is_empty)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartRuns():
                    self._start(effect.runs)
                case StopRuns():
                    for assignment_id in effect.assignment_ids:
                        self._stop(assignment_id, effect.reason)
                case EndStream():
                    self._link.end(effect.why)
                case FollowLeader():
                    self._finder.route.hint(effect.address)
                    self._link.end(f"{effect.address} leads")
                case ServiceRefused():
                    _LOGGER.error("refused: %s", effect.why, extra=self._log_extra())
                    self._link.end(f"refused: {effect.why}")
                    if effect.is_replaced:
                        self._fault = UsageError(f"worker {self.worker_id}: {effect.why}")
                        self.stop()
                case AskToDrain():
                    self.drain()

    def _start(self, runs: list[AssignedRun]) -> None:
        self.counts.begin(runs)
        self._traces.begin(runs)
        if self._codec is not None:
            runs = self._opened(self._codec, runs)
        if deployed := [run for run in runs if run.code]:
            self._pools.run(deployed)
        own = [run for run in runs if not run.code]
        if self._applications is not None:
            for run in own:
                if run.type == SPARK_SUBMIT:
                    self._applications.run(run, self)
            own = [run for run in own if run.type != SPARK_SUBMIT]
        if own:
            self._executor.run(own)

    def _stop(self, assignment_id: int, reason: StopReason) -> None:
        if self._pools.stop(assignment_id, reason):
            return
        if self._applications is None or not self._applications.stop(assignment_id, reason):
            self._executor.stop(assignment_id, reason)

    @property
    def _types(self) -> Sequence[str] | None:
        """Types that it can run, if that is known."""
        types = self._executor.types
        return types if types is None or self._applications is None else [*types, SPARK_SUBMIT]

    def _opened(self, codec: PayloadCodec, runs: list[AssignedRun]) -> list[AssignedRun]:
        """Return the runs whose payloads can be decoded; the others are refused."""
        opened: list[AssignedRun] = []
        for run in runs:
            try:
                opened.append(opened_run(codec, run))
            except Exception as error:  # noqa: BLE001 - a codec may be a user's
                self.on_ended([refused(run.task_id, run.assignment_id, f"{type(error).__name__}: {error}")])
        return opened

    def _stream_now(self) -> WorkerStream | None:
        return self._link.served

    # ---- time

    def _on_timer(self) -> None:
        now_ms = monotonic_ms()
        self._apply(self._protocol.tick(now_ms))
        due_ms = self._protocol.next_due_ms()
        if due_ms <= now_ms:
            self._link.wake_up()
        self._leave_if_alone(now_ms)
        self._timer = self._loop.call_later(
            min(max((due_ms - now_ms) / 1000, _TICK_S_MIN), _TICK_S_MAX), self._on_timer
        )

    def _leave_if_alone(self, now_ms: int) -> None:
        """Leave without a goodbye if nobody is there to hear how what runs here ends."""
        if self._link.served is not None or not self._protocol.is_draining:
            self._alone_since_ms = 0
        elif not self._alone_since_ms:
            self._alone_since_ms = now_ms
        elif now_ms - self._alone_since_ms >= _ALONE_S_MAX * 1000 and not self.has_left:
            _LOGGER.warning(
                "no broker has been there for %g s of draining: leaves, and stops %d tasks that run",
                _ALONE_S_MAX,
                self._protocol.held_count,
                extra=self._log_extra(),
            )
            self._apply(self._protocol.stop(StopReason.LEAVING))
            self.stop()

    def _on_drained_long(self) -> None:
        if self._protocol.held_count:
            _LOGGER.warning(
                "still running after %g s of draining: %d tasks; stops those that it can",
                self._settings.drain_s,
                self._protocol.held_count,
                extra=self._log_extra(),
            )
        self._apply(self._protocol.stop(StopReason.LEAVING))
        self._drain_timer = self._loop.call_later(_KILLED_S, self.stop)

    # ---- words

    def _note_served(self, address: str) -> None:
        self.trouble = ""
        self._finder.route.served(address)
        self._connected.set()
        _LOGGER.info("served by %s", address, extra={**self._log_extra(), "address": address})

    def _note_trouble(self, why: str) -> None:
        if why != self.trouble:
            _LOGGER.warning("not connected: %s", why, extra=self._log_extra())
        self.trouble = why

    def _log_extra(self) -> dict[str, object]:
        return {"worker": self._settings.worker_id}
