"""What a bookie's refusal of adds means for their writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger.errors import FencedError, LedgerError, WrongPasswordError
from ledger.wire.codes import Status
from ledger.wire.packets import Response

__all__ = ["judge_refusals"]


def judge_refusals(
    ledger_id: int, bookie_id: str, responses: Sequence[tuple[Any, Response]]
) -> tuple[Status, LedgerError | None]:
    """Return the status that counts most among one wake-up's refusals, and the error if it ends the writer."""
    status = responses[0][1].status
    for _, response in responses:
        if response.status in (Status.EFENCED, Status.EUA):
            status = response.status
    what = f"ledger {ledger_id}: {bookie_id} answers {status.name}"
    if status == Status.EFENCED:
        message = f"{what}: another client recovers the ledger; stop writing, close it to learn its end"
        return status, FencedError(message, ledger_id=ledger_id)
    if status == Status.EUA:
        return status, WrongPasswordError(
            f"{what}: the password is not the ledger's, or the bookie demands TLS or a log-in", ledger_id=ledger_id
        )
    return status, None
