"""Snapshots of a replicated state: the state at one place of its log, as files that need no code of the service."""

from __future__ import annotations

from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotFile, SnapshotManifest, SnapshotStore
from rsm_spark.snapshots.opening import lake_snapshots

__all__ = ["SnapshotDamage", "SnapshotFile", "SnapshotManifest", "SnapshotStore", "lake_snapshots"]
