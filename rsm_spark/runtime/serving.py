"""Handling of requests: queued for the leader's next batch, answered from the state as it is, or refused at once.

A read that need not be linearizable is answered from confirmed state, on any replica, if that is new enough; on a
leader with a batch on its way, whose live state shows what is not confirmed, it goes with the next batch instead. A
session read of a revision that is still on its way waits for it, for a short time; so does an indexed one, once the
leader has said how far the log is.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from typing import NamedTuple

from ledger.telemetry.tracing import current_context, tracer
from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, AnswerStatus, Query, QueryColumn, Request
from rsm_spark.core.freshness import Freshness, LeaderClock, LoggedTimeGauge, ReadKind, ReadVerdict, judge_read
from rsm_spark.core.replies import answer_queries, answer_query
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.runtime.context import ReplicaContext, resolve
from rsm_spark.runtime.leading import LeaderDriver
from rsm_spark.runtime.read_index import IndexedRead, ReadIndexes

SESSION_WAIT_S = 0.25
"""Time for which a read waits for its revision: many times a follower's usual lag; then the client can ask
another replica instead."""


_OF_LEADERS = frozenset({ReadKind.LINEARIZABLE, ReadKind.INDEXED})


class _WaitingRead(NamedTuple):
    """A read whose revision has not come yet; ordered by it."""

    min_revision: int
    number: int
    requests: Sequence[Request]
    future: asyncio.Future[Sequence[Answer]]
    due_s: float
    is_indexed: bool


class Serving:
    """Takes requests for one replica. Everything happens on its event loop.

    Args:
        context: Of the replica.
        queue: Read by the leader's driver.

    Attributes:
        driver: While this replica leads, or tries to.
        overloaded: Requests refused because a queue was full.
        too_stale: Reads refused because the state was not new enough.

    """

    def __init__(self, context: ReplicaContext, queue: RequestQueue) -> None:
        self.driver: LeaderDriver | None = None
        self.overloaded = 0
        self.too_stale = 0
        self._context = context
        self._queue = queue
        self._gauge = LoggedTimeGauge()
        self._waiting: list[_WaitingRead] = []
        self._waiting_requests = 0
        self._waited = 0
        self._indexes = ReadIndexes(context, self._on_index, self._on_not_indexed, self._on_clock)
        self._timer: asyncio.TimerHandle | None = None
        context.applied_listeners.append(self._on_applied)

    @property
    def lag_ms(self) -> int | None:
        """Age of the confirmed state in logged time, by the bounds known; None while they are not."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if self._gauge.logged_ms is not None:
            # Of the state as it is: one that was thrown away and booted again is older than the entries seen.
            self._gauge.logged_ms = self._context.tip.logged_ms
        return self._gauge.lag_ms(self._context.clock_ms(), now_ms)

    def submit(
        self, requests: Sequence[Request], freshness: Freshness, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        """Return one future of the answers, in order; see `Replica.submit`."""
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        driver = self.driver
        leads = driver is not None and driver.accepts
        if not requests:
            future.set_result([])
        elif freshness.kind is ReadKind.INDEXED and not leads:
            self._read_indexed(requests, future, owner)
        elif freshness.kind is ReadKind.BOUNDED and not leads and not self._gauge.is_known and self._can_be_read():
            self._ask_leader(IndexedRead(requests, future, owner, freshness))
        elif freshness.kind not in _OF_LEADERS and self._can_read(requests, leads=leads):
            self._read(requests, freshness, future)
        elif not leads:
            future.set_result(self._refused(AnswerStatus.NOT_LEADER, requests))
        elif self._is_full(self._queue.request_count + len(requests)) or (
            owner and self._is_full(2 * (self._queue.count_of(owner) + len(requests)))  # One has half at most.
        ):
            self.overloaded += len(requests)
            future.set_result(self._refused(AnswerStatus.OVERLOADED, requests))
        else:
            assert driver is not None
            submission = Submission(requests, future, owner)
            if tracer() is not None:
                submission.trace = current_context()
            self._queue.add(submission)
            driver.wake()
        return future

    def _can_read(self, requests: Sequence[Request], *, leads: bool) -> bool:
        """Return whether the requests are to be answered from the state, or refused, without the log."""
        if not leads:
            return True
        return self._context.state_is_confirmed and _are_queries(requests)

    def _read(
        self, requests: Sequence[Request], freshness: Freshness, future: asyncio.Future[Sequence[Answer]]
    ) -> None:
        context = self._context
        if not self._can_be_read():
            resolve(future, self._refused(AnswerStatus.NOT_READY, requests))
            return
        revision = context.tip.revision
        lag_ms = self.lag_ms if freshness.kind is ReadKind.BOUNDED else None
        match judge_read(freshness, revision, max(revision, context.known_revision), lag_ms):
            case ReadVerdict.SERVE:
                resolve(future, self._answers(requests))
            case ReadVerdict.WAIT if self._is_full(self._waiting_requests + len(requests)):
                self.overloaded += len(requests)
                future.set_result(self._refused(AnswerStatus.OVERLOADED, requests))
            case ReadVerdict.WAIT:
                self._wait(requests, freshness.min_revision, future)
            case ReadVerdict.TOO_STALE:
                resolve(future, self._too_stale(requests))

    def _can_be_read(self) -> bool:
        return self._context.has_state and self._context.state_is_confirmed

    # ---- reads that the leader's word helps, without leading

    def _read_indexed(self, requests: Sequence[Request], future: asyncio.Future[Sequence[Answer]], owner: str) -> None:
        if not _are_queries(requests):
            future.set_result(self._refused(AnswerStatus.NOT_LEADER, requests))
        elif not self._context.has_state:
            future.set_result(self._refused(AnswerStatus.NOT_READY, requests))
        else:
            self._ask_leader(IndexedRead(requests, future, owner))

    def _ask_leader(self, read: IndexedRead) -> None:
        indexes, count, owner = self._indexes, len(read.requests), read.owner
        if self._is_full(self._waiting_requests + indexes.waiting_count + count) or (
            owner and self._is_full(2 * (indexes.count_of(owner) + count))  # One has half at most, as with a leader.
        ):
            self.overloaded += count
            read.future.set_result(self._refused(AnswerStatus.OVERLOADED, read.requests))
        else:
            indexes.add(read)

    def _on_index(self, read: IndexedRead, revision: int) -> None:
        """Answer when the state is as new as the leader's was; it may lead itself by now, which does no harm."""
        context = self._context
        if read.freshness.kind is ReadKind.BOUNDED:
            self._read(read.requests, read.freshness, read.future)
        elif context.has_state and context.state_is_confirmed and context.tip.revision >= revision:
            context.reads_by_index += len(read.requests)
            resolve(read.future, self._answers(read.requests))
        else:
            self._wait(read.requests, revision, read.future, is_indexed=True)

    def _on_not_indexed(self, read: IndexedRead, status: AnswerStatus) -> None:
        if read.freshness.kind is ReadKind.BOUNDED:
            self._read(read.requests, read.freshness, read.future)
        else:
            resolve(read.future, self._refused(status, read.requests))

    def _on_clock(self, clock: LeaderClock) -> None:
        self._gauge.on_clock(clock, int(asyncio.get_running_loop().time() * 1000))

    def stop(self) -> None:
        """Ask other replicas for nothing more."""
        self._indexes.stop()

    def _is_full(self, request_count: int) -> bool:
        return request_count > self._context.settings.queue_requests_max

    def _answers(self, requests: Sequence[Request]) -> AnswerColumn:
        """Answer queries from the state; what is none needs the leader."""
        context = self._context
        revision, machine = context.tip.revision, context.machine
        denied = Answer(AnswerStatus.NOT_LEADER, revision, b"")
        failures: list[Exception] = []
        answers = AnswerColumn()
        if type(requests) is QueryColumn:
            answer_queries(machine, requests.payloads, revision, failures, answers)
        else:
            answers.extend(
                answer_query(machine, request.payload, revision, failures) if type(request) is Query else denied
                for request in requests
            )
        if failures:
            context.machine_failed(failures)
        return answers

    def _refused(self, status: AnswerStatus, requests: Sequence[Request], reason: bytes = b"") -> list[Answer]:
        return [Answer(status, self._context.tip.revision, reason)] * len(requests)

    def _too_stale(self, requests: Sequence[Request]) -> list[Answer]:
        self.too_stale += len(requests)
        lag_ms = self.lag_ms
        return self._refused(AnswerStatus.TOO_STALE, requests, b"" if lag_ms is None else b"%d" % lag_ms)

    # ---- session reads that wait

    def _wait(
        self,
        requests: Sequence[Request],
        min_revision: int,
        future: asyncio.Future[Sequence[Answer]],
        *,
        is_indexed: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._waited += 1
        due_s = loop.time() + SESSION_WAIT_S
        heapq.heappush(self._waiting, _WaitingRead(min_revision, self._waited, requests, future, due_s, is_indexed))
        self._waiting_requests += len(requests)
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._give_up)

    def _on_applied(self, revision: int) -> None:
        context = self._context
        tip = context.tip
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self._gauge.on_entry(tip.leader_epoch, tip.logged_ms, now_ms)
        own_clock = self.driver.clock if self.driver is not None else None
        if own_clock is not None:
            self._gauge.on_clock(own_clock, now_ms)
        elif not self._gauge.is_known:
            self._indexes.want_clock()
        waiting = self._waiting
        while waiting and waiting[0].min_revision <= revision:
            read = heapq.heappop(waiting)
            self._waiting_requests -= len(read.requests)
            context.reads_by_index += len(read.requests) if read.is_indexed else 0
            resolve(read.future, self._answers(read.requests))

    def _give_up(self) -> None:
        """Refuse the reads that have waited long enough."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        kept: list[_WaitingRead] = []
        for read in self._waiting:
            if read.due_s > now and not read.future.done():
                kept.append(read)
            else:
                self._waiting_requests -= len(read.requests)
                resolve(read.future, self._too_stale(read.requests))
        heapq.heapify(kept)
        self._waiting = kept
        if kept:
            self._timer = loop.call_at(min(read.due_s for read in kept), self._give_up)


def _are_queries(requests: Sequence[Request]) -> bool:
    return type(requests) is QueryColumn or all(type(request) is Query for request in requests)
