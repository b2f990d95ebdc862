"""Typed tables in the lake: what is written for a state, what is left as it is, and what a killed writer leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction

from rsm_spark.core.machine import Field, FieldType, MachineDescription, Row, TableDescription
from rsm_spark.core.records import pack
from rsm_spark.core.row_tables import DescribedTables
from rsm_spark.errors import SnapshotError
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.snapshots.tables import lake_tables
from rsm_spark.snapshots.tables.lake_tables import LakeTables
from rsm_spark.snapshots.tables.naming import tables_place
from rsm_spark.snapshots.tables.revisions import Revisions, TableVersion
from rsm_spark.snapshots.tables.typed_table import VersionedTable

ORDERS = TableDescription(
    "orders",
    (Field("id", FieldType.INT),),
    (Field("item", FieldType.STR), Field("price", FieldType.DECIMAL, precision=8, scale=2)),
)
NOTES = TableDescription("notes", (Field("name", FieldType.STR),), (Field("text", FieldType.BYTES, nullable=True),))
SHOP = MachineDescription("shop", 1, (ORDERS, NOTES), ())
HOUR_MS = 3_600_000


def order(number: int, item: str, price: str, revision: int) -> Row:
    return Row("orders", pack((number,)), pack((item, price)), revision)


def note(name: str, text: bytes | None, revision: int) -> Row:
    return Row("notes", pack((name,)), pack((text,)), revision)


def manifest_at(revision: int, machine: MachineDescription = SHOP, log_id: str = "ab" * 16) -> SnapshotManifest:
    return SnapshotManifest(
        "shop", log_id, revision, 3, revision, f"{revision:064x}", "00" * 16, 0, 1, revision * 1000, revision * 1000,
        machine,
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> str:
    return tables_place(str(tmp_path / "shop"))


def lake_at(place: str, retention_hours: int = 24) -> LakeTables:
    return LakeTables(place, retention_hours=retention_hours, pace=lambda: no_pace)


def write(
    place: str, revision: int, rows: Sequence[Row], machine: MachineDescription = SHOP
) -> dict[str, TableVersion]:
    kernel = Row("_sessions", pack((b"s",)), pack((1,)), revision)
    found = lake_at(place).write(
        manifest_at(revision, machine), lambda: iter([kernel, *rows]), DescribedTables(machine)
    )
    return {one.table: one for one in found}


def read(place: str, table: str, version: int | None = None) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(f"{place}/{table}", version=version).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: str(list(row.values())))


def history(place: str, table: str) -> list[Any]:
    return [
        msgspec.json.decode(one["userMetadata"])
        for one in DeltaTable(f"{place}/{table}").history()
        if "userMetadata" in one
    ]


def test_each_table_has_typed_columns_and_the_revision_of_each_row(place: str) -> None:
    found = write(place, 9, [order(1, "tea", "1.50", 4), order(2, "jam", "20.00", 9), note("a", None, 3)])
    assert read(place, "orders") == [
        {"id": 1, "item": "tea", "price": Decimal("1.50"), "_revision": 4},
        {"id": 2, "item": "jam", "price": Decimal("20.00"), "_revision": 9},
    ]
    assert read(place, "notes") == [{"name": "a", "text": None, "_revision": 3}]
    assert [(one.table, one.version, one.revision, one.rows, one.prefix_hash) for one in lake_at(place).versions()] == [
        ("notes", 0, 9, 1, f"{9:064x}"), ("orders", 0, 9, 2, f"{9:064x}"),
    ]  # fmt: skip
    assert found["orders"].logged_at == datetime.fromtimestamp(9, UTC)
    (said,) = history(place, "orders")
    assert said | {"digest": ""} == {
        "table": "orders", "log": "shop", "log_id": "ab" * 16, "revision": 9, "ledger_id": 3, "entry_id": 9,
        "prefix_hash": f"{9:064x}", "state_digest": "00" * 16, "digest": "", "rows": 2,
    }  # fmt: skip
    assert said["digest"] == found["orders"].digest


def test_every_type_of_a_column(place: str) -> None:
    fields = [
        (Field("i", FieldType.INT), -(2**63), -(2**63)),
        (Field("f", FieldType.FLOAT), 1.5, 1.5),
        (Field("b", FieldType.BOOL), True, True),
        (Field("s", FieldType.STR), "é", "é"),
        (Field("y", FieldType.BYTES), b"\xff", b"\xff"),
        (Field("d", FieldType.DECIMAL, precision=38, scale=3), "-1.250", Decimal("-1.250")),
        (Field("t", FieldType.TIMESTAMP), 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (Field("a", FieldType.DATE), 1, date(1970, 1, 2)),
        (Field("u", FieldType.UUID), b"\1" * 16, str(UUID(bytes=b"\1" * 16))),
        (Field("j", FieldType.JSON), '{"a":1}', '{"a":1}'),
        (Field("l", FieldType.LIST, items=FieldType.DATE), [0, 1], [date(1970, 1, 1), date(1970, 1, 2)]),
        (Field("gone", FieldType.INT, nullable=True, dropped=True), None, None),
        (Field("_revision", FieldType.INT, nullable=True), 7, 7),
        (Field("later", FieldType.DECIMAL, default=Decimal(2), precision=4, scale=1), ..., Decimal("2.0")),
    ]
    table = TableDescription("all", (Field("key", FieldType.INT),), tuple(field for field, _, _ in fields))
    row = Row("all", pack((1,)), pack(tuple(value for _, value, _ in fields if value is not ...)), 5)
    write(place, 9, [row], MachineDescription("shop", 1, (table,), ()))
    expected = {field.name: shown for field, _, shown in fields if not field.dropped}
    expected["_revision_2"] = expected.pop("_revision")
    assert read(place, "all") == [{"key": 1, **expected, "_revision": 5}]


def test_what_has_not_changed_keeps_its_version_and_what_only_grew_is_appended(place: str) -> None:
    rows = [order(n, "tea", "1.50", n) for n in range(1, 6)]
    write(place, 9, [*rows, note("a", b"x", 6)])
    files = DeltaTable(f"{place}/orders").file_uris()
    found = write(place, 20, [*rows, order(6, "jam", "2.00", 15), note("a", b"x", 6)])
    assert (found["notes"].version, found["orders"].version, found["orders"].appends) == (0, 1, 1)
    assert set(files) < set(DeltaTable(f"{place}/orders").file_uris())
    assert [row["id"] for row in read(place, "orders")] == [1, 2, 3, 4, 5, 6]
    assert [row["id"] for row in read(place, "orders", 0)] == [1, 2, 3, 4, 5]
    # The same value again is another revision of the row.
    found = write(place, 30, [*rows[:4], order(5, "tea", "1.50", 25), order(6, "jam", "2.00", 15), note("a", b"x", 6)])
    assert (found["notes"].version, found["orders"].version, found["orders"].appends) == (0, 2, 0)
    assert {row["id"]: row["_revision"] for row in read(place, "orders")} == {1: 1, 2: 2, 3: 3, 4: 4, 5: 25, 6: 15}
    found = write(place, 40, [*rows[1:4], order(5, "tea", "1.50", 25), note("a", b"x", 6), note("b", b"y", 35)])
    assert [row["id"] for row in read(place, "orders")] == [2, 3, 4, 5]
    assert [row["name"] for row in read(place, "notes")] == ["a", "b"]
    found = write(place, 50, [])
    assert read(place, "orders") == read(place, "notes") == []
    assert [(one.revision, one.table, one.version) for one in lake_at(place).versions() if one.table == "notes"] == [
        (50, "notes", 2), (40, "notes", 1), (30, "notes", 0), (20, "notes", 0), (9, "notes", 0),
    ]  # fmt: skip


def test_a_table_that_was_appended_to_often_is_written_anew(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_tables, "_APPENDS_MAX", 2)
    rows: list[Row] = []
    for revision in range(1, 6):
        rows.append(order(revision, "tea", "1.50", revision))
        write(place, revision, rows)
    assert len(read(place, "orders")) == 5
    assert len(DeltaTable(f"{place}/orders").file_uris()) == 2, "one was written anew, one was added"


def test_the_same_or_an_older_snapshot_changes_nothing(place: str) -> None:
    first = write(place, 20, [order(1, "tea", "1.50", 4)])
    assert write(place, 20, [order(1, "jam", "1.50", 4)]) == first
    assert write(place, 10, [order(1, "jam", "1.50", 4)]) == {}
    assert DeltaTable(f"{place}/orders").version() == 0


def test_columns_follow_the_description_and_old_versions_keep_theirs(place: str) -> None:
    write(place, 9, [order(1, "tea", "1.50", 4)])
    renamed = Field("article", FieldType.STR, was=("item",))
    wider = TableDescription("orders", ORDERS.key, (renamed, ORDERS.row[1], Field("count", FieldType.INT, default=1)))
    found = write(place, 20, [order(1, "tea", "1.50", 4)], MachineDescription("shop", 2, (wider, NOTES), ()))
    assert found["orders"].version == 1
    assert read(place, "orders") == [{"id": 1, "article": "tea", "price": Decimal("1.50"), "count": 1, "_revision": 4}]
    assert read(place, "orders", 0) == [{"id": 1, "item": "tea", "price": Decimal("1.50"), "_revision": 4}]
    dropped = msgspec.structs.replace(ORDERS.row[1], nullable=True, dropped=True)
    narrow = TableDescription("orders", ORDERS.key, (renamed, dropped, Field("count", FieldType.INT, default=1)))
    write(place, 30, [order(1, "tea", "1.50", 4)], MachineDescription("shop", 3, (narrow, NOTES), ()))
    assert read(place, "orders") == [{"id": 1, "article": "tea", "count": 1, "_revision": 4}]


def test_a_table_that_is_gone_has_no_rows_any_more_and_may_come_back(place: str) -> None:
    write(place, 9, [order(1, "tea", "1.50", 4), note("a", b"x", 6)])
    without = MachineDescription("shop", 2, (NOTES,), ())
    assert sorted(write(place, 20, [note("a", b"x", 6)], without)) == ["notes"]
    assert read(place, "orders") == []
    assert history(place, "orders")[0]["gone"] is True
    assert len(read(place, "orders", 0)) == 1
    write(place, 30, [note("a", b"x", 6)], without)
    assert DeltaTable(f"{place}/orders").version() == 1, "it is emptied once"
    found = write(place, 40, [order(1, "tea", "1.50", 4), note("a", b"x", 6)])
    assert found["orders"].version == 2
    assert len(read(place, "orders")) == 1


def test_a_row_that_does_not_fit_is_told_and_the_other_tables_go_on(place: str) -> None:
    bad = Row("orders", pack((2,)), pack(("jam", "cheap")), 9)
    found = write(place, 9, [order(1, "tea", "1.50", 4), bad, note("a", b"x", 6)])
    assert (found["orders"].version, found["notes"].version) == (-1, 0)
    assert found["orders"].problem.startswith("column price (decimal(8,2)), rows up to revision 9: ")
    assert not (Path(place) / "orders" / "_delta_log").exists()
    found = write(place, 20, [order(1, "tea", "1.50", 4), note("a", b"x", 6)])
    assert (found["orders"].version, found["orders"].problem) == (0, "")


def test_another_logs_tables_are_left_alone(place: str) -> None:
    write(place, 9, [order(1, "tea", "1.50", 4)])
    with pytest.raises(SnapshotError, match="these are tables of log shop with id abab"):
        lake_at(place).write(manifest_at(20, log_id="cd" * 16), lambda: iter(()), DescribedTables(SHOP))


def test_more_tables_than_can_be_kept_are_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_tables, "_TABLES_MAX", 1)
    with pytest.raises(SnapshotError, match="has 2 tables: typed tables are kept of 1 at most"):
        write(place, 9, [])


def test_rows_of_a_table_in_two_places_are_refused(place: str) -> None:
    with pytest.raises(SnapshotError, match="rows of table orders do not stand one behind the other"):
        write(place, 9, [order(1, "tea", "1.50", 4), note("a", b"x", 6), order(2, "tea", "1.50", 4)])
    assert lake_at(place).versions() == []


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


@pytest.mark.parametrize("after", ["notes", "orders", "revisions"])
def test_a_writer_that_is_killed_leaves_what_readers_had_and_the_next_one_repairs(
    place: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write(place, 9, [order(1, "tea", "1.50", 4), note("a", b"x", 6)])
    kept = read(place, "orders"), read(place, "notes")
    count = iter(range(1, 9))

    def settled(self: Any, said: str) -> int:
        # The commit is there; nothing of what comes behind it is.
        if next(count) == (1 if after == "notes" else 2):
            raise Killed
        return original(self, said)

    original = VersionedTable._settled
    with monkeypatch.context() as patched:
        if after == "revisions":
            patched.setattr(Revisions, "write", lambda *_: (_ for _ in ()).throw(Killed()))
        else:
            patched.setattr(VersionedTable, "_settled", settled)
        rows = [order(1, "tea", "1.50", 4), order(2, "jam", "2.00", 15), note("a", b"y", 16)]
        with pytest.raises(Killed):
            write(place, 20, rows)
    trusted = {one.table: one for one in lake_at(place).versions()}
    assert trusted == before
    assert (read(place, "orders", trusted["orders"].version), read(place, "notes", trusted["notes"].version)) == kept
    # The next one is of a later state, and never adds to rows that nobody trusts.
    later = [order(3, "rum", "9.00", 25), *rows]
    found = write(place, 30, later)
    assert [row["id"] for row in read(place, "orders", found["orders"].version)] == [1, 2, 3]
    assert read(place, "orders") == read(place, "orders", found["orders"].version)
    assert read(place, "notes") == [{"name": "a", "text": b"y", "_revision": 16}]


def test_two_writers_at_once_add_nothing_twice(place: str) -> None:
    rows = [order(1, "tea", "1.50", 4)]
    write(place, 9, rows)
    more = [*rows, order(2, "jam", "2.00", 15)]

    def slow() -> Iterator[Row]:
        yield from more
        if not raced:
            raced.append(True)
            write(place, 20, more)

    raced: list[bool] = []
    with pytest.raises(SnapshotError, match=r"another writer has committed since version 0|cannot be written"):
        lake_at(place).write(manifest_at(20), slow, DescribedTables(SHOP))
    assert [row["id"] for row in read(place, "orders")] == [1, 2]
    assert [one.revision for one in lake_at(place).versions() if one.table == "orders"] == [20, 9]


def test_delta_refuses_a_commit_between_look_and_commit(place: str) -> None:
    write(place, 9, [order(1, "tea", "1.50", 4)])
    table, other = lake_at(place).at("orders"), lake_at(place).at("orders")
    typed = DescribedTables(SHOP).tables()["orders"]
    transaction = Transaction(f"rsm-tables-{'ab' * 16}", 20)

    def commit() -> None:
        other.write(typed, iter([order(2, "jam", "2.00", 15)]), "theirs", transaction, base=0, pace=no_pace)

    def racing() -> Iterator[Row]:
        racer = threading.Thread(target=commit)  # The rows are asked for on a thread of the engine's own.
        racer.start()
        racer.join()
        yield order(2, "jam", "2.00", 15)

    with pytest.raises(SnapshotError, match="cannot be written"):
        table.write(typed, racing(), "ours", transaction, base=0, pace=no_pace)
    assert [row["id"] for row in read(place, "orders")] == [1, 2]


def test_maintenance_by_others_costs_no_rows(place: str) -> None:
    rows = [order(1, "tea", "1.50", 4)]
    write(place, 9, rows)
    write(place, 20, [*rows, order(2, "jam", "2.00", 15)])
    DeltaTable(f"{place}/orders").optimize.compact()
    more = [*rows, order(2, "jam", "2.00", 15), order(3, "rum", "9.00", 25)]
    write(place, 30, more)
    assert [row["id"] for row in read(place, "orders")] == [1, 2, 3]
    DeltaTable(f"{place}/orders").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert write(place, 40, more)["orders"].appends == 0
    assert [row["id"] for row in read(place, "orders")] == [1, 2, 3]


def test_a_table_whose_newest_file_is_gone_is_written_anew(place: str) -> None:
    rows = [order(1, "tea", "1.50", 4)]
    write(place, 9, rows)
    (uri,) = DeltaTable(f"{place}/orders").file_uris()
    Path(uri).unlink()
    assert write(place, 20, rows)["orders"].version == 1
    assert len(read(place, "orders")) == 1


def test_old_versions_go_and_what_is_named_stays(place: str) -> None:
    revisions = [hour * HOUR_MS // 1000 for hour in (1, 2, 3, 40, 41, 42, 43)]
    for number, revision in enumerate(revisions):
        rows = [order(n, "tea", f"{number}.00", revision) for n in range(3)]
        lake = lake_at(place, retention_hours=0) if number > 3 else lake_at(place)
        lake.write(manifest_at(revision), lambda rows=rows: iter(rows), DescribedTables(SHOP))
    versions = [one for one in lake_at(place).versions() if one.table == "orders"]
    assert [one.revision for one in versions] == revisions[:-4:-1]
    assert [read(place, "orders", one.version)[0]["price"] for one in versions] == [Decimal(6), Decimal(5), Decimal(4)]
    files = [path for path in (Path(place) / "orders").iterdir() if path.suffix == ".parquet"]
    assert len(files) == 3
    without = MachineDescription("shop", 2, (NOTES,), ())
    for number in range(4):
        lake_at(place, retention_hours=0).write(
            manifest_at(revisions[-1] + 1 + number, without), lambda: iter(()), DescribedTables(without)
        )
    assert not (Path(place) / "orders").exists(), "nothing names it any more"
