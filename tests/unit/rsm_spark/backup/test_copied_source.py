"""A backup takes a snapshot from the place whose manifest it holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rsm_spark.cli.snapshot_source import CopiedSource, Holding, SnapshotSource
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from tests.unit.rsm_spark.snapshots.test_local_snapshots import manifest_of, rows


class TwoPlaces(SnapshotSource):
    """The same state, written by two replicas in files that differ."""

    def __init__(self, folder: Path) -> None:
        state = rows()
        self.stores = {name: LocalSnapshots(folder / name, pace=lambda: no_pace) for name in ("a", "b")}
        self.taken: list[tuple[str, SnapshotManifest]] = []
        self.stores["a"].write(manifest_of(state), state)
        self.stores["b"].write(manifest_of(state), list(reversed(state)))

    async def holdings(self) -> list[Holding]:
        return [Holding(name, store.manifests(), []) for name, store in self.stores.items()]

    async def read_back(self, place: str, manifest: SnapshotManifest) -> None:
        raise AssertionError((place, manifest))

    async def copy(self, place: str, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        self.taken.append((place, manifest))
        return manifest, folder


def test_a_snapshot_is_copied_from_the_place_that_has_its_files(tmp_path: Path) -> None:
    places = TwoPlaces(tmp_path)

    async def copy_all() -> list[SnapshotManifest]:
        source = CopiedSource(places)
        found = await source.manifests()
        for manifest in found:
            await source.copy(manifest, tmp_path)
        return found

    first, second = asyncio.run(copy_all())
    assert first.files != second.files
    for place, manifest in places.taken:
        assert manifest in places.stores[place].manifests()
