"""Registry of workers: who works for this leader, and over which stream; it does not know what a stream is.

1. A worker is served once the log says that it has appeared: before that nothing is handed to it.
2. What was assigned before its appearance is not handed over: it was given back by that (see `WorkerAppeared`).
3. Assignments leave when they are confirmed, in the order of their ids. Ends are acknowledged when they are confirmed.
4. A worker has one stream, the newest. What a former one says or loses is passed over.
5. A worker whose stream is down keeps its runs for a lease, by the leader's own clock. Every leader begins it anew.

Where a worker is, while this replica leads:

    appearing   it has said hello, the log does not know yet      `_Seat.link`, not `is_served`
    served      it gets assignments                               `_Seat.link`, `is_served`
    away        its stream is down, or has not come yet           no `link`; its lease is in `_leases`
    gone        dead, or never heard of                           no seat

Synchronous and single-threaded; the clock is the caller's.
"""

# Longer than 400 lines: one state machine, where each event may move a worker between any two of its places.

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from broker.machine.commands import (
    BrokerCommand,
    EndedRun,
    HeldRun,
    ProgressOf,
    ReportRuns,
    WorkerAppeared,
    WorkerChanged,
    WorkerLost,
)
from broker.machine.outbox import OutboxItem, OutboxKind
from broker.machine.policies import WorkerOffer
from broker.machine.replies import BrokerReply, Refusal, Refused
from broker.machine.worker_messages import AssignedRun, FromWorker, WorkerHello, WorkerWelcome
from broker.server.worker_link import WorkerLink

_REPORT_BYTES_MAX = 1024 * 1024
"""Results of one report, before the last of them: they have to fit one entry of the log."""
_RUN_BYTES = 100

_LOGGER = logging.getLogger(__name__)

Submit = Callable[[BrokerCommand, Callable[[BrokerReply | None, int], None]], None]
"""Has a command decided. The callback gets the confirmed reply and the revision of the state right behind the command;
None if this replica cannot say (any more), perhaps at once."""


class _Seat:
    """State of one worker; see the module."""

    __slots__ = (
        "ended", "incarnation", "is_leaving", "is_over", "is_served", "link", "progress", "size", "stream", "tenants",
        "waiting", "worker_id",
    )  # fmt: skip

    def __init__(self, worker_id: str, incarnation: str, link: WorkerLink | None, stream: int = 0) -> None:
        self.worker_id = worker_id
        self.tenants: tuple[str, ...] | None = None  # By its credential, whatever it says itself; None = all.
        self.incarnation = incarnation
        self.link = link
        self.stream = stream  # The highest by which it said hello to this leader.
        self.is_served = False
        self.is_leaving = False
        self.is_over = False  # Refused: its stream is about to end.
        # What was confirmed while it appears, in order.
        self.waiting: list[tuple[int, AssignedRun | HeldRun]] = []
        # Said since the last report.
        self.ended: list[EndedRun] = []
        self.progress: dict[int, ProgressOf] = {}
        self.size = 0

    def bound(self, offer: WorkerOffer) -> WorkerOffer:
        """Return what it offers to those whose tasks it may run."""
        return msgspec.structs.replace(offer, tenants=self.tenants)


class WorkerRegistry:
    """See the module.

    Args:
        submit: See `Submit`.
        read_run: Returns a run as it is handed over, from confirmed state; None if it is over already.
        clock_s: Monotonic time.
        broker_id: Told to workers.
        was_replaced: Whether the log has this incarnation of a worker replaced by another one.
        lease_s: See `BrokerSettings.worker_lease_s`.
        ping_s: See `BrokerSettings.worker_ping_s`.

    Attributes:
        leads: Whether workers are served here.
        dispatched: Assignments handed over since the process began.
        undelivered: Assignments confirmed while their worker had no stream: given back when it appears or dies.
        reports: Commands by which runs were reported.

    """

    def __init__(
        self,
        submit: Submit,
        read_run: Callable[[OutboxItem], AssignedRun | None],
        clock_s: Callable[[], float],
        *,
        broker_id: str,
        lease_s: float,
        ping_s: float,
        was_replaced: Callable[[str, str], bool] = lambda _worker_id, _incarnation: False,
    ) -> None:
        self._submit = submit
        self._was_replaced = was_replaced
        self._read_run = read_run
        self._clock_s = clock_s
        self._lease_s = lease_s
        self._welcome = WorkerWelcome(int(ping_s * 1000), int(lease_s * 1000), broker_id)
        self.leads = False
        self.dispatched = 0
        self.undelivered = 0
        self.reports = 0
        self._seats: dict[str, _Seat] = {}
        self._by_link: dict[WorkerLink, _Seat] = {}
        # Workers away, by when their lease runs out: all leases are equally long, so the order is that of their begin.
        self._leases: OrderedDict[str, float] = OrderedDict()
        self._touched: dict[str, None] = {}

    @property
    def served_count(self) -> int:
        """Number of workers that have a stream."""
        return len(self._by_link)

    # ---- roles

    def begin(self, known: Iterable[tuple[str, str, bool]]) -> None:
        """Begin to lead.

        Args:
            known: (worker id, incarnation, whether the log says that it is connected) of all that are not dead.

        """
        self.leads = True
        for worker_id, incarnation, is_connected in known:
            self._put_away(_Seat(worker_id, incarnation, None))
            if is_connected:  # It has no stream to this leader: nothing is to be assigned to it until it has.
                self._submit(WorkerLost(worker_id, incarnation), _ignore)

    def suspend(self) -> None:
        """Hand nothing over any more: somebody else leads, or is about to. `cease` says who."""
        self.leads = False

    def cease(self, leader: str) -> None:
        """Lead no more.

        Args:
            leader: "host:port" of who does, as far as known.

        """
        self.leads = False
        links = list(self._by_link)
        self._seats.clear()
        self._by_link.clear()
        self._leases.clear()
        self._touched.clear()
        for link in links:
            link.end(leader=leader)

    # ---- what workers do

    def on_hello(self, link: WorkerLink, hello: WorkerHello, tenants: tuple[str, ...] | None = None) -> None:
        """Take a worker in, in place of any former stream of its name; it may run the tasks of `tenants` alone."""
        assert self.leads
        worker_id, incarnation = hello.worker_id, hello.incarnation
        if self._was_replaced(worker_id, incarnation):
            # Before it drives out the one that is right, if it is late.
            link.end(refused=_replaced(worker_id), is_replaced=True)
            return
        former = self._seats.get(worker_id)
        if former is not None and former.incarnation == incarnation and hello.stream < former.stream:
            link.end()  # Of a stream that was given up since: it was long on its way.
            return
        if former is not None and former.link is not None:
            self._report(former)  # What it said is said, in order.
            is_same = former.incarnation == incarnation
            self._by_link.pop(former.link, None)
            former.link.end(refused="" if is_same else _replaced(worker_id), is_replaced=not is_same)
        seat = self._seats[worker_id] = _Seat(worker_id, incarnation, link, hello.stream)
        seat.tenants = tenants
        offer = seat.bound(hello.offer)
        self._by_link[link] = seat
        self._leases.pop(worker_id, None)
        self._touched.pop(worker_id, None)
        told, rest = _fitting(hello.ended)
        held = [*hello.held, *(HeldRun(one.task_id, one.assignment_id) for one in rest)]
        self._submit(
            WorkerAppeared(
                worker_id, incarnation, hello.location, offer, hello.delivered_up_to, held, told, hello.stream
            ),
            lambda reply, revision: self._on_appeared(seat, reply, revision, told),
        )
        if rest:
            seat.ended += rest
            self._report(seat)

    def _on_appeared(self, seat: _Seat, reply: BrokerReply | None, appeared_at: int, told: list[EndedRun]) -> None:
        link = seat.link
        if link is None or self._by_link.get(link) is not seat or seat.is_over:
            return
        if reply is None or isinstance(reply, Refused):
            self._refuse(seat, link, reply)
            return
        seat.is_served = True
        link.welcome(self._welcome)
        link.acknowledge([one.assignment_id for one in told])
        for revision, what in seat.waiting:
            if revision >= appeared_at:
                self._hand_over(link, what)
        seat.waiting.clear()

    def on_said(self, link: WorkerLink, said: FromWorker) -> None:
        """Take in what a worker says after its hello; `flush` reports it."""
        seat = self._by_link.get(link)
        if seat is None or seat.is_over:
            return
        if said.ended or said.progress:
            seat.ended += said.ended
            for one in said.progress:
                seat.progress[one.assignment_id] = one  # Of several in a turn the last one counts.
            size = sum(len(one.result) + _RUN_BYTES for one in said.ended) + _RUN_BYTES * len(said.progress)
            seat.size += size
            link.change_work(size)
            self._touched[seat.worker_id] = None
        if said.offer is not None or said.is_draining:
            self._report(seat)
            offer = None if said.offer is None else seat.bound(said.offer)
            self._submit(
                WorkerChanged(seat.worker_id, seat.incarnation, offer, said.is_draining),
                lambda reply, _revision: self._on_changed(seat, link, reply),
            )
        if said.is_leaving:
            seat.is_leaving = True
        if said.ping:
            link.pong(said.ping)

    def _on_changed(self, seat: _Seat, link: WorkerLink, reply: BrokerReply | None) -> None:
        if reply is None and self._by_link.get(link) is seat and not seat.is_over:
            self._refuse(seat, link, None)  # It says so again, on the next stream.

    def flush(self) -> None:
        """Report what workers have said since the last call: one command a worker."""
        touched, self._touched = self._touched, {}
        for worker_id in touched:
            seat = self._seats.get(worker_id)
            if seat is not None:
                self._report(seat)

    def _report(self, seat: _Seat) -> None:
        ended, progress, size = seat.ended, list(seat.progress.values()), seat.size
        if not ended and not progress:
            return
        seat.ended, seat.progress, seat.size = [], {}, 0
        while True:
            told, ended = _fitting(ended)
            # What was said together is dealt with together.
            self._send_report(seat, told, progress, 0 if ended else size)
            progress = []
            if not ended:
                return

    def _send_report(self, seat: _Seat, ended: list[EndedRun], progress: list[ProgressOf], size: int) -> None:
        link = seat.link
        self.reports += 1

        def _on_reply(reply: BrokerReply | None, _revision: int) -> None:
            if link is None or self._by_link.get(link) is not seat or seat.is_over:
                return
            link.change_work(-size)
            if reply is None or isinstance(reply, Refused):
                # Not known to be in the log: it is told again, on the next stream.
                self._refuse(seat, link, reply)
            elif ended:
                link.acknowledge([one.assignment_id for one in ended])

        self._submit(ReportRuns(seat.worker_id, seat.incarnation, ended, progress), _on_reply)

    def _refuse(self, seat: _Seat, link: WorkerLink, reply: Refused | None) -> None:
        """Serve a worker no more; it is away once its stream is down."""
        seat.is_over = True
        seat.is_served = False
        seat.waiting.clear()
        if reply is None:
            link.end()
            return
        # A worker that the log does not know any more is stale too, and may come back.
        is_replaced = reply.refusal == Refusal.STALE_WORKER and self._was_replaced(seat.worker_id, seat.incarnation)
        link.end(refused=reply.reason, is_replaced=is_replaced)

    def on_closed(self, link: WorkerLink) -> None:
        """Take note that a stream is down."""
        seat = self._by_link.pop(link, None)
        if seat is None:
            return
        self._report(seat)
        away = _Seat(seat.worker_id, seat.incarnation, None, seat.stream)
        if seat.is_leaving:
            del self._seats[seat.worker_id]
            self._end(away)
        else:
            self._put_away(away)
            self._submit(WorkerLost(seat.worker_id, seat.incarnation), _ignore)

    def _put_away(self, seat: _Seat) -> None:
        """Begin the lease of a worker without a stream."""
        self._seats[seat.worker_id] = seat
        self._leases[seat.worker_id] = self._clock_s() + self._lease_s
        self._leases.move_to_end(seat.worker_id)

    # ---- what the log says

    def deliver(self, items: Iterable[OutboxItem]) -> None:
        """Hand over what has been confirmed, in order."""
        for item in items:
            seat = self._seats.get(item.worker_id)
            link = seat.link if seat is not None else None
            if seat is None or link is None or seat.is_over:
                self.undelivered += item.kind is OutboxKind.ASSIGN
                continue
            what: AssignedRun | HeldRun | None
            what = HeldRun(item.task_id, item.assignment_id)
            if item.kind is OutboxKind.ASSIGN:
                what = self._read_run(item)
            if what is None:
                continue
            if seat.is_served:
                self._hand_over(link, what)
            else:
                seat.waiting.append((item.revision, what))

    def _hand_over(self, link: WorkerLink, what: AssignedRun | HeldRun) -> None:
        if isinstance(what, AssignedRun):
            self.dispatched += 1
            link.assign(what)
        else:
            link.cancel(what)

    # ---- time

    @property
    def next_due_s(self) -> float | None:
        """Time at which `tick` has something to do, or None."""
        return next(iter(self._leases.values()), None)

    def tick(self) -> None:
        """Declare those dead whose lease has run out."""
        now_s = self._clock_s()
        while self._leases:
            worker_id, due_s = next(iter(self._leases.items()))
            if due_s > now_s:
                return
            del self._leases[worker_id]
            self._declare_dead(self._seats.pop(worker_id))

    def _declare_dead(self, seat: _Seat) -> None:
        _LOGGER.warning("worker %s is lost: its lease has run out", seat.worker_id)
        self._end(seat)

    def _end(self, seat: _Seat) -> None:
        """Have the log say that a worker is dead: it has left, or is lost."""

        def _on_reply(reply: BrokerReply | None, _revision: int) -> None:
            if reply is None and self.leads and seat.worker_id not in self._seats:
                self._put_away(seat)  # Too much to do: once more, later.

        self._submit(WorkerLost(seat.worker_id, seat.incarnation, is_dead=True), _on_reply)

    def validate(self) -> None:
        """Check the invariants; tests call this after every event."""
        for worker_id, seat in self._seats.items():
            assert (seat.link is None) == (worker_id in self._leases), worker_id
            assert seat.link is None or self._by_link[seat.link] is seat
            assert not (seat.is_served and seat.waiting)
        assert len(self._by_link) == sum(seat.link is not None for seat in self._seats.values())
        dues = list(self._leases.values())
        assert dues == sorted(dues)


def _fitting(ended: Sequence[EndedRun]) -> tuple[list[EndedRun], list[EndedRun]]:
    """Return those that go into one command, and the rest."""
    size = 0
    for place, one in enumerate(ended):
        size += len(one.result) + len(one.error) + _RUN_BYTES
        if place and size > _REPORT_BYTES_MAX:
            return list(ended[:place]), list(ended[place:])
    return list(ended), []


def _replaced(worker_id: str) -> str:
    return f"another process works as {worker_id!r} now: give each its own id"


def _ignore(_reply: BrokerReply | None, _revision: int) -> None:
    pass
