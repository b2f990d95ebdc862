"""Snapshots of a replicated state: the state at one place of its log, as files that need no code of the service."""

from __future__ import annotations

from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotFile, SnapshotManifest, SnapshotStore

__all__ = ["SnapshotDamage", "SnapshotFile", "SnapshotManifest", "SnapshotStore"]
