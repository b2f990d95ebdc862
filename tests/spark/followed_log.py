"""A log of thirty keys that goes on from another one: what Spark must see of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.state.frame import state_as_of
from connectors.state.verify import VerifySettings, verify_log
from rsm_spark.core.records import pack
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.rows import value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def put_some(log: str, uri: str, first: int, last: int) -> int:
    """Put values number `first` to `last`; return the last revision."""
    revision = 0
    async with await MapClient.connect(log, uri) as client:
        for number in range(first, last):
            revision = await client.put(b"k%d" % (number % 30), b"v%d" % number)
    return revision


def check_state(spark: SparkSession, log: str, revision: int, source: dict[str, str], *, count: int) -> None:
    """Compare the state at a revision with that after so many puts."""
    rows = state_as_of(spark, log, revision, source=source).where("table_name = 'map'").collect()
    expected = {pack([b"k%d" % (number % 30)]): b"v%d" % number for number in range(count)}
    assert {bytes(row.key): value_of(bytes(row.row)) for row in rows} == expected


def check_followed_and_proved(
    spark: SparkSession, log: str, log_id: str, source: dict[str, str], folder: Path, *, count: int, end: int
) -> None:
    """Follow a log into a table, compare that with the state after so many puts, and verify both up to a revision."""
    place = str(folder / "table")
    settings = MaterializeSettings(
        log=log, place=place, source=source, checkpoint=str(folder / "checkpoint"), available_now=True
    )
    summary = Materializer(spark, settings, report=lambda _: None).run()
    assert summary.position.log_id == log_id
    table = DeltaTable(place).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["value"] for row in table} == {b"k%d" % (n % 30): b"v%d" % n for n in range(count)}
    proved = verify_log(spark, VerifySettings(log, tables=(place,), source=source))
    assert proved.ok, proved.differences
    assert proved.covered.last_revision >= end
