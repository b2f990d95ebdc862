"""Records that a reader of finished batches hands out of a plain log; see `rsm_spark.core.finished_batches`.

Memory: where rows of open batches were seen, and while a batch is handed out, the entries of one read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import body_of
from rsm_spark.core.finished_batches import (
    BackwardScan,
    BatchKey,
    BatchWatch,
    EndedBatch,
    PieceKind,
    RowsPlace,
    entry_pieces,
)
from rsm_spark.core.plain_log import LogRecord, PlainRecord
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import Record, decode_records
from rsm_spark.errors import CorruptLogError, MissingLogError
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.logs.context import LogContext

_SEARCH_ENTRIES = 64
"""Entries before a mark that a search looks through first; as long as it has not found all, it goes four times as far.
"""
_WAIT_S = 1.0


class ShownRecord(NamedTuple):
    """A record that is to be handed out.

    Attributes:
        record: It.
        place: Position where it is handed out: its own; of a batch that of its end's mark.
        through: Position up to which all is done once it was handed out.

    """

    record: LogRecord
    place: int
    through: int


class _Ended(NamedTuple):
    """A batch whose end was read, and where the mark stands."""

    recall: EndedBatch
    position: int
    place: LogPosition


class FinishedReader:
    """See the module; of one reader.

    Args:
        context: Of the log.
        position: First position that is handed out; of a batch that of its end's mark counts.
        txid: First transaction id that is handed out.
        since_ms: First logged time that is handed out; of a batch that of its end's mark counts.

    """

    def __init__(self, context: LogContext, position: int, txid: int, since_ms: int) -> None:
        self._context = context
        self._position, self._txid, self._since_ms = position, txid, since_ms
        self._watch = BatchWatch()
        self._waiting: deque[list[ShownRecord] | _Ended] = deque()
        self._places: tuple[RowsPlace, ...] | None = None  # Of the batch that is handed out now,
        self._done = 0  # so many of them were, wholly.

    @property
    def is_idle(self) -> bool:
        """Return whether all was handed out of what was read."""
        return not self._waiting

    def take(self, entry: LogEntry) -> None:
        """Take the next entry of the log.

        Raises:
            CorruptLogError: It is no entry of a plain log.

        """
        records = decode_records(body_of(entry.payload))
        place, first = entry.position, entry.envelope.first_revision
        is_early = entry.envelope.logged_ms < self._since_ms
        for shown in self._watch.take(place.ledger_id, place.entry_id, *_asked(records)):
            if is_early:
                continue
            if isinstance(shown, EndedBatch):
                if first + shown.record >= self._position:
                    self._waiting.append(_Ended(shown, first + shown.record, place))
                continue
            found = [one for one in self._log_records(entry, records, *shown) if one.position >= self._position]
            if found:
                self._waiting.append([ShownRecord(one, one.position, one.position) for one in found])

    async def some(self) -> list[ShownRecord]:
        """Return what is to be handed out next; it may be nothing, when there is more.

        Raises:
            MissingLogError: Rows of a finished batch were trimmed.
            CorruptLogError, ForkedLogError: What lies there is not the log's.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked; the same call may succeed later.

        """
        head = self._waiting[0]
        if not isinstance(head, _Ended):
            self._waiting.popleft()
            return head
        if self._places is None:
            self._places, self._done = head.recall.places or await self._searched(head), 0
        found = await self._rows(head, self._places)
        if self._done == len(self._places):
            self._waiting.popleft()
            self._places = None
        return found

    async def _rows(self, head: _Ended, places: Sequence[RowsPlace]) -> list[ShownRecord]:
        """Read the next rows of a batch: as many as one read gives."""
        chain, _ = await self._context.chains.read()
        first, moved = places[self._done], chain.moved
        wanted = {(moved.get(one.ledger_id, one.ledger_id), one.entry_id): one for one in places[self._done :]}
        found: list[ShownRecord] = []
        done = 0
        async with self._reading(LogPosition(first.ledger_id, first.entry_id - 1)) as entries:
            async for some in entries:
                for entry in some:
                    at = entry.position.ledger_id, entry.position.entry_id
                    one = wanted.get((moved.get(at[0], at[0]), at[1]))
                    if one is not None:
                        rows = self._log_records(entry, decode_records(body_of(entry.payload)), one.first, one.end)
                        found += [ShownRecord(row, head.position, head.position - 1) for row in rows]
                        done += 1
                if done or some[-1].envelope.last_revision >= head.position:
                    break
        if not done:
            raise CorruptLogError(f"log {self._context.log}: rows of a batch have left it while they were read")
        self._done += done
        if self._done == len(places) and found:
            found[-1] = found[-1]._replace(through=head.position)
        return found

    async def _searched(self, head: _Ended) -> tuple[RowsPlace, ...]:
        """Find the rows of a batch: the entries before the mark of its end are read again, ever more of them."""
        back = _SEARCH_ENTRIES
        while True:
            chain, _ = await self._context.chains.read()
            begin, is_all = _before(chain, head.place, back)
            search = BackwardScan(head.recall)
            for batch, place in reversed(await self._pieces(begin, head)):
                search.take_rows(batch, place)
            if search.places is not None:
                return search.places
            if is_all:
                batch = head.recall.batch
                raise MissingLogError(
                    f"log {self._context.log}: batch {batch.batch} of writer {batch.writer!r} ends at position "
                    f"{head.position}, and some of its {head.recall.row_count} rows have left the log: begin behind "
                    "it, or read without finished_batches",
                    first_revision=1,
                )
            back *= 4

    async def _pieces(self, begin: LogPosition, head: _Ended) -> list[tuple[BatchKey | None, RowsPlace]]:
        """Return where rows of the batch stand, from behind a place up to the mark of its end, in order."""
        found: list[tuple[BatchKey | None, RowsPlace]] = []
        async with self._reading(begin) as entries:
            async for some in entries:
                for entry in some:
                    at, records = entry.position, decode_records(body_of(entry.payload))
                    is_end = entry.envelope.last_revision >= head.position
                    for piece in entry_pieces(*_asked(records)):
                        if is_end and piece.first >= head.recall.record:
                            break
                        if piece.kind is PieceKind.ROWS and piece.batch == head.recall.batch:
                            place = RowsPlace(at.ledger_id, at.entry_id, piece.first, piece.end)
                            found.append((piece.batch, place))
                    if is_end:
                        return found
        raise AssertionError("the mark was read before")

    def _log_records(self, entry: LogEntry, records: Sequence[Record], first: int, end: int) -> list[LogRecord]:
        """Return the appended records among some of an entry that are handed out.

        Raises:
            CorruptLogError: One is none.

        """
        found: list[LogRecord] = []
        envelope = entry.envelope
        for revision, record in enumerate(records[first:end], envelope.first_revision + first):
            if record.type != PlainRecord.APPENDED:
                continue
            if len(record.fields) != 4 or record.fields[0] != revision:
                raise CorruptLogError(f"the record of revision {revision} has the fields {record.fields!r:.100}")
            _, key, txid, payload = record.fields
            if txid >= self._txid:
                found.append(LogRecord(revision, txid, key, payload, envelope.logged_ms))
        return found

    @asynccontextmanager
    async def _reading(self, begin: LogPosition) -> AsyncIterator[AsyncIterator[list[LogEntry]]]:
        """Read what is behind a place, without an end: who asks knows where to stop."""
        context, settings = self._context, self._context.settings
        reader = LogReader(
            context.client,
            context.chains,
            password=settings.ledger_password,
            keys=settings.log_keys,
            position=begin,
            poll_s=settings.poll_s,
            entries_max=settings.tail_entries_max,
        )

        async def portions() -> AsyncIterator[list[LogEntry]]:
            while True:
                found = await reader.read()
                if found:
                    yield found
                elif reader.ledgers_ahead == 0:
                    await reader.wait(_WAIT_S)  # It was confirmed when it was read; bookies tell so again soon.

        try:
            yield portions()
        finally:
            await reader.close()


def _before(chain: LogChain, place: LogPosition, back: int) -> tuple[LogPosition, bool]:
    """Return a place so many entries before another one, or more; and whether nothing is before it.

    Raises:
        CorruptLogError: The chain does not have the place.

    """
    if back <= place.entry_id:
        return LogPosition(place.ledger_id, place.entry_id - back - 1), False
    present = chain.moved.get(place.ledger_id, place.ledger_id)
    at = next((at for at, ledger in enumerate(chain.ledgers) if ledger.ledger_id == present), None)
    if at is None:
        raise CorruptLogError(f"ledger {place.ledger_id} has left the log while it was read")
    ledgers = back // _SEARCH_ENTRIES - 1
    first = max(0, at - ledgers)
    return LogPosition(chain.ledgers[first].ledger_id, NO_ENTRY), first == 0


def _asked(records: Sequence[Record]) -> tuple[list[int], _FieldsOf]:
    return [record.type for record in records], _FieldsOf(records)


class _FieldsOf:
    """Fields of an entry's records, by their numbers."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __call__(self, at: int) -> Sequence[object]:
        return self._records[at].fields
