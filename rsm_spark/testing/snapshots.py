"""Snapshots in memory: a disk that survives its process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rsm_spark.core.machine import Row
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest

__all__ = ["MemorySnapshots"]


class MemorySnapshots:
    """A `SnapshotStore` that keeps the newest `keep` snapshots."""

    def __init__(self, keep: int = 3) -> None:
        self._keep = keep
        self._kept: list[tuple[SnapshotManifest, list[Row]]] = []
        self._protected: frozenset[int] = frozenset()

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Keep a snapshot."""
        self._kept.append((manifest, list(rows)))
        self._kept.sort(key=lambda kept: -kept[0].revision)
        kept = self._kept[: self._keep]
        self._kept = kept + [one for one in self._kept[self._keep :] if one[0].revision in self._protected]
        return manifest

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions."""
        self._protected = revisions

    def manifests(self) -> list[SnapshotManifest]:
        """Return all, newest first."""
        return [manifest for manifest, _ in self._kept]

    def damaged(self) -> list[SnapshotDamage]:
        """Return nothing: memory does not rot."""
        return []

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Tell whether a snapshot is gone."""
        is_there = any(kept == manifest for kept, _ in self._kept)
        return None if is_there else SnapshotDamage("memory", "is gone")

    def condemn(self, manifest: SnapshotManifest, reason: str) -> None:
        """Forget a snapshot."""
        del reason
        self._kept = [one for one in self._kept if one[0] != manifest]

    def read(self, manifest: SnapshotManifest, *, is_summed: bool = True) -> Iterator[Row]:  # noqa: ARG002
        """Iterate over a snapshot's rows."""
        return iter(next(rows for kept, rows in self._kept if kept == manifest))
