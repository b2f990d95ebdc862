"""Local snapshots: whole or not there, and never used when damaged."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from rsm_spark.core.digest import StateDigest, digest_bytes
from rsm_spark.core.machine import Row
from rsm_spark.core.records import SESSIONS_TABLE, pack
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.snapshots import local
from rsm_spark.snapshots.checks import MANIFEST_NAME, checked_manifest
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest


def rows(count: int = 5, salt: bytes = b"") -> list[Row]:
    state = [Row("map", pack((b"k%06d" % n,)), pack((salt + b"v" * 10,)), n + 1) for n in range(count)]
    return [*state, Row(SESSIONS_TABLE, pack((b"s" * 16,)), pack((1, 2, 0, 1, [[1, b"reply"]])), count)]


def manifest_of(state: list[Row], revision: int = 10) -> SnapshotManifest:
    digest = StateDigest()
    for row in state:
        digest.replace(row.table, row.key, None, row.row)
    return SnapshotManifest(
        log_name="orders",
        log_id="0" * 32,
        revision=revision,
        ledger_id=3,
        entry_id=7,
        prefix_hash="ab" * 32,
        digest=digest_bytes(digest.value).hex(),
        row_count=len(state),
        leader_epoch=2,
        logged_ms=1,
        created_ms=2,
        machine=MAP_DESCRIPTION,
    )


def write(store: LocalSnapshots, revision: int = 10, **options: Any) -> SnapshotManifest:
    state = rows(**options)
    return store.write(manifest_of(state, revision), state)


class FailingDisk(SnapshotDisk):
    """Fails at the n-th step, as a crash would: nothing is cleaned up."""

    def __init__(self, fail_at: int) -> None:
        self.fail_at = fail_at
        self.step_count = 0

    def _step(self) -> None:
        self.step_count += 1
        if self.step_count == self.fail_at:
            raise OSError(28, "No space left on device")

    def make_folder(self, path: Path) -> None:
        self._step()
        super().make_folder(path)

    def create(self, path: Path) -> Any:
        self._step()
        return super().create(path)

    def sync_file(self, file: Any) -> None:
        self._step()
        super().sync_file(file)

    def sync_folder(self, path: Path) -> None:
        self._step()
        super().sync_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove_folder(self, path: Path) -> None:
        self._step()
        super().remove_folder(path)


def steps_of_a_write(tmp_path: Path) -> int:
    disk = FailingDisk(0)
    write(LocalSnapshots(tmp_path / "count", disk=disk))
    return disk.step_count


def test_a_snapshot_reads_back_as_written_by_another_process(tmp_path: Path) -> None:
    written = write(LocalSnapshots(tmp_path / "s"))
    fresh = LocalSnapshots(tmp_path / "s")
    assert fresh.manifests() == [written]
    assert sorted(fresh.read(written)) == sorted(rows())
    assert [file.table for file in written.files] == ["map", SESSIONS_TABLE]


def test_the_files_are_parquet_that_anybody_reads(tmp_path: Path) -> None:
    written = write(LocalSnapshots(tmp_path))
    (folder,) = tmp_path.iterdir()
    assert folder.name == "00000000000000000010-abababab"
    table = pq.read_table(folder / "map.parquet")
    assert table.column_names == ["table_name", "key", "row", "revision"]
    assert table.num_rows == written.files[0].rows == 5
    assert msgspec.json.decode((folder / MANIFEST_NAME).read_bytes())["revision"] == 10


def test_an_empty_state_is_a_snapshot_too(tmp_path: Path) -> None:
    store = LocalSnapshots(tmp_path)
    written = store.write(manifest_of([]), [])
    assert list(store.read(store.manifests()[0])) == []
    assert written.files == ()


def test_a_write_that_fails_at_any_step_leaves_the_older_snapshot_and_the_next_write_succeeds(tmp_path: Path) -> None:
    for fail_at in range(1, steps_of_a_write(tmp_path) + 1):
        folder = tmp_path / f"fail-{fail_at}"
        older = write(LocalSnapshots(folder), revision=9)
        disk = FailingDisk(fail_at)
        with pytest.raises(SnapshotError, match="No space left"):
            [write(LocalSnapshots(folder, disk=disk), revision=revision) for revision in range(10, 14)]
        left = LocalSnapshots(folder).manifests()
        assert left[-1] == older
        assert all(len(list(LocalSnapshots(folder).read(one))) == 6 for one in left)
        newest = write(LocalSnapshots(folder), revision=20)
        assert LocalSnapshots(folder).manifests()[0] == newest
        assert LocalSnapshots(folder).damaged() == []
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_first_write_that_fails_at_any_step_leaves_nothing_or_a_whole_snapshot(tmp_path: Path) -> None:
    for fail_at in range(1, steps_of_a_write(tmp_path) + 1):
        folder = tmp_path / f"fail-{fail_at}"
        with pytest.raises(SnapshotError):
            write(LocalSnapshots(folder, disk=FailingDisk(fail_at)))
        found = LocalSnapshots(folder)
        assert found.damaged() == []
        assert all(sorted(found.read(one)) == sorted(rows()) for one in found.manifests())


def test_the_three_newest_are_kept(tmp_path: Path) -> None:
    store = LocalSnapshots(tmp_path)
    for revision in range(1, 7):
        write(store, revision=revision)
    assert [one.revision for one in store.manifests()] == [6, 5, 4]
    assert len(list(tmp_path.iterdir())) == 3


def test_keeping_fewer_than_three_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="at least 3"):
        LocalSnapshots(tmp_path, keep=2)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone", "manifest", "manifest-gone", "no-json"])
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(tmp_path: Path, harm: str) -> None:
    older = write(LocalSnapshots(tmp_path), revision=1)
    write(LocalSnapshots(tmp_path), revision=2)
    folder = max(tmp_path.iterdir())
    if harm == "flip":
        flip(folder / "map.parquet", 40)
    elif harm == "cut":
        (folder / "map.parquet").write_bytes((folder / "map.parquet").read_bytes()[:-1])
    elif harm == "gone":
        (folder / "map.parquet").unlink()
    elif harm == "manifest":
        text = (folder / MANIFEST_NAME).read_text()
        (folder / MANIFEST_NAME).write_text(text.replace('"revision":2', '"revision":1'))
    elif harm == "manifest-gone":
        (folder / MANIFEST_NAME).unlink()
    else:
        (folder / MANIFEST_NAME).write_bytes(b"\xff{")
    store = LocalSnapshots(tmp_path)
    assert store.manifests() == [older]
    (damage,) = store.damaged()
    assert folder.name in damage.place
    assert folder.name in damage.reason


def test_what_was_just_written_is_not_read_once_more_and_what_changed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalSnapshots(tmp_path)
    looked_at: list[str] = []

    def look(folder: Path) -> SnapshotManifest:
        looked_at.append(folder.name)
        return checked_manifest(folder)

    monkeypatch.setattr(local, "checked_manifest", look)
    written = write(store)
    assert store.manifests() == [written]
    assert looked_at == []
    (file,) = tmp_path.glob("*/map.parquet")
    flip(file, 40)
    assert store.manifests() == []
    assert looked_at == [file.parent.name]
    assert LocalSnapshots(tmp_path).damaged(), "another process reads all of it"


def test_damage_that_comes_while_the_process_runs_is_found(tmp_path: Path) -> None:
    store = LocalSnapshots(tmp_path)
    write(store)
    assert len(store.manifests()) == 1
    (folder,) = tmp_path.iterdir()
    flip(folder / "map.parquet", 40)
    assert store.manifests() == []


@pytest.mark.parametrize("field", ["digest", "row_count"])
def test_rows_that_are_not_what_the_manifest_says_are_an_error_and_not_used_again(tmp_path: Path, field: str) -> None:
    store = LocalSnapshots(tmp_path)
    written = write(store)
    (folder,) = tmp_path.iterdir()
    wrong = {"digest": "0" * 32, "row_count": 7}[field]
    forged = msgspec.structs.replace(written, **{field: wrong})
    if field == "digest":
        (folder / MANIFEST_NAME).write_bytes(msgspec.json.encode(forged))
        assert store.manifests() == [forged]
    with pytest.raises(CorruptSnapshotError, match="manifest says"):
        list(store.read(forged))
    assert store.manifests() == []
    assert len(store.damaged()) == 1
    whole = write(store)
    assert store.manifests() == [whole]


def test_a_state_that_is_not_what_the_replica_says_is_not_written(tmp_path: Path) -> None:
    state = rows()
    store = LocalSnapshots(tmp_path)
    with pytest.raises(SnapshotError, match="digest"):
        store.write(manifest_of(rows(salt=b"other")), state)
    assert store.manifests() == []


def test_the_same_snapshot_again_changes_nothing(tmp_path: Path) -> None:
    store = LocalSnapshots(tmp_path)
    assert write(store) == write(store)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_large_snapshot_is_written_and_read_in_bounded_memory(tmp_path: Path) -> None:
    count, value = 60, b"v" * 1_000_000

    def large() -> Iterator[Row]:
        return (Row("map", pack((b"k%06d" % n,)), pack((b"%d" % n + value,)), n) for n in range(count))

    digest = StateDigest()
    for row in large():
        digest.replace(row.table, row.key, None, row.row)
    manifest = msgspec.structs.replace(manifest_of([]), row_count=count, digest=digest_bytes(digest.value).hex())
    store = LocalSnapshots(tmp_path)
    tracemalloc.start()
    try:
        written = store.write(manifest, large())
        assert sum(1 for _ in store.read(written)) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 48 * 1024 * 1024
