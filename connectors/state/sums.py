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
import pyarrow.compute as pc

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


class RowSum(NamedTuple):
    """Sum of the rows of a state.

    Attributes:
        digest: State digest, 32 hex digits.
        row_count: Rows.

    """

    digest: str
    row_count: int


def read_sums(batches: Iterable[pa.RecordBatch], points: Sequence[int], *, is_summed: bool) -> Iterator[pa.RecordBatch]:
    """Yield what a task's changes add at each point, in `SUM_DDL`.

    Args:
        batches: Changes with the columns `table_name`, `key`, `revision` and `row`, all of a key together, sorted by
            table, key and revision.
        points: Revisions asked for, ascending.
        is_summed: As in `steps.StepPlan`.

    """
    summing = _Summing(points, is_summed=is_summed)
    for batch in batches:
        summing.add(batch)
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
        # The last row of the batch before: how long it lives shows only in the next one.
        self._held: pa.Table | None = None
        # The session that is being added up: key, then (point, part) in order.
        self._session: bytes | None = None
        self._parts: list[tuple[int, bytes | None]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch]).select(["table_name", "key", "revision", "row"])
        if self._held is not None:
            table = pa.concat_tables([self._held, table])
        if table.num_rows > 1:
            self._sum(table.combine_chunks(), table.num_rows - 1)
        self._held = table.slice(max(0, table.num_rows - 1)) if table.num_rows else None

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._held is not None:
            self._sum(self._held.combine_chunks(), self._held.num_rows)
            self._held = None
        self._end_session()
        for table, limbs in self._limbs.items():
            counts = self._counts[table]
            for point in np.flatnonzero(np.any(limbs[:-1] != 0, axis=1) | (counts[:-1] != 0)):
                parts = [int(limb) << (_LIMB_BITS * (_LIMBS - 1 - i)) for i, limb in enumerate(limbs[point])]
                term = digest_bytes(sum(parts) % DIGEST_MODULUS)
                row = {"table_name": table, "point": int(point), "term": term, "row_count": int(counts[point])}
                yield pa.RecordBatch.from_pylist([row], schema=_SUM_ARROW)

    def _sum(self, table: pa.Table, count: int) -> None:
        """Add the first `count` rows; one more may follow to tell how long the last of them lives."""
        names, keys = table.column("table_name"), table.column("key")
        points = np.searchsorted(self._points, table.column("revision").to_numpy(), side="left")
        ends = np.full(count, len(self._points), dtype=np.int64)
        following = min(count, table.num_rows - 1)
        same = [pc.equal(column.slice(0, following), column.slice(1, following)).to_numpy() for column in (names, keys)]
        ends[:following] = np.where(same[0] & same[1], points[1 : following + 1], ends[:following])
        points, names, rows = points[:count], names.slice(0, count), table.column("row").slice(0, count)
        lives = rows.is_valid().to_numpy() & (points != ends)
        for name in map(str, names.unique().to_pylist()):
            of_table = pc.equal(names, pa.scalar(name)).to_numpy()
            if name == SESSIONS_TABLE:
                places = np.flatnonzero(of_table)
                self._add_sessions(keys.take(places).to_pylist(), points[of_table], rows.take(places).to_pylist())
                continue
            kept = np.flatnonzero(of_table & lives)
            if len(kept):
                terms = self._terms(name, keys, rows, kept)
                self._count(name, points[kept], ends[kept], terms)

    def _terms(
        self, table: str, keys: pa.ChunkedArray[Any], rows: pa.ChunkedArray[Any], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        found: list[Any] = rows.take(places).to_pylist()
        if not self._is_summed:
            prefix = table_prefix(table)
            of: list[Any] = keys.take(places).to_pylist()
            found = [row_term(prefix, key, row).to_bytes(16, "big") for key, row in zip(of, found, strict=True)]
        return np.frombuffer(b"".join(found), dtype=">u4").astype(np.int64).reshape(-1, _LIMBS)

    def _count(
        self, table: str, begins: npt.NDArray[Any], ends: npt.NDArray[Any], terms: npt.NDArray[np.int64]
    ) -> None:
        if table not in self._limbs:
            self._limbs[table] = np.zeros((len(self._points) + 1, _LIMBS), dtype=np.int64)
            self._counts[table] = np.zeros(len(self._points) + 1, dtype=np.int64)
        limbs, counts, width = self._limbs[table], self._counts[table], len(self._points) + 1
        counts += np.bincount(begins, minlength=width) - np.bincount(ends, minlength=width)
        for limb in range(_LIMBS):
            # As floats, which are exact up to 2**53: a batch has far fewer than 2**21 rows of 2**32 each.
            weights = terms[:, limb].astype(np.float64)
            added = np.bincount(begins, weights, width) - np.bincount(ends, weights, width)
            limbs[:, limb] += added.astype(np.int64)

    def _add_sessions(self, keys: list[Any], points: npt.NDArray[Any], rows: list[Any]) -> None:
        for key, point, row in zip(keys, points.tolist(), rows, strict=True):
            if key != self._session:
                self._end_session()
                self._session = key
            self._parts.append((point, row))

    def _end_session(self) -> None:
        """Add the rows that a session had, from point to point."""
        key, parts, self._parts = self._session, self._parts, []
        if key is None or not parts:
            return
        prefix = table_prefix(SESSIONS_TABLE)
        begins, ends, terms = [], [], []
        row: bytes | None = None
        for at, (point, part) in enumerate(parts):
            row = merge_parts([row, part] if row is not None else [part])
            end = parts[at + 1][0] if at + 1 < len(parts) else len(self._points)
            if row is not None and point != end:
                begins.append(point)
                ends.append(end)
                terms.append(row_term(prefix, key, row).to_bytes(16, "big"))
        if begins:
            numbers = np.frombuffer(b"".join(terms), dtype=">u4").astype(np.int64).reshape(-1, _LIMBS)
            self._count(SESSIONS_TABLE, np.array(begins), np.array(ends), numbers)


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
