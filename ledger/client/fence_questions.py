"""Questions of one writer to its bookies whether the ledger is fenced: carries out what `FenceCheck` counts.

As few bookies as can prove it are asked, in turns. The others are asked when one of those answers anything but no, or
when answers take several times as long as they usually do; who was waited for then is asked last for a while. A lease
is asked of all: it is the longer the more of them promise, and one question serves many reads.

With the question bookies may be asked for a promise, which `ReadLease` counts. A bookie of before answers without one.

Bookies that do not know the question (BookKeeper's, and ours of before) answer another one instead. They are asked
once, and again when they have been connected anew: an upgrade may lie between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ledger.client.pool import ConnectionPool
from ledger.core.fence_check import FenceCheck, FenceVerdict
from ledger.core.writer import LedgerWriter
from ledger.wire.codes import FenceState
from ledger.wire.packets import FenceCheckRequest, FenceCheckResponse, Response

PATIENCE_S: Final = 0.1
"""Answers in memory take a fraction of it; who waits for longer is better off with an entry."""
PAUSE_S: Final = 1.0
"""After bookies were silent nobody is kept waiting by another check for so long; who was late is asked last."""
_LATE_FACTOR: Final = 4.0
_LATE_S_MIN: Final = 0.002
_LATE_S_MAX: Final = PATIENCE_S / 2
"""Answers are late after so many times what they usually take, within these bounds."""
_USUAL_S_FIRST: Final = 0.005
_USUAL_SHARE: Final = 0.125
"""Share of the last answer in what is usual."""


class _Wish(NamedTuple):
    """A promise that was asked for: in which term, when by the own clock, and for how long."""

    term: int
    asked_at: float
    lease_ms: int


class _Waiting:
    """A check that somebody waits for.

    Attributes:
        future: Of its outcome.
        timer: Until the others are asked, then until it is given up.
        bookies: Of the ensemble when it began.
        order: Positions, in the order in which they are asked.
        request: The question.
        wish: That goes with it.
        began_s: Loop time.
        sent_s: Loop time at which bookies were asked last.

    """

    __slots__ = ("began_s", "bookies", "future", "order", "request", "sent_s", "timer", "wish")

    def __init__(
        self,
        future: asyncio.Future[bool],
        timer: asyncio.TimerHandle,
        bookies: Sequence[str],
        order: Sequence[int],
        request: FenceCheckRequest,
        wish: _Wish,
        began_s: float,
    ) -> None:
        self.future = future
        self.timer = timer
        self.bookies = bookies
        self.order = order
        self.request = request
        self.wish = wish
        self.began_s = self.sent_s = began_s


class FenceQuestions:
    """Asks the bookies of one ledger, as an `Asker` whose tokens are (check, position, what was asked for).

    Args:
        pool: Connections.
        core: The writer.
        master_key: The ledger's.

    """

    def __init__(self, pool: ConnectionPool, core: LedgerWriter, master_key: bytes) -> None:
        self._pool = pool
        self._core = core
        self._master_key = master_key
        self._loop = asyncio.get_running_loop()
        # Those that do not know the question. For look-ups only.
        self._mute: set[str] = set()
        # Those that were waited for: the loop time until which they are asked last. For look-ups only.
        self._late: dict[str, float] = {}
        self._turn = 0
        self._usual_s = _USUAL_S_FIRST
        self._paused_until = 0.0
        # Invariant: each is of a check that was not decided when it was looked at last.
        self._waiting: dict[FenceCheck, _Waiting] = {}

    def holds_lease(self) -> bool:
        """Return whether bookies' promises prove that nobody has recovered the ledger up to now."""
        return self._pool.lease_clock() < self._core.lease.until

    def ask(self, lease_ms: int = 0) -> asyncio.Future[bool]:
        """Begin a check; the future says whether it is proven that nobody had recovered the ledger when it began.

        Args:
            lease_ms: What bookies are to promise with their answer; 0 = nothing.

        """
        loop = self._loop
        future: asyncio.Future[bool] = loop.create_future()
        bookies, now = self._core.bookies, loop.time()
        check = self._core.begin_check([place for place, bookie_id in enumerate(bookies) if bookie_id in self._mute])
        if check.verdict is not None or now < self._paused_until:
            future.set_result(False)
            return future
        request = FenceCheckRequest(self._pool.take_txns(1), self._core.ledger_id, self._master_key, lease_ms)
        # The clock is read before anything is sent: a bookie counts from later.
        wish = _Wish(self._core.lease.term, self._pool.lease_clock() if lease_ms else 0.0, lease_ms)
        order = self._order(bookies, now)
        late_s = min(max(_LATE_FACTOR * self._usual_s, _LATE_S_MIN), _LATE_S_MAX)
        timer = (
            loop.call_later(PATIENCE_S, self._give_up, check)
            if lease_ms
            else loop.call_later(late_s, self._on_late, check)
        )
        waiting = self._waiting[check] = _Waiting(future, timer, bookies, order, request, wish, now)
        self._send(check, waiting, check.take_rest(order) if lease_ms else check.take(order))
        return future

    def _order(self, bookies: Sequence[str], now: float) -> list[int]:
        """Return the positions whose bookies know the question: each comes first in its turn, and late ones last."""
        count = len(bookies)
        self._turn = (self._turn + 1) % count
        order = [place for n in range(count) if bookies[place := (self._turn + n) % count] not in self._mute]
        if self._late:
            self._late = {bookie_id: until for bookie_id, until in self._late.items() if until > now}
            order.sort(key=lambda place: self._late.get(bookies[place], 0.0))  # Who was late last comes last.
        return order

    def _send(self, check: FenceCheck, waiting: _Waiting, places: Sequence[int]) -> None:
        if places:
            waiting.sent_s = self._loop.time()
            asked = [(waiting.bookies[place], (check, place, waiting.wish)) for place in places]
            self._pool.ask_all(asked, waiting.request, self)

    def settle(self) -> None:
        """Tell those who wait for checks that have been decided, by answers or by what became of the writer."""
        for check in [check for check in self._waiting if check.verdict is not None]:
            waiting = self._waiting.pop(check)
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_result(check.verdict is FenceVerdict.OPEN)

    def forget(self, bookie_id: str) -> None:
        """Ask a bookie again that did not know the question: it may be another version by now."""
        self._mute.discard(bookie_id)

    def _on_late(self, check: FenceCheck) -> None:
        """Ask those that were spared: answers of others are late."""
        if check.verdict is not None:  # By what became of the writer.
            self.settle()
            return
        waiting = self._waiting[check]
        waiting.timer = self._loop.call_at(waiting.began_s + PATIENCE_S, self._give_up, check)
        now = self._loop.time()
        for place in waiting.order:
            if check.is_awaited(place):
                self._late[waiting.bookies[place]] = now + PAUSE_S
        self._send(check, waiting, check.take_rest(waiting.order))

    def _ask_others(self, check: FenceCheck) -> None:
        """Ask others in place of those that have not said no."""
        waiting = self._waiting.get(check)
        if waiting is not None:
            self._send(check, waiting, check.take(waiting.order))

    def _give_up(self, check: FenceCheck) -> None:
        self._paused_until = self._loop.time() + PAUSE_S
        check.void()
        self.settle()

    # --- answers of bookies, as asker

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Take nothing: no adds are asked for here."""

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Count answers."""
        for (check, position, wish), response in responses:
            if not isinstance(response, FenceCheckResponse):
                self._mute.add(bookie_id)
                check.answer(position, is_open=False)
                self._ask_others(check)
                continue
            is_open = response.state is FenceState.OPEN
            if is_open and wish.lease_ms and response.lease_ms > 0:
                promised_ms = min(response.lease_ms, wish.lease_ms)
                self._core.on_promise(position, wish.term, wish.asked_at, promised_ms)
            check.answer(position, is_open=is_open)
            if not is_open:
                self._ask_others(check)
            elif (waiting := self._waiting.get(check)) is not None:
                self._usual_s += _USUAL_SHARE * (self._loop.time() - waiting.sent_s - self._usual_s)
        self.settle()

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:  # noqa: ARG002
        """Count what will not come."""
        for check, position, _ in tokens:
            check.answer(position, is_open=False)
            if check.verdict is FenceVerdict.UNPROVEN and check in self._waiting:
                self._paused_until = self._loop.time() + PAUSE_S
            self._late[bookie_id] = self._loop.time() + PAUSE_S
            self._ask_others(check)
        self.settle()
