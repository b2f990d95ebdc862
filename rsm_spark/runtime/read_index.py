"""Linearizable reads on a replica that does not lead: the leader says how far the log is, the own state answers there.

This is Raft's read index (Ongaro, "Consensus: Bridging Theory and Practice", 6.4), with this log's proof of leadership.

1. The leader answers a question as it answers a read: it proves, after the question came, that nobody has taken the log
   over, and names the revision of its confirmed state (`rsm_spark.runtime.read_checks`).
2. A question covers the reads that came before it was asked. Those that come while it is under way wait for the next
   one: its answer may be from before they came.
3. A read is answered from a confirmed state of that revision or a later one, on whatever replica.
4. One question is under way at a time, for all that wait.
5. The answer tells the leader's clock as well, which is how a replica knows the age of its state. Where that is not
   known, reads of bounded age wait for a question too, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rsm_spark.core.commands import Answer, AnswerStatus, Request
from rsm_spark.core.freshness import CLOCK_ASKED_S_MAX, INDEXED, Freshness, LeaderClock
from rsm_spark.errors import ConnectionLostError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.peers import LogIndex

ANSWER_S_MAX = CLOCK_ASKED_S_MAX
"""For the leader's answer; a client that has none within a second asks somebody else."""
_CLOCK_PAUSE_S = 1.0
"""Between questions that no read waits for."""


class IndexedRead(NamedTuple):
    """Reads of one message, their answers, whose they are, and how fresh: INDEXED or BOUNDED."""

    requests: Sequence[Request]
    future: asyncio.Future[Sequence[Answer]]
    owner: str
    freshness: Freshness = INDEXED


class ReadIndexes:
    """The questions of one replica to its leader.

    Args:
        context: Of the replica.
        on_index: Called with a read and the revision that its answer must have at least.
        on_refused: Called with a read that the leader's answer does not help, and why.
        on_clock: Called with the clock of the leader, when it has told that.

    Attributes:
        waiting_count: Requests that wait for a question's answer.

    """

    def __init__(
        self,
        context: ReplicaContext,
        on_index: Callable[[IndexedRead, int], None],
        on_refused: Callable[[IndexedRead, AnswerStatus], None],
        on_clock: Callable[[LeaderClock], None],
    ) -> None:
        self.waiting_count = 0
        self._context = context
        self._on_index = on_index
        self._on_refused = on_refused
        self._on_clock = on_clock
        self._clock_asked_s = float("-inf")
        self._waiting: list[IndexedRead] = []
        self._count_of: Counter[str] = Counter()
        self._asking: asyncio.Task[None] | None = None

    def add(self, read: IndexedRead) -> None:
        """Have a read answered by the next question."""
        self._waiting.append(read)
        self._count(read, len(read.requests))
        self._begin()

    def want_clock(self) -> None:
        """Ask for the leader's clock though no read waits, unless that was done a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._asking is None and now - self._clock_asked_s >= _CLOCK_PAUSE_S and self._context.leader_address:
            self._clock_asked_s = now
            self._begin()

    def count_of(self, owner: str) -> int:
        """Return how many requests of an owner wait."""
        return self._count_of[owner]

    def stop(self) -> None:
        """Ask nothing more; what waits is refused."""
        if self._asking is not None:
            self._asking.cancel()

    def _begin(self) -> None:
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all(), name="rsm-read-index")

    async def _ask_all(self) -> None:
        covered: list[IndexedRead] = []
        try:
            while True:
                covered, self._waiting = self._waiting, []
                index = await self._ask()
                if index is not None and index.clock is not None:
                    self._on_clock(index.clock)
                self._end(covered, index)
                covered = []
                if not self._waiting:
                    break
        finally:
            left, self._waiting = covered + self._waiting, []
            self._asking = None
            self._end(left, None)

    def _end(self, reads: list[IndexedRead], index: LogIndex | None) -> None:
        for read in reads:
            self._count(read, -len(read.requests))
            if index is not None and index.status is AnswerStatus.OK:
                self._on_index(read, index.revision)
            else:
                is_full = index is not None and index.status is AnswerStatus.OVERLOADED
                self._on_refused(read, AnswerStatus.OVERLOADED if is_full else AnswerStatus.NOT_LEADER)

    def _count(self, read: IndexedRead, change: int) -> None:
        self.waiting_count += change
        self._count_of[read.owner] += change
        if not self._count_of[read.owner]:
            del self._count_of[read.owner]

    async def _ask(self) -> LogIndex | None:
        """Return the leader's answer; None = it does not tell."""
        peers, address = self._context.peers, self._context.leader_address
        if peers is None or not address:
            return None
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await peers.read_index(address)
        except (ConnectionLostError, TimeoutError):
            return None
