"""Telling the bookies of an ensemble how far their ledger is confirmed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ledger.client.answers import AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.errors import QuorumLostError
from ledger.wire.codes import Status
from ledger.wire.packets import WriteLacRequest

__all__ = ["send_lac"]


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
