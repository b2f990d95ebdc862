"""Snapshots in the lake: one Delta table per log, one version of it per snapshot, written and read without a JVM.

A snapshot replaces the table's rows in one commit, whose metadata hold the manifest under `rsm_snapshot`: rows and
manifest appear together or not at all. Older snapshots are older versions of the table, read by time travel as long
as nobody has vacuumed their files; those are then found missing, reported as damaged and not used. Spark reads the
newest one as an ordinary table.
"""

# Longer than 400 lines: one table, and one rule for what of it is whole, damaged or refused by its store.

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from rsm_spark.core.machine import Row
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.object_stores.complaints import is_refusal
from rsm_spark.object_stores.storage_options import is_s3, shown_uri
from rsm_spark.snapshots.checks import KEEP_MIN, RowCheck
from rsm_spark.snapshots.columns import ROW_SCHEMA, rows_of_batch, steps_of
from rsm_spark.snapshots.commit_words import USER_METADATA, commit_words, table_words
from rsm_spark.snapshots.delta_sync import sync_commit
from rsm_spark.snapshots.lake_files import LakeFile, add_lake_files, files_of_version, read_lake_file
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest, decode_manifest, encode_manifest
from rsm_spark.snapshots.pace import Pace
from rsm_spark.snapshots.table_commits import TableCommits
from rsm_spark.snapshots.table_files import add_table_files, opened_table, write_table_files
from rsm_spark.snapshots.tables.lake_tables import LakeTables
from rsm_spark.snapshots.tables.naming import tables_place

MANIFEST_KEY = "rsm_snapshot"
"""Key of the manifest in the commit metadata."""

_TABLE_PROPERTIES = {"delta.logRetentionDuration": "interval 3650 days"}
"""Set when the table is made: the manifests are in the commits, whose clearing away is ours to decide."""
_COMMITS_MAX = 256
"""Newest commits that are looked at for snapshots; older ones only before files are let go."""

_LOGGER = logging.getLogger(__name__)


def lake_place(lake: str, log_name: str) -> str:
    """Return where the snapshots of a log lie in a lake.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log_name: Of the log.

    """
    return f"{lake.rstrip('/')}/{log_name}"


class LakeSnapshots:
    """Snapshots of one log in one Delta table; implements `SnapshotStore`.

    Args:
        place: Path or URI of the Delta table, see `lake_place`.
        storage_options: For `deltalake`, for object stores, beside what it takes from the environment (`AWS_…`, …).
        keep: Snapshots to keep, at least `KEEP_MIN`; those that are verified are kept whatever newer ones come.
        retention_hours: Files of older ones are kept that long for those who still read them.
        pace: Called between small steps of long work, so that the event loop of the process is not held up.

    Raises:
        SnapshotError: `keep` is below `KEEP_MIN`.

    """

    def __init__(
        self,
        place: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        keep: int = KEEP_MIN,
        retention_hours: int = 24,
        pace: Callable[[], Callable[[], None]] = Pace,
    ) -> None:
        if keep < KEEP_MIN:
            raise SnapshotError(f"{place}: asked to keep {keep} snapshots: keep at least {KEEP_MIN}")
        self._storage_options = dict(storage_options) if storage_options else None
        self._at(place)
        self._keep = keep
        self._retention_hours = retention_hours
        self._pace = pace
        # Snapshots that turned out wrong when they were read, by version and revision: a version that was torn, and
        # set aside, is used again.
        self._unreadable: dict[tuple[int, int], SnapshotDamage] = {}
        # By version, as found at the last look.
        self._damaged: dict[int, SnapshotDamage] = {}
        self._protected: frozenset[int] = frozenset()

    def _at(self, place: str) -> None:
        self._place = place
        self._shown = shown_uri(place)
        self._commits = TableCommits(place, self._storage_options)

    @property
    def place(self) -> str:
        """Path or URI of the Delta table."""
        return self._place

    @property
    def tables(self) -> LakeTables:
        """The typed tables beside the snapshots."""
        return LakeTables(
            tables_place(self._place),
            storage_options=self._storage_options,
            retention_hours=self._retention_hours,
            pace=self._pace,
        )

    def follow(self, log_id: str, former_names: Sequence[str]) -> None:
        """Go on where the newest snapshot of a log lies: below its name, or below one that it had; see `LakeStore`."""
        lake = self._place.rpartition("/")[0]
        newest, chosen = -1, self._place
        for place in (self._place, *(lake_place(lake, name) for name in former_names)):
            found = LakeSnapshots(place, storage_options=self._storage_options).manifests()
            revision = max((one.revision for one in found if one.log_id == log_id), default=-1)
            if revision > newest:
                newest, chosen = revision, place
        if chosen != self._place:
            _LOGGER.info("the snapshots of the log lie where its former name says", extra={"place": shown_uri(chosen)})
            self._at(chosen)

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Write a snapshot; see `SnapshotStore`. One that is there already is left as it is."""
        check, pace = RowCheck(), self._pace()

        def _batches() -> Iterator[pa.RecordBatch]:
            for step in steps_of(check.passing(rows)):
                yield _batch_of(step)
                pace()

        return self._write(manifest, _batches(), check)

    def write_files(self, manifest: SnapshotManifest, write: Callable[[], Sequence[LakeFile]]) -> SnapshotManifest:
        """Write a snapshot whose files others write, on many machines at once.

        Args:
            manifest: What the rows of the files come to; who writes them has checked that.
            write: Writes the files (`lake_files.write_lake_file`); called unless the same snapshot is there already.

        Raises:
            SnapshotError: It could not be written, or the table holds snapshots of another log.

        """
        whole = msgspec.structs.replace(manifest, files=())
        present = self._present(whole)
        if present is not None:
            return present
        files = write()
        try:
            self._commits.set_torn_aside()
            add_lake_files(
                self._place,
                files,
                properties=_commit_of(whole),
                description=_described(whole),
                configuration=_TABLE_PROPERTIES,
                storage_options=self._storage_options,
            )
            self._conclude(whole)
        except (DeltaError, OSError) as error:
            raise SnapshotError(
                f"{self._shown}: snapshot at revision {whole.revision} cannot be written: {self._commits.said(error)}"
            ) from None
        return whole

    def files(self, manifest: SnapshotManifest) -> list[LakeFile]:
        """Return the files of a snapshot.

        Raises:
            CorruptSnapshotError: No version holds it.
            SnapshotError: They cannot be listed.

        """
        return files_of_version(self._place, self._version_of(manifest), self._storage_options)

    def _version_of(self, manifest: SnapshotManifest) -> int:
        version = next((version for version, known in self._versions() if known == manifest), None)
        if version is None:
            raise CorruptSnapshotError(f"{self._shown}: no version holds the snapshot at revision {manifest.revision}")
        return version

    def _conclude(self, manifest: SnapshotManifest) -> None:
        """See that what was written lasts, and let go of what is older."""
        # Others may have committed on top: the newest version that holds this snapshot is the one just made.
        sync_commit(self._place, self._version_of(manifest))
        self._prune()
        self._commits.sweep(self._retention_hours * 3600)

    def _write(
        self, manifest: SnapshotManifest, batches: Iterator[pa.RecordBatch], check: RowCheck
    ) -> SnapshotManifest:
        whole = msgspec.structs.replace(manifest, files=())
        present = self._present(whole)
        if present is not None:
            return present
        # The check ends the stream with an error before Delta commits anything.
        failure: list[SnapshotError] = []
        try:
            self._commits.set_torn_aside()
            files = write_table_files(
                self._place, ROW_SCHEMA, self._checked(whole, batches, check, failure), self._storage_options
            )
            add_table_files(
                self._place,
                opened_table(self._place, self._storage_options),
                files,
                ROW_SCHEMA,
                mode="overwrite",
                properties=_commit_of(whole),
                description=_described(whole),
                configuration=_TABLE_PROPERTIES,
                storage_options=self._storage_options,
            )
            self._conclude(whole)
        except SnapshotError:
            raise
        except Exception as error:  # noqa: BLE001  # the engine wraps what a stream raises into errors of its own
            if failure:
                raise failure[0] from None
            raise SnapshotError(
                f"{self._shown}: snapshot at revision {whole.revision} cannot be written: {self._commits.said(error)}"
            ) from None
        return whole

    def _present(self, manifest: SnapshotManifest) -> SnapshotManifest | None:
        """Return the same snapshot if it is there, and not damaged.

        Raises:
            SnapshotError: The table holds snapshots of another log.

        """
        found = None
        for version, known in self._versions():
            if known.log_id != manifest.log_id:
                raise SnapshotError(
                    f"{self._shown}: this table holds snapshots of log {known.log_name} with id {known.log_id}, not of "
                    f"{manifest.log_name} with id {manifest.log_id}: choose another place"
                )
            is_same = (known.revision, known.prefix_hash) == (manifest.revision, manifest.prefix_hash)
            if is_same and version not in self._damaged:
                found = found or known
        return found

    def _checked(
        self,
        manifest: SnapshotManifest,
        batches: Iterator[pa.RecordBatch],
        check: RowCheck,
        failure: list[SnapshotError],
    ) -> Iterator[pa.RecordBatch]:
        yield from batches
        difference = check.difference(manifest)
        if difference is not None:
            failure.append(SnapshotError(f"{self._shown}: the state to be written has {difference}"))
            raise failure[0]

    def _prune(self) -> None:
        """Let go of the files of old snapshots; a failure only leaves more of them."""
        whole = [(version, manifest) for version, manifest in self._versions(None) if version not in self._damaged]
        kept = [
            version
            for number, (version, manifest) in enumerate(sorted(whole, key=lambda one: -one[1].revision))
            if number < self._keep or manifest.revision in self._protected
        ]
        if len(kept) == len(whole):
            return
        try:
            DeltaTable(self._place, storage_options=self._storage_options).vacuum(
                retention_hours=self._retention_hours,
                dry_run=False,
                enforce_retention_duration=False,
                keep_versions=kept,
            )
        except Exception as error:  # noqa: BLE001  # whatever the engine raises: the snapshot is written
            _LOGGER.warning(
                "old snapshots in the lake cannot be removed: %s",
                self._commits.said(error),
                extra={"place": self._shown},
            )

    def manifests(self) -> list[SnapshotManifest]:
        """Return the snapshots, newest revision first; see `SnapshotStore`. Their rows are checked when read."""
        return [manifest for _, manifest in self.whole_versions()]

    def whole_versions(self) -> list[tuple[int, SnapshotManifest]]:
        """Return the whole snapshots with the table versions that hold them, newest revision first."""
        found = [(version, manifest) for version, manifest in self._versions() if version not in self._damaged]
        return sorted(found, key=lambda one: one[1].revision, reverse=True)

    def remove(self, log_id: str) -> None:
        """Remove the whole table if it holds snapshots of this log alone; see `LakeStore`."""
        if {manifest.log_id for _, manifest in self._versions(None)} != {log_id}:
            return
        self._commits.remove()

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged so far."""
        self._versions()
        return [self._damaged[version] for version in sorted(self._damaged, reverse=True)]

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions when `prune` removes old ones."""
        self._protected = revisions

    def protected_manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots that are protected; see `SnapshotStore`."""
        return [manifest for manifest in self.manifests() if manifest.revision in self._protected]

    def condemn(self, manifest: SnapshotManifest, reason: str) -> None:
        """Note that the rows of a snapshot are wrong; it stays where it is."""
        for version, known in self._versions():
            if known == manifest:
                damage = SnapshotDamage(f"{self._shown} version {version}", reason)
                self._unreadable[version, manifest.revision] = damage

    def read(self, manifest: SnapshotManifest, *, is_summed: bool = True) -> Iterator[Row]:
        """Iterate over a snapshot's rows; see `SnapshotStore`. Holds a few batches at a time."""
        version = self._version_of(manifest)
        check, pace = RowCheck(), self._pace()
        difference: str | None = None
        try:
            rows = self._rows(version)
            if is_summed:
                for step in steps_of(check.passing(rows)):
                    yield from step
                    pace()
                difference = check.difference(manifest)
            else:
                yield from rows
        except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
            if self._commits.folder is None and is_refusal(error):  # It may be right all the same.
                raise SnapshotError(
                    f"{self._shown} version {version}: it cannot be read: {self._commits.said(error)}"
                ) from None
            difference = f"files that cannot be read: {self._commits.said(error)}"
        except CorruptSnapshotError as error:
            difference = f"files that cannot be read: {error}"
        if difference is not None:
            self._unreadable[version, manifest.revision] = SnapshotDamage(
                f"{self._shown} version {version}", f"has {difference}"
            )
            raise CorruptSnapshotError(f"{self._shown} version {version}: snapshot has {difference}")

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Read every row of a snapshot again; return the damage, if there is any."""
        try:
            for _ in self.read(manifest):
                pass
        except CorruptSnapshotError as error:
            return SnapshotDamage(self._shown, str(error))
        return None

    def _rows(self, version: int) -> Iterator[Row]:
        if self._commits.folder is None and not is_s3(self._place):
            # What a store refuses is told by a scan at once; a file that is opened by itself is asked for again.
            yield from self._scanned(version)
            return
        # Not a scan, which holds many thousand rows at a time and has files in no order: SQL tables want their catalog
        # first.
        for file in files_of_version(self._place, version, self._storage_options):
            for batch in read_lake_file(self._place, file, ROW_SCHEMA.names, self._storage_options):
                yield from rows_of_batch(batch)

    def _scanned(self, version: int) -> Iterator[Row]:
        handle = DeltaTable(self._place, version=version, storage_options=self._storage_options)
        reader = pa.RecordBatchReader.from_stream(handle.scan(columns=ROW_SCHEMA.names))
        schema = pa.schema([field.with_nullable(nullable=True) for field in ROW_SCHEMA])
        for found in reader:
            for batch in pa.Table.from_batches([found]).select(ROW_SCHEMA.names).cast(schema).to_batches():
                yield from rows_of_batch(batch)

    def _versions(self, limit: int | None = _COMMITS_MAX) -> list[tuple[int, SnapshotManifest]]:
        """Return the snapshots of the newest commits with the table versions that hold them, newest version first.

        Raises:
            SnapshotError: The lake cannot be read.

        """
        found: list[tuple[int, SnapshotManifest]] = []
        known, self._damaged = self._damaged, {}
        for commit in self._commits.newest(limit):
            place = f"{self._shown} version {commit.version}"
            if commit.details is None:
                self._note_damage(commit.version, place, "its commit is torn")
                continue
            text = commit.details.get(MANIFEST_KEY)
            if text is None:
                continue  # Maintenance by others: the rows are those of the version before.
            try:
                manifest = decode_manifest(text.encode(), place=place)
            except CorruptSnapshotError as error:
                self._note_damage(commit.version, place, str(error))
                continue
            if commit.missing and len(found) >= self._keep and manifest.revision not in self._protected:
                continue  # Its files were let go.
            if commit.missing:
                self._note_damage(commit.version, place, f"files are missing or cut: {', '.join(commit.missing)}")
            unreadable = self._unreadable.get((commit.version, manifest.revision))
            if unreadable is not None:
                self._damaged[commit.version] = unreadable
            found.append((commit.version, manifest))
        for version in sorted(self._damaged.keys() - known.keys()):
            _LOGGER.warning("a snapshot in the lake will not be used: %s", self._damaged[version].reason)
        return found

    def _note_damage(self, version: int, place: str, reason: str) -> None:
        self._damaged[version] = SnapshotDamage(place, reason)


def _described(manifest: SnapshotManifest) -> str:
    return table_words("snapshots", manifest.log_name, manifest.log_id)


def _commit_of(manifest: SnapshotManifest) -> CommitProperties:
    return CommitProperties(
        custom_metadata={
            MANIFEST_KEY: encode_manifest(manifest).decode(),
            USER_METADATA: commit_words(
                log=manifest.log_name,
                log_id=manifest.log_id,
                revision=manifest.revision,
                ledger_id=manifest.ledger_id,
                entry_id=manifest.entry_id,
                prefix_hash=manifest.prefix_hash,
                state_digest=manifest.digest,
            ),
        }
    )


def _batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)
