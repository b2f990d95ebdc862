"""Answers of bookies, collected for one coroutine that asks many things and takes what has come, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from ledger.core.entry import Answer, Miss, MissKind
from ledger.errors import DigestError
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import unseal
from ledger.wire.packets import ReadResponse, Response

_NAMES = {status: status.name for status in Status}  # `Status.name` is a slow property


class Answered(msgspec.Struct, frozen=True, gc=False):
    """Answer of one bookie to one request.

    Attributes:
        token: What the request was sent with.
        response: None if there will be none (`reason` then says why), and for an add that was stored.
        is_stored: An add was answered EOK.

    """

    bookie_id: str
    token: Any
    response: Response | None
    reason: str
    is_stored: bool = False


class AnswerQueue:
    """An asker that keeps answers until `next_batch` takes them."""

    def __init__(self) -> None:
        self._answers: list[Answered] = []
        self._wake: asyncio.Future[None] | None = None

    async def next_batch(self) -> list[Answered]:
        """Wait until something has come, and take all of it, in the order of arrival.

        Cancelling the wait loses nothing.
        """
        if not self._answers:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        answers = self._answers
        self._answers = []
        return answers

    def wake(self) -> None:
        """Make `next_batch` return, with nothing if nothing has come."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Take adds that were answered EOK: they come without a response."""
        self._take([Answered(bookie_id, token, None, "EOK", is_stored=True) for token in tokens])

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take answers."""
        self._take([Answered(bookie_id, token, response, _NAMES[response.status]) for token, response in responses])

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:
        """Take requests that get no answer."""
        self._take([Answered(bookie_id, token, None, reason) for token in tokens])

    def _take(self, answers: list[Answered]) -> None:
        self._answers += answers
        self.wake()


_MISSES = {
    Status.ENOENTRY: MissKind.ABSENT,
    Status.ENOLEDGER: MissKind.ABSENT,
    Status.EUA: MissKind.DENIED,
}


def miss_kind(status: Status) -> MissKind:
    """Return what a status other than EOK says about an entry: only "no such entry" and "no such ledger" are a no."""
    return _MISSES.get(status, MissKind.UNKNOWN)


def read_answer(answered: Answered, digest: Digest, ledger_id: int, entry_id: int | None) -> Answer:
    """Translate the answer to a read; `entry_id` None takes any entry of the ledger."""
    response = answered.response
    if not isinstance(response, ReadResponse):
        return Miss(MissKind.UNKNOWN, answered.reason)
    if response.status != Status.EOK:
        return Miss(miss_kind(response.status), response.status.name)
    if response.body is None:
        return Miss(MissKind.UNKNOWN, "EOK without an entry")
    try:
        return unseal(response.body, digest, ledger_id=ledger_id, entry_id=entry_id)
    except DigestError as error:
        return Miss(MissKind.CORRUPT, str(error))
