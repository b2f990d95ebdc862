"""Reading a run of entries from bookies: carries out what `RangeReader` decides, checks digests, keeps the time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from ledger.client.answers import miss_kind
from ledger.client.pool import ConnectionPool
from ledger.client.silence import SilenceTimer
from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import LedgerMetadata
from ledger.core.reader import RangeReader, ReadRun
from ledger.errors import DigestError
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import unseal, unseal_block, unseal_run
from ledger.wire.packets import BatchReadRequest, BatchReadResponse, ReadResponse, Response

_LOGGER = logging.getLogger(__name__)

_BATCH_BYTES: Final = 1024 * 1024
"""Size of one batch read: enough to hide the round trip, little enough to spread a window over the bookies."""


_T = TypeVar("_T")

_Answers: TypeAlias = tuple[str, list[tuple[Any, Response]], Sequence[Any], str]
"""A bookie, what it answers to which tokens, the tokens that get no answer, and why not."""


class _OpenRun(Protocol):
    """Checks the entries of one answer: `unseal_run` or `unseal_block`."""

    def __call__(
        self,
        bodies: Sequence[bytes | memoryview],
        digest: Digest,
        *,
        ledger_id: int,
        first_entry_id: int,
        stride: int,
    ) -> tuple[Sequence[Entry] | EntryBlock, DigestError | None]:
        """Return the entries before the first that is damaged, and what is wrong with that one."""
        ...


class _Batch(msgspec.Struct, frozen=True, gc=False):
    """Token of a batch read; that of a single read is the entry id."""

    first_entry_id: int
    stride: int


class EntrySource:
    """Source of one ledger's entries. Several tasks may read at the same time.

    Attributes:
        digest_failures: Bookie -> how many of its answers failed the digest.

    """

    def __init__(self, ledger_id: int, digest: Digest, pool: ConnectionPool) -> None:
        self.digest_failures: dict[str, int] = {}
        self._ledger_id = ledger_id
        self._digest = digest
        self._pool = pool
        self._entry_bytes: int | None = None
        # Bookie -> loop time until which it is asked last, because it was silent.
        self._slow_until: dict[str, float] = {}
        # No batch reads before this loop time: a bookie that does not know them closes the connection.
        self._batches_from = 0.0

    async def read(self, metadata: LedgerMetadata, first: int, last: int) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries `first` to `last` in order, as they come; what follows is asked for meanwhile.

        Stop it at any time, also by cancelling; late answers are dropped.

        Raises:
            LedgerError: An entry cannot be had; those before it were yielded.

        """
        reader = self._reader(metadata, first, last)
        async with aclosing(self._run(reader, reader.take)) as batches:
            async for entries in batches:
                yield entries

    async def read_blocks(
        self, metadata: LedgerMetadata, first: int, last: int
    ) -> AsyncGenerator[list[EntryBlock], None]:
        """Do as `read`, without an object per entry.

        Raises:
            LedgerError: As `read`.

        """
        reader = self._reader(metadata, first, last)
        reader.takes_blocks = True
        async with aclosing(self._run(reader, reader.take_blocks)) as batches:
            async for blocks in batches:
                yield blocks

    def _reader(self, metadata: LedgerMetadata, first: int, last: int) -> RangeReader:
        settings = self._pool.settings
        now = asyncio.get_running_loop().time()
        has_batches = self._pool.reads_batches and now >= self._batches_from
        reader = RangeReader(
            self._ledger_id,
            metadata,
            first,
            last,
            window_bytes=settings.read_batch_bytes,
            batch_bytes=min(_BATCH_BYTES, settings.read_batch_bytes) if has_batches else None,
            entry_bytes=self._entry_bytes or _mean_bytes(metadata),
        )
        self._remember_slow(reader, now)
        return reader

    async def _run(self, reader: RangeReader, take: Callable[[], list[_T]]) -> AsyncGenerator[list[_T], None]:
        """Carry a read out; yield what `take` takes from the reader."""
        settings = self._pool.settings
        loop = asyncio.get_running_loop()
        queue = _Inbox()
        with SilenceTimer(queue, settings.speculative_read_s) as silence:
            while True:
                taken = take()
                self._send(reader.ask(loop.time(), self._pool.suspects()), queue)
                if taken:
                    self._entry_bytes = reader.entry_bytes
                    yield taken
                if reader.is_done:
                    break
                if reader.has_split:
                    self._batches_from = loop.time() + settings.quarantine_s
                silence.start()
                self._send(self._take_all(reader, await queue.next_batch(), loop.time()), queue)
                if silence.take():
                    self._send(self._speculate(reader, loop.time(), settings.speculative_read_s), queue)
        if reader.failure is not None:
            raise reader.failure

    def _remember_slow(self, reader: RangeReader, now: float) -> None:
        for bookie_id, until in list(self._slow_until.items()):
            if until > now:
                reader.slow[bookie_id] = None
            else:
                del self._slow_until[bookie_id]

    def _speculate(self, reader: RangeReader, now: float, limit_s: float) -> list[ReadRun]:
        requests = reader.on_overdue(now, limit_s)
        for bookie_id in reader.slow:
            self._slow_until[bookie_id] = now + self._pool.settings.quarantine_s
        return requests

    def _send(self, runs: list[ReadRun], queue: _Inbox) -> None:
        """Send all requests; single reads of one bookie in one go."""
        singles: dict[str, list[int]] = {}
        for run in runs:
            if run.count == 1:
                singles.setdefault(run.bookie_id, []).append(run.first_entry_id)
                continue
            first, stride = run.first_entry_id, run.stride
            request = BatchReadRequest(
                self._pool.take_txns(1), self._ledger_id, first, run.count, _BATCH_BYTES, stride=stride
            )
            self._pool.ask(run.bookie_id, request, (queue, _Batch(first, stride)))
        for bookie_id, entry_ids in singles.items():
            self._pool.ask_entries(bookie_id, self._ledger_id, entry_ids, queue)

    def _take_all(self, reader: RangeReader, batch: list[_Answers], now: float) -> list[ReadRun]:
        runs: list[ReadRun] = []
        for bookie_id, responses, unanswered, reason in batch:
            runs += self._take_answers(reader, bookie_id, responses, now)
            silence = Miss(MissKind.UNKNOWN, reason)
            singles = [(bookie_id, token, silence) for token in unanswered if not isinstance(token, _Batch)]
            runs += reader.on_answers(singles, now)
            for token in unanswered:
                if isinstance(token, _Batch):
                    runs += reader.on_batch(bookie_id, token.first_entry_id, (), silence, now)
        return runs

    def _take_answers(
        self, reader: RangeReader, bookie_id: str, responses: list[tuple[Any, Response]], now: float
    ) -> list[ReadRun]:
        singles: list[tuple[str, int, Answer]] = []
        runs: list[ReadRun] = []
        ledger_id, digest = self._ledger_id, self._digest
        for token, response in responses:
            if isinstance(response, ReadResponse) and response.status == Status.EOK and response.body is not None:
                answer: Answer
                try:
                    answer = unseal(response.body, digest, ledger_id=ledger_id, entry_id=token)
                except DigestError as error:
                    answer = self._corrupt(bookie_id, error)
                singles.append((bookie_id, token, answer))
            elif isinstance(token, _Batch):
                runs += self._take_batch(reader, bookie_id, token, response, now)
            else:
                singles.append((bookie_id, token, _miss(response)))
        return runs + reader.on_answers(singles, now) if singles else runs

    def _take_batch(
        self, reader: RangeReader, bookie_id: str, asked: _Batch, response: Response, now: float
    ) -> list[ReadRun]:
        first = asked.first_entry_id
        if not isinstance(response, BatchReadResponse) or response.status != Status.EOK or not response.bodies:
            return reader.on_batch(bookie_id, first, (), _miss(response), now)
        if response.stride != asked.stride:
            return reader.on_batch(bookie_id, first, (), Miss(MissKind.UNKNOWN, "it reads no stripes"), now)
        open_run: _OpenRun = unseal_block if reader.takes_blocks else unseal_run
        entries, error = open_run(
            response.bodies, self._digest, ledger_id=self._ledger_id, first_entry_id=first, stride=asked.stride
        )
        miss = None if error is None else self._corrupt(bookie_id, error)
        return reader.on_batch(bookie_id, first, entries, miss, now)

    def _corrupt(self, bookie_id: str, error: DigestError) -> Miss:
        """Count a damaged entry; the next replica is asked for it anyway."""
        count = self.digest_failures.get(bookie_id, 0)
        self.digest_failures[bookie_id] = count + 1
        self._pool.strike(bookie_id)
        if count == 0:
            _LOGGER.warning(
                "bookie sends damaged entries: check its disks; other replicas are read instead",
                extra={"bookie": bookie_id, "ledger": self._ledger_id, "error": str(error)},
            )
        return Miss(MissKind.CORRUPT, str(error))


class _Inbox:
    """An asker that keeps whole batches of answers until `next_batch` takes them: no object per entry."""

    def __init__(self) -> None:
        self._batches: list[_Answers] = []
        self._wake: asyncio.Future[None] | None = None

    async def next_batch(self) -> list[_Answers]:
        """Wait until something has come, or `wake` is called, and take all of it."""
        if not self._batches:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        batches, self._batches = self._batches, []
        return batches

    def wake(self) -> None:
        """Make `next_batch` return."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Never called: nothing is added."""

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take answers."""
        self._batches.append((bookie_id, responses, (), ""))
        self.wake()

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:
        """Take requests that get no answer."""
        self._batches.append((bookie_id, [], tokens, reason))
        self.wake()


def _miss(response: Response) -> Miss:
    if response.status == Status.EOK:
        return Miss(MissKind.UNKNOWN, "EOK without an entry")
    return Miss(miss_kind(response.status), response.status.name)


def _mean_bytes(metadata: LedgerMetadata) -> int | None:
    """Return the mean size of a closed ledger's entries."""
    if not metadata.is_closed or metadata.last_entry_id < 0:
        return None
    return metadata.length // (metadata.last_entry_id + 1)
