"""The index over any ordered map of bytes: how its rows are coded, and what each change does to them.

No library below is trusted with the content: every value carries a CRC32C over itself and its key, and what vanishes
with a page is missed: `live_byte_count` of each segment sums its blocks, one row sums the rows of ledgers.
"""

# Longer than 400 lines: rows, what changes them, and what they must add up to are one invariant.

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Protocol

import crc32c
import msgspec

from ledger.decoding import msgpack_decoder
from ledger.storage.index import BlockRow, CorruptIndexError, LedgerRow, SegmentRow, merge_ledger_rows
from ledger.storage.segment_format import BLOCK_SPAN_MAX, segment_file_name

_BLOCK_KEY = struct.Struct(">QQQ")
_BLOCK_VALUE = struct.Struct("<QQQ")
_ID = struct.Struct(">Q")
_CHECKSUM = struct.Struct("<I")
_COMMIT_ROWS = 4096
_TOTAL_KEY = b"ledgers"
_TOTAL = struct.Struct("<QQ")
_SUM_MASK = (1 << 64) - 1
_crc = crc32c.crc32c


class IndexTable(IntEnum):
    """The maps. Keys sort as bytes."""

    BLOCKS = 0
    LEDGERS = 1
    SEGMENTS = 2
    TOTALS = 3


class IndexRead(Protocol):
    """One consistent look at the maps."""

    def get(self, table: IndexTable, key: bytes) -> bytes | None: ...

    def ascend(self, table: IndexTable, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from the first key that is not below `first`, upwards."""
        ...

    def descend(self, table: IndexTable, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from the last key below `below`, downwards."""
        ...


class IndexWrite(IndexRead, Protocol):
    """One transaction: all of it becomes durable when its context ends, or nothing if that raises."""

    def put(self, table: IndexTable, key: bytes, value: bytes) -> None: ...

    def put_all(self, table: IndexTable, rows: Sequence[tuple[bytes, bytes]]) -> None: ...

    def delete(self, table: IndexTable, key: bytes) -> None:
        """Remove a key if it is there."""
        ...


class KeyValues(Protocol):
    """Ordered maps on disk: one writer at a time, readers from any thread. Errors as `Index` names them."""

    def read(self) -> AbstractContextManager[IndexRead]:
        """Look; keep it short, for some libraries keep old pages as long as anybody looks."""
        ...

    def write(self) -> AbstractContextManager[IndexWrite]: ...

    def close(self) -> None: ...


class _Total:
    """Number of rows, and the sum of their checksums; or a change of both."""

    __slots__ = ("_count", "_sum")

    def __init__(self, count: int = 0, checksum_sum: int = 0) -> None:
        self._count, self._sum = count, checksum_sum

    @property
    def is_none(self) -> bool:
        return not self._count and not self._sum

    def add(self, value: bytes) -> None:
        self._count += 1
        self._sum += _CHECKSUM.unpack_from(value)[0]

    def take(self, value: bytes) -> None:
        self._count -= 1
        self._sum -= _CHECKSUM.unpack_from(value)[0]

    def join(self, other: _Total) -> None:
        self._count += other._count
        self._sum += other._sum

    def encode(self) -> bytes:
        return _TOTAL.pack(self._count & _SUM_MASK, self._sum & _SUM_MASK)


class KeyValueIndex:
    """See `ledger.storage.index.Index`.

    Args:
        maps: Where the rows are.
        where: Names the index in messages.

    """

    def __init__(self, maps: KeyValues, where: str) -> None:
        self._maps = maps
        self._where = where
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_ledger = msgpack_decoder(LedgerRow).decode
        self._decode_segment = msgpack_decoder(SegmentRow).decode

    def count_ledgers(self) -> None:
        """Count the rows of ledgers if that was never done: in an empty index, or one from before there were totals."""
        with self._maps.read() as looking:
            if looking.get(IndexTable.TOTALS, _TOTAL_KEY) is not None:
                return
            total = _Total()
            for key, value in looking.ascend(IndexTable.LEDGERS, b""):
                self._open(key, value)
                total.add(value)
        try:
            with self._maps.write() as txn:
                txn.put(IndexTable.TOTALS, _TOTAL_KEY, _seal(_TOTAL_KEY, total.encode()))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    # -- rows ----------------------------------------------------------------------------------------------

    def _open(self, key: bytes, value: bytes) -> bytes:
        if len(value) < 4 or _CHECKSUM.unpack_from(value)[0] != _crc(value[4:], _crc(key)):
            raise CorruptIndexError(f"index {self._where}: a row fails its checksum")
        return value[4:]

    def _block(self, key: bytes, value: bytes) -> BlockRow:
        content = self._open(key, value)
        if len(key) != _BLOCK_KEY.size or len(content) != _BLOCK_VALUE.size:
            raise CorruptIndexError(f"index {self._where}: a block's row is no such row")
        ledger_id, first, segment_id = _BLOCK_KEY.unpack(key)
        last, byte_offset, byte_count = _BLOCK_VALUE.unpack(content)
        return BlockRow(ledger_id, first, last, segment_id, byte_offset, byte_count)

    def _ledger(self, key: bytes, value: bytes) -> LedgerRow:
        try:
            return self._decode_ledger(self._open(key, value))
        except msgspec.DecodeError as error:
            raise CorruptIndexError(f"index {self._where}: a ledger's row is no such row: {error}") from error

    def _segment(self, key: bytes, value: bytes) -> SegmentRow:
        try:
            return self._decode_segment(self._open(key, value))
        except msgspec.DecodeError as error:
            raise CorruptIndexError(f"index {self._where}: a segment's row is no such row: {error}") from error

    def _put_segment(self, txn: IndexWrite, row: SegmentRow) -> None:
        key = _ID.pack(row.segment_id)
        txn.put(IndexTable.SEGMENTS, key, _seal(key, self._encode(row)))

    # -- changes -------------------------------------------------------------------------------------------

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        # In parts, for a transaction holds all pages that it changes. The segment counts only with the last.
        deleted: dict[int, None] = {}
        for start in range(0, len(ledgers), _COMMIT_ROWS):
            freed: dict[int, int] = {}
            change = _Total()
            with self._maps.write() as txn:
                for ledger in ledgers[start : start + _COMMIT_ROWS]:
                    if self._merge(txn, ledger, freed, change):
                        deleted[ledger.ledger_id] = None
                self._add_freed(txn, freed)
                self._add_to_total(txn, change)
        kept = [row for row in blocks if row.ledger_id not in deleted] if deleted else blocks
        for start in range(0, len(kept), _COMMIT_ROWS):
            with self._maps.write() as txn:
                txn.put_all(IndexTable.BLOCKS, list(map(_block_item, kept[start : start + _COMMIT_ROWS])))
        with self._maps.write() as txn:
            byte_count = sum([row.byte_count for row in blocks])
            self._put_segment(txn, SegmentRow(segment_id, byte_count, sum([row.byte_count for row in kept])))

    def _merge(self, txn: IndexWrite, ledger: LedgerRow, freed: dict[int, int], change: _Total) -> bool:
        """Merge a ledger's row with what is there; return whether the ledger is deleted."""
        key = _ID.pack(ledger.ledger_id)
        old = txn.get(IndexTable.LEDGERS, key)
        before = None if old is None else self._ledger(key, old)
        merged = merge_ledger_rows(before, ledger)
        if merged != before:
            value = _seal(key, self._encode(merged))
            txn.put(IndexTable.LEDGERS, key, value)
            change.add(value)
            if old is not None:
                change.take(old)
        if merged.deleted_at_ms and (before is None or not before.deleted_at_ms):
            for row in self._blocks_of(txn, ledger.ledger_id):
                txn.delete(IndexTable.BLOCKS, _block_key(row))
                freed[row.segment_id] = freed.get(row.segment_id, 0) + row.byte_count
        return merged.deleted_at_ms > 0

    def _add_freed(self, txn: IndexWrite, freed: dict[int, int]) -> None:
        for segment_id, byte_count in freed.items():
            key = _ID.pack(segment_id)
            value = txn.get(IndexTable.SEGMENTS, key)
            if value is not None:
                row = self._segment(key, value)
                live = row.live_byte_count - byte_count
                self._put_segment(txn, msgspec.structs.replace(row, live_byte_count=live))

    def _add_to_total(self, txn: IndexWrite, change: _Total) -> None:
        if change.is_none:
            return
        value = txn.get(IndexTable.TOTALS, _TOTAL_KEY)
        if value is None:
            return  # There was no room to count: it is counted at the next start.
        total = _Total(*_TOTAL.unpack(self._open(_TOTAL_KEY, value)))
        total.join(change)
        txn.put(IndexTable.TOTALS, _TOTAL_KEY, _seal(_TOTAL_KEY, total.encode()))

    def replace_segments(
        self, retired_ids: Sequence[int], removed: Sequence[BlockRow], segment_id: int | None, added: Sequence[BlockRow]
    ) -> None:
        with self._maps.write() as txn:
            for row in removed:
                txn.delete(IndexTable.BLOCKS, _block_key(row))
            for retired_id in retired_ids:
                self._put_segment(txn, SegmentRow(retired_id, 0, 0, is_retired=True))
            if segment_id is None:
                return
            living: dict[int, bool] = {}
            for row in added:
                if row.ledger_id not in living:
                    key = _ID.pack(row.ledger_id)
                    value = txn.get(IndexTable.LEDGERS, key)
                    living[row.ledger_id] = value is not None and not self._ledger(key, value).deleted_at_ms
            kept = [row for row in added if living[row.ledger_id]]
            txn.put_all(IndexTable.BLOCKS, list(map(_block_item, kept)))
            byte_count = sum([row.byte_count for row in added])
            self._put_segment(txn, SegmentRow(segment_id, byte_count, sum([row.byte_count for row in kept])))

    def drop_segment(self, segment_id: int) -> None:
        with self._maps.write() as txn:
            txn.delete(IndexTable.SEGMENTS, _ID.pack(segment_id))

    def drop_block(self, row: BlockRow) -> None:
        with self._maps.write() as txn:
            if txn.get(IndexTable.BLOCKS, _block_key(row)) is not None:
                txn.delete(IndexTable.BLOCKS, _block_key(row))
                self._add_freed(txn, {row.segment_id: row.byte_count})

    def drop_ledgers(self, ledger_ids: Sequence[int], deleted_at_ms: int) -> None:
        with self._maps.write() as txn:
            freed: dict[int, int] = {}
            change = _Total()
            for ledger_id in ledger_ids:
                self._merge(txn, LedgerRow(ledger_id, is_fenced=True, deleted_at_ms=deleted_at_ms), freed, change)
            self._add_freed(txn, freed)
            self._add_to_total(txn, change)

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        change = _Total()
        with self._maps.write() as txn:
            for ledger_id in ledger_ids:
                key = _ID.pack(ledger_id)
                value = txn.get(IndexTable.LEDGERS, key)
                if value is not None and self._ledger(key, value).deleted_at_ms:
                    txn.delete(IndexTable.LEDGERS, key)
                    change.take(value)
            self._add_to_total(txn, change)

    # -- looks ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        with self._maps.read() as txn:
            total = txn.get(IndexTable.TOTALS, _TOTAL_KEY)
            unseen: dict[int, int] = {}
            for key, value in txn.ascend(IndexTable.SEGMENTS, b""):
                row = self._segment(key, value)
                if _ID.pack(row.segment_id) != key:
                    raise CorruptIndexError(f"index {self._where}: a segment's row lies in the wrong place")
                unseen[row.segment_id] = row.live_byte_count
            counted = _Total()
            blocks = txn.ascend(IndexTable.BLOCKS, b"")
            block = self._next_block(blocks, None)
            for key, value in txn.ascend(IndexTable.LEDGERS, b""):
                ledger = self._ledger(key, value)
                if _ID.pack(ledger.ledger_id) != key:
                    raise CorruptIndexError(f"index {self._where}: a ledger's row lies in the wrong place")
                counted.add(value)
                while block is not None and block.ledger_id == ledger.ledger_id and not ledger.deleted_at_ms:
                    if block.segment_id in unseen:  # Else it is of a conversion that was cut short.
                        unseen[block.segment_id] -= block.byte_count
                    block = self._next_block(blocks, block)
                if block is not None and block.ledger_id <= ledger.ledger_id:
                    break
            if block is not None:
                raise CorruptIndexError(f"index {self._where}: ledger {block.ledger_id} has blocks and no row")
        if any(unseen.values()):
            names = [segment_file_name(i) for i, rest in unseen.items() if rest]
            raise CorruptIndexError(f"index {self._where}: rows of {names[0]} are missing, or too many")
        if total is not None and self._open(_TOTAL_KEY, total) != counted.encode():
            raise CorruptIndexError(f"index {self._where}: rows of ledgers are missing, or too many, or old ones")

    def _next_block(self, blocks: Iterator[tuple[bytes, bytes]], before: BlockRow | None) -> BlockRow | None:
        item = next(blocks, None)
        if item is None:
            return None
        row = self._block(*item)
        if before is not None and _block_key(row) <= _block_key(before):
            raise CorruptIndexError(f"index {self._where}: rows of blocks are not in order")
        return row

    def segments(self) -> list[SegmentRow]:
        with self._maps.read() as txn:
            return [self._segment(key, value) for key, value in txn.ascend(IndexTable.SEGMENTS, b"")]

    def segment_ids(self) -> list[int]:
        return [row.segment_id for row in self.segments() if not row.is_retired]

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        key = _ID.pack(ledger_id)
        with self._maps.read() as txn:
            value = txn.get(IndexTable.LEDGERS, key)
        return None if value is None else self._ledger(key, value)

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        found: list[BlockRow] = []
        lowest = _BLOCK_KEY.pack(ledger_id, max(0, entry_id - BLOCK_SPAN_MAX + 1), 0)
        with self._maps.read() as txn:
            # The last row at or before (ledger, entry, any segment), then backwards to the span's limit.
            for key, value in txn.descend(IndexTable.BLOCKS, _BLOCK_KEY.pack(ledger_id, entry_id + 1, 0)):
                if key < lowest:
                    break
                row = self._block(key, value)
                if row.last_entry_id >= entry_id:
                    found.append(row)
        return found

    def holds(self, row: BlockRow) -> bool:
        key = _block_key(row)
        with self._maps.read() as txn:
            value = txn.get(IndexTable.BLOCKS, key)
        return value is not None and self._block(key, value) == row

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        with self._maps.read() as txn:
            return self._blocks_of(txn, ledger_id)

    def _blocks_of(self, txn: IndexRead, ledger_id: int) -> list[BlockRow]:
        rows: list[BlockRow] = []
        prefix = _ID.pack(ledger_id)
        for key, value in txn.ascend(IndexTable.BLOCKS, _BLOCK_KEY.pack(ledger_id, 0, 0)):
            if not key.startswith(prefix):
                break
            rows.append(self._block(key, value))
        return rows

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        ids: list[int] = []
        with self._maps.read() as txn:
            for key, value in txn.ascend(IndexTable.LEDGERS, _ID.pack(first)):
                if len(ids) >= limit:
                    break
                if not self._ledger(key, value).deleted_at_ms:
                    ids.append(_ID.unpack(key)[0])
        return ids

    def deleted_ledgers(self, first: int, limit: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        with self._maps.read() as txn:
            for key, value in txn.ascend(IndexTable.LEDGERS, _ID.pack(first)):
                if len(found) >= limit:
                    break
                deleted_at_ms = self._ledger(key, value).deleted_at_ms
                if deleted_at_ms:
                    found.append((_ID.unpack(key)[0], deleted_at_ms))
        return found

    def close(self) -> None:
        self._maps.close()


def _seal(key: bytes, value: bytes) -> bytes:
    return _CHECKSUM.pack(_crc(value, _crc(key))) + value


def _block_key(row: BlockRow) -> bytes:
    return _BLOCK_KEY.pack(row.ledger_id, row.first_entry_id, row.segment_id)


def _block_item(row: BlockRow) -> tuple[bytes, bytes]:
    key = _BLOCK_KEY.pack(row.ledger_id, row.first_entry_id, row.segment_id)
    return key, _seal(key, _BLOCK_VALUE.pack(row.last_entry_id, row.byte_offset, row.byte_count))
