"""From a digest that differs to the entry: which state is the first wrong one, which row, which record wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.position import TablePosition
from connectors.delta.proof import FollowerEvidence
from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.look import LogLook
from connectors.source.plan import locate_revision
from connectors.state.as_of import AsOf, AsOfKind, find_range
from connectors.state.differences import Difference, Version, compare_rows, explain_digest, shown
from connectors.state.frame import RangeFrames, changes_of, sum_rows
from connectors.state.sums import RowSum, StateSums
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import SnapshotError

_CHANGES_TRIED_MAX = 200_000


class Bisection:
    """Finds where differences come from.

    Args:
        frames: Of the proof.
        look: At the log.
        sums: Digests that the fold came to.
        steps: Of the proof, summed.

    """

    def __init__(self, frames: RangeFrames, look: LogLook, sums: StateSums, steps: DataFrame) -> None:
        self._frames, self._look, self._sums, self._steps = frames, look, sums, steps
        self._view = look.look()

    def place(self, revision: int) -> tuple[int, int]:
        """Return ledger and entry of a record; (-1, -1) if the log does not have it any more."""
        try:
            at = locate_revision(self._view, revision, self._look.last_revision_at)
        except (StartGoneError, SparkOffsetError):
            return -1, -1
        return at.ledger_id, at.entry_id

    def of_checkpoints(self, checkpoints: Sequence[tuple[int, RowSum]]) -> list[Difference]:
        """Return the first checkpoint that differs, with the record that explains it if one does."""
        wrong = [(at, said) for at, said in checkpoints if self._sums.at(at) != said]
        if not wrong:
            return []
        revision, said = wrong[0]
        before = max((at for at, _ in checkpoints if at < revision), default=self._frames.log_range.first_revision - 1)
        found = self._sums.at(revision)
        text = (
            f"checkpoint of revision {revision}: the leader logged digest {said.digest}, {said.row_count} rows; the "
            f"log comes to {found.digest}, {found.row_count} rows ({len(wrong)} of {len(checkpoints)} checkpoints "
            f"differ); the last state that agrees is that of revision {before}"
        )
        guilty = self._explain(before, revision, said, found)
        if guilty is None:
            first, last = self.place(before + 1), self.place(revision)
            return [
                Difference(
                    "checkpoint",
                    revision,
                    f"{text}: what the leader has instead no single record explains, it is one of the records "
                    f"{before + 1} (ledger {first[0]}, entry {first[1]}) to {revision} (ledger {last[0]}, entry "
                    f"{last[1]}); a snapshot of that state shows the rows",
                    ledger=last[0],
                    entry=last[1],
                )
            ]
        ledger, entry = self.place(guilty.revision)
        key = shown(guilty.key)
        return [
            Difference(
                "checkpoint",
                revision,
                f"{text}: it comes out if the leader did not apply record {guilty.revision} (ledger {ledger}, entry "
                f"{entry}) to table {guilty.table}, key {key}",
                table=guilty.table,
                key=key or "",
                in_log=self._row_at(guilty),
                record=guilty.revision,
                ledger=ledger,
                entry=entry,
            )
        ]

    def _row_at(self, version: Version) -> str | None:
        state = self.frames_at(version.revision).state()
        row = state.where((F.col("table_name") == version.table) & (F.col("key") == F.lit(version.key))).first()
        return None if row is None else shown(bytes(row.row))

    def _explain(self, before: int, revision: int, said: RowSum, found: RowSum) -> Version | None:
        """Try each change of (before, revision]."""
        if not 0 < revision - before <= _CHANGES_TRIED_MAX:
            return None
        at = self.frames_at(revision)
        begin = self.place(before + 1)
        log_range = msgspec.structs.replace(at.log_range, base=None, first=begin, first_revision=before + 1)
        each = self._frames.with_log_range(log_range).steps(cuts=range(before + 1, revision + 1), is_summed=True)
        fresh = changes_of(each.where(F.col("table_name") != SESSIONS_TABLE)).persist()
        try:
            changes = _versions(fresh)
            old = changes_of(self._steps).where(F.col("revision") <= before)
            old = old.join(fresh.select("table_name", "key").distinct(), ["table_name", "key"], "left_semi")
            last = old.groupBy("table_name", "key").agg(F.max_by(F.struct("revision", "row"), "revision").alias("last"))
            kept = _versions(last.select("table_name", "key", "last.revision", "last.row"))
        finally:
            fresh.unpersist()
        sums = [(int(one.digest, 16), one.row_count) for one in (said, found)]
        return explain_digest(sums[0], sums[1], kept, changes)

    def frames_at(self, revision: int) -> RangeFrames:
        """Return the frames of a state of the range that is proved."""
        point = AsOf(AsOfKind.REVISION, revision=revision)
        base = self._frames.log_range.base
        log_range = find_range(self._look, self._frames.log_range.log, point, [base] if base else [], from_oldest=True)
        return self._frames.with_log_range(log_range)

    def of_rows(
        self, what: str, revision: int, found: DataFrame, table: str | None, is_claim_right: bool
    ) -> list[Difference]:
        """Compare rows with the fold: by their digest, and key by key if it differs."""
        expected = self._sums.at(revision, table)
        try:
            is_same = sum_rows(found) == expected
        except PySparkException as error:
            return [Difference(what, revision, f"{what} cannot be read: {error}")]
        if is_same:
            if is_claim_right:
                return []
            text = f"{what}: its rows are what the log comes to, but it claims another digest or place for them"
            return [Difference(what, revision, text)]
        state = self.frames_at(revision).state(with_gone=True)
        if table is not None:
            state = state.where(F.col("table_name") == table)
        return compare_rows(state, found, what=what, revision=revision, place=self.place)

    def of_table(
        self, evidence: FollowerEvidence, positions: Sequence[tuple[int, TablePosition]], wrong: set[int]
    ) -> list[Difference]:
        """Compare a table's newest rows (mode merge); if they differ, find the first version that does."""
        if not positions:
            return []
        what = f"table {evidence.place}"
        known = positions[-1][1]
        # Commits behind the last position of ours, by whomever, are looked at with it.
        versions = [(version, position) for version, position in positions[:-1]]
        is_newest = known == evidence.positions[-1][1]
        versions.append((evidence.newest_version if is_newest else positions[-1][0], known))
        if self._is_right(evidence, versions[-1]):
            return [
                Difference(
                    what, at, f"{what}: its commit of revision {at} claims a digest that the log does not come to"
                )
                for at in sorted(wrong)[:1]
            ]
        low, high, unread = 0, len(versions) - 1, -1
        while low < high:
            middle = (low + high) // 2
            try:
                is_right = self._is_right(evidence, versions[middle])
            except (PySparkException, SnapshotError):
                # VACUUM takes the files of the oldest versions: what is known lies behind.
                is_right, unread = True, middle
            if is_right:
                low = middle + 1
            else:
                high = middle
        version, position = versions[low]
        found = self._rows_of(evidence, version)
        differences = self.of_rows(what, position.revision, found, position.table, is_claim_right=True)
        foreign = [one for one in evidence.foreign_versions if one <= version]
        told = f" (version {version} of the table is the first that differs"
        if unread == low - 1 and unread >= 0:
            lost, before = versions[unread]
            told = (
                f" (version {version} of the table differs; version {lost}, of revision {before.revision}, cannot be "
                "read, as VACUUM leaves it: the first that differs may be that one or an older one"
            )
        told += f"; version {foreign[-1]} was not written by a materializer)" if foreign else ")"
        return [msgspec.structs.replace(one, text=one.text + told, version=version) for one in differences]

    def _is_right(self, evidence: FollowerEvidence, at: tuple[int, TablePosition]) -> bool:
        version, position = at
        return sum_rows(self._rows_of(evidence, version)) == self._sums.at(position.revision, position.table)

    def _rows_of(self, evidence: FollowerEvidence, version: int) -> DataFrame:
        return self._frames.rows_of_table(evidence.place, version, evidence.shape)


def _versions(changes: DataFrame) -> list[Version]:
    rows = changes.select("table_name", "key", "revision", "row").orderBy("revision").collect()
    return [
        Version(row.table_name, bytes(row.key), row.revision, 0 if row.row is None else int.from_bytes(row.row, "big"))
        for row in rows
    ]
