"""Reads the entries of a backup in order, and believes none that does not continue the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rsm_spark.backup.manifest import BackupManifest, BackupSegment, CorruptBackupError, ancestry_of, segment_path
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.segments import read_segment
from rsm_spark.core.contents import CONTENTS_TABLE, KnownContents
from rsm_spark.core.envelope import body_of, root_hash
from rsm_spark.core.kernel_tables import Checkpoint, peek_checkpoint, peek_description
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import decode_records
from rsm_spark.core.seal import ForeignEntryError, KeyRing, check_seal
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.authorship import Authorship, follow_entry
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.snapshots.manifest import SnapshotManifest


class SnapshotPlace(msgspec.Struct, frozen=True):
    """Place in the entries at which a backup has a snapshot."""

    position: LogPosition
    prefix_hash: str
    checkpoint: Checkpoint | None


class BackupHistory:
    """Entries of a backup, one after the other.

    Args:
        place: Where the backup lies.
        manifest: Of the backup.
        keys: Of the log: every seal is checked; None = seals are not.
        public_keys: Signed checkpoints are checked with these, by key id.

    Attributes:
        found: What was proven so far.
        is_sealed: An entry read had a seal: every one after it must have one.
        snapshots: What the entries say of the revisions of the backup's snapshots, by revision.
        contents: Contents beside the log that the entries read so far name.

    """

    def __init__(
        self,
        place: BackupPlace,
        manifest: BackupManifest,
        *,
        keys: KeyRing | None = None,
        public_keys: Mapping[str, bytes] | None = None,
    ) -> None:
        self._place = place
        self._manifest = manifest
        self._ancestry = ancestry_of(manifest)
        self._keys = keys
        self._public_keys = public_keys or {}
        self._wanted = {(one.revision, one.prefix_hash) for one in manifest.snapshots}
        self._sealed = {one.ledger_id: bool(one.key_id) for one in manifest.ledgers}
        self._epochs = {one.ledger_id: one.leader_epoch for one in manifest.ledgers}
        self.is_sealed = False
        self.snapshots: dict[int, SnapshotPlace] = {}
        self.contents = KnownContents()
        self._has_contents = bool(manifest.contents)
        first = manifest.first_revision
        self.found = Authorship(manifest.log, manifest.log_id, first_revision=first, last_revision=first - 1)

    def entries(self, segments: Sequence[BackupSegment]) -> Iterator[LogEntry]:
        """Yield the entries of segments, oldest first.

        Raises:
            CorruptBackupError: A file, or an entry, is not what it must be. What was read before must not be used.

        """
        whole = self._manifest.first_revision == 1
        before = root_hash(self._ancestry.root) if whole else None
        for segment in segments:
            path = f"{self._manifest.folder}/{segment_path(segment)}"
            shown = f"{self._place.shown}/{path}"
            if self.found.entries and before is not None and before.hex() != segment.before:
                raise CorruptBackupError(f"{shown}: it does not continue the segment before it")
            for entry in read_segment(self._place.chunks(path, segment.bytes, segment.sha256), segment, shown):
                try:
                    self._check(entry)
                    before = follow_entry(self.found, entry, before, self._ancestry, self._public_keys)
                except CorruptLogError as error:
                    raise CorruptBackupError(f"{shown}: {error}") from error
                except ForkedLogError as error:
                    raise CorruptBackupError(f"{shown}: {error}: entries of another history") from error
                self._note(entry, before)
                self._note_contents(entry)
                yield entry
            if self.found.prefix_hash != segment.after or self.found.last_revision != segment.last_revision:
                raise CorruptBackupError(f"{shown}: it ends otherwise than its manifest says: swapped or changed")

    def _check(self, entry: LogEntry) -> None:
        """Check whose word an entry is, as far as the keys go."""
        ledger_id, envelope = entry.position.ledger_id, entry.envelope
        if ledger_id not in self._sealed:
            raise CorruptLogError(f"an entry lay in ledger {ledger_id}, of which the manifest says nothing")
        if not envelope.key_id:
            if self._sealed[ledger_id] or self.is_sealed:
                raise ForeignEntryError("an entry has no seal, as those of its ledger or before it have")
            return
        self.is_sealed = True
        if self._keys is None:
            return
        if envelope.leader_epoch != self._epochs[ledger_id]:
            raise ForeignEntryError(
                f"an entry was sealed in epoch {envelope.leader_epoch}, its ledger is of {self._epochs[ledger_id]}"
            )
        check_seal(entry.payload, envelope, self._keys, self._ancestry.at(envelope.first_revision))

    def _note(self, entry: LogEntry, after: bytes) -> None:
        envelope = entry.envelope
        before = envelope.first_revision - 1
        known = self.snapshots.get(before)
        if known is not None and known.checkpoint is None:
            found = peek_checkpoint(entry.payload)
            if found is not None and found.revision == before:
                self.snapshots[before] = msgspec.structs.replace(known, checkpoint=found)
        # An entry without records ends where the one before it does: the hash tells them apart.
        if (envelope.last_revision, after.hex()) in self._wanted:
            self.snapshots[envelope.last_revision] = SnapshotPlace(entry.position, after.hex(), None)

    def _note_contents(self, entry: LogEntry) -> None:
        if not self._has_contents:
            described = peek_description(entry.payload)
            self._has_contents = described is not None and any(one.name == CONTENTS_TABLE for one in described.tables)
        if self._has_contents:
            self.contents.fold(decode_records(body_of(entry.payload)), entry.envelope.first_revision)

    def check_contents(self) -> None:
        """Compare the contents that the entries read so far name with those that the manifest says.

        Raises:
            CorruptBackupError: One is not there, or is another one.

        """
        said = {one.number: one.content for one in self._manifest.contents}
        for number, known in self.contents.by_number.items():
            if said.get(number) != known.content:
                raise CorruptBackupError(
                    f"{self._place.shown}/{self._manifest.folder}/backups/{self._manifest.name}: revision "
                    f"{known.named} of the log names content {number} beside it, the manifest "
                    f"{'another one' if number in said else 'none'}: it was changed, or made by an older version. Take "
                    "another backup"
                )

    def check_snapshot(self, snapshot: SnapshotManifest) -> SnapshotPlace:
        """Return what the entries say of a snapshot.

        Raises:
            CorruptBackupError: They contradict it.

        """
        shown = f"{self._place.shown}/{self._manifest.folder}: snapshot of revision {snapshot.revision}"
        known = self.snapshots.get(snapshot.revision)
        if known is None:
            raise CorruptBackupError(f"{shown}: no entry ends there: it is of another history")
        said = (snapshot.prefix_hash, snapshot.row_count, snapshot.digest)
        here = known.checkpoint
        should = (known.prefix_hash, *((here.row_count, here.digest.hex()) if here is not None else said[1:]))
        if said != should:
            raise CorruptBackupError(f"{shown}: its hash, rows or digest are not those that the log names: changed")
        return known
