"""SQL tables as typed tables of the lake: columns and values of what the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.core.row_tables import TabledMachine
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.snapshots.tables.lake_tables import LakeTables
from rsm_spark.snapshots.tables.revisions import TableVersion
from rsm_spark.sql.engine.lake_rows import SqlRowTables
from rsm_spark.sql.records import DESCRIPTION, ROWS
from tests.unit.rsm_spark.sql.sql_pair import SqlPair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SqlPair]:
    pair = SqlPair(tmp_path)
    yield pair
    pair.close()


class Lake:
    """The tables of a pair's leader."""

    def __init__(self, pair: SqlPair, place: Path) -> None:
        self._pair, self.place = pair, place

    def write(self) -> dict[str, TableVersion]:
        """Write them at the present revision."""
        machine, revision = self._pair.leader, self._pair.state.revision
        assert isinstance(machine, TabledMachine)
        manifest = SnapshotManifest("s", "ab" * 16, revision, 1, 1, "00" * 32, "00" * 16, 0, 1, 5, 6, DESCRIPTION)
        lake = LakeTables(str(self.place), pace=lambda: no_pace)
        return {one.table: one for one in lake.write(manifest, self._pair.state.rows, machine.row_tables())}

    def read(self, path: str, version: int | None = None) -> list[dict[str, Any]]:
        found: Any = DeltaTable(f"{self.place}/{path}", version=version).to_pyarrow_table()
        return sorted(found.to_pylist(), key=lambda row: str(list(row.values())))


@pytest.fixture
def lake(pair: SqlPair, tmp_path: Path) -> Lake:
    return Lake(pair, tmp_path / "lake")


def test_columns_have_the_declared_type_or_that_of_their_values(pair: SqlPair, lake: Lake) -> None:
    reply = pair.do(
        "CREATE TABLE t (name TEXT, id INTEGER PRIMARY KEY, ok BOOLEAN, price DECIMAL(8,2), day DATE, b BLOB, x, "
        "mixed, big NUMERIC, double AS (id * 2))",
        "INSERT INTO t (name, id, ok, price, day, b, x, mixed, big) VALUES "
        "('a', 1, 1, 1.5, '2026-01-02', x'ff', 5, 1, 9007199254740993), "
        "('b', 2, 0, 2, NULL, NULL, NULL, x'00', 0.5), (NULL, 3, NULL, NULL, NULL, NULL, 0, 'z', NULL)",
        "CREATE TABLE no_rows (a INTEGER, b REAL, c)",
        "CREATE TABLE pairs (y TEXT, x INTEGER, v REAL, PRIMARY KEY (x, y)) WITHOUT ROWID",
        "INSERT INTO pairs VALUES ('p', 1, 2)",
        "CREATE VIEW seen AS SELECT * FROM t",
    )
    assert reply.fault is None
    found = lake.write()
    assert sorted(found) == ["no_rows", "pairs", "t"]
    one = {"name": "a", "id": 1, "ok": True, "price": 1.5, "day": "2026-01-02", "b": b"\xff", "x": 5, "mixed": "1"}
    two = {"name": "b", "id": 2, "ok": False, "price": 2.0, "day": None, "b": None, "x": None, "mixed": "\\x00"}
    three = {"name": None, "id": 3, "ok": None, "price": None, "day": None, "b": None, "x": 0, "mixed": "z"}
    assert lake.read("t") == [
        {**one, "big": "9007199254740993"}, {**two, "big": "0.5"}, {**three, "big": None},
    ]  # fmt: skip
    assert lake.read("pairs") == [{"y": "p", "x": 1, "v": 2.0}]
    assert lake.read("no_rows") == []


def test_versions_follow_rows_and_the_schema(pair: SqlPair, lake: Lake) -> None:
    pair.do("CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO a VALUES (1, 'x'), (2, 'y')")
    pair.do("CREATE TABLE b (id INTEGER PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    lake.write()
    pair.do("UPDATE a SET v = 'z' WHERE id = 2")
    found = lake.write()
    assert (found["a"].version, found["b"].version) == (1, 0)
    pair.do("ALTER TABLE a ADD COLUMN n INTEGER DEFAULT 7")
    pair.do("ALTER TABLE a RENAME COLUMN v TO value")
    assert lake.write()["a"].version == 2
    assert lake.read("a") == [{"id": 1, "value": "x", "n": 7}, {"id": 2, "value": "z", "n": 7}]
    pair.do("ALTER TABLE a DROP COLUMN n")
    pair.do("ALTER TABLE b RENAME TO c")
    found = lake.write()
    assert sorted(found) == ["a", "c"]
    assert lake.read("a") == [{"id": 1, "value": "x"}, {"id": 2, "value": "z"}]
    assert (lake.read("b"), lake.read("c")) == ([], [{"id": 1}])
    assert lake.read("a", 0) == [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}]


def test_a_name_that_is_no_folder_and_columns_that_delta_has_not(pair: SqlPair, lake: Lake) -> None:
    pair.do('CREATE TABLE "../é tea" ("a b" INTEGER, "a,b" INTEGER, _revision INTEGER)')
    pair.do('INSERT INTO "../é tea" VALUES (1, 2, 3)')
    (found,) = lake.write().values()
    assert found.table == "../é tea"
    assert (lake.place / found.path).is_dir()
    assert found.path.startswith("-----tea~")
    assert lake.read(found.path) == [{"a_b": 1, "a_b_2": 2, "_revision": 3}]


def test_a_row_before_its_catalog_is_refused() -> None:
    row = Row(ROWS, pack((4, pack((1,)))), pack((pack(()),)), 1)
    with pytest.raises(CorruptSnapshotError, match="a row is of table 4, which is not in the catalog before it"):
        SqlRowTables().look(row)
