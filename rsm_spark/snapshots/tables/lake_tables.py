"""The typed Delta tables of a log's state: each described table, one version a revision at which it has changed.

    LAKE/LOG/_tables/NAME         the table; a commit's `userMetadata` says log, revision, place, prefix hash, digest
    LAKE/LOG/_tables/_revisions   which version of which table is the state at which revision

Tables are written one after the other, the table of revisions last: what it names is whole, of one revision, and on the
disk. What a writer that was killed has left is not named; the next one writes those tables again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby

from deltalake import Transaction
from deltalake.exceptions import DeltaError

from rsm_spark.core.machine import Row
from rsm_spark.core.row_tables import RowTable, RowTables
from rsm_spark.errors import SnapshotError, UnfitTableError
from rsm_spark.object_stores.storage_options import shown_uri
from rsm_spark.snapshots.checks import KEEP_MIN
from rsm_spark.snapshots.commit_words import commit_words, table_words
from rsm_spark.snapshots.lake_files import lake_complaint
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import Pace
from rsm_spark.snapshots.tables.census import TableCount, TableStep, count_tables, shown_digest
from rsm_spark.snapshots.tables.naming import table_folder
from rsm_spark.snapshots.tables.revisions import Revisions, TableVersion, kept_rows, moment, newest_of
from rsm_spark.snapshots.tables.typed_table import VersionedTable, columns_hash

_TABLES_MAX = 1_000
_APPENDS_MAX = 32
"""So often rows are only added to a table; then it is written anew, in few files."""

_LOGGER = logging.getLogger(__name__)


class LakeTables:
    """Typed tables of one log. All calls block.

    Args:
        place: Where they lie, see `naming.tables_place`.
        storage_options: For `deltalake`.
        retention_hours: Versions that are older may go, but for those of the newest revisions.
        pace: Called between small steps of long work, so that the event loop of the process is not held up.

    """

    def __init__(
        self,
        place: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        retention_hours: int = 24,
        pace: Callable[[], Callable[[], None]] = Pace,
    ) -> None:
        self.place = place
        self._options = storage_options
        self._retention_hours = retention_hours
        self._pace = pace
        self._revisions = Revisions(place, storage_options)

    def versions(self) -> list[TableVersion]:
        """Return what can be read, newest revision first, then by table.

        Raises:
            SnapshotError: The lake cannot be read.

        """
        return self._revisions.read()

    def newest_revision(self) -> int:
        """Return the revision that the tables are of; -1 = there are none."""
        return max((one.revision for one in self.versions()), default=-1)

    def write(
        self, manifest: SnapshotManifest, rows: Callable[[], Iterable[Row]], tables: RowTables
    ) -> list[TableVersion]:
        """Make the tables those of a snapshot; see `TableStore`.

        A table that is as it was keeps its version. One that cannot be written is told in its row of `_revisions`.
        """
        known = self._revisions.read()
        last = newest_of(known)
        other = next((one for one in last if one.log_id != manifest.log_id), None)
        if other is not None:
            raise SnapshotError(
                f"{shown_uri(self.place)}: these are tables of log {other.log} with id {other.log_id}, not of "
                f"{manifest.log_name} with id {manifest.log_id}: choose another place"
            )
        if last and last[0].revision >= manifest.revision:
            return last if last[0].revision == manifest.revision else []
        pace = self._pace()
        before = {one.table: one for one in last}
        counts = count_tables(rows(), tables, {one.table: one.revision for one in last}, pace)
        if len(counts) > _TABLES_MAX:
            raise SnapshotError(
                f"{shown_uri(self.place)}: log {manifest.log_name} has {len(counts):,} tables: typed tables are kept "
                f"of {_TABLES_MAX:,} at most"
            )
        writing = _Writing(self, manifest, tables, before, counts, pace)
        written = writing.write(rows)
        stay = kept_rows(
            [*written, *known],
            keep=KEEP_MIN,
            since=moment(manifest.created_ms) - timedelta(hours=self._retention_hours),
        )
        try:
            described = table_words("versions of the tables", manifest.log_name, manifest.log_id)
            self._revisions.write(stay, writing.user_metadata(""), writing.transaction, described)
        except (DeltaError, OSError) as error:
            said = lake_complaint(self.place, error, self._options)
            raise SnapshotError(f"{shown_uri(self.place)}: _revisions cannot be written: {said}") from None
        self._let_go(known, stay, {one.path for one in written})
        return written

    def at(self, path: str) -> VersionedTable:
        """Return the table in a folder."""
        return VersionedTable(f"{self.place}/{path}", self._options)

    def _let_go(self, known: list[TableVersion], stay: list[TableVersion], present: set[str]) -> None:
        """Remove what `_revisions` names no more; a failure only leaves it."""
        kept: dict[str, set[int]] = {}
        for one in stay:
            kept.setdefault(one.path, set()).add(one.version)
        gone = sorted({one.path for one in known if one.version not in kept.get(one.path, set())})
        try:
            for path in gone:
                if path in kept or path in present:
                    self.at(path).let_go(
                        (version for version in kept.get(path, ()) if version >= 0), self._retention_hours
                    )
                else:
                    self.at(path).remove()
            if len(stay) < len(known):
                self._revisions.let_go(self._retention_hours)
        except SnapshotError as error:
            _LOGGER.warning("%s", error)


class _Writing:
    """One revision on its way into the lake."""

    def __init__(
        self,
        lake: LakeTables,
        manifest: SnapshotManifest,
        tables: RowTables,
        before: Mapping[str, TableVersion],
        counts: Mapping[str, TableCount],
        pace: Callable[[], None],
    ) -> None:
        self._lake = lake
        self._manifest = manifest
        self._tables = tables
        self._before = before
        self._counts = counts
        self._pace = pace
        # Delta refuses a commit on top of one of the same name that the writer has not seen.
        self.transaction = Transaction(f"rsm-tables-{manifest.log_id}", manifest.revision)

    def user_metadata(self, table: str, **more: object) -> str:
        """Return what a commit says of itself, as JSON."""
        manifest = self._manifest
        return commit_words(
            log=manifest.log_name, log_id=manifest.log_id, revision=manifest.revision, ledger_id=manifest.ledger_id,
            entry_id=manifest.entry_id, prefix_hash=manifest.prefix_hash, table=table, state_digest=manifest.digest,
            **more,
        )  # fmt: skip

    def write(self, rows: Callable[[], Iterable[Row]]) -> list[TableVersion]:
        """Write all tables that have changed; return all."""
        typed = self._tables.tables()
        plans = {name: self._work(table) for name, table in typed.items()}
        written: dict[str, TableVersion] = {
            name: self._kept(typed[name]) for name, work in plans.items() if work is TableStep.NOTHING
        }
        if len(written) < len(plans):
            for name, members in groupby(self._paced(rows()), self._tables.name_of):
                if name is None or plans[name] is TableStep.NOTHING:
                    continue
                if name in written:
                    raise SnapshotError(f"rows of table {name} do not stand one behind the other in the snapshot")
                written[name] = self._write(typed[name], plans[name], members)
        for name in sorted(plans.keys() - written.keys()):  # Those without rows.
            written[name] = self._write(typed[name], plans[name], ())
        for name in sorted(self._before.keys() - typed.keys()):
            self._lake.at(self._before[name].path).empty(self.user_metadata(name, gone=True), self.transaction)
        return [written[name] for name in sorted(written)]

    def _paced(self, rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if number % 64 == 0:
                self._pace()
            yield row

    def _work(self, table: RowTable) -> TableStep:
        before = self._before.get(table.name)
        if before is None or before.version < 0 or before.columns != columns_hash(table):
            return TableStep.REPLACE
        work = self._counts[table.name].work(before.rows, before.digest, has_revisions=table.has_revisions)
        is_many = work is TableStep.APPEND and before.appends >= _APPENDS_MAX
        if is_many or work is TableStep.REPLACE or not self._lake.at(before.path).is_at(before.version):
            return TableStep.REPLACE
        return work

    def _write(self, table: RowTable, work: TableStep, rows: Iterable[Row]) -> TableVersion:
        count, before = self._counts[table.name], self._before.get(table.name)
        place = self._lake.at(table_folder(table.name))
        described = table_words(f"table {table.name}", self._manifest.log_name, self._manifest.log_id)
        said = self.user_metadata(table.name, digest=shown_digest(count.digest), rows=count.rows)
        base: int | None = None
        try:
            if work is TableStep.APPEND and before is not None:
                rows, base = (row for row in rows if row.revision > count.since), before.version
            version = place.write(
                table, rows, said, self.transaction, base=base, pace=self._pace, description=described
            )
        except UnfitTableError as error:
            _LOGGER.warning("table %s cannot be a table in the lake: %s", table.name, error)
            return self._row(table, -1, 0, problem=str(error))
        return self._row(table, version, 0 if before is None or base is None else before.appends + 1)

    def _kept(self, table: RowTable) -> TableVersion:
        before = self._before[table.name]
        return self._row(table, before.version, before.appends)

    def _row(self, table: RowTable, version: int, appends: int, problem: str = "") -> TableVersion:
        manifest, count = self._manifest, self._counts[table.name]
        return TableVersion(
            table=table.name,
            path=table_folder(table.name),
            version=version,
            revision=manifest.revision,
            ledger_id=manifest.ledger_id,
            entry_id=manifest.entry_id,
            prefix_hash=manifest.prefix_hash,
            digest=shown_digest(count.digest),
            rows=count.rows,
            columns=columns_hash(table),
            appends=appends,
            logged_at=moment(manifest.logged_ms),
            written_at=moment(manifest.created_ms),
            log=manifest.log_name,
            log_id=manifest.log_id,
            problem=problem,
        )
