"""The index in LMDB: memory-mapped B+ trees, one writer, readers without locks."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c
import lmdb
import msgspec

from ledger.store.index import BlockRow, CorruptIndexError, LedgerRow, merge_ledger_rows
from ledger.store.segment_format import BLOCK_SPAN_MAX

__all__ = ["LmdbIndex"]

_MAP_BYTES = 1 << 36
"""Room in the address space; the file grows only as rows come."""
_BLOCK_KEY = struct.Struct(">QQQ")
_BLOCK_VALUE = struct.Struct("<QQQ")
_ID = struct.Struct(">Q")
_CHECKSUM = struct.Struct("<I")
_crc = crc32c.crc32c


def _seal(key: bytes, value: bytes) -> bytes:
    """LMDB has no checksums: each value carries one, over its key too."""
    return _CHECKSUM.pack(_crc(value, _crc(key))) + value


class LmdbIndex:
    """See `ledger.store.index.Index`. `path` is a folder of its own."""

    def __init__(self, path: str, *, fsync: bool = True) -> None:
        self._path = path
        try:
            self._env = lmdb.open(
                path, map_size=_MAP_BYTES, max_dbs=3, sync=fsync, metasync=fsync, readahead=False, max_readers=16
            )
            self._blocks = self._env.open_db(b"blocks")
            self._ledgers = self._env.open_db(b"ledgers")
            self._segments = self._env.open_db(b"segments")
        except lmdb.Error as error:
            raise CorruptIndexError(f"index {path} cannot be opened: {error}") from error
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(LedgerRow).decode

    def _open(self, key: bytes, value: bytes) -> bytes:
        if len(value) < 4 or _CHECKSUM.unpack_from(value)[0] != _crc(value[4:], _crc(key)):
            raise CorruptIndexError(f"index {self._path}: a row fails its checksum")
        return value[4:]

    def segment_ids(self) -> list[int]:
        """See `Index`."""
        with self._env.begin(db=self._segments) as txn:
            return [_ID.unpack(key)[0] for key in txn.cursor().iternext(values=False)]

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        """See `Index`."""
        rows = []
        for row in blocks:
            key = _BLOCK_KEY.pack(row.ledger_id, row.first_entry_id, row.segment_id)
            value = _BLOCK_VALUE.pack(row.last_entry_id, row.byte_offset, row.byte_count)
            rows.append((key, _seal(key, value)))
        with self._env.begin(write=True) as txn:
            txn.cursor(self._blocks).putmulti(rows)
            for ledger in ledgers:
                key = _ID.pack(ledger.ledger_id)
                old = txn.get(key, db=self._ledgers)
                before = None if old is None else self._decode(self._open(key, old))
                merged = merge_ledger_rows(before, ledger)
                if merged != before:
                    txn.put(key, _seal(key, self._encode(merged)), db=self._ledgers)
            txn.put(_ID.pack(segment_id), b"", db=self._segments)

    def drop_segment(self, segment_id: int) -> None:
        """See `Index`."""
        with self._env.begin(write=True) as txn:
            txn.delete(_ID.pack(segment_id), db=self._segments)

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """See `Index`."""
        key = _ID.pack(ledger_id)
        with self._env.begin(db=self._ledgers) as txn:
            value = txn.get(key)
        return None if value is None else self._decode(self._open(key, value))

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        """See `Index`."""
        found: list[BlockRow] = []
        lowest = _BLOCK_KEY.pack(ledger_id, max(0, entry_id - BLOCK_SPAN_MAX + 1), 0)
        with self._env.begin(db=self._blocks) as txn, txn.cursor() as cursor:
            # The last row at or before (ledger, entry, any segment), then backwards to the span's limit.
            here = cursor.set_range(_BLOCK_KEY.pack(ledger_id, entry_id + 1, 0))
            here = cursor.prev() if here else cursor.last()
            while here and cursor.key() >= lowest:
                row = self._block_row(cursor.key(), cursor.value())
                if row.last_entry_id >= entry_id:
                    found.append(row)
                here = cursor.prev()
        return found

    def _block_row(self, key: bytes, value: bytes) -> BlockRow:
        ledger_id, first, segment_id = _BLOCK_KEY.unpack(key)
        last, byte_offset, byte_count = _BLOCK_VALUE.unpack(self._open(key, value))
        return BlockRow(ledger_id, first, last, segment_id, byte_offset, byte_count)

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        """See `Index`."""
        rows: list[BlockRow] = []
        prefix = _ID.pack(ledger_id)
        with self._env.begin(db=self._blocks) as txn, txn.cursor() as cursor:
            here = cursor.set_range(prefix)
            while here and cursor.key().startswith(prefix):
                rows.append(self._block_row(cursor.key(), cursor.value()))
                here = cursor.next()
        return rows

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """See `Index`."""
        ids: list[int] = []
        with self._env.begin(db=self._ledgers) as txn, txn.cursor() as cursor:
            here = cursor.set_range(_ID.pack(first))
            while here and len(ids) < limit:
                row = self._decode(self._open(cursor.key(), cursor.value()))
                if not row.deleted_at_ms:
                    ids.append(row.ledger_id)
                here = cursor.next()
        return ids

    def drop_ledger(self, ledger_id: int, deleted_at_ms: int) -> None:
        """See `Index`."""
        key = _ID.pack(ledger_id)
        with self._env.begin(write=True) as txn:
            with txn.cursor(self._blocks) as cursor:
                here = cursor.set_range(key)
                while here and cursor.key().startswith(key):
                    here = cursor.delete()
            old = txn.get(key, db=self._ledgers)
            row = LedgerRow(ledger_id) if old is None else self._decode(self._open(key, old))
            row = msgspec.structs.replace(row, deleted_at_ms=deleted_at_ms, is_fenced=True)
            txn.put(key, _seal(key, self._encode(row)), db=self._ledgers)

    def close(self) -> None:
        """See `Index`."""
        self._env.close()
