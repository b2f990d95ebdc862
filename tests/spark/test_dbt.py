"""dbt on logs over Spark's Thrift server: the project of the guide, run and tested, beside a fold in plain Python."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from chispa import assert_df_equality

from connectors.session import cached_jars
from rsm_spark.core.records import Record
from tests.spark.children import CHILD_S, child_environment
from tests.spark.foreign_python import foreign_environment
from tests.spark.thrift_server import ThriftServer, thrift_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_GUIDE = (_ROOT / "docs" / "guides" / "dbt.md").read_text()
_FILES = dict(re.findall(r"`([\w/]+\.(?:yml|sql))`:\n\n```\w+\n(.*?)```", _GUIDE, re.DOTALL))
_START, _COMMANDS = re.findall(r"```sh\n(.*?)```", _GUIDE, re.DOTALL)
(_SOURCES,) = (block for block in re.findall(r"```sql\n(.*?)```", _GUIDE, re.DOTALL) if "CREATE TABLE" in block)
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * CHILD_S)]


class Project:
    """The guide's project, about one log."""

    def __init__(self, folder: Path, log: str, port: int) -> None:
        self.results: Counter[str] = Counter()
        self._folder = folder
        self._dbt = foreign_environment(_ROOT / "tools" / "dbt.lock") / "dbt"
        for name, text in _FILES.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace('"orders":', f'"{log}":').replace("port: 10000", f"port: {port}"))

    def run(self, command: str) -> None:
        """Run a command of the guide; what became of each model or test is in `results`."""
        words = shlex.split(command)
        done = subprocess.run(
            [self._dbt, *words[1:]], cwd=self._folder, env=child_environment(DBT_PROFILES_DIR=str(self._folder)),
            capture_output=True, text=True, timeout=CHILD_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        named = "sources.json" if "freshness" in words else "run_results.json"
        told = msgspec.json.decode((self._folder / "target" / named).read_bytes())["results"]
        self.results = Counter(one["status"] for one in told)


@pytest.fixture
def server(log: Any, tmp_path: Path) -> Iterator[ThriftServer]:
    settings = {"spark.driver.extraClassPath": ":".join(map(str, cached_jars())), **_DELTA}
    variables = {"RSM_METADATA_URI": log.metadata_uri}
    with thrift_server(tmp_path, settings, command=shlex.split(_START), **variables) as started:
        yield started


class Orders:
    """The log, and what plain Python makes of it."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.changes: list[tuple[str, int | None, str, int]] = []
        """Key, amount, fold, revision."""

    def put(self, **amounts: int) -> None:
        self._append({name.replace("_", "/"): amount for name, amount in amounts.items()})

    def delete(self, *keys: str) -> None:
        self._append(dict.fromkeys(keys))

    def _append(self, amounts: dict[str, int | None]) -> None:
        revision = self._log.revision
        records = []
        for number, (key, amount) in enumerate(amounts.items(), 1):
            fields = (key.encode(),) if amount is None else (key.encode(), b"%d" % amount)
            records.append(Record(17 if amount is None else 16, None, fields))
            self.changes.append((key, amount, "delete" if amount is None else "upsert", revision + number))
        self._log.append(records)

    @property
    def state(self) -> dict[str, tuple[int, int]]:
        """Amount and revision of each key that is there."""
        found: dict[str, tuple[int, int]] = {}
        for key, amount, _, revision in self.changes:
            found.pop(key, None)
            if amount is not None:
                found[key] = (amount, revision)
        return found

    def customers(self) -> list[tuple[str, int, int]]:
        """Customer, orders, sum of amounts."""
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for key, (amount, _) in self.state.items():
            customer = key.partition("/")[0]
            counts[customer] += 1
            sums[customer] += amount
        return [(customer, count, sums[customer]) for customer, count in counts.items()]

    def latest(self) -> list[tuple[str, int | None, str, int]]:
        """Return the last change of each key."""
        return list({change[0]: change for change in self.changes}.values())


def _same(found: DataFrame, rows: list[Any], schema: str) -> None:
    wanted = found.sparkSession.createDataFrame(rows, schema)
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def _check(spark: SparkSession, server: ThriftServer, orders: Orders) -> None:
    marts = server.warehouse / "marts.db"
    view = server.ask(f"SET {_OWN}", "SELECT id, amount, _revision FROM marts.orders ORDER BY id")[-len(orders.state) :]
    assert view == [[key, *map(str, told)] for key, told in sorted(orders.state.items())]
    _same(spark.read.parquet(str(marts / "customers")), orders.customers(), "customer string, orders long, amount long")
    _same(
        spark.read.parquet(str(marts / "changes")).drop("_logged_at"), orders.changes,
        "id string, amount long, _fold string, _revision long",
    )  # fmt: skip
    _same(
        spark.read.format("delta").load(str(marts / "latest")), orders.latest(),
        "id string, amount long, fold string, revision long",
    )  # fmt: skip


_OWN = "spark.sql.catalog.spark_catalog = builtin"


def test_the_guides_project_makes_views_and_tables_of_a_log_and_goes_on_with_it(
    spark: SparkSession, server: ThriftServer, log: Any, tmp_path: Path
) -> None:
    assert len(_FILES) == 7
    project = Project(tmp_path / "shop", log.name, server.port)
    run, test, freshness = _COMMANDS.splitlines()
    orders = Orders(log)
    orders.put(ann_1=17, ann_2=5, bob_1=9, cid_1=1)
    orders.delete("cid/1")
    orders.put(bob_1=10)
    statements = [one.strip() for one in _SOURCES.replace("log 'orders'", f"log '{log.name}'").split(";")]
    server.ask(*filter(None, statements))
    project.run(run)
    assert project.results == {"success": 4}
    _check(spark, server, orders)

    log.roll()
    orders.put(ann_3=100, cid_1=2)
    orders.delete("ann/1", "nobody/1")
    project.run(run)
    assert project.results == {"success": 4}
    _check(spark, server, orders)
    project.run(test)
    assert project.results == {"pass": 10}
    # The log of these tests was written in 1970: it is not fresh, which the command says by its code.
    with pytest.raises(AssertionError, match="ERROR STALE"):
        project.run(freshness)
