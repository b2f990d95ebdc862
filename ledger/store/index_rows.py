"""The index over any ordered map of bytes: how its rows are coded, and what each change does to them.

No library below is trusted with the content: every value carries a CRC32C over itself and its key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Protocol

import crc32c
import msgspec

from ledger.store.index import BlockRow, CorruptIndexError, LedgerRow, SegmentRow, merge_ledger_rows
from ledger.store.segment_format import BLOCK_SPAN_MAX

__all__ = ["KeyValueIndex", "KeyValues", "Reading", "Table", "Writing"]

_BLOCK_KEY = struct.Struct(">QQQ")
_BLOCK_VALUE = struct.Struct("<QQQ")
_ID = struct.Struct(">Q")
_CHECKSUM = struct.Struct("<I")
_COMMIT_ROWS = 4096
_crc = crc32c.crc32c

Rows = Iterable[tuple[bytes, bytes]]


class Table(IntEnum):
    """The three maps. Keys sort as bytes."""

    BLOCKS = 0
    LEDGERS = 1
    SEGMENTS = 2


class Reading(Protocol):
    """One consistent look at the maps."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return a value."""
        ...

    def ascend(self, table: Table, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from the first key that is not below `first`, upwards."""
        ...

    def descend(self, table: Table, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from the last key below `below`, downwards."""
        ...


class Writing(Reading, Protocol):
    """One transaction: all of it becomes durable when its context ends, or nothing if that raises."""

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set a value."""
        ...

    def put_all(self, table: Table, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set many values."""
        ...

    def delete(self, table: Table, key: bytes) -> None:
        """Remove a key if it is there."""
        ...


class KeyValues(Protocol):
    """Ordered maps on disk: one writer at a time, readers from any thread. Errors as `Index` names them."""

    def read(self) -> AbstractContextManager[Reading]:
        """Look; keep it short, for some libraries keep old pages as long as anybody looks."""
        ...

    def write(self) -> AbstractContextManager[Writing]:
        """Change."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class KeyValueIndex:
    """See `ledger.store.index.Index`.

    Args:
        maps: Where the rows are.
        where: Names the index in messages.

    """

    def __init__(self, maps: KeyValues, where: str) -> None:
        self._maps = maps
        self._where = where
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_ledger = msgspec.msgpack.Decoder(LedgerRow).decode
        self._decode_segment = msgspec.msgpack.Decoder(SegmentRow).decode

    # -- rows ----------------------------------------------------------------------------------------------

    def _open(self, key: bytes, value: bytes) -> bytes:
        if len(value) < 4 or _CHECKSUM.unpack_from(value)[0] != _crc(value[4:], _crc(key)):
            raise CorruptIndexError(f"index {self._where}: a row fails its checksum")
        return value[4:]

    def _block(self, key: bytes, value: bytes) -> BlockRow:
        ledger_id, first, segment_id = _BLOCK_KEY.unpack(key)
        last, byte_offset, byte_count = _BLOCK_VALUE.unpack(self._open(key, value))
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

    def _put_segment(self, txn: Writing, row: SegmentRow) -> None:
        key = _ID.pack(row.segment_id)
        txn.put(Table.SEGMENTS, key, _seal(key, self._encode(row)))

    # -- changes -------------------------------------------------------------------------------------------

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        """See `Index`."""
        # In parts, for a transaction holds all pages that it changes. The segment counts only with the last.
        deleted: dict[int, None] = {}
        for start in range(0, len(ledgers), _COMMIT_ROWS):
            freed: dict[int, int] = {}
            with self._maps.write() as txn:
                for ledger in ledgers[start : start + _COMMIT_ROWS]:
                    if self._merge(txn, ledger, freed):
                        deleted[ledger.ledger_id] = None
                self._add_freed(txn, freed)
        kept = [row for row in blocks if row.ledger_id not in deleted] if deleted else blocks
        for start in range(0, len(kept), _COMMIT_ROWS):
            with self._maps.write() as txn:
                txn.put_all(Table.BLOCKS, list(map(_block_item, kept[start : start + _COMMIT_ROWS])))
        with self._maps.write() as txn:
            byte_count = sum([row.byte_count for row in blocks])
            self._put_segment(txn, SegmentRow(segment_id, byte_count, sum([row.byte_count for row in kept])))

    def _merge(self, txn: Writing, ledger: LedgerRow, freed: dict[int, int]) -> bool:
        """Merge a ledger's row with what is there; return whether the ledger is deleted."""
        key = _ID.pack(ledger.ledger_id)
        old = txn.get(Table.LEDGERS, key)
        before = None if old is None else self._ledger(key, old)
        merged = merge_ledger_rows(before, ledger)
        if merged != before:
            txn.put(Table.LEDGERS, key, _seal(key, self._encode(merged)))
        if merged.deleted_at_ms and (before is None or not before.deleted_at_ms):
            for row in self._blocks_of(txn, ledger.ledger_id):
                txn.delete(Table.BLOCKS, _block_key(row))
                freed[row.segment_id] = freed.get(row.segment_id, 0) + row.byte_count
        return merged.deleted_at_ms > 0

    def _add_freed(self, txn: Writing, freed: dict[int, int]) -> None:
        for segment_id, byte_count in freed.items():
            key = _ID.pack(segment_id)
            value = txn.get(Table.SEGMENTS, key)
            if value is not None:
                row = self._segment(key, value)
                live = row.live_byte_count - byte_count
                self._put_segment(txn, msgspec.structs.replace(row, live_byte_count=live))

    def replace_segments(
        self, retired_ids: Sequence[int], removed: Sequence[BlockRow], segment_id: int | None, added: Sequence[BlockRow]
    ) -> None:
        """See `Index`."""
        with self._maps.write() as txn:
            for row in removed:
                txn.delete(Table.BLOCKS, _block_key(row))
            for retired_id in retired_ids:
                self._put_segment(txn, SegmentRow(retired_id, 0, 0, is_retired=True))
            if segment_id is None:
                return
            living: dict[int, bool] = {}
            for row in added:
                if row.ledger_id not in living:
                    key = _ID.pack(row.ledger_id)
                    value = txn.get(Table.LEDGERS, key)
                    living[row.ledger_id] = value is not None and not self._ledger(key, value).deleted_at_ms
            kept = [row for row in added if living[row.ledger_id]]
            txn.put_all(Table.BLOCKS, list(map(_block_item, kept)))
            byte_count = sum([row.byte_count for row in added])
            self._put_segment(txn, SegmentRow(segment_id, byte_count, sum([row.byte_count for row in kept])))

    def drop_segment(self, segment_id: int) -> None:
        """See `Index`."""
        with self._maps.write() as txn:
            txn.delete(Table.SEGMENTS, _ID.pack(segment_id))

    def drop_block(self, row: BlockRow) -> None:
        """See `Index`."""
        with self._maps.write() as txn:
            if txn.get(Table.BLOCKS, _block_key(row)) is not None:
                txn.delete(Table.BLOCKS, _block_key(row))
                self._add_freed(txn, {row.segment_id: row.byte_count})

    def drop_ledgers(self, ledger_ids: Sequence[int], deleted_at_ms: int) -> None:
        """See `Index`."""
        with self._maps.write() as txn:
            freed: dict[int, int] = {}
            for ledger_id in ledger_ids:
                self._merge(txn, LedgerRow(ledger_id, is_fenced=True, deleted_at_ms=deleted_at_ms), freed)
            self._add_freed(txn, freed)

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """See `Index`."""
        with self._maps.write() as txn:
            for ledger_id in ledger_ids:
                key = _ID.pack(ledger_id)
                value = txn.get(Table.LEDGERS, key)
                if value is not None and self._ledger(key, value).deleted_at_ms:
                    txn.delete(Table.LEDGERS, key)

    # -- looks ---------------------------------------------------------------------------------------------

    def segments(self) -> list[SegmentRow]:
        """See `Index`."""
        with self._maps.read() as txn:
            return [self._segment(key, value) for key, value in txn.ascend(Table.SEGMENTS, b"")]

    def segment_ids(self) -> list[int]:
        """See `Index`."""
        return [row.segment_id for row in self.segments() if not row.is_retired]

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """See `Index`."""
        key = _ID.pack(ledger_id)
        with self._maps.read() as txn:
            value = txn.get(Table.LEDGERS, key)
        return None if value is None else self._ledger(key, value)

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        """See `Index`."""
        found: list[BlockRow] = []
        lowest = _BLOCK_KEY.pack(ledger_id, max(0, entry_id - BLOCK_SPAN_MAX + 1), 0)
        with self._maps.read() as txn:
            # The last row at or before (ledger, entry, any segment), then backwards to the span's limit.
            for key, value in txn.descend(Table.BLOCKS, _BLOCK_KEY.pack(ledger_id, entry_id + 1, 0)):
                if key < lowest:
                    break
                row = self._block(key, value)
                if row.last_entry_id >= entry_id:
                    found.append(row)
        return found

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        """See `Index`."""
        with self._maps.read() as txn:
            return self._blocks_of(txn, ledger_id)

    def _blocks_of(self, txn: Reading, ledger_id: int, entry_id: int = 0, limit: int = 1 << 62) -> list[BlockRow]:
        rows: list[BlockRow] = []
        prefix = _ID.pack(ledger_id)
        for key, value in txn.ascend(Table.BLOCKS, _BLOCK_KEY.pack(ledger_id, entry_id, 0)):
            if not key.startswith(prefix) or len(rows) >= limit:
                break
            rows.append(self._block(key, value))
        return rows

    def blocks_from(self, ledger_id: int, entry_id: int, limit: int) -> list[BlockRow]:
        """See `Index`."""
        with self._maps.read() as txn:
            return self._blocks_of(txn, ledger_id, entry_id, limit)

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """See `Index`."""
        ids: list[int] = []
        with self._maps.read() as txn:
            for key, value in txn.ascend(Table.LEDGERS, _ID.pack(first)):
                if len(ids) >= limit:
                    break
                if not self._ledger(key, value).deleted_at_ms:
                    ids.append(_ID.unpack(key)[0])
        return ids

    def deleted_ledgers(self, first: int, limit: int) -> list[tuple[int, int]]:
        """See `Index`."""
        found: list[tuple[int, int]] = []
        with self._maps.read() as txn:
            for key, value in txn.ascend(Table.LEDGERS, _ID.pack(first)):
                if len(found) >= limit:
                    break
                deleted_at_ms = self._ledger(key, value).deleted_at_ms
                if deleted_at_ms:
                    found.append((_ID.unpack(key)[0], deleted_at_ms))
        return found

    def close(self) -> None:
        """See `Index`."""
        self._maps.close()


def _seal(key: bytes, value: bytes) -> bytes:
    return _CHECKSUM.pack(_crc(value, _crc(key))) + value


def _block_key(row: BlockRow) -> bytes:
    return _BLOCK_KEY.pack(row.ledger_id, row.first_entry_id, row.segment_id)


def _block_item(row: BlockRow) -> tuple[bytes, bytes]:
    key = _BLOCK_KEY.pack(row.ledger_id, row.first_entry_id, row.segment_id)
    return key, _seal(key, _BLOCK_VALUE.pack(row.last_entry_id, row.byte_offset, row.byte_count))
