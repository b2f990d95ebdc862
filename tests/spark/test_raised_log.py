"""A log of the map raised from version 2 to 3 to 4 in mid-stream: followers, the state, proofs, from any beginning."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.state.frame import state_as_of
from connectors.state.snapshot import snapshot_log
from connectors.state.verify import VerifySettings, verify_log
from rsm_spark.core.records import pack
from tests.spark.raised_log import RELEASES, RaisedLog
from tests.spark.test_followers import materialize, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ("value", "create_revision", "version", "mod_revision", "_revision")


def begun(make_log: Callable[..., Any], seed: int) -> RaisedLog:
    return RaisedLog(make_log(machine=RELEASES[0]), random.Random(seed))


def followed(place: Path) -> dict[bytes, tuple[Any, ...]]:
    return {key: tuple(row.get(name) for name in _COLUMNS) for key, row in rows_of(place, "key").items()}


def check_proved(spark: SparkSession, raised: RaisedLog, *places: Path, lake: str = "") -> None:
    """Prove the log, the snapshots of a lake and tables; compare the state that Spark folds with a replica's."""
    tables = tuple(str(place) for place in places)
    verdict = verify_log(spark, VerifySettings(raised.log.name, source=raised.source, tables=tables, lake=lake))
    assert verdict.ok, verdict.differences
    assert len(verdict.tables) == len(places)
    state = spark.read.format("ledger_state").options(
        **raised.log.options(table="map", **({"lake": lake} if lake else {}))
    )
    assert {
        bytes(row["key"]): tuple(row.asDict().get(name) for name in _COLUMNS) for row in state.load().collect()
    } == (raised.shown())


def test_followers_and_proofs_go_over_both_raises_in_mid_stream(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    """Tables that stop and go on within each version, and one that meets all three in one run, few records a batch."""
    raised = begun(make_log, 7)
    early, history, late = tmp_path / "early", tmp_path / "history", tmp_path / "late"
    ends: list[tuple[int, dict[bytes, tuple[Any, ...]]]] = []
    for release in RELEASES:
        if release is not RELEASES[0]:
            raised.raise_to(release)
        raised.work(20)
        if release is RELEASES[-1]:
            break
        ends.append((raised.revision, raised.shown()))
        materialize(spark, raised.log, tmp_path, place=str(early))
        materialize(spark, raised.log, tmp_path, place=str(history), mode="append", checkpoint=f"{history}-check")
        raised.work(5)
    raised.check()
    assert raised.widths() == {1, 3, 4}
    materialize(spark, raised.log, tmp_path, place=str(early))
    materialize(spark, raised.log, tmp_path, place=str(history), mode="append", checkpoint=f"{history}-check")
    summary = materialize(
        spark, raised.log, tmp_path, place=str(late), checkpoint=f"{late}-check", records_per_batch_max=30
    )
    assert (summary.position.revision, followed(early), followed(late)) == (
        raised.revision, raised.shown(), raised.shown()
    )  # fmt: skip
    check_proved(spark, raised, early, history, late)
    for revision, rows in ends:
        frame = state_as_of(spark, raised.log.name, revision, source=raised.source).where("table_name = 'map'")
        assert {bytes(row["key"]): row["revision"] for row in frame.collect()} == {
            pack((key,)): columns[-1] for key, columns in rows.items()
        }


@pytest.mark.parametrize("release", [1, 2])
def test_followers_that_begin_with_a_snapshot_of_mixed_rows_go_on_over_the_next_raise(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path, release: int
) -> None:
    raised = begun(make_log, release)
    raised.work(30)
    for version in RELEASES[1 : release + 1]:
        raised.raise_to(version)
        raised.work(12)
    assert raised.widths() == ({1, 3, 4} if release == 2 else {1, 3})
    lake = str(tmp_path / "lake")
    raised.snapshot(lake)
    raised.work(4)
    raised.log.trim(release)
    places = tmp_path / "begun", tmp_path / "history"
    modes = tuple(zip(places, ("merge", "append"), strict=True))
    for place, mode in modes:
        materialize(
            spark, raised.log, tmp_path, place=str(place), mode=mode, lake=lake, checkpoint=f"{place}-check"
        )  # fmt: skip
    assert followed(places[0]) == raised.shown()
    for version in RELEASES[release + 1 :]:
        raised.raise_to(version)
    raised.work(12)
    raised.check()
    assert raised.widths() == {1, 3, 4}
    for place, mode in modes:
        summary = materialize(
            spark, raised.log, tmp_path, place=str(place), mode=mode, lake=lake, checkpoint=f"{place}-check",
            records_per_batch_max=10,
        )  # fmt: skip
        assert summary.position.revision == raised.revision
    assert followed(places[0]) == raised.shown()
    made = snapshot_log(spark, raised.log.name, lake, source=raised.source)
    assert made.manifest.digest == raised.digest
    check_proved(spark, raised, *places, lake=lake)
