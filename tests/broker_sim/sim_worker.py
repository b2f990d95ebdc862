"""A worker process: the real protocol on a simulated stream, and runs that take their time, fail, hang or end late."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import AssignedRun, FromBroker
from broker.worker import outcomes
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
from broker.worker.core.protocol import LinkState, WorkerProtocol
from broker.worker.core.protocol_limits import ProtocolLimits
from broker.worker.core.route import BrokerRoute
from tests.broker_sim.sim_stream import SimStream
from tests.broker_sim.virtual_time import SimProcess

if TYPE_CHECKING:
    from tests.broker_sim.world import BrokerWorld

__all__ = ["RunRates", "SimWorker"]

_TICK_MS = 200
_LIMITS = ProtocolLimits(lease_margin_ms=1_000, welcome_ms_max=3_000, progress_ms=300)


class RunRates(msgspec.Struct):
    """What runs are like.

    Attributes:
        length_ms: Longest usual one.
        failed: Share of those that fail.
        hang: Share of those that do not end by themselves for minutes.
        heeds: Share of those that end when they are asked to, where nothing can force them.

    """

    length_ms: int
    failed: float
    hang: float
    heeds: float

    @classmethod
    def draw(cls, rng: random.Random) -> RunRates:
        """Draw them."""
        return cls(
            rng.choice((20, 300, 3_000)),
            rng.choice((0.0, 0.1, 0.4)),
            rng.choice((0.0, 0.02, 0.1)),
            rng.choice((0.2, 1.0)),
        )


class SimWorker(SimProcess):
    """See the module.

    Args:
        world: In which it lives.
        name: Its worker id.
        offer: What it can run.
        is_killable: Whether its runs can be stopped against their will.
        tenants: Whose tasks alone it may run, by its credential, which it says nothing of; None = of all.

    Attributes:
        protocol: Of the present life.
        stream: The present one.

    """

    protocol: WorkerProtocol

    def __init__(
        self,
        world: BrokerWorld,
        name: str,
        offer: WorkerOffer,
        *,
        is_killable: bool,
        tenants: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(world.time, name)
        self.offer = offer
        self.is_killable = is_killable
        self.tenants = tenants
        self.stream: SimStream | None = None
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._stream_id = 0
        # Runs of the present life that have not ended.
        self._runs: dict[int, AssignedRun] = {}

    # ---- life

    def start(self) -> None:
        """Begin a life as another incarnation."""
        self.begin_life()
        world = self._world
        self.protocol = WorkerProtocol(
            self.name,
            self._rng.randbytes(16).hex(),
            f"{self.name}.{self.life}",
            self.offer,
            is_killable=self.is_killable,
            limits=_LIMITS,
        )
        self._route = BrokerRoute([broker.name for broker in world.brokers], pause_ms_max=500)
        self._stream_id = 0
        self._runs = {}
        self._connect_soon()
        self._tick()

    def kill(self) -> None:
        """End this life: its runs end with it."""
        world = self._world
        for run in self._runs.values():
            world.witness.on_run_killed(run)
        self._runs.clear()
        self.end_life()
        if self.stream is not None:
            self.stream.break_off()
            self.stream = None

    # ---- the stream

    def _connect_soon(self) -> None:
        address, pause_ms = self._route.next(None, self._rng.random())
        assert address is not None
        self.after(pause_ms + self._rng.uniform(1, 30), lambda: self._connect(address))

    def _connect(self, address: str) -> None:
        if self.protocol.has_left:
            self._leave()
            return
        broker = self._world.broker(address)
        self._stream_id += 1
        stream_id = self._stream_id
        self.protocol.opened(stream_id, self.time.now_ms)
        if not broker.is_up or self._rng.random() < self._world.faults.refuse_rate:
            self.after(self._rng.uniform(1, 200), lambda: self.on_stream_lost(stream_id))
            return
        self.stream = self._world.open_stream(self, broker, stream_id)
        self._write()

    def on_stream_lost(self, stream_id: int) -> None:
        """Notice that a stream has ended."""
        if stream_id == self._stream_id and self.protocol.state is not LinkState.DOWN:
            self.protocol.lost(stream_id)
            self._give_up_stream()

    def _give_up_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.hang_up()
        if self.protocol.has_left:
            self._leave()
            return
        self._route.failed()
        self._connect_soon()

    def _leave(self) -> None:
        """End in good order; another process of this name comes later."""
        assert not self._runs
        self._world.tell(f"{self.name} has left")
        self.end_life()
        self._world.start_again(self)

    def on_message(self, stream_id: int, message: FromBroker) -> None:
        """Take a message, of whichever stream."""
        protocol = self.protocol
        before = protocol.state
        effects = protocol.received(stream_id, message, self.time.now_ms)
        if before is LinkState.GREETED and protocol.state is LinkState.SERVED and self.stream is not None:
            self._route.served(self.stream.broker.name)
        self._apply(effects)
        self._write()

    def _write(self) -> None:
        stream = self.stream
        if stream is None or not self.is_up:
            return
        while (message := self.protocol.compose(stream.stream_id, self.time.now_ms)) is not None:
            stream.say(message)
        self.protocol.validate()
        if self.protocol.has_left:
            self._give_up_stream()

    def _tick(self) -> None:
        self._apply(self.protocol.tick(self.time.now_ms))
        self._write()
        self.after(_TICK_MS, self._tick)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartRuns():
                    for run in effect.runs:
                        self._begin(run)
                case StopRuns():
                    for assignment_id in effect.assignment_ids:
                        self._stop(assignment_id, effect.reason)
                case EndStream():
                    self._give_up_stream()
                case FollowLeader():
                    self._route.hint(effect.address)
                    self._give_up_stream()
                case ServiceRefused():
                    self._world.tell(f"{self.name} is refused: {effect.why[:60]}")
                    if effect.is_replaced:
                        self._world.witness.counts["replaced"] += 1
                        self.kill()
                        self._world.start_again(self)
                        return
                    self._give_up_stream()
                case AskToDrain():
                    self.protocol.drain()

    # ---- runs

    def _begin(self, run: AssignedRun) -> None:
        world, rng = self._world, self._rng
        world.witness.on_started(run, self.name, self.protocol.incarnation, self.tenants)
        self._runs[run.assignment_id] = run
        rates = world.runs
        length_ms = rng.expovariate(1) * rates.length_ms if rng.random() < 0.9 else 5 * rates.length_ms
        if rng.random() < rates.hang:
            length_ms += 60_000
        failed = rng.random() < rates.failed
        error = rng.choice(("ValueError: no", "KeyError: 'x'", "OSError: disk"))
        self.after(length_ms + 1, lambda: self._end_by_itself(run, error if failed else ""))
        if run.timeout_ms:
            self.after(run.timeout_ms, lambda: self._time_out(run))
        if run.heartbeat_ms and rng.random() < 0.8:
            self._beat(run)

    def _beat(self, run: AssignedRun) -> None:
        if run.assignment_id in self._runs:
            self.protocol.progressed(ProgressOf(run.task_id, run.assignment_id, 0.5, "half"))
            self.after(run.heartbeat_ms / 3, lambda: self._beat(run))

    def _end_by_itself(self, run: AssignedRun, error: str) -> None:
        if error:
            self._end(run, outcomes.failed(run.task_id, run.assignment_id, error))
        else:
            self._end(run, outcomes.finished(run.task_id, run.assignment_id, b"did " + run.payload))

    def _time_out(self, run: AssignedRun) -> None:
        if self.is_killable or self._rng.random() < self._world.runs.heeds:
            self._end(run, outcomes.timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it was ended"))

    def _stop(self, assignment_id: int, reason: StopReason) -> None:
        run = self._runs.get(assignment_id)
        if run is not None and (self.is_killable or self._rng.random() < self._world.runs.heeds):
            end = outcomes.stopped(run.task_id, run.assignment_id, reason)
            self.after(self._rng.uniform(0, 200), lambda: self._end(run, end))

    def _end(self, run: AssignedRun, end: EndedRun) -> None:
        if self._runs.pop(run.assignment_id, None) is None:
            return
        self._world.witness.on_ended(run, end)
        self.protocol.ended([end])
        self._write()

    def change_offer(self, offer: WorkerOffer) -> None:
        """Offer something else."""
        self.offer = offer
        self.protocol.change_offer(offer)
        self._write()

    def unbind(self) -> None:
        """Have another credential, which is good for all tenants: its stream ends, as the broker has it then."""
        self.tenants = None
        if self.stream is not None:
            self.stream.break_off()

    def drain(self) -> None:
        """Begin to leave."""
        self.protocol.drain()
        self._write()
