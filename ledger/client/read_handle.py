"""The reading end of one ledger, closed or still written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from ledger.client.answers import Answered, AnswerQueue, read_answer
from ledger.client.pool import ConnectionPool
from ledger.core.coverage import is_covered
from ledger.core.entry import Entry, Miss
from ledger.core.metadata import NO_ENTRY, LedgerMetadata
from ledger.core.reader import RangeReader, ReadEntry, replicas_of
from ledger.errors import DigestError, NoSuchEntryError, QuorumLostError, UsageError
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import unseal, unseal_lac
from ledger.wire.packets import ReadLacRequest, ReadLacResponse, ReadRequest, ReadResponse
from ledger.zk.ledgers import LedgerStore

__all__ = ["LacInfo", "ReadHandle"]

_WINDOW_ENTRIES_MIN: Final = 16
_WINDOW_ENTRIES_MAX: Final = 4096
_WINDOW_ENTRIES_FIRST: Final = 64
_ALL_FAILED_PAUSE_S: Final = 0.2


class LacInfo(msgspec.Struct, frozen=True, gc=False):
    """How far a ledger is confirmed.

    Attributes:
        last_add_confirmed: Highest id known to be confirmed, from wherever it is known. Never goes back.
        explicit_lac: Highest id that the writer itself has stated in an explicit LAC (-1: none), or the end of a
            closed ledger. Unlike the other it never comes from a recovery that another one may still undo.

    """

    last_add_confirmed: int
    explicit_lac: int


class ReadHandle:
    """A reader of one ledger. Several tasks may use it; it holds no connection of its own.

    Attributes:
        ledger_id: The ledger.
        metadata: As last read.

    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, ledgers: LedgerStore, pool: ConnectionPool) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._ledgers = ledgers
        self._pool = pool
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._last_add_confirmed = NO_ENTRY
        self._explicit_lac = NO_ENTRY
        self._window_entries = _WINDOW_ENTRIES_FIRST
        # Bookies that hold a long poll of this handle; at most one each, its answer may serve a later call.
        self._polled: dict[str, None] = {}
        self._poll_answers = AnswerQueue()
        self._has_changed = False
        self._take_end()

    @property
    def is_closed(self) -> bool:
        """Whether the ledger's end is final, as far as `metadata` tells."""
        return self.metadata.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry known to be confirmed (the last one of a closed ledger); -1 if none is."""
        return self._last_add_confirmed

    async def read(self, first: int, last: int) -> list[Entry]:
        """Read the entries from `first` to `last`, both inclusive, in order.

        Raises:
            UsageError: The range is empty, or reaches beyond `last_add_confirmed` of an open ledger.
            NoSuchEntryError: It reaches beyond the end of a closed ledger, or no replica has an entry.
            DigestError: All replicas of an entry are damaged.
            QuorumLostError: No replica that may hold an entry answers; try again.

        """
        if last > self._last_add_confirmed:
            what = f"cannot read up to entry {last} of ledger {self.ledger_id}"
            if self.is_closed:
                raise NoSuchEntryError(
                    f"{what}: its last entry is {self._last_add_confirmed}", ledger_id=self.ledger_id
                )
            raise UsageError(
                f"{what}: confirmed is up to {self._last_add_confirmed}; `read_lac()` asks whether more is by now, "
                "`read_unconfirmed()` reads what may never be",
                ledger_id=self.ledger_id,
            )
        return await self.read_unconfirmed(first, last)

    async def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Read as `read` does, beyond `last_add_confirmed` too: such entries may yet vanish."""
        if not 0 <= first <= last:
            raise UsageError(f"cannot read entries {first} to {last}: the range is empty", ledger_id=self.ledger_id)
        entries: list[Entry] = []
        while first <= last:
            entries += await self._read_window(first, min(last, first + self._window_entries - 1))
            first = entries[-1].entry_id + 1
        return entries

    async def read_lac(self) -> LacInfo:
        """Ask the bookies how far the ledger is confirmed.

        Raises:
            QuorumLostError: No bookie answers.

        """
        if self.is_closed:
            return self._lac_info()
        answers = AnswerQueue()
        ensemble = self.metadata.segments[-1].bookies
        for bookie_id in ensemble:
            txn = self._pool.take_txns(1)
            self._pool.ask(bookie_id, ReadLacRequest(txn, self.ledger_id), (answers, None))
        heard: list[str] = []
        seen: list[str] = []
        while len(heard) + len(seen) < len(ensemble) and not is_covered(ensemble, heard, self.metadata.quorum):
            for answered in await answers.next_batch():
                failure = self._take_lac(answered)
                if failure is None:
                    heard.append(answered.bookie_id)
                else:
                    seen.append(f"{answered.bookie_id}: {failure}")
        if not heard:
            raise QuorumLostError(
                f"cannot learn how far ledger {self.ledger_id} is confirmed: no bookie answers ({'; '.join(seen)})",
                ledger_id=self.ledger_id,
            )
        return self._lac_info()

    async def wait_lac(self, previous: int, timeout_s: float) -> LacInfo:
        """Wait until an entry above `previous` is confirmed; bookies hold the question (long poll).

        Returns early, with nothing new, when the ledger's metadata change (call `refresh`) or a bookie gives up.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        failed: dict[str, None] = {}
        while self._last_add_confirmed <= previous and not self.is_closed and not self._has_changed:
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                break
            if not self._send_polls(previous, remaining_s, failed):
                await asyncio.sleep(min(remaining_s, _ALL_FAILED_PAUSE_S))
                break
            try:
                async with asyncio.timeout(remaining_s):
                    batch = await self._poll_answers.next_batch()
            except TimeoutError:
                break
            is_idle = False
            for answered in batch:
                self._polled.pop(answered.bookie_id, None)
                asked = answered.token
                if not self._take_poll(answered):
                    failed[answered.bookie_id] = None
                elif asked >= previous:
                    is_idle = True
            if is_idle:
                break
        return self._lac_info()

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata again, after a sync: a CLOSED ledger is seen as such from here on.

        Raises:
            NoSuchLedgerError: It was deleted.

        """
        self._has_changed = False
        metadata, _ = await self._ledgers.read(self.ledger_id, watch=self._on_change, sync=True)
        self.metadata = metadata
        self._take_end()
        return metadata

    async def tail(self, first: int = 0) -> AsyncIterator[list[Entry]]:
        """Yield confirmed entries from `first` on, in batches, as they come; end when the end of the ledger is passed.

        Raises:
            NoSuchLedgerError: The ledger was deleted meanwhile.
            LedgerError: As `read`.

        """
        await self.refresh()
        while True:
            while first <= self._last_add_confirmed:
                last = min(self._last_add_confirmed, first + self._window_entries - 1)
                entries = await self._read_window(first, last)
                first = last + 1
                yield entries
            if self.is_closed:
                return
            before = self._last_add_confirmed
            await self.wait_lac(before, self._pool.settings.long_poll_s)
            if self._last_add_confirmed == before:
                await self.refresh()
                if not self.is_closed:
                    await self._try_read_lac()

    async def close(self) -> None:
        """Let go of the handle; the connections are the client's."""
        self._poll_answers = AnswerQueue()
        self._polled.clear()

    # --- reading

    async def _read_window(self, first: int, last: int) -> list[Entry]:
        reader = RangeReader(self.ledger_id, self.metadata, first, last)
        answers = AnswerQueue()
        requests = reader.start(self._pool.suspects())
        while True:
            self._send_reads(requests, answers)
            if reader.is_done:
                break
            requests = reader.on_answers(
                [
                    (a.bookie_id, a.token, read_answer(a, self._digest, self.ledger_id, a.token))
                    for a in await answers.next_batch()
                ]
            )
        entries = reader.entries()
        size = sum(len(entry.payload) for entry in entries) // len(entries) + 1
        fitting = self._pool.settings.read_batch_bytes // size
        self._window_entries = max(_WINDOW_ENTRIES_MIN, min(_WINDOW_ENTRIES_MAX, fitting))
        return entries

    def _send_reads(self, requests: list[ReadEntry], answers: AnswerQueue) -> None:
        """Send all requests, one write per bookie."""
        by_bookie: dict[str, list[int]] = {}
        for request in requests:
            by_bookie.setdefault(request.bookie_id, []).append(request.entry_id)
        for bookie_id, entry_ids in by_bookie.items():
            self._pool.ask_entries(bookie_id, self.ledger_id, entry_ids, answers)

    # --- LAC

    def _lac_info(self) -> LacInfo:
        return LacInfo(self._last_add_confirmed, self._explicit_lac)

    def _take_end(self) -> None:
        if self.metadata.is_closed:
            self._last_add_confirmed = self._explicit_lac = self.metadata.last_entry_id

    def _raise_lac(self, last_add_confirmed: int) -> None:
        if not self.is_closed:
            self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed)

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
                entry = unseal(response.last_entry_body, self._digest, ledger_id=self.ledger_id, entry_id=None)
                self._raise_lac(entry.last_add_confirmed)
            if response.lac_body:
                explicit = unseal_lac(response.lac_body, self._digest, ledger_id=self.ledger_id)
                if not self.is_closed:
                    self._explicit_lac = max(self._explicit_lac, explicit)
                self._raise_lac(explicit)
        except DigestError as error:
            return str(error)
        return None

    async def _try_read_lac(self) -> None:
        """Ask for an explicit LAC while tailing; if nobody answers, the next round asks again."""
        try:
            await self.read_lac()
        except QuorumLostError:
            await asyncio.sleep(_ALL_FAILED_PAUSE_S)

    def _send_polls(self, previous: int, timeout_s: float, failed: dict[str, None]) -> bool:
        """Have enough replicas of the next entry asked that one of them stores it; False if all have failed."""
        suspects = self._pool.suspects()
        replicas = [b for b in replicas_of(self.metadata, previous + 1) if b not in failed]
        replicas.sort(key=suspects.__contains__)
        for bookie_id in replicas[: self.metadata.quorum.coverage_count]:
            if bookie_id in self._polled:
                continue
            self._polled[bookie_id] = None
            request = ReadRequest(
                self._pool.take_txns(1),
                self.ledger_id,
                NO_ENTRY,
                is_piggyback=True,
                previous_lac=previous,
                timeout_ms=max(1, int(timeout_s * 1000)),
            )
            self._pool.poll(bookie_id, request, (self._poll_answers, previous), timeout_s)
        return bool(replicas)

    def _take_poll(self, answered: Answered) -> bool:
        """Take the answer to a long poll; False if it is a failure."""
        response = answered.response
        if not isinstance(response, ReadResponse):
            return False
        if response.status in (Status.ENOENTRY, Status.ENOLEDGER):
            return False  # it holds nothing yet: it cannot wait for more
        if response.status != Status.EOK:
            return False
        if response.max_lac is not None:
            self._raise_lac(response.max_lac)
        if response.body is not None:
            answer = read_answer(answered, self._digest, self.ledger_id, None)
            if not isinstance(answer, Miss):
                self._raise_lac(answer.last_add_confirmed)
        return True

    def _on_change(self) -> None:
        self._has_changed = True
        self._poll_answers.wake()
