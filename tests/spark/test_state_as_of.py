"""The state at any revision, as a DataFrame and as a source, against what a replica had then."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.state.frame import state_as_of
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.errors import MissingLogError
from tests.spark.shop_log import ShopLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lived(make_log: Callable[..., Any], lake: str, seed: int) -> ShopLog:
    """Make a log of four ledgers with snapshots inside and at the end of ledgers, the last one still open."""
    shop = ShopLog(make_log, seed)
    shop.grow(12, is_rolled=True)
    shop.snapshot(lake)
    shop.grow(12)
    shop.snapshot(lake)
    shop.grow(5, is_rolled=True)
    shop.grow(14, is_rolled=True)
    shop.snapshot(lake)
    shop.grow(9)
    return shop


def rows_by_revision(frames: dict[int, DataFrame]) -> dict[int, set[tuple[Any, ...]]]:
    """Collect many states in one query."""
    labelled = [frame.withColumn("at", F.lit(revision)) for revision, frame in frames.items()]
    found: dict[int, set[tuple[Any, ...]]] = {revision: set() for revision in frames}
    for row in reduce(lambda a, b: a.unionByName(b), labelled).collect():
        found[row["at"]].add((row.table_name, bytes(row.key), bytes(row.row), row.revision))
    return found


def expected(shop: ShopLog, revisions: list[int]) -> dict[int, set[tuple[Any, ...]]]:
    return {revision: {tuple(row) for row in shop.reference.rows[revision]} for revision in revisions}


def test_the_state_at_any_revision_is_what_a_replica_had(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    # A query each: six here; twenty of the source, which shuffles nothing, and two hundred of both in the slow tests.
    shop = lived(make_log, str(tmp_path), 1)
    revisions = sorted(random.Random(1).sample(range(shop.reference.state.revision + 1), 6))
    frames = {
        # With and without the lake, in turn.
        at: state_as_of(spark, shop.name, at, lake=str(tmp_path) if number % 4 else None, source=shop.source)
        for number, at in enumerate(revisions)
    }
    assert rows_by_revision(frames) == expected(shop, revisions)


def source_frame(spark: SparkSession, shop: ShopLog, lake: Path | None, **options: Any) -> DataFrame:
    given = {**shop.source, "log": shop.name, **{key: str(value) for key, value in options.items()}}
    given |= {"lake": str(lake)} if lake else {}
    return spark.read.format("ledger_state").options(**given).load()


def test_the_source_delivers_the_state_at_any_revision(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = lived(make_log, str(tmp_path), 4)
    revisions = sorted(random.Random(4).sample(range(shop.reference.state.revision + 1), 20))
    frames = {
        at: source_frame(spark, shop, tmp_path if number % 4 else None, asOfRevision=at)
        for number, at in enumerate(revisions)
    }
    assert rows_by_revision(frames) == expected(shop, revisions)


def test_the_source_knows_times_and_places(spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path) -> None:
    shop = lived(make_log, str(tmp_path), 5)
    ledger, entry, payload = shop.reference.entries[20]
    envelope = decode_envelope(payload)
    frames = {
        shop.reference.state.revision: source_frame(spark, shop, tmp_path),
        envelope.last_revision: source_frame(spark, shop, tmp_path, asOfPosition=f"{ledger}:{entry}"),
    }
    assert rows_by_revision(frames) == expected(shop, sorted(frames))
    then = [at for at, ms in enumerate(shop.reference.logged_ms) if ms <= envelope.logged_ms][-1]
    timed = source_frame(spark, shop, tmp_path, asOfTimestamp=envelope.logged_ms)
    assert rows_by_revision({then: timed}) == expected(shop, [then])
    typed = source_frame(spark, shop, tmp_path, table="orders", asOfRevision=envelope.last_revision)
    assert typed.columns == ["shop", "number", "price", "paid", "by", "_revision"]
    rows = [row for row in shop.reference.rows[envelope.last_revision] if row.table == "orders"]
    assert {row["_revision"] for row in typed.collect()} == {row.revision for row in rows}


def test_a_long_tail_names_the_ways_out(spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path) -> None:
    shop = lived(make_log, str(tmp_path), 6)
    with pytest.raises(Exception, match=r"(?s)the snapshot of revision .* jobs/snapshot.py .*raise maxTailBytes"):
        source_frame(spark, shop, tmp_path, maxTailBytes=100).collect()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_source_and_the_frame_agree_with_a_replica_at_twenty_more_revisions(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    shop = lived(make_log, str(tmp_path), 200 + seed)
    revisions = sorted(random.Random(seed).sample(range(shop.reference.state.revision + 1), 20))
    frames = {at: source_frame(spark, shop, tmp_path, asOfRevision=at) for at in revisions}
    assert rows_by_revision(frames) == expected(shop, revisions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_state_at_twenty_more_revisions_is_what_a_replica_had(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    shop = lived(make_log, str(tmp_path), 100 + seed)
    revisions = sorted(random.Random(seed).sample(range(shop.reference.state.revision + 1), 20))
    frames = {at: state_as_of(spark, shop.name, at, lake=str(tmp_path), source=shop.source) for at in revisions}
    assert rows_by_revision(frames) == expected(shop, revisions)


def test_a_trimmed_log_needs_the_lake(spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path) -> None:
    shop = lived(make_log, str(tmp_path), 2)
    shop.log.trim(1)
    newest = shop.reference.state.revision
    found = rows_by_revision({newest: state_as_of(spark, shop.name, lake=str(tmp_path), source=shop.source)})
    assert found == expected(shop, [newest])
    with pytest.raises(MissingLogError, match="have been trimmed, and no snapshot of the lake reaches"):
        state_as_of(spark, shop.name, newest, source=shop.source)


def test_a_table_has_its_columns(spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path) -> None:
    shop = lived(make_log, str(tmp_path), 3)
    orders = state_as_of(spark, shop.name, lake=str(tmp_path), table="orders", source=shop.source)
    assert orders.columns == ["shop", "number", "price", "paid", "by", "_revision"]
    rows = [row for row in shop.reference.rows[-1] if row.table == "orders"]
    assert {row["_revision"] for row in orders.collect()} == {row.revision for row in rows}
