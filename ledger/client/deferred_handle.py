"""The writing end of a ledger with deferred sync: acknowledged first, durable at the next force."""

from __future__ import annotations

from ledger.client.answers import AnswerQueue
from ledger.client.write_handle import WriteHandle
from ledger.core.deferred_writer import DeferredLedgerWriter
from ledger.wire.codes import WRITE_FLAG_DEFERRED_SYNC, Status
from ledger.wire.packets import ForceRequest


class DeferredWriteHandle(WriteHandle):
    """The only writer of one ledger with deferred sync (`create(deferred_sync=True)`); else a `WriteHandle`.

    The futures of `append` tell that an ack quorum of bookies has the entry, perhaps in memory only. `force` makes it
    durable, and only then do `last_add_confirmed` and readers move on. A bookie that fails while anything is not
    forced ends the handle. `close` forces first; if that fails, the ledger ends at what was forced before.
    """

    _core: DeferredLedgerWriter
    _core_type = DeferredLedgerWriter
    _write_flags = WRITE_FLAG_DEFERRED_SYNC

    async def force(self) -> int:
        """Have everything appended so far synced by every bookie of the ensemble, and return the last entry id.

        Raises:
            QuorumLostError: A bookie failed; the handle is frozen.
            LedgerError: The handle was frozen before; this is why.

        """
        await self.flush()
        target = self._core.begin_force()
        bookies = self._core.bookies
        answers = AnswerQueue()
        for bookie_id in bookies:
            request = ForceRequest(self._pool.take_txns(1), self.ledger_id)
            self._pool.ask(bookie_id, request, (answers, None))
        waiting = len(bookies)
        while waiting:
            for answered in await answers.next_batch():
                waiting -= 1
                if answered.response is None or answered.response.status != Status.EOK:
                    self._carry_out(self._core.on_force_failed(f"{answered.bookie_id}: {answered.reason}"))
        if self._core.failure is not None:
            raise self._core.failure
        self._core.on_forced(target)
        return self._core.last_add_confirmed

    def on_disconnected(self, bookie_id: str) -> None:
        """End if anything is not forced: the bookie may have restarted."""
        super().on_disconnected(bookie_id)
        position = self._links.position(bookie_id)
        if position is not None:
            self._carry_out(self._core.on_position_lost(position, "the connection broke"))
