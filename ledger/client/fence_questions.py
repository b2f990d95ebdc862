"""Questions of one writer to its bookies whether the ledger is fenced: carries out what `FenceCheck` counts.

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
"""After bookies were silent nobody is kept waiting by another check for so long."""


class _Wish(NamedTuple):
    """A promise that was asked for: in which term, when by the own clock, and for how long."""

    term: int
    asked_at: float
    lease_ms: int


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
        self._paused_until = 0.0
        # Invariant: each is of a check that was not decided when it was looked at last.
        self._waiting: dict[FenceCheck, tuple[asyncio.Future[bool], asyncio.TimerHandle]] = {}

    def holds_lease(self) -> bool:
        """Return whether bookies' promises prove that nobody has recovered the ledger up to now."""
        return self._pool.lease_clock() < self._core.lease.until

    def ask(self, lease_ms: int = 0) -> asyncio.Future[bool]:
        """Begin a check; the future says whether it is proven that nobody had recovered the ledger when it began.

        Args:
            lease_ms: What bookies are to promise with their answer; 0 = nothing.

        """
        future: asyncio.Future[bool] = self._loop.create_future()
        bookies = self._core.bookies
        check = self._core.begin_check([place for place, bookie_id in enumerate(bookies) if bookie_id in self._mute])
        if check.verdict is not None or self._loop.time() < self._paused_until:
            future.set_result(False)
            return future
        self._waiting[check] = (future, self._loop.call_later(PATIENCE_S, self._give_up, check))
        request = FenceCheckRequest(self._pool.take_txns(1), self._core.ledger_id, self._master_key, lease_ms)
        # The clock is read before anything is sent: a bookie counts from later.
        wish = _Wish(self._core.lease.term, self._pool.lease_clock() if lease_ms else 0.0, lease_ms)
        asked = [
            (bookie_id, (check, place, wish)) for place, bookie_id in enumerate(bookies) if bookie_id not in self._mute
        ]
        self._pool.ask_all(asked, request, self)
        return future

    def settle(self) -> None:
        """Tell those who wait for checks that have been decided, by answers or by what became of the writer."""
        for check in [check for check in self._waiting if check.verdict is not None]:
            future, timer = self._waiting.pop(check)
            timer.cancel()
            if not future.done():
                future.set_result(check.verdict is FenceVerdict.OPEN)

    def forget(self, bookie_id: str) -> None:
        """Ask a bookie again that did not know the question: it may be another version by now."""
        self._mute.discard(bookie_id)

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
                continue
            is_open = response.state is FenceState.OPEN
            if is_open and wish.lease_ms and response.lease_ms > 0:
                promised_ms = min(response.lease_ms, wish.lease_ms)
                self._core.on_promise(position, wish.term, wish.asked_at, promised_ms)
            check.answer(position, is_open=is_open)
        self.settle()

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:  # noqa: ARG002
        """Count what will not come."""
        for check, position, _ in tokens:
            check.answer(position, is_open=False)
            if check.verdict is FenceVerdict.UNPROVEN and check in self._waiting:
                self._paused_until = self._loop.time() + PAUSE_S
        self.settle()
