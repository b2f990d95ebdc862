"""Linearizable reads without an entry: the bookies say that nobody has taken the log over, the confirmed state answers.

A read may be answered from a confirmed state that holds all that anybody was told before the read arrived. The own
state does, unless another leader has had something confirmed before. For that the own ledger must have been recovered,
and a fence check (`ledger.core.fence_check`) proves that it was not, at a moment after the read arrived.

1. A check covers the reads that waited when it began; those that come later wait for the next one.
2. It counts while the ledger that was asked about is the one that this leader writes: a former one was closed without
   a fence.
3. Reads are answered between two entries only, when the live state is confirmed and nothing is due, so that they see
   what they would see in an entry.
4. With `read_leases_ms` bookies promise with their answer that nobody takes over for a while. While the lease holds, it
   is looked at instead of a check, at the same moment: after the reads have come, for these alone. Whatever the process
   is kept from then on, they are answered from a state that is no older.
5. Whoever else needs an entry gets it at once, and reads that wait go with it: no read waits for longer than it would
   without checks, but for a check that fails, and nothing waits for reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from rsm_spark.core.commands import Query, QueryColumn, ReadIndex
from rsm_spark.core.replies import answer_queries, answer_query
from rsm_spark.core.submissions import RequestQueue
from rsm_spark.runtime.context import ReplicaContext, resolve
from rsm_spark.runtime.own_ledger import OwnLedger


class _Phase(Enum):
    IDLE = "idle"
    ASKING = "asking"
    PROVEN = "proven"
    FAILED = "failed"  # The reads that wait need an entry.


class ReadChecks:
    """The checks of one leader, one at a time.

    Args:
        context: Of the replica.
        queue: Requests that wait.
        ledger: The leader's.
        wake: Called when a check is decided.

    """

    def __init__(
        self, context: ReplicaContext, queue: RequestQueue, ledger: OwnLedger, wake: Callable[[], None]
    ) -> None:
        self._context = context
        self._queue = queue
        self._ledger = ledger
        self._wake = wake
        self._phase = _Phase.IDLE if context.settings.check_reads else _Phase.FAILED
        self._mark = 0
        self._ledger_id = -1
        self._asked: asyncio.Future[bool] | None = None
        self._is_by_lease = False

    @property
    def needs_entry(self) -> bool:
        """True if the reads that wait can be answered with an entry only."""
        return self._phase is _Phase.FAILED and self._queue.request_count > 0

    @property
    def is_proven(self) -> bool:
        """True if reads may be answered now, by a check that covers them."""
        return self._phase is _Phase.PROVEN and self._ledger.ledger_id == self._ledger_id

    def begin(self) -> bool:
        """Begin a check for all reads that wait, unless one is under way; return False if it is decided at once.

        A lease that holds decides it.
        """
        if self._phase is _Phase.ASKING:
            return True
        # Marked before the lease is looked at: it says nothing of what comes later.
        self._mark = self._queue.set_mark()
        self._ledger_id = self._ledger.ledger_id
        self._is_by_lease = self._context.settings.read_leases_ms > 0 and self._ledger.holds_lease()
        if self._is_by_lease:
            self._phase = _Phase.PROVEN
            return False
        self._phase = _Phase.ASKING
        asked = self._asked = self._ledger.check_fence()
        if asked.done():
            self._on_told(asked)
            return False
        asked.add_done_callback(self._on_told)
        return True

    def answer(self) -> bool:
        """Answer reads that the check covers, as many as an entry would take; return whether more of them wait."""
        context = self._context
        assert self.is_proven
        assert context.state_is_confirmed
        limit = context.settings.entry_commands_max
        machine, revision = context.machine, context.tip.revision
        failures: list[Exception] = []
        count = 0
        for submission in self._queue.take_reads(self._mark, limit):
            left = submission.requests[submission.decided :]
            count += len(left)
            if type(left) is QueryColumn:
                answer_queries(machine, left.payloads, revision, failures, submission.answers)
            else:
                for request in left:
                    if type(request) is Query:
                        submission.answers.append(answer_query(machine, request.payload, revision, failures))
                    else:
                        assert type(request) is ReadIndex
                        submission.answers.add(revision, b"")
            submission.confirmed = submission.decided
            resolve(submission.ticket, submission.answers)
        if self._is_by_lease:
            context.reads_by_lease += count
        else:
            context.reads_by_check += count
        if failures:
            context.machine_failed(failures)
        if count >= limit:
            return True
        self._phase = _Phase.IDLE
        return False

    def entry_composed(self) -> None:
        """Note that an entry has taken what waited; a check under way goes on, for what the entry had no room for."""
        if self._phase is not _Phase.ASKING and self._context.settings.check_reads:
            self._phase = _Phase.IDLE

    def stop(self) -> None:
        """Ask for nothing more."""
        if self._asked is not None:
            self._asked.cancel()

    def _on_told(self, asked: asyncio.Future[bool]) -> None:
        if asked is not self._asked or asked.cancelled():
            return
        if asked.exception() is None and asked.result():
            self._phase = _Phase.PROVEN
        else:  # An entry may have taken meanwhile what waited for it.
            self._phase = _Phase.FAILED if self._queue.request_count else _Phase.IDLE
        self._wake()
