"""Batches of writers in a plain log, for readers who want finished ones only. Pure.

A batch that is one entry is finished where it stands. Rows of a larger one stand in the log chunk by chunk, perhaps
between records of others, and behind them the mark of its end. To such a reader:

1. A batch stands where the mark of its end stands: all its rows are shown there, in the order of their positions.
   Records of no batch are shown at their own place.
2. Rows of a batch without an end are not shown, and nobody waits for them: it may still be written, its job may be
   gone, its writer may have been forgotten or taken over. Whoever writes such a batch anew has its rows shown once.
3. So what a range of the log shows hangs on the log alone: the marks of ends that lie in the range say which rows are
   to be fetched from before it. A reader needs no memory of its own to go on later.

The mark of an end says how many rows its batch has. They stand before it; who has not seen them all goes backward until
they are found. In a partitioned log (`rsm_spark.core.batch_pieces`) each partition that has rows of a batch has such a
mark behind them, with the number of those. The first one, at the writer's home, comes when all rows of all partitions
are there; the others follow it, whatever fails. So a reader of one partition needs no other, and what is shown of a
batch anywhere is of one that is whole. Partitions do not show it at the same time.

What stands in an entry, by its record types: an append of a writer is a *group* of marks, and its rows right behind it.
A group without rows has a `resumed` behind it. All rows of the table of writers stand behind a note of producers, and
are no marks. A `resumed` ends that table, and also the rows of a chunk where others that are nobody's follow; releases
before this one did not write it, so the rows of a chunk are told by their digest, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import convert
from rsm_spark.core.plain_log import PlainRecord
from rsm_spark.core.records import KernelRecord, pack
from rsm_spark.core.writer_marks import DIGEST_BYTES, digest_of
from rsm_spark.core.writers import OWN_PART, WriterRow
from rsm_spark.errors import CorruptLogError

_MARKED, _FORGOTTEN = int(KernelRecord.WRITER_MARKED), int(KernelRecord.WRITER_FORGOTTEN)
_APPENDED, _NOTED = int(PlainRecord.APPENDED), int(PlainRecord.PRODUCERS_NOTED)
_BEFORE_TABLE = frozenset({int(PlainRecord.RESUMED), int(PlainRecord.ENDED), int(KernelRecord.KEY_ADOPTED)})
"""Records that may stand between a note and the table of writers."""

PLACES_MAX = 100_000
"""Places of rows that a watch keeps; what it let go of is searched for."""

FieldsOf = Callable[[int], Sequence[Any]]
"""Number of a record in its entry, from 0 -> its fields, decoded."""


class BatchKey(NamedTuple):
    """Name of a batch in a log."""

    writer: str
    checkpoint: str
    batch: int


class PieceKind(Enum):
    """Kinds of pieces of an entry.

    LOOSE: records that are shown where they stand. ROWS: of a chunk. END: behind the mark of an end. FORGOTTEN: behind
    the mark that has a writer forgotten.
    """

    LOOSE = "loose"
    ROWS = "rows"
    END = "end"
    FORGOTTEN = "forgotten"


class EntryPiece(NamedTuple):
    """A piece of an entry.

    Attributes:
        kind: Of it.
        first: Number of its first record in the entry, from 0; of END and FORGOTTEN that of the mark.
        end: Number behind its last record; of END and FORGOTTEN `first`.
        batch: Whose rows or end; of FORGOTTEN only the writer counts; None = of none.
        row_count: Of END: rows of the batch.

    """

    kind: PieceKind
    first: int
    end: int
    batch: BatchKey | None = None
    row_count: int = 0


class RowsPlace(NamedTuple):
    """Place of rows: an entry, and which of its records, from 0."""

    ledger_id: int
    entry_id: int
    first: int
    end: int


class EndedBatch(NamedTuple):
    """A batch that has ended: its rows are to be shown now.

    Attributes:
        batch: Which.
        row_count: Rows that it has.
        record: Number of the mark of its end in the entry.
        places: Of all its rows, in order; None = they are to be searched for, by a `BackwardScan`.

    """

    batch: BatchKey
    row_count: int
    record: int
    places: tuple[RowsPlace, ...] | None


def entry_pieces(kinds: Sequence[int], fields_of: FieldsOf) -> list[EntryPiece]:
    """Return the pieces of an entry, in order.

    Args:
        kinds: Types of its records.
        fields_of: Their fields; asked of marks, and of rows where only their digest tells how many are a chunk's.

    Raises:
        CorruptLogError: A mark is none, or the rows that it tells of are not behind it.

    """
    if _MARKED not in kinds and _FORGOTTEN not in kinds:
        return [EntryPiece(PieceKind.LOOSE, 0, len(kinds))] if kinds else []
    return _EntryMarks(kinds, fields_of).pieces()


def open_batches(kinds: Sequence[int], fields_of: FieldsOf) -> dict[BatchKey, int] | None:
    """Return the batches that had begun and not ended before an entry, and how many rows of each were there.

    Those of a checkpoint that was taken over from are among them, ended or not: it may take over again.

    Returns:
        None if the entry has no note of producers, and so does not tell.

    """
    if _NOTED not in kinds:
        return None
    marks = _EntryMarks(kinds, fields_of)
    marks.pieces()
    found: dict[BatchKey, int] = {}
    for (writer, part), row in marks.table.items():
        # A partition that is not the writer's home has its own row as of the last end that it was told of.
        own = marks.table.get((writer, OWN_PART))
        if part != OWN_PART and (own is None or not _is_past(row, own)):
            batch = BatchKey(writer, row.checkpoint, row.batch)
            found[batch] = found.get(batch, 0) + row.row_count
    return found


def _is_past(row: WriterRow, own: WriterRow) -> bool:
    """Return whether the batch of a part has ended, or is an earlier one than that of its writer."""
    is_earlier = row.batch < own.batch or (row.batch == own.batch and own.is_ended)
    return is_earlier and row.checkpoint == own.checkpoint


class _EntryMarks:
    """Reads the marks of one entry; see the module.

    Attributes:
        table: Rows of the table of writers that stand in it, by writer and part.

    """

    def __init__(self, kinds: Sequence[int], fields_of: FieldsOf) -> None:
        self.table: dict[tuple[str, int], WriterRow] = {}
        self._kinds = kinds
        self._fields_of = fields_of
        self._pieces: list[EntryPiece] = []
        self._loose = 0  # First record that is in no piece yet.

    def pieces(self) -> list[EntryPiece]:
        kinds, at, is_table = self._kinds, 0, False
        while at < len(kinds):
            kind = kinds[at]
            if kind == _NOTED:
                is_table = True
                self.table = {}
            elif kind in (_MARKED, _FORGOTTEN):
                at, is_table = self._marks(at, is_table=is_table)
                continue
            elif is_table and kind == _APPENDED and self.table:
                at = self._rows_behind_table(at)
                is_table = False
                continue
            elif is_table and (self.table or kind not in _BEFORE_TABLE):
                is_table = False
            at += 1
        self._end_loose(len(kinds))
        return self._pieces

    def _end_loose(self, end: int) -> None:
        if end > self._loose:
            self._pieces.append(EntryPiece(PieceKind.LOOSE, self._loose, end))
        self._loose = max(self._loose, end)

    def _marks(self, at: int, *, is_table: bool) -> tuple[int, bool]:
        """Read marks that stand together, and the rows behind them; return where to go on, still in a table or not."""
        kinds = self._kinds
        group: dict[int, tuple[int, str, WriterRow]] = {}  # By part: where, the writer, its row.
        forgotten: tuple[int, str] | None = None
        while at < len(kinds) and kinds[at] in (_MARKED, _FORGOTTEN):
            writer, part, row = self._mark(at)
            if is_table and row is not None and (writer, part) not in self.table:
                self.table[writer, part] = row
            else:
                is_table = False
                if row is not None:
                    group[part] = at, writer, row
                elif part == OWN_PART:
                    forgotten = at, writer
            at += 1
        if is_table:
            return at, True
        has_rows = at < len(kinds) and kinds[at] == _APPENDED
        chunk = next((one for part, one in group.items() if part != OWN_PART), None)
        own = group.get(OWN_PART)
        if own is not None and own[2].is_ended and not has_rows:
            self._end_loose(own[0] + 1)
            batch = BatchKey(own[1], own[2].checkpoint, own[2].batch)
            self._pieces.append(EntryPiece(PieceKind.END, own[0], own[0], batch, own[2].row_count))
        if forgotten is not None:
            self._end_loose(forgotten[0] + 1)
            self._pieces.append(
                EntryPiece(PieceKind.FORGOTTEN, forgotten[0], forgotten[0], BatchKey(forgotten[1], "", 0))
            )
        if has_rows and chunk is not None:
            return self._chunk(at, chunk[1], chunk[2]), False
        if has_rows and own is not None and not own[2].is_ended:
            # Its chunk's mark was taken for a row of the table: it was the last one, and new to it.
            return self._rows_behind_table(at), False
        return (self._past_rows(at), False) if has_rows else (at, False)

    def _mark(self, at: int) -> tuple[str, int, WriterRow | None]:
        fields = self._fields_of(at)
        try:
            writer, part = convert(fields[:2], tuple[str, int])
            return writer, part, None if self._kinds[at] == _FORGOTTEN else convert(fields[2:], WriterRow)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"record of a writer with the fields {fields!r:.200}") from error

    def _past_rows(self, at: int) -> int:
        while at < len(self._kinds) and self._kinds[at] == _APPENDED:
            at += 1
        return at

    def _chunk(self, at: int, writer: str, row: WriterRow) -> int:
        """Make a piece of the rows of a chunk; return where they end."""
        limit = self._past_rows(at) - at
        count = row.row_count if row.chunks == 1 else self._length(at, limit, row)
        if not 0 < count <= limit:
            raise CorruptLogError(
                f"writer {writer!r}, batch {row.batch}: rows of its chunk {row.chunks - 1} are not behind their mark"
            )
        self._end_loose(at)
        batch = BatchKey(writer, row.checkpoint, row.batch)
        self._pieces.append(EntryPiece(PieceKind.ROWS, at, at + count, batch))
        self._loose = at + count
        return at + count

    def _length(self, at: int, limit: int, row: WriterRow) -> int:
        """Return how many records are those of a later chunk, by its digest; 0 = no number of them."""
        most = min(limit, row.row_count)
        # As a rule it is all of them.
        return next((one for one in (most, *range(1, most)) if self._is_chunk(at, one, row)), 0)

    def _is_chunk(self, at: int, count: int, row: WriterRow) -> bool:
        rows = [self._fields_of(record) for record in range(at, at + count)]
        digest = digest_of(pack(([fields[1] for fields in rows], [fields[3] for fields in rows])))
        return digest == row.digests[-DIGEST_BYTES:]

    def _rows_behind_table(self, at: int) -> int:
        """Return where what stands behind a table goes on: its last rows may be the marks of a part's first chunk."""
        limit = self._past_rows(at) - at
        for (writer, part), row in list(self.table.items())[-2:]:
            is_first = part != OWN_PART and 0 < row.row_count <= limit
            if is_first and self._is_chunk(at, row.row_count, row):
                del self.table[writer, part]
                return self._chunk(at, writer, row)
        return at + limit


class BatchWatch:
    """Says of entries, one behind the other from any place on, which of their records are shown, and when.

    It keeps where it has seen rows of batches that have not ended, `PLACES_MAX` places at most.
    """

    def __init__(self) -> None:
        self._places: dict[BatchKey, list[RowsPlace]] = {}
        self._place_count = 0

    def take(
        self, ledger_id: int, entry_id: int, kinds: Sequence[int], fields_of: FieldsOf
    ) -> Iterator[tuple[int, int] | EndedBatch]:
        """Yield what the next entry shows: numbers of its records, [first, end); or a batch that has ended.

        Raises:
            CorruptLogError: See `entry_pieces`.

        """
        for piece in entry_pieces(kinds, fields_of):
            match piece.kind:
                case PieceKind.LOOSE:
                    yield piece.first, piece.end
                case PieceKind.ROWS:
                    assert piece.batch is not None
                    self._keep(piece.batch, RowsPlace(ledger_id, entry_id, piece.first, piece.end))
                case PieceKind.FORGOTTEN:
                    assert piece.batch is not None
                    for batch in [one for one in self._places if one.writer == piece.batch.writer]:
                        self._drop(batch)
                case PieceKind.END:
                    assert piece.batch is not None
                    places = self._drop(piece.batch)
                    is_whole = sum(one.end - one.first for one in places) == piece.row_count
                    if piece.row_count:
                        yield EndedBatch(piece.batch, piece.row_count, piece.first, tuple(places) if is_whole else None)

    def _keep(self, batch: BatchKey, place: RowsPlace) -> None:
        self._places.setdefault(batch, []).append(place)
        self._place_count += 1
        while self._place_count > PLACES_MAX:
            self._drop(next(iter(self._places)))

    def _drop(self, batch: BatchKey) -> list[RowsPlace]:
        places = self._places.pop(batch, [])
        self._place_count -= len(places)
        return places


class BackwardScan:
    """Finds the rows of a batch that has ended: entries are given it backward, from that of the end's mark on.

    Args:
        recall: The batch.

    Attributes:
        is_over: All of it was found.

    """

    def __init__(self, recall: EndedBatch) -> None:
        self.is_over = False
        self._recall = recall
        self._left = recall.row_count
        self._places: list[RowsPlace] = []

    def take(
        self, ledger_id: int, entry_id: int, kinds: Sequence[int], fields_of: FieldsOf, before: int | None = None
    ) -> None:
        """Take the entry before the one that was taken last.

        Args:
            ledger_id: Where it stands.
            entry_id: The same.
            kinds: Types of its records.
            fields_of: Their fields.
            before: Only what stands before this record counts; None = all.

        Raises:
            CorruptLogError: The batch has more rows than the mark of its end says; or see `entry_pieces`.

        """
        for piece in reversed(entry_pieces(kinds, fields_of)):
            if not self.is_over and piece.kind is PieceKind.ROWS and (before is None or piece.first < before):
                self.take_rows(piece.batch, RowsPlace(ledger_id, entry_id, piece.first, piece.end))

    def take_rows(self, batch: BatchKey | None, place: RowsPlace) -> None:
        """Take the rows of a batch, whichever, that stand right before those taken last; see `take`."""
        if not self.is_over and batch == self._recall.batch:
            self._places.append(place)
            self._left -= place.end - place.first
            self.is_over = self._left <= 0
        if self._left < 0:
            raise CorruptLogError(
                f"writer {self._recall.batch.writer!r}, batch {self._recall.batch.batch}: it has more rows than the "
                f"{self._recall.row_count} that the mark of its end says"
            )

    @property
    def places(self) -> tuple[RowsPlace, ...] | None:
        """Places of all rows, in order; None = some of them are missing so far."""
        return None if self._left else tuple(reversed(self._places))
