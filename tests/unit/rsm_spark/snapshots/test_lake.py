from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Field, FieldType, MachineDescription, Row, TableDescription
from rsm_spark.core.records import SESSIONS_TABLE, pack
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest

MACHINE = MachineDescription(
    "map", 1, (TableDescription("map", (Field("key", FieldType.BYTES),), (Field("value", FieldType.BYTES),)),), ()
)


def rows_at(revision: int, count: int = 5) -> list[Row]:
    rows = [Row("map", pack([b"%d" % i]), pack([b"%d" % revision]), revision - i) for i in range(count)]
    return [*rows, Row(SESSIONS_TABLE, pack([b"s" * 16]), pack([1, 2, 0, 1, [[1, b"ok"]]]), revision)]


def manifest_of(rows: list[Row], revision: int, log_id: str = "ab" * 16) -> SnapshotManifest:
    digest = sum(row_term(table_prefix(row.table), row.key, row.row) for row in rows) % DIGEST_MODULUS
    return SnapshotManifest(
        "orders",
        log_id,
        revision,
        3,
        revision,
        f"{revision:064x}",
        digest_bytes(digest).hex(),
        len(rows),
        1,
        5,
        6,
        MACHINE,
    )


@pytest.fixture
def place(tmp_path: Path) -> str:
    return lake_place(str(tmp_path) + "/", "orders")


def written(place: str, revision: int) -> tuple[SnapshotManifest, list[Row]]:
    rows = rows_at(revision)
    return LakeSnapshots(place).write(manifest_of(rows, revision), iter(rows)), rows


def test_a_place_without_snapshots_has_none(place: str) -> None:
    assert LakeSnapshots(place).manifests() == []
    assert LakeSnapshots(place).damaged() == []


def test_a_snapshot_is_read_back_as_it_was_written(place: str) -> None:
    manifest, rows = written(place, 9)
    assert LakeSnapshots(place).manifests() == [manifest]
    assert sorted(LakeSnapshots(place).read(manifest)) == sorted(rows)


def test_a_snapshot_is_on_the_disk_before_it_is_told_of(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(Path(place).parent)))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    written(place, 9)
    (parquet,) = [Path(uri).name for uri in DeltaTable(place).file_uris()]
    commit = f"orders/_delta_log/{0:020d}.json"
    assert synced == [f"orders/{parquet}", commit, ".", "orders", "orders/_delta_log"]


def test_older_snapshots_are_older_versions_of_the_table(place: str) -> None:
    first, first_rows = written(place, 9)
    second, _ = written(place, 20)
    third, _ = written(place, 12)
    store = LakeSnapshots(place)
    assert store.manifests() == [second, third, first]
    assert sorted(store.read(first)) == sorted(first_rows)
    assert DeltaTable(place).version() == 2


def test_the_same_snapshot_is_not_written_twice(place: str) -> None:
    manifest, _ = written(place, 9)
    assert written(place, 9)[0] == manifest
    assert DeltaTable(place).version() == 0


def test_rows_that_are_not_what_the_manifest_says_are_not_written(place: str) -> None:
    manifest, _ = written(place, 9)
    rows = rows_at(11)
    store = LakeSnapshots(place)
    with pytest.raises(SnapshotError, match="5 rows, its manifest says 6"):
        store.write(manifest_of(rows, 11), rows[1:])
    with pytest.raises(SnapshotError, match="rows with the digest"):
        store.write(manifest_of(rows, 11), rows_at(12))
    assert store.manifests() == [manifest]
    assert DeltaTable(place).version() == 0


def test_a_source_that_fails_leaves_no_snapshot(place: str) -> None:
    def broken() -> Iterator[Row]:
        yield rows_at(9)[0]
        raise OSError("gone")

    with pytest.raises(SnapshotError, match="cannot be written"):
        LakeSnapshots(place).write(manifest_of(rows_at(9), 9), broken())
    assert LakeSnapshots(place).manifests() == []


def test_snapshots_of_another_log_are_kept_apart(place: str) -> None:
    written(place, 9)
    rows = rows_at(10)
    with pytest.raises(SnapshotError, match="this table holds snapshots of log orders with id abab"):
        LakeSnapshots(place).write(manifest_of(rows, 10, log_id="cd" * 16), rows)


def test_a_snapshot_with_other_rows_is_found_out_while_reading(place: str) -> None:
    manifest, rows = written(place, 9)
    wrong = msgspec.structs.replace(manifest, digest="00" * 16, revision=10)
    store = LakeSnapshots(place)
    with pytest.raises(CorruptSnapshotError, match="no version holds the snapshot at revision 10"):
        list(store.read(wrong))
    handle = DeltaTable(place)
    (uri,) = handle.file_uris()
    import pyarrow.parquet as pq

    table = pq.read_table(uri).slice(1)
    pq.write_table(table, uri)
    with pytest.raises(CorruptSnapshotError, match="version 0: snapshot has"):
        list(store.read(manifest))
    assert store.manifests() == []
    assert "version 0" in store.damaged()[0].place


def test_a_snapshot_whose_files_were_removed_is_damaged(place: str) -> None:
    first, _ = written(place, 9)
    second, _ = written(place, 20)
    store = LakeSnapshots(place)
    for name in set(DeltaTable(place, version=0).file_uris()):
        Path(name).unlink()
    with pytest.raises(CorruptSnapshotError, match="files that cannot be read"):
        list(store.read(first))
    assert store.manifests() == [second]
    assert len(list(store.read(second))) == 6


def test_commits_of_others_are_passed_over(place: str) -> None:
    manifest, rows = written(place, 9)
    DeltaTable(place).optimize.compact()
    assert LakeSnapshots(place).manifests() == [manifest]
    shutil.rmtree(place)
    write_deltalake(place, pa.table({"x": [1]}))
    assert LakeSnapshots(place).manifests() == []
    assert len(rows) == 6


def test_old_snapshots_are_let_go_but_never_the_verified_one(place: str) -> None:
    store = LakeSnapshots(place, retention_hours=0)
    for revision in (9, 20, 30):
        store.write(manifest_of(rows_at(revision), revision), rows_at(revision))
    store.protect(frozenset({9}))
    for revision in (40, 50):
        store.write(manifest_of(rows_at(revision), revision), rows_at(revision))
    fresh = LakeSnapshots(place)
    fresh.protect(frozenset({9}))
    assert [one.revision for one in fresh.manifests()] == [50, 40, 30, 9]
    assert all(sorted(fresh.read(one)) == sorted(rows_at(one.revision)) for one in fresh.manifests())
    assert fresh.damaged() == []


def test_fewer_than_three_are_refused(place: str) -> None:
    with pytest.raises(SnapshotError, match="keep at least 3"):
        LakeSnapshots(place, keep=2)


def test_an_object_store_is_listed_by_the_tables_own_history(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_spark.snapshots.table_commits.local_folder", lambda _place: None)
    store = LakeSnapshots(place, retention_hours=0)
    assert store.manifests() == []
    for revision in (9, 20, 30, 40):
        store.write(manifest_of(rows_at(revision), revision), rows_at(revision))
    assert [one.revision for one in store.manifests()[:3]] == [40, 30, 20]
    other = LakeSnapshots(place)
    assert [sorted(other.read(one)) for one in other.manifests()[:3]] == [sorted(rows_at(n)) for n in (40, 30, 20)]
    with pytest.raises(CorruptSnapshotError, match="files that cannot be read"):
        list(other.read(other.manifests()[3]))  # Let go: found out when it is read.
    assert [one.revision for one in other.manifests()] == [40, 30, 20]


def test_the_version_of_a_commit_that_was_torn_is_used_again(place: str) -> None:
    written(place, 9)
    written(place, 20)
    reader = LakeSnapshots(place)
    commit = Path(place) / "_delta_log" / f"{1:020d}.json"
    commit.write_bytes(commit.read_bytes()[:100])
    assert [one.revision for one in reader.manifests()] == [9]
    assert "torn" in reader.damaged()[0].reason
    manifest, rows = written(place, 30)
    assert [one.revision for one in reader.manifests()] == [30, 9]
    assert sorted(reader.read(manifest)) == sorted(rows)
    assert reader.damaged() == []
    assert len(list((Path(place) / "_delta_log").glob(".damaged-*"))) == 1


def test_a_place_is_removed_if_all_of_it_is_of_one_log(place: str) -> None:
    LakeSnapshots(place).remove("ab" * 16)  # There is none.
    written(place, 10)
    written(place, 20)
    LakeSnapshots(place).remove("cd" * 16)
    assert [one.revision for one in LakeSnapshots(place).manifests()] == [20, 10]
    LakeSnapshots(place).remove("ab" * 16)
    assert not Path(place).exists()
    written(place, 30)
    assert [one.revision for one in LakeSnapshots(place).manifests()] == [30]


def test_snapshots_of_a_renamed_log_are_found_by_its_id(tmp_path: Path) -> None:
    lake, mine, others = str(tmp_path), "ab" * 16, "cd" * 16

    def keep(name: str, revision: int, log_id: str) -> None:
        rows = rows_at(revision)
        LakeSnapshots(lake_place(lake, name)).write(manifest_of(rows, revision, log_id), iter(rows))

    def found(*former: str) -> tuple[str, list[int]]:
        snapshots = LakeSnapshots(lake_place(lake, "new"))
        snapshots.follow(mine, former)
        return Path(snapshots.place).name, [one.revision for one in snapshots.manifests()]

    assert found("oldest", "old") == ("new", []), "where nothing lies it begins below its own name"
    keep("oldest", 10, mine)
    keep("old", 50, others)
    assert found("old", "oldest") == ("oldest", [10]), "another log's are left alone, however new"
    keep("oldest", 20, mine)
    snapshots = LakeSnapshots(lake_place(lake, "new"))
    snapshots.follow(mine, ["oldest"])
    rows = rows_at(30)
    snapshots.write(manifest_of(rows, 30, mine), iter(rows))
    assert found("old", "oldest") == ("oldest", [30, 20, 10]), "and it goes on there"
    keep("new", 40, mine)
    assert found("old", "oldest") == ("new", [40]), "the newest counts, as a version of before has begun anew"
