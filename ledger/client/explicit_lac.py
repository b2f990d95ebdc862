"""Telling the bookies of an ensemble how far their ledger is confirmed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ledger.client.answers import AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.core.metadata import NO_ENTRY
from ledger.errors import LedgerError, QuorumLostError
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import seal_lac
from ledger.wire.packets import WriteLacRequest

_LOGGER = logging.getLogger(__name__)


async def send_lac(pool: ConnectionPool, request: WriteLacRequest, bookies: Sequence[str], ack_quorum: int) -> None:
    """Send an explicit LAC to all bookies and wait until an ack quorum has taken it.

    Raises:
        QuorumLostError: Fewer took it.

    """
    answers = AnswerQueue()
    for bookie_id in bookies:
        pool.ask(bookie_id, msgspec.structs.replace(request, txn_id=pool.take_txns(1)), (answers, None))
    seen: list[str] = []
    taken_count = 0
    while taken_count < ack_quorum:
        if len(seen) + taken_count == len(bookies):
            raise QuorumLostError(
                f"ledger {request.ledger_id}: too few bookies took the explicit LAC ({'; '.join(seen)})",
                ledger_id=request.ledger_id,
            )
        for answered in await answers.next_batch():
            if answered.response is not None and answered.response.status == Status.EOK:
                taken_count += 1
            else:
                seen.append(f"{answered.bookie_id}: {answered.reason}")


class ExplicitLac:
    """The LAC as one writer has told it.

    Args:
        pool: Connections.
        ledger_id: The ledger.
        digest: The ledger's.
        master_key: The ledger's.
        ack_quorum: Bookies that have to take it.

    """

    def __init__(
        self, pool: ConnectionPool, ledger_id: int, digest: Digest, master_key: bytes, ack_quorum: int
    ) -> None:
        self._pool = pool
        self._ledger_id = ledger_id
        self._digest = digest
        self._master_key = master_key
        self._ack_quorum = ack_quorum
        self._written = NO_ENTRY
        self._timer: asyncio.Task[None] | None = None

    async def write(self, last_add_confirmed: int, bookies: Sequence[str]) -> None:
        """Tell the bookies, if it has moved.

        Raises:
            QuorumLostError: Fewer bookies than an ack quorum took it.

        """
        if last_add_confirmed <= self._written:
            return
        body = seal_lac(self._ledger_id, last_add_confirmed, self._digest)
        request = WriteLacRequest(0, self._ledger_id, last_add_confirmed, self._master_key, body)
        await send_lac(self._pool, request, bookies, self._ack_quorum)
        self._written = max(self._written, last_add_confirmed)

    def start(self, interval_s: float, write: Callable[[], Awaitable[None]]) -> None:
        """Call `write` at an interval, one call at a time, until `stop`; a failed call is made good by the next."""
        self._timer = asyncio.get_running_loop().create_task(self._repeat(interval_s, write))

    def stop(self) -> None:
        """Undo `start`; a call under way is cancelled."""
        if self._timer is not None:
            self._timer.cancel()

    async def _repeat(self, interval_s: float, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await write()
            except LedgerError as error:
                _LOGGER.info("explicit LAC not written", extra={"ledger": self._ledger_id, "error": str(error)})
