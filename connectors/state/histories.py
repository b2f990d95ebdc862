"""Follower tables that keep every change (mode append) against the log: each change once, as it was, and no other.

Sums of all changes between two commits are compared, the table's with the log's. Between the first two that differ the
changes themselves are, down to the record. What the log does not have any more is taken as the table has it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.position import TablePosition
from connectors.delta.proof import FollowerEvidence
from connectors.state.bisection import Bisection
from connectors.state.differences import Difference, shown
from connectors.state.fold import change_row
from connectors.state.frame import RangeFrames, changes_of, sum_rows_between
from connectors.state.rows import ROWS_ARROW, ROWS_DDL
from connectors.state.steps import HISTORY
from connectors.state.sums import RowSum, StateSums, row_sum

_CHANGES_COMPARED_MAX = 200_000
"""Records between whose changes are compared one by one."""
_PARTS = 100
_DIFFERENCES_MAX = 10


class HistorySums:
    """Sums over all changes of tables, as the log has them.

    Args:
        steps: (table, revision, digest, count) of every step of kind HISTORY, in any order.

    """

    def __init__(self, steps: Iterable[tuple[str, int, bytes, int]]) -> None:
        by_table: dict[str, list[tuple[int, int, int]]] = {}
        for table, revision, digest, count in steps:
            by_table.setdefault(table, []).append((revision, int.from_bytes(digest, "big"), count))
        # By table: revisions, and the sums up to each of them.
        self._revisions: dict[str, list[int]] = {}
        self._totals: dict[str, list[int]] = {}
        self._counts: dict[str, list[int]] = {}
        for table, found in by_table.items():
            found.sort()
            self._revisions[table] = [revision for revision, _, _ in found]
            self._totals[table] = [0, *accumulate(total for _, total, _ in found)]
            self._counts[table] = [0, *accumulate(count for _, _, count in found)]

    @classmethod
    def of(cls, steps: DataFrame) -> HistorySums:
        """Return the sums of these steps."""
        found = steps.where(F.col("kind") == HISTORY).collect()
        return cls((row.table_name, row.revision, bytes(row.row), row.row_count) for row in found)

    def between(self, table: str, after: int, upto: int) -> RowSum:
        """Return what the changes of records after one and up to another come to; steps must have ended at both."""
        revisions = self._revisions.get(table)
        if revisions is None:
            return row_sum(0, 0)
        first, last = bisect_right(revisions, after), bisect_right(revisions, upto)
        totals, counts = self._totals[table], self._counts[table]
        return row_sum(totals[last] - totals[first], counts[last] - counts[first])


def packed_changes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield changes of the log with the row that a history has of them: [revision, fold, row | nil].

    Args:
        batches: table_name, key, row, revision; a null row = the key is gone.

    """
    for batch in batches:
        table, keys, rows, revisions = (batch.column(name) for name in ROWS_ARROW.names)
        pairs: Iterable[tuple[Any, Any]] = zip(revisions.to_pylist(), rows.to_pylist(), strict=True)
        packed = [change_row(revision, row) for revision, row in pairs]
        yield pa.RecordBatch.from_arrays([table, keys, pa.array(packed, pa.binary()), revisions], schema=ROWS_ARROW)


class HistoryProof:
    """Compares histories with the log.

    Args:
        frames: Of the proof.
        states: What the log's states come to, at every position of these tables.
        sums: What its changes come to, between any two of them.
        bisection: Of the proof: it knows where records are, and compares states.

    """

    def __init__(self, frames: RangeFrames, states: StateSums, sums: HistorySums, bisection: Bisection) -> None:
        self._frames, self._states, self._sums, self._bisection = frames, states, sums, bisection
        self._first = frames.log_range.first_revision - 1

    def of_table(self, evidence: FollowerEvidence, positions: Sequence[tuple[int, TablePosition]]) -> list[Difference]:
        """Compare a table's rows with the log's changes, then its commits with its rows.

        Args:
            evidence: What it says of itself.
            positions: Those of its commits that lie in the range that is proved.

        """
        if not positions:
            return []
        known = positions[-1]
        # Commits behind the last position of ours, by whomever, are looked at with it.
        is_newest = known == evidence.positions[-1]
        version = evidence.newest_version if is_newest else known[0]
        begun = evidence.begun or evidence.positions[0][1]
        low = max(self._first, begun.revision)
        points = [low, *sorted({position.revision for _, position in positions if position.revision > low})]
        rows = self._rows(evidence, version)
        try:
            found = sum_rows_between(rows, points)
        except PySparkException as error:
            what = f"table {evidence.place}"
            return [Difference(what, known[1].revision, f"{what} cannot be read: {error}")]
        differences = self._of_beginning(evidence, version, low, found[0].row_count)
        table = evidence.shape.table
        parts = zip(pairwise(points), found[1:], strict=False)  # What is behind the last one is looked at below.
        wrong = [part for part, there in parts if there != self._sums.between(table, *part)]
        if wrong:
            differences += self._of_changes(evidence, positions, version, wrong[0], is_all=len(wrong) == 1)
        if found[-1].row_count:
            differences.append(self._of_late(evidence, points[-1], found[-1].row_count, version))
        return differences or self._of_claims(evidence, positions, points, found)

    # ---- parts

    def _rows(self, evidence: FollowerEvidence, version: int) -> DataFrame:
        return self._frames.rows_of_table(evidence.place, version, evidence.shape)

    def _of_beginning(self, evidence: FollowerEvidence, version: int, low: int, row_count: int) -> list[Difference]:
        """Compare what the history begins with, a state, with the fold, if that is known and the log reaches it."""
        if evidence.begun is None or evidence.begun.revision != low:
            return []
        if not row_count and not self._states.at(low, evidence.shape.table).row_count:
            return []  # Most begin empty: another pass over all rows would find nothing.
        shape = msgspec.structs.replace(evidence.shape, is_history=False)
        rows = self._frames.rows_of_table(evidence.place, version, shape).where(F.col("revision") <= low)
        what = f"table {evidence.place}"
        found = self._bisection.of_rows(what, low, rows, shape.table, is_claim_right=True)
        return [self._told(one, evidence, version) for one in found]

    def _of_changes(
        self,
        evidence: FollowerEvidence,
        positions: Sequence[tuple[int, TablePosition]],
        newest: int,
        between: tuple[int, int],
        *,
        is_all: bool,
    ) -> list[Difference]:
        """Compare the changes between two commits, in the first version of the table that has them wrong.

        Args:
            evidence: Of the table.
            positions: As `of_table`.
            newest: Version that was found wrong.
            between: Revisions of the commits.
            is_all: Nothing else is wrong, so that what differs here is all that does.

        """
        since = next(version for version, position in positions if position.revision >= between[1])
        known = {*(version for version, _ in positions), *evidence.foreign_versions, newest}
        versions = sorted(version for version in known if since <= version <= newest)
        low, high = 0, len(versions) - 1
        while low < high:
            middle = (low + high) // 2
            if self._is_right(evidence, versions[middle], between):
                low = middle + 1
            else:
                high = middle
        version = versions[low]
        after, upto = self._narrowed(evidence, version, between)
        rows = self._rows(evidence, version).where((F.col("revision") > after) & (F.col("revision") <= upto))
        found = rows.groupBy("key", "revision").agg(F.min("row").alias("found"), F.count("*").alias("row_count"))
        logged = self._steps(after, upto, range(after + 1, upto + 1), is_summed=False)
        logged = changes_of(logged.where(F.col("table_name") == evidence.shape.table))
        logged = logged.mapInArrow(packed_changes, ROWS_DDL)
        both = logged.join(found, ["key", "revision"], "full_outer")
        both = both.where("NOT (row <=> found) OR row_count > 1").persist()
        try:
            count = both.count() if is_all and (after, upto) == between else 0
            wrong = both.orderBy("revision", "key").limit(_DIFFERENCES_MAX).collect()
        finally:
            both.unpersist()
        return [self._told(self._difference(evidence, row.asDict(), upto, count), evidence, version) for row in wrong]

    def _is_right(self, evidence: FollowerEvidence, version: int, between: tuple[int, int]) -> bool:
        found = sum_rows_between(self._rows(evidence, version), between)[1]
        return found == self._sums.between(evidence.shape.table, *between)

    def _narrowed(self, evidence: FollowerEvidence, version: int, between: tuple[int, int]) -> tuple[int, int]:
        """Return a part of the changes, few enough to look at each, that is wrong."""
        after, upto = between
        rows, table = self._rows(evidence, version), evidence.shape.table
        while upto - after > _CHANGES_COMPARED_MAX:
            points = [*range(after, upto, max(1, (upto - after) // _PARTS)), upto]
            sums = HistorySums.of(self._steps(after, upto, points, is_summed=True, histories=frozenset({table})))
            found = sum_rows_between(rows, points)[1:]
            parts = zip(pairwise(points), found, strict=False)
            after, upto = next(part for part, there in parts if there != sums.between(table, *part))
        return after, upto

    def _steps(self, after: int, upto: int, cuts: Sequence[int], **more: Any) -> DataFrame:
        """Return the steps of the records after one and up to another."""
        frames, begin = self._bisection.frames_at(upto), self._bisection.place(after + 1)
        log_range = msgspec.structs.replace(frames.log_range, base=None, first=begin, first_revision=after + 1)
        return self._frames.with_log_range(log_range).steps(cuts=cuts, **more)

    def _difference(self, evidence: FollowerEvidence, row: Mapping[str, Any], at: int, count: int) -> Difference:
        record = int(row["revision"])
        ledger, entry = self._bisection.place(record)
        table, key, what = evidence.shape.table, shown(bytes(row["key"])) or "", f"table {evidence.place}"
        in_log, found = (None if row[name] is None else _change(bytes(row[name])) for name in ("row", "found"))
        if row["row_count"] and row["row_count"] > 1:
            found = f"{row['row_count']} rows, such as {found}"
        return Difference(
            what,
            at,
            f"{what}: of record {record} (ledger {ledger}, entry {entry}), table {table}, key {key}, the log has "
            f"{in_log or 'no change'}, found is {found or 'none'}",
            table=table,
            key=key,
            in_log=in_log,
            found=found,
            record=record,
            ledger=ledger,
            entry=entry,
            row_count=count,
        )

    def _of_late(self, evidence: FollowerEvidence, revision: int, count: int, version: int) -> Difference:
        what = f"table {evidence.place}"
        text = f"{what}: it ends with record {revision}, as its last commit says, and has {count} rows of later ones"
        return self._told(Difference(what, revision, text, row_count=count), evidence, version)

    def _of_claims(
        self,
        evidence: FollowerEvidence,
        positions: Sequence[tuple[int, TablePosition]],
        points: Sequence[int],
        found: Sequence[RowSum],
    ) -> list[Difference]:
        """Compare what the commits claim with the rows, which are right."""
        what, low = f"table {evidence.place}", points[0]
        begin = found[0]
        for version, position in positions:
            if position.revision < low:
                continue
            more = self._sums.between(evidence.shape.table, low, position.revision)
            right = row_sum(int(begin.digest, 16) + int(more.digest, 16), begin.row_count + more.row_count)
            if right != RowSum(position.digest, position.row_count):
                text = (
                    f"{what}: its commit of revision {position.revision} claims digest {position.digest}, "
                    f"{position.row_count} rows; its rows come to {right.digest}, {right.row_count} rows"
                )
                return [Difference(what, position.revision, text, version=version)]
        return []

    @staticmethod
    def _told(one: Difference, evidence: FollowerEvidence, version: int) -> Difference:
        foreign = [at for at in evidence.foreign_versions if at <= version]
        told = f" (in version {version} of the table"
        told += f"; version {foreign[-1]} was not written by a materializer)" if foreign else ")"
        return msgspec.structs.replace(one, text=one.text + told, version=version)


def _change(packed: bytes) -> str:
    """Return a change as a person reads it."""
    _, fold, row = msgspec.msgpack.decode(packed)
    return str(fold) if row is None else f"{fold} {shown(row)}"
