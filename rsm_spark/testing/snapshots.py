"""Snapshots in memory: a disk that survives its process, and may rot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator

from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest

_LENT_S = 60.0
"""Time that a snapshot stays on a disk after it was copied, so that a verified one is there still."""


class MemorySnapshots:
    """A `SnapshotStore` that keeps the newest `keep` snapshots, and those that are protected."""

    def __init__(self, keep: int = 3) -> None:
        self._keep = keep
        self._kept: list[tuple[SnapshotManifest, list[Row]]] = []
        self._protected: frozenset[int] = frozenset()
        self._damaged: list[SnapshotDamage] = []
        self._lent: dict[int, float] = {}

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Keep a snapshot."""
        self._kept.append((manifest, list(rows)))
        self._kept.sort(key=lambda kept: -kept[0].revision)
        kept = self._kept[: self._keep]
        stay = self._protected
        if self._lent:
            now_s = asyncio.get_running_loop().time()
            stay |= {revision for revision, until_s in self._lent.items() if until_s > now_s}
        self._kept = kept + [one for one in self._kept[self._keep :] if one[0].revision in stay]
        return manifest

    def lend(self, manifest: SnapshotManifest) -> Iterator[Row]:
        """Return the rows as they lie there, for another replica; the snapshot stays for a while."""
        self._lent[manifest.revision] = asyncio.get_running_loop().time() + _LENT_S
        return self.read(manifest, is_summed=False)

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions."""
        self._protected = revisions

    def protected_manifests(self) -> list[SnapshotManifest]:
        """Return those that are protected."""
        return [manifest for manifest, _ in self._kept if manifest.revision in self._protected]

    def manifests(self) -> list[SnapshotManifest]:
        """Return all, newest first; those that have rotted among them, until somebody reads them."""
        return [manifest for manifest, _ in self._kept]

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged."""
        return list(self._damaged)

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Tell whether a snapshot is gone, or has rotted."""
        rows = next((rows for kept, rows in self._kept if kept == manifest), None)
        if rows is None:
            return SnapshotDamage("memory", "is gone")
        if digest_of(rows) != manifest.digest:
            self.condemn(manifest, "has rotted")
            return self._damaged[-1]
        return None

    def condemn(self, manifest: SnapshotManifest, reason: str) -> None:
        """Take a snapshot for damaged."""
        self._kept = [one for one in self._kept if one[0] != manifest]
        self._damaged.append(SnapshotDamage(f"snapshot of revision {manifest.revision}", reason))

    def read(self, manifest: SnapshotManifest, *, is_summed: bool = True) -> Iterator[Row]:
        """Iterate over a snapshot's rows."""
        rows = next((rows for kept, rows in self._kept if kept == manifest), None)
        if rows is None or (is_summed and digest_of(rows) != manifest.digest):
            raise CorruptSnapshotError(f"the snapshot of revision {manifest.revision} is gone, or has rotted")
        return iter(rows)

    # ---- for tests and faults

    def rot(self, rng: random.Random) -> bool:
        """Make one counter, or one key of the map, of the newest snapshot a wrong one; return whether there was one."""
        rows = self._kept[0][1] if self._kept else []
        places = [at for at, row in enumerate(rows) if row.table in ("counters", "map")]
        if not places:
            return False
        at = rng.choice(places)
        number = rng.randrange(1 << 20)
        rows[at] = rows[at]._replace(row=pack((number if rows[at].table == "counters" else b"%d" % number,)))
        return True

    def holds_beyond(self, revision: int) -> bool:
        """Return whether a whole snapshot holds more than this revision."""
        return any(kept.revision > revision and digest_of(rows) == kept.digest for kept, rows in self._kept)


def digest_of(rows: Iterable[Row]) -> str:
    """Return the state digest of rows, as a manifest has it."""
    total = sum(row_term(table_prefix(row.table), row.key, row.row) for row in rows) % (1 << 128)
    return f"{total:032x}"
