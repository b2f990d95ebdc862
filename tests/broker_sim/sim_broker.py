"""A broker process: the real state, composer and registry around a simulated log, network and disk.

It follows the log, or leads it under an epoch that it has claimed, and steps down when it is fenced: what it applied
and was not confirmed is undone by a rebuild from its snapshot and the log. What `broker.server.serving_workers` and
`rsm_spark.runtime` do in a real process is done here, in their order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from broker.machine.commands import BrokerCommand
from broker.machine.machine import BrokerMachine
from broker.machine.messages import decode_reply, encode
from broker.machine.outbox import OutboxItem
from broker.machine.replies import BrokerReply
from broker.machine.statuses import WorkerStatus
from broker.machine.worker_messages import AssignedRun, FromWorker
from broker.server.worker_registry import WorkerRegistry
from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Request
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.runtime.logged_clock import LoggedClock
from tests.broker_sim.disk_snapshot import DiskSnapshot
from tests.broker_sim.sim_log import AppendEnd
from tests.broker_sim.sim_stream import SimStream
from tests.broker_sim.virtual_time import SimProcess

if TYPE_CHECKING:
    from tests.broker_sim.world import BrokerWorld

__all__ = ["SimBroker", "SimRole"]

_TICK_MS = 250
_IDLE_MS = 500
_SILENT_PINGS = 3
_SESSION_TTL_MS = 3_600_000
_LIMITS = BatchLimits(256 * 1024, 64, 10_000, 500)

OnAnswer = Callable[[Answer], None]


class SimRole(Enum):
    """FOLLOWER applies what is confirmed; STARTING has claimed; LEADER takes requests."""

    FOLLOWER = "follower"
    STARTING = "starting"
    LEADER = "leader"


class SimBroker(SimProcess):
    """See the module.

    Args:
        world: In which it lives.
        name: Its address.

    Attributes:
        role: What it takes itself for.
        applied: Confirmed entries in its state.
        skew_ms: Its wall clock minus true time.
        witness: Of the world.

    """

    state: ReplicatedState
    machine: BrokerMachine
    registry: WorkerRegistry

    def __init__(self, world: BrokerWorld, name: str) -> None:
        super().__init__(world.time, name)
        self.witness = world.witness
        self.role = SimRole.FOLLOWER
        self.applied = 0
        self.skew_ms = 0
        self.epoch = 0
        self.batch: Batch | None = None
        self._world = world
        self._log = world.log
        self._rng = random.Random(world.rng.random())
        self._snapshot: DiskSnapshot | None = None

    # ---- life

    def start(self) -> None:
        """Begin a life: from the snapshot, if there is one, and the log."""
        self.begin_life()
        self.role = SimRole.FOLLOWER
        self.batch = None
        self.machine = self._world.make_machine()
        self.registry = WorkerRegistry(
            self._submit_own,
            self._read_run,
            lambda: self.time.now_ms / 1000,
            broker_id=self.name,
            lease_s=self._world.lease_s,
            ping_s=self._world.ping_s,
            was_replaced=self.machine.workers.was_replaced,
        )
        self._streams: dict[SimStream, None] = {}
        self._queue = RequestQueue()
        self._answers: deque[Callable[[], None]] = deque()
        self._is_flush_due = self._is_composing = False
        self._boot()
        self._tick()
        self._save_later()

    def kill(self) -> None:
        """End this life; its disk stays."""
        self.end_life()
        self.role = SimRole.FOLLOWER
        for stream in list(self._streams):
            stream.break_off()

    def lose_disk(self) -> None:
        """Lose the snapshot."""
        self._snapshot = None

    def _boot(self) -> None:
        """Make the state from disk and log; the machine is the one that there is."""
        self.state = ReplicatedState(self.machine, self._log.log_id)
        snapshot = self._snapshot
        if snapshot is None:
            self.machine.restore([])
            self.applied = 0
        else:
            self.state.restore(iter(snapshot.rows), snapshot.tip, snapshot.description)
            self.applied = snapshot.applied
        self.catch_up()
        self.machine.validate()

    def catch_up(self) -> None:
        """Apply what is confirmed."""
        if self.role is not SimRole.FOLLOWER:
            return
        entries = self._log.entries
        while self.applied < len(entries):
            self.state.apply_entry(entries[self.applied])
            self.applied += 1
            self.witness.on_state(self.name, self.state)

    def _save_later(self) -> None:
        self.after(self._rng.uniform(2_000, 20_000), self._save)

    def _save(self) -> None:
        if self.batch is None and self.state.revision != 0:
            self._snapshot = DiskSnapshot(self.state, self.applied)
        self._save_later()

    def _tick(self) -> None:
        self.after(_TICK_MS, self._tick)
        if self.registry.leads:
            self.registry.tick()
        silent_ms = self._world.ping_s * 1000 * _SILENT_PINGS
        for stream in list(self._streams):
            if stream.heard_ms + silent_ms < self.time.now_ms:
                stream.end()
        self.registry.validate()

    # ---- leading

    def lead(self) -> None:
        """Claim the log and begin to lead."""
        if self.role is not SimRole.FOLLOWER:
            return
        self.epoch = self._log.claim()
        self.catch_up()
        self._world.tell(f"{self.name} claims epoch {self.epoch}")
        self.witness.on_claim()
        wall_ms = self._world.begin_ms + self.time.now_ms + self.skew_ms
        self._clock = LoggedClock(self.state.logged_ms, wall_ms, self.time.now_ms / 1000)
        self._composer = Composer(
            self.state,
            _LIMITS,
            leader_epoch=self.epoch,
            promoted_ms=self._clock.base_ms,
            session_ttl_ms=_SESSION_TTL_MS,
            checkpoint_records=200,
        )
        self.role = SimRole.STARTING
        self._session = self._rng.randbytes(16)
        self._sequence = self._answered_up_to = 0
        self._fruitless: tuple[int, int] = (-1, -1)
        self._appended_ms = self.time.now_ms
        description = encode_description(self.machine.description)
        records = [
            (KernelRecord.MACHINE_DESCRIBED, (description,)),
            (KernelRecord.LEADER_STARTED, (self.name, str(self.life))),
        ]
        self._send(self._composer.compose_start(records, self._clock.base_ms))

    def _logged_now(self) -> int:
        return self._clock.read(self.state.logged_ms, self.time.now_ms / 1000)

    def _wake(self) -> None:
        """Compose soon."""
        if not self._is_composing and self.batch is None and self.role is SimRole.LEADER:
            self._is_composing = True
            self.after(self._rng.uniform(0, 2), self._compose)

    def _compose(self) -> None:
        self._is_composing = False
        if self.role is not SimRole.LEADER or self.batch is not None:
            return
        now_ms, due_ms = self._logged_now(), self._composer.next_due_ms()
        if due_ms is not None and (due_ms, self.state.revision) == self._fruitless:
            due_ms = None
        is_idle = self.time.now_ms >= self._appended_ms + _IDLE_MS
        is_asked = self._queue.request_count > 0 or (due_ms is not None and due_ms <= now_ms)
        if is_idle and not is_asked and self.epoch == self._log.epoch:
            self._world.auditor.check_idle()
        if is_asked or is_idle:
            revision = self.state.revision
            batch = self._composer.compose(self._queue, now_ms)
            if self._composer.failures:
                raise self._composer.failures[0]
            if due_ms is not None and not batch.envelope.record_count:
                self._fruitless = (due_ms, revision)
            self._send(batch)
            return
        wait_ms = self._appended_ms + _IDLE_MS - self.time.now_ms
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms - now_ms)
        self.after(max(1, wait_ms), self._wake)

    def _send(self, batch: Batch) -> None:
        self.batch = batch
        self._appended_ms = self.time.now_ms
        self._log.append(self, self.epoch, batch.payload, partial(self._on_append, batch))

    def _on_append(self, batch: Batch, end: AppendEnd) -> None:
        if self.batch is not batch:
            return
        match end:
            case AppendEnd.STORED:
                self._confirm(batch)
            case AppendEnd.FAILED:
                self.after(self._rng.uniform(1, 300), partial(self._learn_end, batch))
            case AppendEnd.FENCED:
                self.after(self._rng.uniform(1, 300), partial(self._learn_deposed, batch))

    def _learn_end(self, batch: Batch) -> None:
        if self.batch is not batch:
            return
        is_stored = self._log.close(self.epoch)
        if is_stored is None:
            self._learn_deposed(batch)
        elif is_stored:
            self._confirm(batch)
        else:
            self._send(batch)  # It leads still: the same bytes again.

    def _learn_deposed(self, batch: Batch) -> None:
        if self.batch is not batch:
            return
        entries, is_known = self._log.entries, self._rng.random() < 0.7
        is_stored = len(entries) > self.applied and entries[self.applied] == batch.payload
        if is_known and is_stored:
            self._confirm(batch)  # Its replies leave, and its assignments: late.
        self._step_down(applied_never=is_known and not is_stored)

    def _confirm(self, batch: Batch) -> None:
        self.batch = None
        self.applied += 1
        self.witness.on_state(self.name, self.state)
        if self.role is SimRole.LEADER and self.machine.outbox:
            self.registry.deliver(self.machine.outbox.take(self.state.revision))
        answered = [(submission.ticket, submission.answers) for submission in batch.confirm()]
        for ticket, answers in answered:
            self._answers.append(partial(ticket, answers[0]))
        if answered:
            self.after(0, self._answer)
        if self.role is SimRole.STARTING:
            self._become_leader()
        self._wake()

    def _answer(self) -> None:
        """Call those back that have their answers: in order, as an event loop does, after what led to them."""
        while self._answers:
            self._answers.popleft()()

    def _become_leader(self) -> None:
        self.role = SimRole.LEADER
        self.witness.promotions += 1
        self._queue.add(Submission([OpenSession(self._session)], lambda _answer: None))
        self.registry.cease("")
        self.machine.outbox.open()
        self.registry.begin(
            (worker_id, row.incarnation, row.status != WorkerStatus.DISCONNECTED)
            for worker_id, row in self.machine.workers.by_id.items()
            if row.status != WorkerStatus.DEAD
        )

    def _step_down(self, *, applied_never: bool) -> None:
        batch, self.batch = self.batch, None
        self._world.tell(f"{self.name} is deposed as of epoch {self.epoch}")
        self.role = SimRole.FOLLOWER
        revision = self.state.revision
        given_up = [*(batch.submissions if batch is not None else ())]
        given_up += [one for one in self._queue.take_all() if one not in given_up]
        for one in given_up:
            answer = one.give_up(revision, applied_never=applied_never)[0]
            self._answers.append(partial(one.ticket, answer))
        self.after(0, self._answer)
        self.machine.outbox.close()
        if self.registry.leads:
            self.registry.suspend()
            self.after(self._rng.uniform(0, 500), self._dismiss)
        if batch is not None:
            self._boot()  # What was applied and is not confirmed is in the state.
        else:
            self.catch_up()

    def _dismiss(self) -> None:
        if self.role is not SimRole.LEADER:
            self.registry.cease(self._world.leader_address(self))

    # ---- requests

    def request(self, request: Request, on_answer: OnAnswer) -> None:
        """Take a request of somebody's own session."""
        if self.role is not SimRole.LEADER:
            on_answer(Answer(AnswerStatus.NOT_LEADER, 0, b""))
            return
        self._queue.add(Submission([request], on_answer))
        self._wake()

    def execute(self, command: BrokerCommand, on_answer: OnAnswer) -> None:
        """Take a command in the broker's own session."""
        if self.role is not SimRole.LEADER:
            on_answer(Answer(AnswerStatus.NOT_LEADER, 0, b""))
            return
        self._sequence += 1
        sequence, session = self._sequence, self._session

        def _on_answer(answer: Answer) -> None:
            if session == self._session:
                self._answered_up_to = sequence
            on_answer(answer)

        self._queue.add(Submission([Command(session, sequence, self._answered_up_to, encode(command))], _on_answer))
        self._wake()

    def _submit_own(self, command: BrokerCommand, on_reply: Callable[[BrokerReply | None, int], None]) -> None:
        chance = self._rng.random() / max(self._world.faults.overload_rate, 1e-9)
        if chance < 0.5:  # Too much waits: it is not taken.
            on_reply(None, 0)
            return

        def _on_answer(answer: Answer) -> None:
            # At times its answer comes too late for whoever waits.
            if answer.status is AnswerStatus.OK and chance >= 1:
                on_reply(decode_reply(answer.payload), answer.revision)
            else:
                on_reply(None, 0)

        self.execute(command, _on_answer)

    def _read_run(self, item: OutboxItem) -> AssignedRun | None:
        return self.machine.assigned_run(item.task_id, item.assignment_id, self.machine.logged_ms)

    # ---- workers

    def on_worker_said(self, stream: SimStream, said: FromWorker) -> None:
        """Take a message of a worker: its hello first."""
        if said.hello is None:
            if stream in self._streams and self.registry.leads:
                self.registry.on_said(stream, said)
                if not self._is_flush_due:
                    self._is_flush_due = True
                    self.after(0, self._flush)
            return
        if not self.registry.leads or said.hello.leader_epoch > self.epoch:
            stream.epoch = max(self.epoch, self.state.leader_epoch)
            stream.end(leader=self._world.leader_address(self))
            return
        stream.epoch = self.epoch
        self._streams[stream] = None
        self.registry.on_hello(stream, said.hello, stream.tenants)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.registry.leads:
            self.registry.flush()

    def on_stream_closed(self, stream: SimStream) -> None:
        """Notice that a stream has ended."""
        if stream in self._streams:
            del self._streams[stream]
            self.registry.on_closed(stream)
