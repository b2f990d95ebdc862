"""SQL tables through Spark: followers while schema and rows change, the past, and proofs, beside what replicas say."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.delta.wait import wait_for
from connectors.errors import OptionError
from connectors.state.authorship import prove_authorship
from connectors.state.sql_table import sql_table
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark.sql import BlockingSqlClient
from tests.integration.store_processes import Stores, stores
from tests.integration.test_sql_commands import PATIENT, SQL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
LOG: Final = "followed-sql"
_NUMBERS: Final = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300)"
_BYTES: Final = "iif(i % 3, randomblob(4), NULL)"
_ANY: Final = "CASE id % 3 WHEN 0 THEN 'x' WHEN 1 THEN 0.5 ELSE x'00ff' END"
_STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT UNIQUE, price REAL, b BLOB, two AS (price * 2))",
        "CREATE TABLE old (who TEXT, n INTEGER, PRIMARY KEY (who, n)) WITHOUT ROWID",
        f"{_NUMBERS} INSERT INTO item (id, name, price, b) SELECT i, 'näme ' || i, i / 4.0, {_BYTES} FROM n",  # noqa: S608 - constants
        "INSERT INTO old VALUES ('x', 1), ('y', 9223372036854775807)",
    ),
    ("UPDATE item SET price = price + 1, name = upper(name) WHERE id % 2", "DELETE FROM item WHERE id % 5 = 0"),
    ("ALTER TABLE item ADD COLUMN stock INTEGER DEFAULT 7",),
    ("UPDATE item SET stock = id WHERE id < 50", "INSERT INTO item (id, name, stock) VALUES (1000, 'nut', NULL)"),
    ("CREATE TABLE sale (item INTEGER REFERENCES item, at TEXT DEFAULT CURRENT_TIMESTAMP, any)",),
    (
        "CREATE TRIGGER sold AFTER INSERT ON sale BEGIN UPDATE item SET stock = stock - 1 WHERE id = new.item; END",
        f"INSERT INTO sale (item, any) SELECT id, {_ANY} FROM item WHERE id < 40",  # noqa: S608 - constants
    ),
    ("DROP TABLE old",),
    ("CREATE TABLE old (again REAL, really BOOLEAN)", "INSERT INTO old VALUES (1, 1), (NULL, 0)"),
    ("ALTER TABLE item RENAME COLUMN price TO cost", "ALTER TABLE sale RENAME TO sold_item"),
    (
        "ALTER TABLE item DROP COLUMN b",
        "DELETE FROM sold_item WHERE item < 10",
        "REPLACE INTO item (id, name) VALUES (1, 'new')",
    ),
)
_TYPES: Final = {
    "item": {"id": "bigint", "name": "string", "price": "double", "cost": "double", "b": "binary", "stock": "bigint"},
    "sale": {"item": "bigint", "at": "string", "any": "string"},
    "old": {"who": "string", "n": "bigint", "again": "double", "really": "boolean"},
}
"""Of the columns, as they must come; `any` has values of several kinds."""

Told = dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]
"""Columns and rows of each table, as SELECT says."""


class FollowedShop:
    """A log of SQL tables with two replicas, a key, and what a replica said behind each step.

    Attributes:
        told: By revision.

    """

    def __init__(self, uri: str, replicas: Stores, key: Path) -> None:
        self.uri = uri
        self.replicas = replicas
        self.key = key
        self.source = {"metadataUri": uri, "logKeyFile": str(key)}
        self.told: dict[int, Told] = {}

    def live(self) -> None:
        """Run all steps; remember what SELECT says of each table behind each of them."""
        with BlockingSqlClient.connect(LOG, self.uri, timeout_s=60) as shop:
            for step in _STEPS:
                for sql in step:
                    revision = shop.transaction([sql]).revision
                self.told[revision] = _tables(shop)


def _tables(shop: BlockingSqlClient) -> Told:
    found: Told = {}
    names = shop.query("SELECT name FROM sqlite_schema WHERE type = 'table'")
    for (found_name,) in names.rows:
        name = str(found_name)
        if name.startswith(("_rsm_", "sqlite_")):
            continue
        said = shop.query(f"SELECT * FROM {name}")  # noqa: S608 - constants
        stored = [place for place, (column, _) in enumerate(said.columns) if column != "two"]
        columns = tuple(said.columns[place][0] for place in stored)
        found[name] = (columns, [tuple(row[place] for place in stored) for row in said.rows])
    return found


@pytest.fixture(scope="module")
def shop(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowedShop]:
    folder = tmp_path_factory.mktemp("sql")
    key = folder / "log.key"
    rsm = [sys.executable, "-m", "rsm_spark", "log", "key"]
    subprocess.run([*rsm, "new", "--file", str(key)], check=True, capture_output=True)
    with stores(cluster.metadata_uri, LOG, folder) as replicas:
        for name in "ab":
            keeping = ("--log-key", str(key), "--checkpoint-records", "100", "--roll-records", "400")
            replicas.start(name, *PATIENT, *keeping, command=SQL)
        yield FollowedShop(cluster.metadata_uri, replicas, key)


def _compare(spark: SparkSession, catalog: DataFrame, rows: DataFrame, told: Told) -> None:
    """Compare all tables with what SELECT said; names, types and rows."""
    tables = {row.name for row in catalog.where("kind = 'table'").collect()}
    assert tables == told.keys()
    for name, (columns, values) in told.items():
        types: Mapping[str, str] = _TYPES["sale" if name == "sold_item" else name]
        wanted = spark.createDataFrame(
            [
                tuple(_fitted(value, types[column]) for value, column in zip(row, columns, strict=True))
                for row in values
            ],
            ", ".join(f"{column} {types[column]}" for column in columns),
        )
        found = sql_table(catalog, rows, name.upper())
        assert found.columns[-1] == "_revision"
        assert_df_equality(found.drop("_revision"), wanted, ignore_row_order=True, ignore_nullable=True)


def _fitted(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "string" and not isinstance(value, str):
        return "\\x" + value.hex() if isinstance(value, bytes) else repr(value)
    return {"double": float, "boolean": bool}.get(kind, lambda same: same)(value)


def _past(spark: SparkSession, shop: FollowedShop, revision: int, table: str) -> DataFrame:
    options = {**shop.source, "log": LOG, "asOfRevision": str(revision), "table": table}
    return spark.read.format("ledger_state").options(**options).load()


def _follow_meanwhile(spark: SparkSession, shop: FollowedShop, lake: Path, checkpoint: Path) -> None:
    """Follow the log into tables while the shop lives; end when they have all of it."""
    settings = MaterializeSettings(
        log=LOG,
        source=shop.source,
        place=str(lake),
        checkpoint=str(checkpoint),
        is_every_table=True,
        records_per_batch_max=150,
        position_interval_s=0.5,
    )
    is_over = threading.Event()
    follower = Materializer(spark, settings, report=lambda _: None, should_stop=is_over.is_set)
    failed: list[BaseException] = []

    def follow() -> None:
        try:
            follower.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        shop.live()
        for table in ("catalog", "rows"):
            wait_for(str(lake / table), max(shop.told), 240)
    finally:
        is_over.set()
        thread.join(120)
    assert failed == []


def _prove(shop: FollowedShop, spark: SparkSession, lake: Path, public: Path) -> None:
    """Prove the tables by the log, and by whom it was written; a row that is not the log's is found."""
    end = max(shop.told)
    tables = tuple(str(lake / table) for table in ("catalog", "rows", "sequences"))
    proof = VerifySettings(LOG, tables=tables, source=shop.source)
    proved = verify_log(spark, proof)
    assert proved.ok, proved.differences
    assert proved.checkpoints > 0
    assert proved.covered.first_revision == 1
    assert proved.covered.last_revision >= end
    assert min(proved.tables.values()) > 0
    show = [sys.executable, "-m", "rsm_spark", "log", "key", "show-public", "--file", str(shop.key)]
    public.write_bytes(subprocess.run(show, check=True, capture_output=True).stdout)
    assert prove_authorship(LOG, public, shop.source)["signatures"] > 0
    number = spark.read.format("delta").load(str(lake / "catalog")).where("name = 'item'").collect()[0].number
    lie = f"number = {number} AND _revision < {end}"
    assert DeltaTable(str(lake / "rows")).update(updates={"image": "X'C0'"}, predicate=lie)["num_updated_rows"]
    lied = verify_log(spark, proof)
    assert not lied.ok
    assert {one.table for one in lied.differences} == {"rows"}


def test_a_follower_and_the_past_are_what_select_said_over_changes_of_the_schema(
    spark: SparkSession, shop: FollowedShop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    _follow_meanwhile(spark, shop, lake, tmp_path / "checkpoint")
    assert DeltaTable(str(lake / "rows")).version() > 2, "it followed while rows and tables changed"
    end = max(shop.told)
    catalog, rows = (spark.read.format("delta").load(str(lake / table)) for table in ("catalog", "rows"))
    _compare(spark, catalog, rows, shop.told[end])

    # The past: before the first ALTER; before a table is dropped whose name another one has at the end.
    revisions = sorted(shop.told)
    for revision in (revisions[1], revisions[5]):
        then = [_past(spark, shop, revision, table).cache() for table in ("catalog", "rows")]
        _compare(spark, then[0], then[1], shop.told[revision])
    with pytest.raises(OptionError, match="no SQL table 'nothing' in this catalog; its tables are item, old, sold"):
        sql_table(catalog, rows, "nothing")
    with pytest.raises(OptionError, match="not the table rows of a log of SQL tables"):
        sql_table(catalog, catalog, "item")

    # As the page shows it.
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "sql_table" in block]
    shown = shown.replace("/lake/followed", str(lake)).replace('"log": "shop"', f'"log": "{LOG}", **source')
    exec(shown.replace("1200", str(end)), {"source": shop.source})  # noqa: S102 - it is the page's
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 42, "twice a head and twenty rows"
    assert lines[:21] == lines[21:]

    _prove(shop, spark, lake, tmp_path / "public.key")
