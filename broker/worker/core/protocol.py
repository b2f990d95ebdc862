"""Sans-IO state of one worker process as the broker deals with it: what arrives and what ends in, effects out.

1. A message is heeded only if it came over the newest stream, and names a leader epoch that is not below the highest
   one ever seen: who was deposed has nothing to give away.
2. An assignment is taken once: its id must be above every one that was ever received. So "up to n" tells the broker
   exactly which assignments reached this process, and what it has given elsewhere since is not run here too.
3. An end is told again on every new stream until a leader has said that the log knows it.
4. Whatever the broker may believe lost is stopped before it can be running elsewhere: the lease, less a margin, is
   counted from when the last ping was said that was answered, or the hello that was welcomed. When something was heard
   says nothing: it may have lain for long. Then the stream is given up and all runs that can be stopped are. Those that
   cannot are told as they are: still running. A message that is looked at later is not heeded: it is not delivered.

Where a run is:

    held        given to the executor, not ended          `_held`
    ended       not acknowledged by a leader              `_ends`
    forgotten   acknowledged

How the stream is:

    DOWN        there is none                             `opened` -> OPENED
    OPENED      the hello is what `compose` returns next  -> GREETED
    GREETED     nothing goes out until the welcome        -> SERVED
    SERVED      ends, progress and pings go out
    LEFT        said goodbye: for good

Any of them but LEFT -> DOWN: by `lost`, or by an effect that ends the stream. The caller gives each stream a number
above those before, passes it with every event of it, and asks `compose` whenever the stream can take a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import AssignedRun, FromBroker, FromWorker, WorkerHello, WorkerWelcome
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
from broker.worker.core.ends import Ends
from broker.worker.core.protocol_limits import ProtocolLimits

NEVER_MS = 1 << 62
_REPLACED = "another process works as"
"""Begin of a final refusal from a broker without the field, of before version 0.2."""


class LinkState(StrEnum):
    DOWN = "down"
    OPENED = "opened"
    GREETED = "greeted"
    SERVED = "served"
    LEFT = "left"


class _Held:
    """A run in the executor's hands."""

    __slots__ = ("asked", "is_killable", "progress_ms", "run", "told_ms")

    def __init__(self, run: HeldRun, progress_ms: int, *, is_killable: bool) -> None:
        self.run = run
        self.is_killable = is_killable
        self.asked: StopReason | None = None
        self.progress_ms = progress_ms
        self.told_ms = -NEVER_MS


class WorkerProtocol:
    """See the module. Times are ms of one clock that does not go back, and goes on while the process is paused.

    Args:
        worker_id: Stable name.
        incarnation: Of this process: 32 hex digits.
        location: For people.
        offer: What the worker can run.
        is_killable: Whether runs of the worker's own code can be stopped against their will. Those of code pools can.
        limits: Times and sizes.

    Attributes:
        offer: What the worker can run.
        state: Of the stream.
        leader_epoch: Highest that was ever served.
        delivered_up_to: Highest assignment id that was ever received.
        is_draining: It takes nothing more.
        welcome: The last one; None before the first.

    """

    def __init__(
        self,
        worker_id: str,
        incarnation: str,
        location: str,
        offer: WorkerOffer,
        *,
        is_killable: bool,
        limits: ProtocolLimits | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.location = location
        self.offer = offer
        self.state = LinkState.DOWN
        self.leader_epoch = 0
        self.delivered_up_to = 0
        self.is_draining = False
        self.welcome: WorkerWelcome | None = None
        self._is_killable = is_killable
        self._limits = limits if limits is not None else ProtocolLimits()
        # By assignment id. Invariant: no id is in both, and none is above `delivered_up_to`.
        self._held: dict[int, _Held] = {}
        self._ends = Ends()
        # The newest of each run that was not told; ids of `_held`.
        self._progress: dict[int, ProgressOf] = {}
        self._stream_id = 0
        self._opened_ms = 0
        # When the last of what the broker is known to have heard was said.
        self._known_ms = 0
        self._hello_ms = 0
        self._pinged_ms = 0
        self._ping_count = 0
        # When those were said that are not answered, by number.
        self._pings: dict[int, int] = {}
        self._is_offer_told = True
        self._is_draining_told = False
        self._is_lease_over = False

    # ---- what the shell asks

    @property
    def held_count(self) -> int:
        """Runs in the executor's hands."""
        return len(self._held)

    @property
    def unacknowledged_count(self) -> int:
        """Ends that no leader has acknowledged."""
        return len(self._ends)

    def is_served(self, stream_id: int) -> bool:
        """Return whether a leader has welcomed this stream, and it is the newest."""
        return stream_id == self._stream_id and self.state is LinkState.SERVED

    @property
    def has_left(self) -> bool:
        """True if the goodbye has been said: nothing follows."""
        return self.state is LinkState.LEFT

    def next_due_ms(self) -> int:
        """Return when `tick`, and then `compose`, have something to do though nothing happens."""
        due_ms = NEVER_MS
        if self.state is LinkState.SERVED:
            due_ms = min(self._ping_due_ms(), self._silent_ms())
            for assignment_id in self._progress:
                held = self._held[assignment_id]
                due_ms = min(due_ms, held.told_ms + held.progress_ms)
        elif self.state in {LinkState.OPENED, LinkState.GREETED}:
            due_ms = self._opened_ms + self._limits.welcome_ms_max
        if self.welcome is not None and not self._is_lease_over and self._held:
            due_ms = min(due_ms, self._silent_ms())
        return due_ms

    # ---- events of the stream

    def opened(self, stream_id: int, now_ms: int) -> None:
        """Begin a stream; the hello is the next message. The one before is over and was ended."""
        assert stream_id > self._stream_id, "streams are numbered upwards"
        assert self.state is not LinkState.LEFT, "a worker that has left does not come back"
        self._stream_id = stream_id
        self._opened_ms = now_ms
        self.state = LinkState.OPENED

    def lost(self, stream_id: int) -> None:
        """Take note that a stream has ended."""
        if stream_id == self._stream_id and self.state is not LinkState.LEFT:
            self.state = LinkState.DOWN

    def received(self, stream_id: int, message: FromBroker, now_ms: int) -> list[Effect]:
        """Take a message of the broker."""
        if stream_id != self._stream_id or self.state in {LinkState.DOWN, LinkState.LEFT}:
            return []
        if message.refused:
            self.state = LinkState.DOWN
            is_replaced = message.refused.startswith(_REPLACED) if message.is_replaced is None else message.is_replaced
            return [
                *(self.stop(StopReason.LEASE) if is_replaced else []),
                ServiceRefused(message.refused, is_replaced),
            ]
        if message.leader:
            self.state = LinkState.DOWN
            return [FollowLeader(message.leader)]
        if message.leader_epoch < self.leader_epoch:
            return [self._end(f"it leads epoch {message.leader_epoch}; epoch {self.leader_epoch} has begun")]
        if self.state is LinkState.SERVED and now_ms >= self._silent_ms():
            return [*self._stop_for_lease(now_ms), self._end("nothing was heard for most of the lease")]
        if message.welcome is not None:
            self.welcome = message.welcome
            self.state = LinkState.SERVED
            self._pinged_ms = now_ms
            self._known_ms = max(self._known_ms, self._hello_ms)
            self._pings.clear()
            self._is_lease_over = False
        elif self.state is not LinkState.SERVED:
            return [self._end("its first message does not welcome this worker")]
        if message.pong in self._pings:
            self._known_ms = max(self._known_ms, self._pings[message.pong])
            self._pings = {number: said_ms for number, said_ms in self._pings.items() if number > message.pong}
        self.leader_epoch = message.leader_epoch
        return self._heed(message)

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what has become due."""
        effects = self._stop_for_lease(now_ms)
        if self.state is LinkState.SERVED and now_ms >= self._silent_ms():
            effects.append(self._end("nothing was heard for most of the lease"))
        elif (
            self.state in {LinkState.OPENED, LinkState.GREETED}
            and now_ms >= self._opened_ms + self._limits.welcome_ms_max
        ):
            effects.append(self._end(f"no welcome within {self._limits.welcome_ms_max} ms"))
        return effects

    # ---- events of the runs

    def ended(self, ends: Iterable[EndedRun]) -> None:
        """Take the ends of runs that were held; of any other nothing is said."""
        for end in ends:
            assignment_id = end.assignment_id
            if self._held.pop(assignment_id, None) is None:
                continue
            self._progress.pop(assignment_id, None)
            self._ends.add(end)

    def progressed(self, progress: ProgressOf) -> None:
        """Take a sign of life of a run; the newest of each is told, at most every `progress_ms`."""
        if progress.assignment_id in self._held:
            self._progress[progress.assignment_id] = progress

    # ---- wishes of the shell

    def drain(self) -> None:
        """Take nothing more; leave when all that runs has ended and is acknowledged."""
        self.is_draining = True

    def stop(self, reason: StopReason, assignment_ids: Iterable[int] | None = None) -> list[Effect]:
        """Ask for the end of runs: of these, whatever they are, or else of all that can be forced to."""
        stopped: list[int] = []
        for assignment_id in list(self._held) if assignment_ids is None else assignment_ids:
            held = self._held.get(assignment_id)
            if held is None or held.asked is reason or (assignment_ids is None and not held.is_killable):
                continue
            held.asked = reason
            stopped.append(assignment_id)
        return [StopRuns(stopped, reason)] if stopped else []

    def change_offer(self, offer: WorkerOffer) -> None:
        """Offer something else from now on."""
        self.offer = offer
        self._is_offer_told = False

    # ---- what goes out

    def compose(self, stream_id: int, now_ms: int) -> FromWorker | None:
        """Return the next message of a stream: all that has gathered; None if there is nothing to say."""
        if stream_id != self._stream_id:
            return None
        if self.state is LinkState.OPENED:
            self._hello_ms = now_ms
            return self._greet()
        if self.state is not LinkState.SERVED:
            return None
        offer = None if self._is_offer_told else self.offer
        is_draining = self.is_draining and not self._is_draining_told
        is_leaving = self.is_draining and not self._held and not self._ends
        ended = self._ends.take(self._limits.message_bytes_max)
        progress = self._take_progress(now_ms)
        ping = 0
        if now_ms >= self._ping_due_ms():
            self._ping_count += 1
            self._pinged_ms = self._pings[self._ping_count] = now_ms
            ping = self._ping_count
        if not (ended or progress or ping or is_draining or is_leaving or offer is not None):
            return None
        self._is_offer_told = True
        self._is_draining_told = self.is_draining
        if is_leaving:
            self.state = LinkState.LEFT
        return FromWorker(None, ended, progress, offer, self.is_draining, is_leaving, ping)

    def validate(self) -> None:
        """Check the invariants; the simulator calls this after every event."""
        self._ends.validate()
        ended = self._ends.assignment_ids
        assert not self._held.keys() & set(ended), "a run is held or has ended"
        assert self._progress.keys() <= self._held.keys(), "only what runs makes progress"
        assert max([0, *self._held, *ended]) <= self.delivered_up_to, "all that is here was received"
        assert self.state is not LinkState.SERVED or self.welcome is not None, "who serves has welcomed"
        assert self.state is not LinkState.LEFT or (self.is_draining and not self._held), "who leaves holds nothing"

    # ---- parts

    def _heed(self, message: FromBroker) -> list[Effect]:
        effects: list[Effect] = []
        self._ends.acknowledge(message.acknowledged)
        if message.assignments:
            runs = self._take(message.assignments)
            if runs:
                effects.append(StartRuns(runs))
        if message.cancels:
            effects += self.stop(StopReason.CANCELLED, [run.assignment_id for run in message.cancels])
        if message.is_stop and not self.is_draining:
            effects.append(AskToDrain())
        return effects

    def _take(self, assignments: list[AssignedRun]) -> list[AssignedRun]:
        """Return those that were not received before, and hold them."""
        runs: list[AssignedRun] = []
        limit_ms = self._limits.progress_ms
        for run in assignments:
            if run.assignment_id <= self.delivered_up_to:
                continue  # Twice, or from before what the last hello said: the broker has given it to somebody else.
            self.delivered_up_to = run.assignment_id
            progress_ms = min(limit_ms, run.heartbeat_ms // 3) if run.heartbeat_ms else limit_ms
            self._held[run.assignment_id] = _Held(
                HeldRun(run.task_id, run.assignment_id),
                progress_ms,
                is_killable=self._is_killable or bool(run.code),
            )
            runs.append(run)
        return runs

    def _stop_for_lease(self, now_ms: int) -> list[Effect]:
        if self.welcome is None or self._is_lease_over or now_ms < self._silent_ms():
            return []
        self._is_lease_over = True
        return self.stop(StopReason.LEASE)

    def _end(self, why: str) -> EndStream:
        self.state = LinkState.DOWN
        return EndStream(why)

    def _silent_ms(self) -> int:
        """Return when the broker will soon take this worker for dead, if nothing is heard until then."""
        lease_ms = self.welcome.lease_ms if self.welcome is not None else NEVER_MS
        return self._known_ms + lease_ms - min(self._limits.lease_margin_ms, lease_ms // 2)

    def _ping_due_ms(self) -> int:
        """Return when a ping is due: all the time, since only its answer tells that the lease goes on."""
        assert self.welcome is not None
        ping_ms = max(1, min(self.welcome.ping_ms, self.welcome.lease_ms // 4))
        return self._pinged_ms + ping_ms

    def _greet(self) -> FromWorker:
        """Return the hello. Ends that do not fit are called held: they follow at once."""
        self.state = LinkState.GREETED
        self._ends.tell_again()
        ended = self._ends.take(self._limits.message_bytes_max)
        hello = WorkerHello(
            self.worker_id,
            self.incarnation,
            self.location,
            self.offer,
            self.delivered_up_to,
            [held.run for held in self._held.values()] + self._ends.rest(),
            ended,
            self.leader_epoch,
            self._stream_id,
        )
        self._is_offer_told = True
        self._is_draining_told = False  # Told again once it is served: a drain is of a stream, as the broker sees it.
        return FromWorker(hello, is_draining=self.is_draining)

    def _take_progress(self, now_ms: int) -> list[ProgressOf]:
        due: list[ProgressOf] = []
        for assignment_id, progress in self._progress.items():
            held = self._held[assignment_id]
            if held.told_ms + held.progress_ms <= now_ms:
                held.told_ms = now_ms
                due.append(progress)
        for progress in due:
            del self._progress[progress.assignment_id]
        return due
