"""A snapshot that somebody forged, in the lake or at a peer, is not believed where the log has a key.

The forger does all that is possible without the key: he changes a row, and what the manifest says of rows and files,
so that the snapshot is whole by itself and continues the log.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.records import pack
from rsm_spark.runtime.snapshot_proof import unproven
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.testing.forger import simulated_keys
from tests.unit.rsm_spark.snapshots.snapshot_world import SnapshotWorld, run
from tests.unit.rsm_spark.snapshots.test_verifying import plant_wrong_row

FORGED = 10_000


def without_lake(world: SnapshotWorld) -> None:
    world.has_lake = False


def forge_lake(world: SnapshotWorld, source: SnapshotManifest, **changed: Any) -> SnapshotManifest:
    """Write a snapshot with one wrong counter into the lake, as whoever may write its folder can."""
    lake = world.lake()
    rows = list(lake.read(source))
    at = next(i for i, row in enumerate(rows) if not row.table.startswith("_"))
    wrong, prefix = pack((FORGED,)), table_prefix(rows[at].table)
    digest = int(source.digest, 16) - row_term(prefix, rows[at].key, rows[at].row)
    digest = (digest + row_term(prefix, rows[at].key, wrong)) % (1 << 128)
    rows[at] = rows[at]._replace(row=wrong)
    forged = msgspec.structs.replace(source, files=(), digest=f"{digest:032x}", **changed)
    for folder in (world.folder / "lake").iterdir():
        folder.rename(world.folder / f"{folder.name} of before")
    return lake.write(forged, rows)


def test_a_snapshot_forged_in_the_lake_is_passed_over_and_the_log_is_read_instead(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.lake().manifests()) >= 2)
        await world.add(5)
        values = dict(world.leader._context.machine.values)  # type: ignore[attr-defined]
        world.kill()
        world.wipe()
        forge_lake(world, world.lake().manifests()[0])
        await world.start("a")
        assert world.leader._context.machine.values == values  # type: ignore[attr-defined]
        assert FORGED not in values.values()
        await world.add(5)
        await world.start("b")
        await world.until(lambda: len(world.replicas) == 2)
        await world.agree()

    run(tmp_path, scenario, names=("a", "b"), log_keys=simulated_keys(), retention_ms=10_000_000)


def test_a_snapshot_forged_by_a_peer_is_neither_booted_from_nor_copied(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.stores["b"].manifests()) >= 3)
        leader = world.leader_name
        other = "b" if leader == "a" else "a"
        world.kill(other)
        world.wipe(other)
        # The one that lives answers with snapshots that are whole, and wrong.
        store = world.stores[str(leader)]
        forged = [plant_wrong_row(tmp_path / str(leader) / snapshot_name(one), digest_too=True)
                  for one in store.manifests()]  # fmt: skip
        store.manifests = lambda: forged  # type: ignore[method-assign]
        world.downloads.clear()
        await world.start(other)
        await world.until(lambda: len(world.replicas) == 2)
        await world.agree()
        assert FORGED not in world.replicas[other]._context.machine.values.values()  # type: ignore[attr-defined]
        assert not [one for one in world.downloads if one[0] == other]
        await world.add(50)
        await asyncio.sleep(20.0)
        held = {(one.revision, one.digest) for one in world.stores[other].manifests()}
        assert not held & {(one.revision, one.digest) for one in forged}

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake, log_keys=simulated_keys(), retention_ms=10_000_000)


def test_without_a_key_nothing_tells_a_forged_snapshot_until_the_next_checkpoint(tmp_path: Path) -> None:
    """What the key is for: the same attack on a log without one."""

    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.lake().manifests()) >= 2)
        world.kill()
        world.wipe()
        newest = world.lake().manifests()[0]
        chain = await world.chain()
        forged = forge_lake(world, newest)
        world.hosts["a"].start()
        await world.until(lambda: bool(world.exits))
        assert "checkpoint of revision" in str(world.exits[0][1])
        assert forged.digest != newest.digest
        assert not chain.key_id

    run(tmp_path, scenario, names=("a",), retention_ms=10_000_000)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"digest": "00" * 16}, "it has the digest"),
        ({"row_count": 1}, "it has the row count"),
        ({"sealed": False}, "another seal than the entry that it ends with"),
        ({"leader_epoch": 77}, "another epoch"),
        ({"logged_ms": 1}, "another logged time"),
        ({"revision": 3}, "another revision"),
        ({"prefix_hash": "00" * 32}, "another prefix hash"),
        ({"log_id": "00" * 16}, "another log"),
        ({"entry_id": -1}, "it names no entry"),
        ({"ledger_id": 10**6}, "the log does not say"),
    ],
)
def test_each_word_of_a_manifest_is_compared_with_the_log(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: bool(world.lake().manifests()))
        await world.add(3)
        said = msgspec.structs.replace(world.lake().manifests()[0], **changed)
        found = await unproven(world.leader._context, await world.chain(), said)
        assert found == why if not why else why in found

    run(tmp_path, scenario, names=("a",), log_keys=simulated_keys(), retention_ms=10_000_000)


def test_a_snapshot_without_a_checkpoint_behind_it_and_one_of_the_very_end_are_not_believed(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.add(3)
        context = world.leader._context
        late = world.leader._care.snapshotter._manifest()
        assert "no confirmed entry behind it" in await unproven(context, await world.chain(), late)
        await world.add(3)
        assert "no checkpoint of its revision" in await unproven(context, await world.chain(), late)

    run(tmp_path, scenario, names=("a",), log_keys=simulated_keys(), snapshot_s=0.0, checkpoint_records=100_000)
