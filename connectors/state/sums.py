"""Digest and count of a state's tables at many revisions at once, from one sorted pass over the changes. No Spark.

The digest is a sum over rows. A version of a row, written at revision v and replaced or deleted at revision w, counts
in the states from v on, but no more at w: it is added where it begins and taken away where it ends, and the running
sum over the revisions asked for is the digest at each of them. So a thousand checkpoints cost what one does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.source.arrow import column_of
from connectors.state.blocks import KeyedChanges, keyed_changes
from connectors.state.parts import merge_parts
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.records import SESSIONS_TABLE

SUM_DDL = "table_name string, point int, term binary, row_count bigint"
_SUM_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string()),
    pa.field("point", pa.int32()),
    pa.field("term", pa.binary()),
    pa.field("row_count", pa.int64()),
]
_SUM_ARROW = pa.schema(_SUM_FIELDS)
_LIMBS = 4
_LIMB_BITS = 32
_SUMMED_AT_ONCE = 1 << 20


class RowSum(NamedTuple):
    """Sum of the rows of a state.

    Attributes:
        digest: State digest, 32 hex digits.
        row_count: Rows.

    """

    digest: str
    row_count: int


def read_sums(blocks: Iterable[pa.RecordBatch], points: Sequence[int], *, is_summed: bool) -> Iterator[pa.RecordBatch]:
    """Yield what a task's changes add at each point, in `SUM_DDL`.

    Args:
        blocks: As for `blocks.keyed_changes`.
        points: Revisions asked for, ascending.
        is_summed: As in `steps.StepPlan`.

    """
    summing = _Summing(points, is_summed=is_summed)
    for changes in keyed_changes(blocks):
        summing.add(changes)
    yield from summing.finish()


def read_total(batches: Iterable[pa.RecordBatch], points: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """Yield what a task's rows add, whatever their order, in `SUM_DDL`.

    Args:
        batches: With the columns `table_name`, `key`, `row` and `revision`, none of them null.
        points: Revisions, ascending: a row counts at the first that is not below its own, else behind the last one.

    """
    prefixes: dict[str, bytes] = {}
    digests, counts = [0] * (len(points) + 1), [0] * (len(points) + 1)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("table_name", "key", "row", "revision"))
        for table, key, row, revision in zip(*columns, strict=True):
            prefix = prefixes.get(table) or prefixes.setdefault(table, table_prefix(table))
            point = bisect_left(points, revision)
            digests[point] += row_term(prefix, key, row)
            counts[point] += 1
    for point, (digest, count) in enumerate(zip(digests, counts, strict=True)):
        if count:
            row = {"table_name": "", "point": point, "term": digest_bytes(digest % DIGEST_MODULUS), "row_count": count}
            yield pa.RecordBatch.from_pylist([row], schema=_SUM_ARROW)


class _Summing:
    def __init__(self, points: Sequence[int], *, is_summed: bool) -> None:
        self._points = np.array(points, dtype=np.int64)
        self._is_summed = is_summed
        # By table: limbs and counts a point; the last element is for what lies behind the last point.
        self._limbs: dict[str, npt.NDArray[np.int64]] = {}
        self._counts: dict[str, npt.NDArray[np.int64]] = {}

    def add(self, changes: KeyedChanges) -> None:
        """Take in all changes of some keys of a table."""
        points = np.searchsorted(self._points, changes.revisions, side="left")
        # A change holds until the next one of its key.
        ends = np.full(len(points), len(self._points), dtype=np.int64)
        ends[:-1][changes.is_same] = points[1:][changes.is_same]
        if changes.table == SESSIONS_TABLE:
            self._add_sessions(changes, points, ends)
            return
        kept = changes.rows.is_valid().to_numpy(zero_copy_only=False) & (points != ends)
        for first in range(0, len(points), _SUMMED_AT_ONCE):
            some = slice(first, first + _SUMMED_AT_ONCE)
            places = first + np.flatnonzero(kept[some])
            if len(places):
                self._count(changes.table, points[places], ends[places], self._terms(changes, places))

    def finish(self) -> Iterator[pa.RecordBatch]:
        for table, limbs in self._limbs.items():
            counts = self._counts[table]
            for point in np.flatnonzero(np.any(limbs[:-1] != 0, axis=1) | (counts[:-1] != 0)):
                parts = [int(limb) << (_LIMB_BITS * (_LIMBS - 1 - i)) for i, limb in enumerate(limbs[point])]
                term = digest_bytes(sum(parts) % DIGEST_MODULUS)
                row = {"table_name": table, "point": int(point), "term": term, "row_count": int(counts[point])}
                yield pa.RecordBatch.from_pylist([row], schema=_SUM_ARROW)

    def _terms(self, changes: KeyedChanges, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return what each row adds to the digest, as limbs."""
        rows = changes.rows.take(column_of(places, pa.int64()))
        if self._is_summed:
            return _limbs(rows.buffers()[2])
        prefix = table_prefix(changes.table)
        keys = changes.keys.take(column_of(places, pa.int64()))
        pairs: Any = zip(keys.to_pylist(), rows.to_pylist(), strict=True)
        return _limbs(b"".join([digest_bytes(row_term(prefix, key, row)) for key, row in pairs]))

    def _count(
        self, table: str, begins: npt.NDArray[Any], ends: npt.NDArray[Any], terms: npt.NDArray[np.int64]
    ) -> None:
        if table not in self._limbs:
            self._limbs[table] = np.zeros((len(self._points) + 1, _LIMBS), dtype=np.int64)
            self._counts[table] = np.zeros(len(self._points) + 1, dtype=np.int64)
        limbs, counts, width = self._limbs[table], self._counts[table], len(self._points) + 1
        counts += np.bincount(begins, minlength=width) - np.bincount(ends, minlength=width)
        for limb in range(_LIMBS):
            # As floats, which are exact up to 2**53: there are fewer than 2**21 rows of 2**32 each.
            weights = terms[:, limb].astype(np.float64)
            added = np.bincount(begins, weights, width) - np.bincount(ends, weights, width)
            limbs[:, limb] += added.astype(np.int64)

    def _add_sessions(self, changes: KeyedChanges, points: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """Add the rows that sessions had, from point to point: a change is a part of one."""
        prefix, lived = table_prefix(SESSIONS_TABLE), []
        terms: list[bytes] = []
        row: bytes | None = None
        goes_on = [False, *changes.is_same.tolist()]
        each: Any = zip(changes.keys.to_pylist(), changes.rows.to_pylist(), goes_on, strict=True)
        for place, (key, part, is_same) in enumerate(each):
            row = merge_parts([row, part] if is_same and row is not None else [part])
            if row is not None and points[place] != ends[place]:
                lived.append(place)
                terms.append(digest_bytes(row_term(prefix, key, row)))
        if lived:
            self._count(SESSIONS_TABLE, points[lived], ends[lived], _limbs(b"".join(terms)))


def _limbs(terms: Any) -> npt.NDArray[np.int64]:
    """Return terms, one behind the other, as numbers of 32 bits, the first one the highest."""
    return np.frombuffer(terms, dtype=">u4").astype(np.int64).reshape(-1, _LIMBS)


class StateSums:
    """Digests and counts at the points asked for.

    Args:
        points: Revisions, ascending.

    """

    def __init__(self, points: Sequence[int]) -> None:
        self.points = tuple(points)
        self._index = {revision: index for index, revision in enumerate(self.points)}
        self._terms: dict[str, list[int]] = {}
        self._counts: dict[str, list[int]] = {}
        # The same, summed up from point to point; made when it is first asked for.
        self._running: dict[str, list[tuple[int, int]]] = {}

    def add(self, table: str, point: int, term: bytes, row_count: int) -> None:
        """Take in what a task found."""
        terms = self._terms.setdefault(table, [0] * len(self.points))
        counts = self._counts.setdefault(table, [0] * len(self.points))
        terms[point] += int.from_bytes(term, "big")
        counts[point] += row_count

    def at(self, revision: int, table: str | None = None) -> RowSum:
        """Return what a table, or the whole state, comes to at one of the points."""
        at = self._index[revision]
        if not self._running:
            self._running = {
                name: list(zip(accumulate(terms), accumulate(self._counts[name]), strict=True))
                for name, terms in self._terms.items()
            }
        tables = [table] if table is not None else list(self._running)
        sums = [self._running[name][at] for name in tables if name in self._running]
        return row_sum(sum(term for term, _ in sums), sum(n for _, n in sums))


def row_sum(total: int, row_count: int) -> RowSum:
    """Return a sum of what rows add to a digest, reduced and in digits."""
    return RowSum(digest_bytes(total % DIGEST_MODULUS).hex(), row_count)
