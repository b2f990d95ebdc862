"""Changes in blocks: what tasks hand to each other is a block of them, not a row a change. Arrow and numpy; no Spark.

A row that passes Spark's shuffle costs more than to fold the record that it comes from. So a task splits its changes by
key into a few parts, and packs those of each part into one value; whoever is given a part unpacks it, and brings the
changes of each key together. A part is taken whole into memory: there are as many parts as keep it small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import compress, pairwise, repeat
from operator import methodcaller
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.source.arrow import binary_of, column_of, validity
from connectors.state.fold import TableChanges
from rsm_spark.core.digest import table_prefix

PART_BYTES: Final = 64 * 1024 * 1024
"""Payload of the log whose changes make up one part, about."""
TERM_BYTES: Final = 16
"""Bytes that a row adds to a digest."""
_HASH_BYTES: Final = sha256().digest_size
_PARTS_MAX: Final = 4096
_PARTS_MIN: Final = 4
_HASHED_AT_ONCE: Final = 2048
_SHIFT: Final = np.uint64(32)
_BLOCK_FIELDS: list[pa.Field[Any]] = [
    pa.field("key", pa.binary()),
    pa.field("revision", pa.int64()),
    pa.field("row", pa.binary()),
]
BLOCK_ARROW = pa.schema(_BLOCK_FIELDS)
"""Changes of one table: see `fold.FoldedRow`."""


class ChangeBlock(NamedTuple):
    """Changes of one table whose keys fall into one part, in the order of the log.

    Attributes:
        table: The table.
        part: The part.
        packed: The changes, an Arrow message in `BLOCK_ARROW`.
        change_count: How many.

    """

    table: str
    part: int
    packed: bytes
    change_count: int


class KeyedChanges(NamedTuple):
    """All changes of one table whose keys fall into one part, those of a key together and in the order of the log.

    Attributes:
        table: The table.
        keys: Of the changes.
        revisions: Of their records.
        rows: What they made of the row; null = it is gone.
        is_same: For each change but the last whether the next one is of the same key.

    """

    table: str
    keys: pa.Array[Any]
    revisions: NDArray[np.int64]
    rows: pa.Array[Any]
    is_same: NDArray[np.bool_]


def part_count_of(payload_bytes: int) -> int:
    """Return into how many parts the changes of so much payload are split."""
    return min(_PARTS_MAX, max(_PARTS_MIN, payload_bytes // PART_BYTES))


class PartRule(msgspec.Struct, frozen=True):
    """Rule by which keys fall into parts, the same in all tasks of a query.

    Attributes:
        count: How many.
        seed: Random, and told to nobody: who chooses keys cannot have them all fall into one part.

    """

    count: int
    seed: int

    def of(self, keys: pa.Array[Any]) -> NDArray[np.uint16]:
        """Return the part of each key: the sum of its bytes, each times a random number of its place."""
        slices = (keys.slice(at, _HASHED_AT_ONCE) for at in range(0, len(keys), _HASHED_AT_ONCE))
        return np.concatenate([self._of(some) for some in slices])

    def _of(self, keys: pa.Array[Any]) -> NDArray[np.uint16]:
        buffers: list[Any] = keys.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
        lengths, begins = np.diff(offsets), offsets[:-1] - offsets[0]
        factors = np.random.default_rng(self.seed).integers(0, 2**64, int(lengths.max()), dtype=np.uint64)
        places = np.arange(int(offsets[-1] - offsets[0])) - np.repeat(begins, lengths)
        # One more than the byte, that zeros count; and nothing at the end, where a key without bytes may begin.
        values = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
        sums = np.add.reduceat(np.append(values * factors[places], np.uint64(0)), begins)
        sums[lengths == 0] = 0
        return ((sums >> _SHIFT) % np.uint64(self.count)).astype(np.uint16)


class ChangeSplitter:
    """Changes of a task on their way into blocks.

    Args:
        parts: By key.

    Attributes:
        change_count: Those that `take` would return.

    """

    def __init__(self, parts: PartRule) -> None:
        self._parts = parts
        self._tables: dict[str, list[pa.RecordBatch]] = {}
        self.change_count = 0

    def add(self, table: str, changes: pa.RecordBatch) -> None:
        """Take in changes of a table, in `BLOCK_ARROW`, that follow those before."""
        self._tables.setdefault(table, []).append(changes)
        self.change_count += changes.num_rows

    def take(self) -> Iterator[ChangeBlock]:
        """Yield what was added since the last call."""
        tables, self._tables, self.change_count = self._tables, {}, 0
        for table, changes in tables.items():
            yield from split_changes(table, _joined(changes), self._parts)


def changes_batch(changes: TableChanges, *, is_summed: bool) -> pa.RecordBatch:
    """Return changes in `BLOCK_ARROW`.

    Args:
        changes: Of one table.
        is_summed: They carry what the row adds to the digest (16 bytes) instead of the row.

    """
    table, keys, revisions, rows = changes
    columns = [
        binary_of(keys),
        column_of(np.array(revisions, dtype=np.int64), pa.int64()),
        _terms(table, keys, rows) if is_summed else column_of(rows, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BLOCK_ARROW)


def _terms(table: str, keys: list[bytes], rows: list[bytes | None]) -> pa.Array[Any]:
    """Return what each row adds to the digest: `rsm_spark.core.digest.row_term`, by the column."""
    mask = None
    if None in rows:
        mask = np.array([row is None for row in rows])
        keys = list(compress(keys, (~mask).tolist()))
    present = [row for row in rows if row is not None]
    length = _Lengths().__getitem__
    key_lengths, lengths = map(length, map(len, keys)), map(length, map(len, present))
    texts = map(b"".join, zip(repeat(table_prefix(table)), key_lengths, keys, lengths, present, strict=False))
    digests = b"".join(map(methodcaller("digest"), map(sha256, texts)))
    terms: Any = np.frombuffer(digests, np.uint8).reshape(-1, _HASH_BYTES)[:, :TERM_BYTES]
    offsets: Any = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(np.full(len(rows), TERM_BYTES) if mask is None else TERM_BYTES * ~mask, out=offsets[1:])
    buffers = [validity(mask), pa.py_buffer(offsets), pa.py_buffer(terms.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


class _Lengths(dict[int, bytes]):
    """Lengths as they are hashed; there are few different ones."""

    def __missing__(self, length: int) -> bytes:
        found = self[length] = length.to_bytes(4, "big")
        return found


def split_changes(table: str, changes: pa.RecordBatch, parts: PartRule) -> Iterator[ChangeBlock]:
    """Yield changes of one table as blocks.

    Args:
        table: The table.
        changes: In `BLOCK_ARROW`, in the order of the log; at least one.
        parts: By key.

    """
    of = parts.of(changes.column("key"))
    order = np.argsort(of, kind="stable")
    changes = changes.take(column_of(order, pa.int64()))
    borders = np.searchsorted(of[order], np.arange(parts.count + 1)).tolist()
    for part, (begin, end) in enumerate(pairwise(borders)):
        if begin < end:
            yield ChangeBlock(table, part, changes.slice(begin, end - begin).serialize().to_pybytes(), end - begin)


def read_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield table, part and changes (in `BLOCK_ARROW`) of blocks.

    Args:
        batches: With the columns `table_name`, `part` and `row`, a block each.

    """
    for batch in batches:
        tables, parts, blocks = (batch.column(name) for name in ("table_name", "part", "row"))
        for table, part, block in zip(tables.to_pylist(), parts.to_pylist(), blocks, strict=True):
            yield str(table), int(part or 0), pa.ipc.read_record_batch(block.as_buffer(), BLOCK_ARROW)


def keyed_changes(batches: Iterable[pa.RecordBatch]) -> Iterator[KeyedChanges]:
    """Yield the changes of blocks, one part of one table after the other.

    Args:
        batches: As for `read_blocks`, all blocks of a part of a table one after the other, in any order.

    """
    present: tuple[str, int] | None = None
    held: list[pa.RecordBatch] = []
    for table, part, changes in read_blocks(batches):
        if present is not None and present != (table, part):
            yield _keyed(present[0], held)
            held = []
        present = (table, part)
        held.append(changes)
    if present is not None:
        yield _keyed(present[0], held)


def _keyed(table: str, blocks: list[pa.RecordBatch]) -> KeyedChanges:
    changes = _joined(blocks)
    revisions = changes.column("revision").to_numpy()
    codes = changes.column("key").dictionary_encode().indices.to_numpy()
    if not (codes[:-1] < codes[1:]).all():
        order = np.lexsort((revisions, codes))
        changes, revisions, codes = changes.take(column_of(order, pa.int64())), revisions[order], codes[order]
    return KeyedChanges(table, changes.column("key"), revisions, changes.column("row"), codes[:-1] == codes[1:])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(joined) > 1:
        raise pa.ArrowCapacityError("the changes of one part have more than 2 GiB of keys or rows")
    return joined[0]
