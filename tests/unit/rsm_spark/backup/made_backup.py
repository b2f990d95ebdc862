"""A backup without a cluster: a log in memory, cut into files as a backup has them, with a snapshot in its midst."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rsm_spark.backup.catalog import choose_backup, keep_backup
from rsm_spark.backup.manifest import BackupLedger, BackupManifest, BackupSegment, segment_path, snapshot_path
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.segments import EntryFileWriter
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.envelope import decode_envelope, entry_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from tests.unit.connectors.state.histories import Reference, Shop

LOG = "shop"
CHECKED = 20
"""Entry right before one that begins with a checkpoint."""


def entries_of(reference: Reference) -> list[LogEntry]:
    return [
        LogEntry(LogPosition(ledger, entry), payload, decode_envelope(payload))
        for ledger, entry, payload in reference.entries
    ]


class MadeBackup:
    """A backup of a log that is made up.

    Args:
        folder: Of the place.
        seed: Of the log.
        entry_count: Entries of the log.

    """

    def __init__(self, folder: Path, seed: int = 1, entry_count: int = 40) -> None:
        self.folder = folder
        self.place = BackupPlace(str(folder / "backups"))
        self.reference = Reference(seed)
        self.reference.grow(entry_count)
        self.entries = entries_of(self.reference)
        self.log_id = self.reference.log_id.hex()
        self.made_ms = 1_000
        self.segments: list[BackupSegment] = []
        self.snapshots: list[SnapshotManifest] = []

    @property
    def root(self) -> Path:
        """Folder of the log."""
        return self.folder / "backups" / LOG / self.log_id

    def write_segment(self, entries: Sequence[LogEntry]) -> BackupSegment:
        """Write a file of entries."""
        file = io.BytesIO()
        writer = EntryFileWriter(file)
        for entry in entries:
            writer.add(entry)
        segment = writer.finish()
        self.place.put(f"{LOG}/{self.log_id}/{segment_path(segment)}", file.getvalue())
        return segment

    def add_segment(self, first: int, last: int) -> None:
        """Add the entries from one to another to the backup."""
        self.segments.append(self.write_segment(self.entries[first:last]))

    def add_snapshot(self, number: int = CHECKED) -> SnapshotManifest:
        """Add the state right after an entry."""
        entry = self.entries[number]
        revision = entry.envelope.last_revision
        digest, count = self.reference.sums[revision]
        manifest = SnapshotManifest(
            LOG, self.log_id, revision, *entry.position, entry_hash(entry.payload).hex(), digest, count,
            entry.envelope.leader_epoch, entry.envelope.logged_ms, 0, Shop.description,
        )  # fmt: skip
        local = LocalSnapshots(self.folder / "snapshots", pace=lambda: no_pace)
        whole = local.write(manifest, sorted(self.reference.rows[revision], key=lambda row: (row.table, row.key)))
        for file in whole.files:
            path = self.folder / "snapshots" / snapshot_name(whole) / file.name
            self.place.copy_in(path, f"{LOG}/{self.log_id}/{snapshot_path(whole, file.name)}")
        self.snapshots.append(whole)
        return whole

    def chain(self, epoch: int = 1) -> LogChain:
        ids = sorted({entry.position.ledger_id for entry in self.entries})
        ledgers = tuple(ChainLedger(ledger_id, 0, 1, 1) for ledger_id in ids)
        return LogChain(self.log_id, ids[0], epoch, ledgers=ledgers)

    def manifest(self, **changes: Any) -> BackupManifest:
        """Return the manifest of what was added."""
        ledgers = tuple(BackupLedger(one.ledger_id, 1, "") for one in self.chain().ledgers)
        made = BackupManifest(
            LOG, self.log_id, self.made_ms, "ops", self.chain(), ledgers, tuple(self.segments), tuple(self.snapshots)
        )
        return msgspec.structs.replace(made, **changes)

    def keep(self) -> BackupManifest:
        """Write the manifest of what was added."""
        manifest = self.manifest()
        keep_backup(self.place, manifest)
        return manifest

    def rewrite(self, change: Callable[[Any], None]) -> None:
        """Change the newest manifest as an enemy would, its name with it."""
        path = max((self.root / "backups").iterdir())
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    def chosen(self) -> BackupManifest:
        """Return the newest backup, as a command finds it."""
        return choose_backup(self.place, LOG)


def whole_backup(folder: Path) -> MadeBackup:
    """Return a backup of three files and a snapshot."""
    made = MadeBackup(folder)
    for first, last in ((0, 12), (12, 25), (25, 40)):
        made.add_segment(first, last)
    made.add_snapshot()
    made.keep()
    return made
