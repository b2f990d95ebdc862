"""Tables of a composed service, which stand in namespaces: rows of the log, the state, a Delta table each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rsm_spark.core.machine import MachineDescription
from rsm_spark.core.records import Record
from tests.spark.conftest import MACHINE
from tests.spark.test_followers import described, materialize, rows_of
from tests.unit.rsm_spark.core.typed_bank import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOP = MachineDescription(
    "map", 2, (*MACHINE.tables, *Shop.description.tables), (*MACHINE.records, *Shop.description.records)
)


def test_tables_of_parts_are_read_by_their_whole_names(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.roll()
    log.append([described(_SHOP), Record(272, None, ("ann", 5)), Record(528, None, ("a", 1, "hello", None))])
    log.append([Record(272, None, ("ann", 3)), Record(272, None, ("bob", 2))])
    changes = spark.read.format("ledger").options(**log.options(rows="table", table="bank.accounts")).load()
    found = changes.orderBy("_revision").select("name", "balance").collect()
    assert [tuple(row) for row in found] == [("ann", 5), ("ann", 3), ("bob", 2)]
    state = spark.read.format("ledger_state").options(**log.options(table="outbox.letters")).load()
    assert [(row.shelf, row.number, row.text, row.sender) for row in state.collect()] == [("a", 1, "hello", None)]
    materialize(spark, log, tmp_path, is_every_table=True, place=str(tmp_path / "lake"))
    accounts = rows_of(tmp_path / "lake" / "bank.accounts", "name")
    assert {name: row["balance"] for name, row in accounts.items()} == {"ann": 3, "bob": 2}
