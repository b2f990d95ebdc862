"""Segments of which little is still needed become one smaller segment.

What is needed: the blocks of ledgers that live, the records about them, and the notes of deletions that are still to
be remembered. The order is what a power cut tests: the new segment synced, its folder synced, the index pointing to it
and the old ones marked as retired in one transaction; only then the old ones are unlinked, and forgotten. A block
that is damaged keeps its segment: what it held is unknown, and must not become absent.
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import Annotated, NamedTuple

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.errors import CorruptStorageError
from ledger.options import MIB, Option
from ledger.storage.disk import Buffer
from ledger.storage.index import BlockRow, Index, LedgerRow, SegmentRow
from ledger.storage.records import RecordId, parse_deleted_at_ms
from ledger.storage.segment_format import BlockHeader, decode_block, segment_file_name
from ledger.storage.segment_writer import SegmentWriter
from ledger.storage.segments import Segments

NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
"""Errors that end when there is room again; nothing was changed."""
_STEP_BYTES = 4 << 20
_GROUP_COUNT_MAX = 16


class CompactionSettings(msgspec.Struct, frozen=True):
    """Conditions under which segments are written again.

    Attributes:
        segment_bytes: Largest living size of segments that become one.
        small_bytes: Segments with less living bytes than this are joined …
        small_count: … once there are so many of them.
        deleted_kept_s: How long a deleted ledger is remembered and refuses adds.
        deleted_count_max: Deleted ledgers remembered; the oldest are forgotten first.

    """

    minor_share: Annotated[
        float,
        Option(
            "A minor compaction writes segments anew of which at most this share is still needed; 0 = never.",
            name="minor_compaction_share",
            ge=0,
            le=1,
        ),
    ] = 0.2
    minor_interval_s: Annotated[float, Option("Time between two minor compactions.", name="minor_compaction_s")] = (
        3600.0
    )
    major_share: Annotated[
        float,
        Option(
            "A major compaction writes segments anew of which at most this share is still needed; 0 = never.",
            name="major_compaction_share",
            ge=0,
            le=1,
        ),
    ] = 0.8
    major_interval_s: Annotated[float, Option("Time between two major compactions.", name="major_compaction_s")] = (
        86_400.0
    )
    bytes_per_s: Annotated[
        int, Option("Most MiB that compactions read in a second.", name="compaction_mib_per_s", unit=MIB, ge=1 << 20)
    ] = 32 << 20
    segment_bytes: int = 64 << 20
    small_bytes: int = 4 << 20
    small_count: int = 16
    deleted_kept_s: float = 7 * 86_400.0
    deleted_count_max: int = 1_000_000


def plan(rows: Sequence[SegmentRow], share: float, settings: CompactionSettings) -> list[list[int]]:
    """Choose segments that are worth it, in groups that become one segment each.

    Args:
        rows: The segments to choose from, ascending.
        share: Of living bytes, at most.
        settings: See `CompactionSettings`.

    """
    chosen: dict[int, bool] = {}
    living = [row for row in rows if not row.is_retired]
    for row in living:
        if row.live_byte_count < row.byte_count and row.live_byte_count <= share * row.byte_count:
            chosen[row.segment_id] = True
    small = [row for row in living if row.live_byte_count < settings.small_bytes]
    if share > 0 and len(small) >= settings.small_count:
        chosen.update((row.segment_id, chosen.get(row.segment_id, False)) for row in small)
    groups: list[list[int]] = []
    used = 0
    for row in living:
        if row.segment_id not in chosen:
            continue
        used += row.live_byte_count
        if not groups or used > settings.segment_bytes or len(groups[-1]) == _GROUP_COUNT_MAX:
            groups.append([])
            used = row.live_byte_count
        groups[-1].append(row.segment_id)
    # A small segment alone, of which nothing would go, stays as it is.
    return [group for group in groups if len(group) > 1 or chosen[group[0]]]


class _Found(NamedTuple):
    """A block of an old segment; `order` is (holds records, ledger, first entry, segment, byte offset).

    So segments lie in the order of it, and so does what is merged from them.
    """

    order: tuple[bool, int, int, int, int]
    header: BlockHeader
    data: memoryview


class Compaction:
    """One group on its way into one segment. Blocking; `step` until it says so, then `commit`; or `abandon`.

    Args:
        segments: All segments.
        index: The index.
        old_ids: The segments that go.
        segment_id: The one that comes.
        forget_before_ms: Deletions older than this (wall clock) need no note any more.

    """

    def __init__(
        self, segments: Segments, index: Index, old_ids: Sequence[int], segment_id: int, forget_before_ms: int
    ) -> None:
        self._segments = segments
        self._index = index
        self._old_ids = list(old_ids)
        self._segment_id = segment_id
        self._forget_before_ms = forget_before_ms
        self._removed: list[BlockRow] = []
        self._added: list[BlockRow] = []
        self._writer: SegmentWriter | None = None
        self._steps = self._copy()

    def step(self) -> int:
        """Copy a few megabytes; return how many bytes were read, 0 when nothing is left.

        Raises:
            CorruptStorageError: A block is damaged, or cannot be read.
            OSError: The new segment cannot be written.

        """
        return next(self._steps, 0)

    def _copy(self) -> Generator[int, None, None]:
        walks = [self._walk(old_id) for old_id in self._old_ids]
        merged = heapq.merge(*walks, key=lambda found: found.order)
        current, row = NO_ENTRY, None
        read = 0
        for (_, ledger_id, first_entry_id), group in groupby(merged, key=lambda found: found.order[:3]):
            if ledger_id != current:
                current, row = ledger_id, self._index.ledger(ledger_id)
            blocks = list(group)
            if first_entry_id >= 0:
                self._keep_entries(row, blocks)
            else:
                self._keep_records(row, blocks)
            read += sum(block.header.byte_count for block in blocks)
            if read >= _STEP_BYTES:
                yield read
                read = 0
        if read:
            yield read

    def _walk(self, segment_id: int) -> Iterator[_Found]:
        previous: tuple[bool, int, int] | None = None
        for offset, header, data in self._segments.walk(segment_id):
            key = header.first_entry_id < 0, header.ledger_id, header.first_entry_id
            if previous is not None and key < previous:
                # Blocks that begin with the same entry would not meet, and one of them would be lost.
                raise CorruptStorageError(f"{segment_file_name(segment_id)}: its blocks are not in order")
            previous = key
            yield _Found((*key, segment_id, offset), header, data)

    def _keep_entries(self, row: LedgerRow | None, blocks: list[_Found]) -> None:
        """Copy blocks that begin with the same entry as one: the index knows a block of a segment by its first."""
        if row is None or row.deleted_at_ms:
            return
        for block in blocks:
            _, ledger_id, first_entry_id, segment_id, offset = block.order
            ids = ledger_id, first_entry_id, block.header.last_entry_id
            self._removed.append(BlockRow(*ids, segment_id, offset, block.header.byte_count))
        if len(blocks) == 1:
            self._added.append(self._open().copy_block(blocks[0].header, blocks[0].data))
            return
        entries: dict[int, Buffer] = {}
        for block in blocks:
            entries.update(decode_block(block.data, segment_file_name(block.order[3])).entries())
        ids_held = sorted(entries)
        last_add_confirmed = max(block.header.last_add_confirmed for block in blocks)
        values = [entries[entry_id] for entry_id in ids_held]
        self._added.append(self._open().add_block(row.ledger_id, ids_held, values, last_add_confirmed))

    def _keep_records(self, row: LedgerRow | None, blocks: list[_Found]) -> None:
        is_living = row is not None and not row.deleted_at_ms
        for block in blocks:
            if is_living:
                self._open().copy_block(block.header, block.data)
                continue
            for record_id, record in decode_block(block.data, segment_file_name(block.order[3])).entries():
                if record_id == RecordId.DELETED and parse_deleted_at_ms(record) >= self._forget_before_ms:
                    self._open().add_block(block.header.ledger_id, [record_id], [record], NO_ENTRY)

    def _open(self) -> SegmentWriter:
        if self._writer is None:
            self._writer = self._segments.create(self._segment_id)
        return self._writer

    def commit(self) -> None:
        """Let the new segment take the place of the old ones.

        Raises:
            OSError: With ENOSPC nothing has changed if it is abandoned now; with another number nothing may be assumed.

        """
        if self._writer is not None:
            self._writer.finish(self._old_ids)
            self._segments.add(self._segment_id, self._writer)
        new_id = self._segment_id if self._writer is not None else None
        try:
            self._index.replace_segments(self._old_ids, self._removed, new_id, self._added)
        except OSError as error:
            if error.errno in NO_SPACE_ERRORS:  # Then nothing points to the new one.
                self._segments.remove([self._segment_id])
            raise
        self._segments.remove(self._old_ids)
        for old_id in self._old_ids:
            self._index.drop_segment(old_id)

    def abandon(self) -> None:
        """Give up: the old segments stay. After `commit` failed it removes nothing that may be in the index."""
        self._steps.close()
        if self._writer is not None:
            self._writer.abandon()
            self._segments.give_up(self._segment_id)
