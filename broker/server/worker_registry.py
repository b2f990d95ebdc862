"""Registry of workers: who works for this leader, and over which stream; it does not know what a stream is.

1. A worker is served once the log says that it has appeared: before that nothing is handed to it.
2. What was assigned before its appearance is not handed over: it was given back by that (see `WorkerAppeared`).
3. Assignments leave when they are confirmed, in the order of their ids. Ends are acknowledged when they are confirmed.
4. A worker has one stream, the newest. What a former one says or loses is passed over.
5. A worker whose stream is down keeps its runs for a lease, by the leader's own clock. Every leader begins it anew.

Where a worker is, while this replica leads:

    appearing   it has said hello, the log does not know yet      `_WorkerSession.link`, not `is_served`
    served      it gets assignments                               `_WorkerSession.link`, `is_served`
    away        its stream is down, or has not come yet           no `link`; its lease is in `_leases`
    gone        dead, or never heard of                           no session

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


class _WorkerSession:
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
        self._sessions: dict[str, _WorkerSession] = {}
        self._by_link: dict[WorkerLink, _WorkerSession] = {}
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
            self._put_away(_WorkerSession(worker_id, incarnation, None))
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
        self._sessions.clear()
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
        former = self._sessions.get(worker_id)
        if former is not None and former.incarnation == incarnation and hello.stream < former.stream:
            link.end()  # Of a stream that was given up since: it was long on its way.
            return
        if former is not None and former.link is not None:
            self._report(former)  # What it said is said, in order.
            is_same = former.incarnation == incarnation
            self._by_link.pop(former.link, None)
            former.link.end(refused="" if is_same else _replaced(worker_id), is_replaced=not is_same)
        session = self._sessions[worker_id] = _WorkerSession(worker_id, incarnation, link, hello.stream)
        session.tenants = tenants
        offer = session.bound(hello.offer)
        self._by_link[link] = session
        self._leases.pop(worker_id, None)
        self._touched.pop(worker_id, None)
        told, rest = _fitting(hello.ended)
        held = [*hello.held, *(HeldRun(one.task_id, one.assignment_id) for one in rest)]
        self._submit(
            WorkerAppeared(
                worker_id, incarnation, hello.location, offer, hello.delivered_up_to, held, told, hello.stream
            ),
            lambda reply, revision: self._on_appeared(session, reply, revision, told),
        )
        if rest:
            session.ended += rest
            self._report(session)

    def _on_appeared(
        self, session: _WorkerSession, reply: BrokerReply | None, appeared_at: int, told: list[EndedRun]
    ) -> None:
        link = session.link
        if link is None or self._by_link.get(link) is not session or session.is_over:
            return
        if reply is None or isinstance(reply, Refused):
            self._refuse(session, link, reply)
            return
        session.is_served = True
        link.welcome(self._welcome)
        link.acknowledge([one.assignment_id for one in told])
        for revision, what in session.waiting:
            if revision >= appeared_at:
                self._hand_over(link, what)
        session.waiting.clear()

    def on_said(self, link: WorkerLink, said: FromWorker) -> None:
        """Take in what a worker says after its hello; `flush` reports it."""
        session = self._by_link.get(link)
        if session is None or session.is_over:
            return
        if said.ended or said.progress:
            session.ended += said.ended
            for one in said.progress:
                session.progress[one.assignment_id] = one  # Of several in a turn the last one counts.
            size = sum(len(one.result) + _RUN_BYTES for one in said.ended) + _RUN_BYTES * len(said.progress)
            session.size += size
            link.change_work(size)
            self._touched[session.worker_id] = None
        if said.offer is not None or said.is_draining:
            self._report(session)
            offer = None if said.offer is None else session.bound(said.offer)
            self._submit(
                WorkerChanged(session.worker_id, session.incarnation, offer, said.is_draining),
                lambda reply, _revision: self._on_changed(session, link, reply),
            )
        if said.is_leaving:
            session.is_leaving = True
        if said.ping:
            link.pong(said.ping)

    def _on_changed(self, session: _WorkerSession, link: WorkerLink, reply: BrokerReply | None) -> None:
        if reply is None and self._by_link.get(link) is session and not session.is_over:
            self._refuse(session, link, None)  # It says so again, on the next stream.

    def flush(self) -> None:
        """Report what workers have said since the last call: one command a worker."""
        touched, self._touched = self._touched, {}
        for worker_id in touched:
            session = self._sessions.get(worker_id)
            if session is not None:
                self._report(session)

    def _report(self, session: _WorkerSession) -> None:
        ended, progress, size = session.ended, list(session.progress.values()), session.size
        if not ended and not progress:
            return
        session.ended, session.progress, session.size = [], {}, 0
        while True:
            told, ended = _fitting(ended)
            # What was said together is dealt with together.
            self._send_report(session, told, progress, 0 if ended else size)
            progress = []
            if not ended:
                return

    def _send_report(
        self, session: _WorkerSession, ended: list[EndedRun], progress: list[ProgressOf], size: int
    ) -> None:
        link = session.link
        self.reports += 1

        def _on_reply(reply: BrokerReply | None, _revision: int) -> None:
            if link is None or self._by_link.get(link) is not session or session.is_over:
                return
            link.change_work(-size)
            if reply is None or isinstance(reply, Refused):
                # Not known to be in the log: it is told again, on the next stream.
                self._refuse(session, link, reply)
            elif ended:
                link.acknowledge([one.assignment_id for one in ended])

        self._submit(ReportRuns(session.worker_id, session.incarnation, ended, progress), _on_reply)

    def _refuse(self, session: _WorkerSession, link: WorkerLink, reply: Refused | None) -> None:
        """Serve a worker no more; it is away once its stream is down."""
        session.is_over = True
        session.is_served = False
        session.waiting.clear()
        if reply is None:
            link.end()
            return
        # A worker that the log does not know any more is stale too, and may come back.
        is_replaced = reply.refusal == Refusal.STALE_WORKER and self._was_replaced(
            session.worker_id, session.incarnation
        )
        link.end(refused=reply.reason, is_replaced=is_replaced)

    def on_closed(self, link: WorkerLink) -> None:
        """Take note that a stream is down."""
        session = self._by_link.pop(link, None)
        if session is None:
            return
        self._report(session)
        away = _WorkerSession(session.worker_id, session.incarnation, None, session.stream)
        if session.is_leaving:
            del self._sessions[session.worker_id]
            self._end(away)
        else:
            self._put_away(away)
            self._submit(WorkerLost(session.worker_id, session.incarnation), _ignore)

    def _put_away(self, session: _WorkerSession) -> None:
        """Begin the lease of a worker without a stream."""
        self._sessions[session.worker_id] = session
        self._leases[session.worker_id] = self._clock_s() + self._lease_s
        self._leases.move_to_end(session.worker_id)

    # ---- what the log says

    def deliver(self, items: Iterable[OutboxItem]) -> None:
        """Hand over what has been confirmed, in order."""
        for item in items:
            session = self._sessions.get(item.worker_id)
            link = session.link if session is not None else None
            if session is None or link is None or session.is_over:
                self.undelivered += item.kind is OutboxKind.ASSIGN
                continue
            what: AssignedRun | HeldRun | None
            what = HeldRun(item.task_id, item.assignment_id)
            if item.kind is OutboxKind.ASSIGN:
                what = self._read_run(item)
            if what is None:
                continue
            if session.is_served:
                self._hand_over(link, what)
            else:
                session.waiting.append((item.revision, what))

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
            self._declare_dead(self._sessions.pop(worker_id))

    def _declare_dead(self, session: _WorkerSession) -> None:
        extra = {"worker": session.worker_id}
        _LOGGER.warning("worker %s is lost: its lease has run out", session.worker_id, extra=extra)
        self._end(session)

    def _end(self, session: _WorkerSession) -> None:
        """Have the log say that a worker is dead: it has left, or is lost."""

        def _on_reply(reply: BrokerReply | None, _revision: int) -> None:
            if reply is None and self.leads and session.worker_id not in self._sessions:
                self._put_away(session)  # Too much to do: once more, later.

        self._submit(WorkerLost(session.worker_id, session.incarnation, is_dead=True), _on_reply)

    def validate(self) -> None:
        """Check the invariants; tests call this after every event."""
        for worker_id, session in self._sessions.items():
            assert (session.link is None) == (worker_id in self._leases), worker_id
            assert session.link is None or self._by_link[session.link] is session
            assert not (session.is_served and session.waiting)
        assert len(self._by_link) == sum(session.link is not None for session in self._sessions.values())
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
