"""The stream between a worker and a broker: in order each way, slow at times; it breaks, for each side when it does.

The broker's end is a `WorkerLink`: all that is handed over in one turn leaves as one message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.machine.commands import HeldRun
from broker.machine.worker_messages import AssignedRun, FromBroker, FromWorker, WorkerWelcome
from tests.broker_sim.virtual_time import SimProcess, VirtualTime

if TYPE_CHECKING:
    from tests.broker_sim.sim_broker import SimBroker
    from tests.broker_sim.sim_worker import SimWorker

__all__ = ["NetworkRates", "SimStream"]


class NetworkRates:
    """How the network behaves.

    Attributes:
        delay_ms: Longest usual delay of a message.
        stall_rate: Share of messages that are delayed for seconds, and all behind them.
        notice_ms: Longest time until one side notices that a stream is broken.

    """

    def __init__(self, rng: random.Random) -> None:
        self.delay_ms = rng.choice((2, 20, 100))
        self.stall_rate = rng.choice((0.0, 0.002, 0.02))
        self.notice_ms = rng.choice((50, 1_000, 15_000))

    def calm(self) -> None:
        """Let nothing fail any more."""
        self.stall_rate = 0.0
        self.notice_ms = 50


class _Pipe:
    """One direction: in order."""

    def __init__(self, time: VirtualTime, rng: random.Random, rates: NetworkRates) -> None:
        self._time = time
        self._rng = rng
        self._rates = rates
        self._last_ms = 0

    def send(self, receiver: SimProcess, life: int, action: Callable[[], None]) -> None:
        """Have something arrive behind all that was sent before."""
        rng = self._rng
        delay_ms = rng.uniform(0, self._rates.delay_ms)
        if rng.random() < self._rates.stall_rate:
            delay_ms += rng.uniform(100, 8_000)
        # Later by a millisecond than what was sent before: events of one time have no order.
        self._last_ms = at_ms = max(self._last_ms + 1, self._time.now_ms + int(delay_ms))
        self._time.after(at_ms - self._time.now_ms, lambda: receiver.happen(life, action))


class SimStream:
    """One stream; for the broker a `WorkerLink`.

    Args:
        rng: Draws delays.
        rates: Of the network.
        worker: Who opened it, in its present life.
        broker: To whom.
        stream_id: The worker's number of it.

    Attributes:
        epoch: The broker's, under which it was taken in.
        tenants: Whose tasks alone the worker may run, by the credential with which it was opened.
        heard_ms: When the broker heard something last.
        is_broken: Nothing passes any more.
        has_ended: The broker has ended it.

    """

    def __init__(
        self, rng: random.Random, rates: NetworkRates, worker: SimWorker, broker: SimBroker, stream_id: int
    ) -> None:
        self.worker, self.broker, self.stream_id = worker, broker, stream_id
        self.worker_life, self.broker_life = worker.life, broker.life
        self.tenants = worker.tenants
        self.epoch = 0
        self.heard_ms = worker.time.now_ms
        self.is_broken = False
        self._up_cut_ms = self._down_cut_ms = 1 << 62
        self.has_ended = False
        self._rng = rng
        self._rates = rates
        self._time = worker.time
        self._up = _Pipe(self._time, rng, rates)
        self._down = _Pipe(self._time, rng, rates)
        self._forget()

    def _forget(self) -> None:
        self._welcome: WorkerWelcome | None = None
        self._runs: list[AssignedRun] = []
        self._cancels: list[HeldRun] = []
        self._acknowledged: list[int] = []
        self._pong = 0
        self._is_due = False

    # ---- the worker's end

    def say(self, message: FromWorker) -> None:
        """Send a message of the worker."""
        if not self.is_broken:
            self._up.send(self.broker, self.broker_life, lambda: self._heard(message))

    def _heard(self, message: FromWorker) -> None:
        if self._time.now_ms < self._up_cut_ms:
            self.heard_ms = self._time.now_ms
            self.broker.on_worker_said(self, message)

    def hang_up(self) -> None:
        """End it on the worker's side; what it has said arrives, what comes to it is passed over."""
        if not self.is_broken:
            self._up.send(self.broker, self.broker_life, lambda: self.broker.on_stream_closed(self))

    # ---- both

    def break_off(self) -> None:
        """Break it: each side notices when it does."""
        if self.is_broken:
            return
        self.is_broken = True
        # What was on its way may still arrive, up to a moment: what comes first is never lost before what follows.
        self._up_cut_ms, self._down_cut_ms = (self._time.now_ms + self._rng.choice((0, 50, 5_000)) for _ in range(2))
        rng, notice_ms = self._rng, self._rates.notice_ms
        for process, life, notice in (
            (self.worker, self.worker_life, lambda: self.worker.on_stream_lost(self.stream_id)),
            (self.broker, self.broker_life, lambda: self.broker.on_stream_closed(self)),
        ):
            self._tell(process, life, rng.uniform(0, notice_ms), notice)

    def _tell(self, process: SimProcess, life: int, delay_ms: float, action: Callable[[], None]) -> None:
        self._time.after(delay_ms, lambda: process.happen(life, action))

    # ---- the broker's end: a `WorkerLink`

    def welcome(self, welcome: WorkerWelcome) -> None:
        """Serve it."""
        self._welcome = welcome
        self._flush_soon()

    def assign(self, run: AssignedRun) -> None:
        """Hand over a run."""
        self._runs.append(run)
        self._flush_soon()

    def cancel(self, run: HeldRun) -> None:
        """Ask it to end a run."""
        self._cancels.append(run)
        self._flush_soon()

    def acknowledge(self, assignment_ids: Sequence[int]) -> None:
        """Say that these ends are in the log."""
        self.broker.witness.on_acknowledged(assignment_ids)
        self._acknowledged += assignment_ids
        self._flush_soon()

    def change_work(self, size: int) -> None:
        """Pass over it: nothing slows a simulated worker down."""

    def pong(self, number: int) -> None:
        """Answer its ping."""
        self._pong = number
        self._flush_soon()

    def end(self, *, leader: str = "", refused: str = "", is_replaced: bool = False) -> None:
        """End the stream, in words or without."""
        if self.has_ended:
            return
        self.has_ended = True
        self._forget()
        if leader or refused:
            said = is_replaced if refused else None
            self._send(FromBroker(self.epoch, leader=leader, refused=refused, is_replaced=said))
        stream_id = self.stream_id
        self._down.send(self.worker, self.worker_life, lambda: self.worker.on_stream_lost(stream_id))
        self._tell(self.broker, self.broker_life, 1, lambda: self.broker.on_stream_closed(self))

    def _flush_soon(self) -> None:
        if not self._is_due and not self.has_ended:
            self._is_due = True
            self._tell(self.broker, self.broker_life, 0, self._flush)

    def _flush(self) -> None:
        if self.has_ended or not self._is_due:
            return
        message = FromBroker(self.epoch, self._welcome, self._runs, self._acknowledged, self._cancels, self._pong)
        self._forget()
        self._send(message)

    def _send(self, message: FromBroker) -> None:
        if self.is_broken:
            return
        self._down.send(self.worker, self.worker_life, lambda: self._arrive(message))

    def _arrive(self, message: FromBroker) -> None:
        if self._time.now_ms < self._down_cut_ms:
            self.worker.on_message(self.stream_id, message)
