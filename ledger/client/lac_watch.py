"""LAC of a ledger as bookies report it: asked at once, or by long polls that they hold until it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.client.answers import Answered, AnswerQueue, read_answer
from ledger.client.pool import ConnectionPool
from ledger.core.coverage import is_covered
from ledger.core.entry import Entry
from ledger.core.metadata import NO_ENTRY, LedgerMetadata
from ledger.core.reader import replicas_of
from ledger.errors import DigestError, QuorumLostError
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import unseal, unseal_lac
from ledger.wire.packets import ReadLacRequest, ReadLacResponse, ReadRequest, ReadResponse, Response

_FAILED_PAUSE_S: Final = 0.2


class LacInfo(msgspec.Struct, frozen=True, gc=False):
    """Last confirmed entries of a ledger, as far as they are known.

    Attributes:
        last_add_confirmed: Highest id known to be confirmed, from wherever it is known. Never goes back.
        explicit_lac: Highest id that the writer itself has stated in an explicit LAC (-1: none), or the end of a
            closed ledger. Unlike the other it never comes from a recovery that another one may still undo.

    """

    last_add_confirmed: int
    explicit_lac: int


class LacWatch:
    """LAC of the ledger of one read handle, and its questions to bookies. Several tasks may wait.

    A bookie holds at most one long poll of it; an answer serves all who wait, also those who came later.

    Attributes:
        last_add_confirmed: See `LacInfo`.
        explicit_lac: See `LacInfo`.
        polled_entry: The confirmed entry that came with the last long poll, if one did.

    """

    def __init__(self, ledger_id: int, digest: Digest, pool: ConnectionPool) -> None:
        self.last_add_confirmed = NO_ENTRY
        self.explicit_lac = NO_ENTRY
        self.polled_entry: Entry | None = None
        self._ledger_id = ledger_id
        self._digest = digest
        self._pool = pool
        self._is_final = False
        self._polled: set[str] = set()  # for look-ups only
        # Bookie -> loop time until which it is not polled again, because it could not tell.
        self._failed_until: dict[str, float] = {}
        # Counts what ends a wait without a new LAC: a poll that ran out, a change of the metadata.
        self._interruptions = 0
        self._waiters: list[asyncio.Future[None]] = []

    def info(self) -> LacInfo:
        """Return what is known."""
        return LacInfo(self.last_add_confirmed, self.explicit_lac)

    def finish(self, last_entry_id: int) -> None:
        """Take the end of the closed ledger; it may lie below a LAC that was seen of a recovery."""
        self._is_final = True
        self.last_add_confirmed = self.explicit_lac = last_entry_id
        self.interrupt()

    def interrupt(self) -> None:
        """Have everybody who waits return."""
        self._interruptions += 1
        self._wake()

    async def ask(self, metadata: LedgerMetadata) -> None:
        """Ask the last ensemble, until no confirmed entry can hide from those that answered.

        Raises:
            QuorumLostError: No bookie answers.

        """
        answers = AnswerQueue()
        ensemble = metadata.segments[-1].bookies
        for bookie_id in ensemble:
            self._pool.ask(bookie_id, ReadLacRequest(self._pool.take_txns(1), self._ledger_id), (answers, None))
        heard: list[str] = []
        seen: list[str] = []
        while len(heard) + len(seen) < len(ensemble) and not is_covered(ensemble, heard, metadata.quorum):
            for answered in await answers.next_batch():
                failure = self._take_lac(answered)
                if failure is None:
                    heard.append(answered.bookie_id)
                else:
                    seen.append(f"{answered.bookie_id}: {failure}")
        if not heard:
            raise QuorumLostError(
                f"cannot learn how far ledger {self._ledger_id} is confirmed: no bookie answers ({'; '.join(seen)})",
                ledger_id=self._ledger_id,
            )

    async def wait(self, metadata: LedgerMetadata, previous: int, timeout_s: float) -> None:
        """Wait until the LAC is above `previous`, time is up, a poll ends without news, or `interrupt` is called.

        Cancelling it loses nothing: polls that are out serve the next wait.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        interruptions = self._interruptions
        while self.last_add_confirmed <= previous and self._interruptions == interruptions and not self._is_final:
            now = loop.time()
            if now >= deadline:
                return
            if not self._send_polls(metadata, previous, deadline - now, now):
                await asyncio.sleep(min(deadline - now, _FAILED_PAUSE_S))
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                return
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    # --- answers to long polls, as asker

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Never called: nothing is added."""

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take what polls brought."""
        for previous, response in responses:
            self._polled.discard(bookie_id)
            before = self.last_add_confirmed
            if not self._take_poll(bookie_id, response):
                self._fail(bookie_id)
            elif self.last_add_confirmed == before and before <= previous:
                self._interruptions += 1
        self._wake()

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:  # noqa: ARG002
        """Poll another bookie."""
        self._polled.discard(bookie_id)
        self._fail(bookie_id)
        self._wake()

    # --- inside

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, bookie_id: str) -> None:
        self._failed_until[bookie_id] = asyncio.get_running_loop().time() + _FAILED_PAUSE_S

    def _raise_lac(self, last_add_confirmed: int) -> None:
        if not self._is_final:
            self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    def _take_lac(self, answered: Answered) -> str | None:
        """Take what one bookie knows of the LAC; return why it counts as not heard, or None."""
        response = answered.response
        if not isinstance(response, ReadLacResponse):
            return answered.reason
        if response.status in (Status.ENOENTRY, Status.ENOLEDGER):
            return None  # it holds nothing of the ledger
        if response.status != Status.EOK:
            return answered.reason
        try:
            if response.last_entry_body:
                entry = unseal(response.last_entry_body, self._digest, ledger_id=self._ledger_id, entry_id=None)
                self._raise_lac(entry.last_add_confirmed)
            if response.lac_body:
                explicit = unseal_lac(response.lac_body, self._digest, ledger_id=self._ledger_id)
                if not self._is_final:
                    self.explicit_lac = max(self.explicit_lac, explicit)
                self._raise_lac(explicit)
        except DigestError as error:
            return str(error)
        return None

    def _send_polls(self, metadata: LedgerMetadata, previous: int, timeout_s: float, now: float) -> bool:
        """Have enough replicas of the next entry asked that one of them stores it; False if all have failed."""
        suspects = self._pool.suspects()
        replicas = [b for b in replicas_of(metadata, previous + 1) if self._failed_until.get(b, now) <= now]
        replicas.sort(key=suspects.__contains__)
        for bookie_id in replicas[: metadata.quorum.coverage_count]:
            if bookie_id in self._polled:
                continue
            self._polled.add(bookie_id)
            request = ReadRequest(
                self._pool.take_txns(1),
                self._ledger_id,
                NO_ENTRY,
                is_piggyback=True,
                previous_lac=previous,
                timeout_ms=max(1, int(timeout_s * 1000)),
            )
            self._pool.poll(bookie_id, request, (self, previous), timeout_s)
        return bool(replicas)

    def _take_poll(self, bookie_id: str, response: Response) -> bool:
        """Take the answer to a long poll; False if it is a failure, or the bookie holds nothing to wait for."""
        if not isinstance(response, ReadResponse) or response.status != Status.EOK:
            return False
        if response.max_lac is not None:
            self._raise_lac(response.max_lac)
        if response.body is not None:
            answered = Answered(bookie_id, None, response, response.status.name)
            answer = read_answer(answered, self._digest, self._ledger_id, None)
            if isinstance(answer, Entry):
                self._raise_lac(answer.last_add_confirmed)
                self.polled_entry = answer
        return True
