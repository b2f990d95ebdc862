"""SQL tables in the lake, as processes keep them: typed tables say what SELECT says, before and after ALTER TABLE."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from ledger.dev import DevCluster
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.tables.revisions import TableVersion
from rsm_spark.sql import BlockingSqlClient
from tests.integration.store_processes import stores
from tests.integration.test_sql_commands import PATIENT, SQL
from tests.integration.test_store_cluster import run_cli

WAIT_S = 120.0
KEEPING = ("--snapshot-s", "1", "--lake-s", "1", "--verify-s", "0.5")
_SCHEMA = (
    "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, b BLOB, sold BOOLEAN, two AS (price * 2))",
    'CREATE TABLE "sold items" (shop TEXT, item INTEGER, n INTEGER, any, PRIMARY KEY (shop, item)) WITHOUT ROWID',
    "CREATE TABLE bare (a TEXT)",
)
_ITEMS = [
    (n, None if n % 7 == 0 else f"näme {n}\n", n / 3, bytes([n % 256, 0]) if n % 5 else None, n % 2) for n in range(400)
]


def written(lake: LakeSnapshots, revision: int) -> dict[str, TableVersion]:
    """Wait until the lake has tables of this revision or a newer one; return the newest ones."""
    deadline = time.monotonic() + WAIT_S
    while lake.tables.newest_revision() < revision:
        assert time.monotonic() < deadline, f"no typed tables of revision {revision}"
        time.sleep(0.2)
    versions = lake.tables.versions()
    return {one.table: one for one in versions if one.revision == versions[0].revision}


def delta_rows(lake: LakeSnapshots, one: TableVersion) -> tuple[list[str], list[tuple[Any, ...]]]:
    found: pa.Table = DeltaTable(f"{lake.tables.place}/{one.path}", version=one.version).to_pyarrow_table()
    assert one.problem == ""
    assert found.num_rows == one.rows
    return found.column_names, sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def sql_rows(shop: BlockingSqlClient, columns: str, table: str) -> list[tuple[Any, ...]]:
    rows = shop.query(f'SELECT {columns} FROM "{table}"').rows  # noqa: S608 - constants
    return sorted((tuple(row) for row in rows), key=repr)


def test_typed_tables_are_what_select_says_over_a_change_of_columns(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, place = cluster.metadata_uri, unique_name, str(tmp_path / "lake")
    lake = LakeSnapshots(lake_place(place, log))
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, *PATIENT, *KEEPING, "--lake", place, command=SQL)
        with BlockingSqlClient.connect(log, uri, timeout_s=60) as shop:
            shop.transaction(_SCHEMA)
            for first in range(0, len(_ITEMS), 100):
                sql = "INSERT INTO item (id, name, price, b, sold) VALUES (?, ?, ?, ?, ?)"
                shop.executemany(sql, _ITEMS[first : first + 100])
            sold = "INSERT INTO \"sold items\" VALUES ('x', 1, 9223372036854775807, 'one'), ('x', 2, -1, NULL)"
            before = written(lake, shop.transaction([sold]).revision)
            assert before.keys() == {"item", "sold items", "bare"}
            assert before["item"].rows == len(_ITEMS)
            # SELECT has 0 and 1 where the column of the lake is of truth values: they are equal.
            old = delta_rows(lake, before["item"])
            assert old[0] == ["id", "name", "price", "b", "sold"]
            assert old[1] == sorted(
                ((*row[:-1], bool(row[-1])) for row in sql_rows(shop, "id, name, price, b, sold", "item")), key=repr
            )
            names, rows = delta_rows(lake, before["sold items"])
            assert (names, rows) == (["shop", "item", "n", "any"], sql_rows(shop, "*", "sold items"))
            assert delta_rows(lake, before["bare"]) == (["a"], [])

            changes = (
                "ALTER TABLE item ADD COLUMN stock INTEGER DEFAULT 7",
                "DELETE FROM item WHERE id % 3 = 0",
                "UPDATE item SET stock = id, price = NULL WHERE id % 10 = 1",
            )
            after = written(lake, max(shop.transaction([sql]).revision for sql in changes))
            names, rows = delta_rows(lake, after["item"])
            assert names == ["id", "name", "price", "b", "sold", "stock"]
            told = sql_rows(shop, "id, name, price, b, sold, stock", "item")
            assert rows == sorted(((*row[:4], bool(row[4]), row[5]) for row in told), key=repr)
            assert {row[5] for row in rows if row[0] % 10 != 1} == {7}, "rows from before have the default"
            assert after["sold items"].version == before["sold items"].version, "it is as it was"
            assert delta_rows(lake, before["item"]) == old, "the older version keeps its columns and rows"
        asked = ("lake", "tables", log, "--lake", place, "--at-revision")
        for states in (before, after):
            code, (said,) = run_cli(uri, *asked, str(states["item"].revision))
            found = {one["table"]: (one["version"], one["revision"], one["rows"]) for one in said["tables"]}
            assert (code, found) == (0, {name: (one.version, one.revision, one.rows) for name, one in states.items()})
