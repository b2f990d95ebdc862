"""One call makes the history of any machine a set of views, and a broker's history too."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.delta.materialize import Materializer
from connectors.delta.place import APPEND_MODE
from connectors.delta.settings import MaterializeSettings
from connectors.errors import ForeignTableError
from connectors.history import history_views
from examples.counter import Counters
from rsm_spark.core.records import Record
from tests.spark.conftest import MACHINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()


def materialize(spark: SparkSession, log: Any, folder: Path, mode: str = APPEND_MODE) -> None:
    settings = MaterializeSettings(
        log=log.name,
        place=str(folder),
        source={"metadataUri": log.metadata_uri},
        is_every_table=True,
        mode=mode,
        available_now=True,
    )
    Materializer(spark, settings, report=lambda _progress: None).run()


def test_each_version_of_a_row_of_the_map_has_its_interval(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    # By revision: the map as it was from that record on.
    states: dict[int, dict[bytes, bytes]] = {}
    now: dict[bytes, bytes] = {}
    for _ in range(60):
        key = b"key-%d" % rng.randrange(6)
        if rng.random() < 0.3 and key in now:
            log.delete(key)
            del now[key]
        else:
            now[key] = b"%d" % rng.randrange(1_000)
            log.put({key: now[key]})
        states[log.revision] = dict(now)
    materialize(spark, log, tmp_path / "lake")
    assert history_views(spark, str(tmp_path / "lake"), prefix="m_") == ["m_map_changes", "m_map_versions", "m_map"]
    assert spark.table("m_map_changes").count() == 60
    assert {bytes(row.key): bytes(row.value) for row in spark.table("m_map").collect()} == now
    versions = spark.table("m_map_versions").collect()
    for revision, state in states.items():
        there = [
            row
            for row in versions
            if row._revision <= revision and (row._until_revision is None or row._until_revision > revision)
        ]
        assert {bytes(row.key): bytes(row.value) for row in there} == state
        assert len(there) == len(state), "one version a key"
    ends = {row._revision: row._logged_at for row in spark.table("m_map_changes").collect()}
    assert all(row._until_at == ends.get(row._until_revision) for row in versions)


def test_the_spark_page_shows_how(
    spark: SparkSession, log: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.put({b"stock/7": b"5", b"stock/8": b"1"})
    then_ms = log.logged_ms
    log.put({b"stock/7": b"4", b"stock/8": b"1"})
    materialize(spark, log, tmp_path / "lake")
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "history_views" in block]
    exec(shown.replace("/lake/orders", str(tmp_path / "lake")), {})  # noqa: S102 - it is the page's
    assert capsys.readouterr().out.count("[73 74 6F 63 6B 2") == 2, "two versions of the key"
    (condition,) = re.findall(r"where `(_logged_at .*?)`", _PAGE)
    then = re.sub(r"\bt\b", f"timestamp_millis({then_ms})", condition)
    rows = spark.table("map_versions").where(then).collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == {b"stock/7": b"5", b"stock/8": b"1"}


def test_a_predicate_on_the_key_is_inside_of_the_window(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.put({b"a": b"1", b"b": b"2"})
    materialize(spark, log, tmp_path / "lake")
    history_views(spark, str(tmp_path / "lake"), prefix="p_")
    plan = spark.sql("SELECT * FROM p_map_versions WHERE key = X'61'")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.index("Window") < plan.rindex("(key"), "the filter on the key lies below the window"
    assert plan.count("Window") == 1


def test_a_service_of_ones_own_has_a_history_by_the_same_call(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    log = make_log(machine=Counters.description)
    for value in range(1, 8):
        log.append([Record(16, None, ("visits", value)), Record(16, None, (f"only {value}", value))])
    materialize(spark, log, tmp_path / "lake")
    names = history_views(spark, f"file://{tmp_path / 'lake'}", permanent=True)
    try:
        assert names == ["counters_changes", "counters_versions", "counters"]
        grown = spark.sql("SELECT value FROM counters_versions WHERE name = 'visits' ORDER BY _revision").collect()
        assert [row.value for row in grown] == list(range(1, 8))
        assert spark.sql("SELECT value FROM counters WHERE name = 'visits'").collect()[0].value == 7
        assert not [one for one in spark.catalog.listTables() if one.name in names and one.isTemporary]
    finally:
        for name in names:
            spark.sql(f"DROP VIEW {name}")


def test_a_table_with_a_row_a_key_is_itself_and_a_strangers_table_is_none(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    assert MACHINE.tables[0].name == "map"
    log.put({b"a": b"1"})
    materialize(spark, log, tmp_path / "lake", "merge")
    spark.range(3).write.format("delta").save(str(tmp_path / "lake" / "other"))
    assert history_views(spark, str(tmp_path / "lake"), prefix="k_") == ["k_map"]
    assert spark.table("k_map").count() == 1
    spark.range(3).write.format("delta").save(str(tmp_path / "strange" / "other"))
    with pytest.raises(ForeignTableError, match="no Delta table in this folder was made of a log's records"):
        history_views(spark, str(tmp_path / "strange"))
    with pytest.raises(ForeignTableError, match="there is no such folder"):
        history_views(spark, str(tmp_path / "nowhere"))
