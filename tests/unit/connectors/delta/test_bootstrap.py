from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from connectors.delta.bootstrap import begin_with_snapshot
from connectors.delta.follower import FollowerTable
from connectors.errors import DeltaSinkError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import MachineDescription, Row
from rsm_spark.core.records import pack
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.unit.connectors.delta.logged import (
    LOG_ID,
    MAP,
    PAIRS,
    content,
    digest_of,
    follower,
    gone,
    machine,
    put,
    records,
    wider,
)

ROWS = [
    Row("map", pack((b"a",)), pack((b"1",)), 2),
    Row("map", pack((b"b",)), pack((b"2",)), 7),
    Row("pairs", pack(("x", 1)), pack((0.5, True)), 3),
    Row("_sessions", pack((b"s",)), pack((1, 2, 0, 1, [])), 9),
]


def write_snapshot(
    lake: Path, revision: int, rows: list[Row], described: MachineDescription | None = None, prefix_hash: str = ""
) -> SnapshotManifest:
    terms = [row_term(table_prefix(row.table), row.key, row.row) for row in rows]
    manifest = SnapshotManifest(
        log_name="orders",
        log_id=LOG_ID,
        revision=revision,
        ledger_id=3,
        entry_id=revision - 1,
        prefix_hash=prefix_hash or bytes([revision]).hex() * 32,
        digest=digest_bytes(sum(terms) % DIGEST_MODULUS).hex(),
        row_count=len(rows),
        leader_epoch=1,
        logged_ms=1234,
        created_ms=0,
        machine=described or machine(MAP, PAIRS),
    )
    return LakeSnapshots(lake_place(str(lake), "orders")).write(manifest, rows)


def begin(lake: Path, *followers: FollowerTable, first: int = 5, end: int = 20) -> SnapshotManifest:
    return begin_with_snapshot(
        followers, str(lake), first_revision=first, end_revision=end, continues=lambda _manifest: True
    )


def test_tables_begin_with_the_newest_snapshot_and_go_on_with_the_tail(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "lake", 6, ROWS[:1])
    manifest = write_snapshot(tmp_path / "lake", 9, ROWS)
    one, other = follower(tmp_path / "map"), follower(tmp_path / "pairs", PAIRS)
    assert begin(tmp_path / "lake", one, other) == manifest
    position = one.open()
    assert (position.revision, position.entry, position.row_count) == (9, 8, 2)
    assert position.prefix_hash == manifest.prefix_hash
    assert position.digest == digest_of({row.key: row.row for row in ROWS[:2]})
    assert content(tmp_path / "map") == {b"a": (b"1", 2), b"b": (b"2", 7)}
    after = one.apply(records([gone(b"a"), put(b"b", b"2"), put(b"c", b"3")], 10)).position
    assert after.digest == digest_of({pack((b"b",)): pack((b"2",)), pack((b"c",)): pack((b"3",))})
    assert other.open().row_count == 1


def test_a_history_begins_with_the_rows_of_a_snapshot(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "lake", 9, ROWS)
    table = follower(tmp_path / "t", mode="append")
    begin(tmp_path / "lake", table)
    table.apply(records([gone(b"a")], 10))
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by([("_revision", "ascending")]).to_pylist()
    assert [(row["key"], row["_fold"], row["_revision"]) for row in found] == [
        (b"a", "snapshot", 2),
        (b"b", "snapshot", 7),
        (b"a", "delete", 10),
    ]
    loaded = table.at.load()
    assert loaded is not None
    assert loaded.position is not None
    summed = table.mode.sum(loaded.followed, loaded.handle.to_pyarrow_table()) % DIGEST_MODULUS
    assert loaded.position.digest == digest_bytes(summed).hex()


def test_rows_of_a_snapshot_tell_since_when_a_column_is_there(tmp_path: Path) -> None:
    rows = [ROWS[0], Row("map", pack((b"b",)), pack((b"2", 5)), 7)]
    write_snapshot(tmp_path / "lake", 9, rows, machine(wider(MAP, "more", "most")))
    table = follower(tmp_path / "t", wider(MAP, "more", "most"))
    begin(tmp_path / "lake", table)
    loaded = table.at.load()
    assert loaded is not None
    assert [column.since for column in loaded.followed.row] == [0, 7, 10]
    after = table.apply(records([gone(b"a"), ((b"c",), (b"3", None, 1))], 10)).position
    assert after.digest == digest_of({pack((b"b",)): pack((b"2", 5)), pack((b"c",)): pack((b"3", None, 1))})


def test_rows_that_lack_a_column_which_older_ones_have_are_refused(tmp_path: Path) -> None:
    rows = [Row("map", pack((b"a",)), pack((b"1", 1)), 2), ROWS[1]]
    write_snapshot(tmp_path / "lake", 9, rows, machine(wider(MAP, "more")))
    table = follower(tmp_path / "t", wider(MAP, "more"))
    with pytest.raises(DeltaSinkError, match="rows of record 7 lack column more, which rows of record 2 have"):
        begin(tmp_path / "lake", table)


def test_a_table_that_lacks_trimmed_records_is_written_over_in_one_commit(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([put(b"old", b"1")]))
    write_snapshot(
        tmp_path / "lake", 9, [*ROWS[:1], Row("map", pack((b"b",)), pack((b"2", 5)), 7)], machine(wider(MAP, "more"))
    )
    begin(tmp_path / "lake", table)
    assert DeltaTable(str(tmp_path / "t")).version() == 2
    assert table.open().revision == 9
    assert content(tmp_path / "t") == {b"a": (b"1", 2), b"b": (b"2", 7)}
    after = table.apply(records([((b"a",), (b"1", 8))], 10)).position
    assert after.digest == digest_of({pack((b"a",)): pack((b"1", 8)), pack((b"b",)): pack((b"2", 5))})


def test_a_damaged_snapshot_is_passed_over_and_none_at_all_is_one_error(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "lake", 6, ROWS[:1])
    write_snapshot(tmp_path / "lake", 9, ROWS)
    newest = DeltaTable(lake_place(str(tmp_path / "lake"), "orders")).file_uris()
    for uri in newest:
        path = Path(uri.removeprefix("file://"))
        path.write_bytes(b"x" * path.stat().st_size)
    table = follower(tmp_path / "t")
    assert begin(tmp_path / "lake", table).revision == 6
    assert table.open().revision == 6
    with pytest.raises(DeltaSinkError, match=r"has no sound snapshot of this log at revision 7 to 19 \(found: 9, 6\)"):
        begin(tmp_path / "lake", follower(tmp_path / "u"), first=8)
    assert follower(tmp_path / "u").position() is None


def test_a_snapshot_of_another_history_is_passed_over(tmp_path: Path) -> None:
    old, new = write_snapshot(tmp_path / "lake", 6, ROWS[:1]), write_snapshot(tmp_path / "lake", 9, ROWS)
    table = follower(tmp_path / "t")
    found = begin_with_snapshot(
        [table], str(tmp_path / "lake"), first_revision=5, end_revision=20, continues=lambda one: one != new
    )
    assert msgspec.structs.replace(found, files=()) == msgspec.structs.replace(old, files=())
