"""Appending that outlives its ledger: when a ledger loses its quorum, the rest goes on in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, QuorumLostError

CreateLedger: TypeAlias = Callable[[], Awaitable[WriteHandle]]


class LedgerRun(msgspec.Struct, frozen=True):
    """Entries that one ledger took.

    Attributes:
        first_entry_id: 0, or -1 if it took nothing.
        last_entry_id: Its end, from its CLOSED metadata; -1 if it took nothing.

    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int

    @property
    def entry_count(self) -> int:
        """Entries in it."""
        return self.last_entry_id + 1


class RollingAppender:
    """Appends batches in order to a ledger, and to further ones when one has lost its ack quorum.

    The old ledger is closed first, so that its end is known: entries up to the end are kept there, the others are
    appended again, in order, to the next. No entry is lost and none is in two ledgers.

    Args:
        handle: The first ledger; its writer must not have appended anything.
        create: Creates the next ledger.
        on_roll: Told (closed run, why, next ledger id, entries appended again).

    """

    def __init__(
        self,
        handle: WriteHandle,
        create: CreateLedger,
        on_roll: Callable[[LedgerRun, LedgerError, int, int], None] = lambda *_: None,
    ) -> None:
        self._handle = handle
        self._create = create
        self._on_roll = on_roll
        self._runs: list[LedgerRun] = []
        # (payloads, first entry id, future), in order: batches not yet known to be confirmed.
        self._batches: deque[tuple[Sequence[bytes], int, asyncio.Future[int]]] = deque()
        self._next_entry_id = 0

    @property
    def confirmed_count(self) -> int:
        """Entries confirmed so far, in all ledgers."""
        ended = sum(run.entry_count for run in self._runs)
        return ended if self._is_ended else ended + self._handle.last_add_confirmed + 1

    @property
    def _is_ended(self) -> bool:
        """True if the present ledger is among the runs already."""
        return bool(self._runs) and self._runs[-1].ledger_id == self._handle.ledger_id

    async def append(self, payloads: Sequence[bytes]) -> None:
        """Append a batch; returns when there is room for more, not when it is confirmed.

        Raises:
            LedgerError: The ledger failed for a reason that a new ledger does not mend (it was fenced, say).

        """
        self._push(payloads)
        try:
            await self._handle.drain()
        except QuorumLostError as error:
            await self._roll(error)
        while self._batches and self._batches[0][2].done() and self._batches[0][2].exception() is None:
            self._batches.popleft()

    async def finish(self) -> list[LedgerRun]:
        """Wait until everything is confirmed, close the ledger, and return what each ledger took, in order."""
        while True:
            try:
                await self._handle.flush()
            except QuorumLostError as error:
                await self._roll(error)
                continue
            self._runs.append(_run(self._handle.ledger_id, await self._handle.close()))
            return self._runs

    async def abort(self) -> list[LedgerRun]:
        """Learn what is stored after a failure: close the ledger if that can be done, and return all runs."""
        if not self._is_ended:
            with suppress(LedgerError):
                self._runs.append(_run(self._handle.ledger_id, await self._handle.close()))
        return self._runs

    def _push(self, payloads: Sequence[bytes]) -> None:
        self._batches.append((payloads, self._next_entry_id, self._handle.append_many(payloads)))
        self._next_entry_id += len(payloads)

    async def _roll(self, error: QuorumLostError) -> None:
        last_entry_id = await self._handle.close()
        run = _run(self._handle.ledger_id, last_entry_id)
        self._runs.append(run)
        rest: list[bytes] = []
        for payloads, first, _ in self._batches:
            rest += payloads[max(0, last_entry_id + 1 - first) :]
        self._batches.clear()
        self._next_entry_id = 0
        self._handle = await self._create()
        self._on_roll(run, error, self._handle.ledger_id, len(rest))
        if rest:
            self._push(rest)


def _run(ledger_id: int, last_entry_id: int) -> LedgerRun:
    return LedgerRun(ledger_id, min(0, last_entry_id), last_entry_id)
