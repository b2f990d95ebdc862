"""Spark's own upkeep of followers' tables: what it may do while they go on, and what ends them in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.delta.materialize import Materializer
from connectors.errors import DeltaSinkError
from connectors.state.verify import Verdict, VerifySettings, verify_log
from rsm_spark.errors import SnapshotError
from tests.spark.test_materialize import settings_of
from tests.unit.connectors.delta.logged import Change, digest_of, follower, gone, put, records, state_of, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

_VECTORS = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
_UPKEEP = (
    "OPTIMIZE {}",
    "OPTIMIZE {} ZORDER BY (_revision)",
    "VACUUM {} RETAIN 0 HOURS DRY RUN",
    "VACUUM {} RETAIN 0 HOURS",
    _VECTORS,
    "OPTIMIZE {}",
    "REORG TABLE {} APPLY (PURGE)",
    "VACUUM {} RETAIN 0 HOURS",
)


@pytest.fixture(autouse=True)
def _vacuums(spark: SparkSession) -> Iterator[None]:
    """Let any retention be, and have VACUUM list the files by few tasks: by default it plans ten thousand."""
    given = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name in given:
        spark.conf.unset(name)


def _changes(number: int) -> list[Change]:
    """Return changes of some keys, the same and others each time."""
    return [*(put(b"k%d" % (key % 9), b"%d-%d" % (number, key)) for key in range(number, number + 5)), gone(b"k3")]


def _compare(spark: SparkSession, place: Path, changes: list[Change]) -> None:
    rows = [(*unpack(key), *unpack(row)) for key, row in state_of(changes).items()]
    wanted = spark.createDataFrame(rows, "key binary, value binary")
    found = spark.read.format("delta").load(str(place)).drop("_revision")
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def _do(spark: SparkSession, statement: str, place: Path) -> None:
    spark.sql(statement.format(f"delta.`{place}`")).collect()


def test_sparks_upkeep_between_commits_leaves_rows_positions_and_the_change_feed(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "t"
    changes = _changes(0)
    follower(place, has_change_feed=True).open()
    follower(place).apply(records(changes))
    for number, statement in enumerate(_UPKEEP, 1):
        before = follower(place).position()
        _do(spark, statement, place)
        assert follower(place).position() == before
        more = _changes(number)
        position = follower(place).apply(records(more, len(changes) + 1)).position
        changes += more
        assert (position.revision, position.digest) == (len(changes), digest_of(state_of(changes))), statement
    _compare(spark, place, changes)


def test_a_follower_that_goes_on_and_sparks_upkeep_come_to_one_table(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    changes = _changes(0)
    follower(place).apply(records(changes))
    is_over = threading.Event()
    failed: list[BaseException] = []

    def follow() -> None:
        table = follower(place)
        try:
            for number in range(1, 500):
                if is_over.is_set():
                    break
                more = _changes(number)
                table.apply(records(more, len(changes) + 1))
                changes.extend(more)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for statement in ("OPTIMIZE {}", _VECTORS, "OPTIMIZE {} ZORDER BY (_revision)", "VACUUM {} RETAIN 168 HOURS"):
            try:
                _do(spark, statement, place)
            except Exception as error:
                # The follower was first, and merged into files that this statement wanted to put together.
                if "DELTA_CONCURRENT" not in str(error) and "DELTA_METADATA_CHANGED" not in str(error):
                    raise
    finally:
        is_over.set()
        thread.join()
    assert failed == []
    _do(spark, "OPTIMIZE {}", place)
    position = follower(place).position()
    assert position is not None
    assert (position.revision, position.digest) == (len(changes), digest_of(state_of(changes)))
    _compare(spark, place, changes)


def test_liquid_clustering_ends_a_follower_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    changes = _changes(0)
    position = follower(place).apply(records(changes)).position
    _do(spark, "ALTER TABLE {} CLUSTER BY (_revision)", place)
    with pytest.raises(DeltaSinkError, match=r"features of Delta that followers cannot write, .*lustering") as raised:
        follower(place, sleep=lambda _s: pytest.fail("nothing is waited for")).apply(
            records(_changes(1), len(changes) + 1)
        )
    assert str(place) in str(raised.value)
    assert follower(place).position() == position
    _compare(spark, place, changes)


def test_a_proof_holds_over_upkeep_and_refuses_rows_that_a_deletion_vector_hides(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    settings = settings_of(log, tmp_path)
    place = Path(settings.place)

    def follow() -> None:
        log.fill(3)
        Materializer(spark, settings, report=lambda _progress: None).run()

    def prove() -> Verdict:
        given = VerifySettings(log.name, tables=(settings.place,), source={"metadataUri": log.metadata_uri})
        return verify_log(spark, given)

    follow()
    for statement in _UPKEEP[:5]:
        _do(spark, statement, place)
    follow()
    assert prove().ok
    _do(spark, "DELETE FROM {} WHERE key = CAST('key-7' AS BINARY)", place)
    with pytest.raises(SnapshotError, match="it has deletion vectors: rewrite it"):
        prove()
