"""A log proved from the log alone, and every kind of lie found and followed to the entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.proof import follower_evidence
from connectors.delta.settings import MaterializeSettings
from connectors.state.verify import Verdict, VerifySettings, verify_log
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Row
from rsm_spark.core.records import KernelRecord, Record, pack
from rsm_spark.errors import ForkedLogError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.lake_files import write_lake_file
from tests.spark.shop_log import ShopLog
from tests.spark.test_state_as_of import lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def proved(spark: SparkSession, shop: ShopLog, **more: Any) -> Verdict:
    return verify_log(spark, VerifySettings(shop.name, source=shop.source, **more))


def test_a_whole_log_its_checkpoints_and_its_snapshots_are_proved(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = lived(make_log, str(tmp_path), 11)
    reference = shop.reference
    at_checkpoint = max(at for at in reference.checkpoints if at)
    number = next(i for i, (_, _, p) in enumerate(reference.entries) if int.from_bytes(p[32:40], "big") > at_checkpoint)
    shop.snapshot(str(tmp_path), number - 1)
    verdict = proved(spark, shop, lake=str(tmp_path))
    assert verdict.ok
    assert verdict.differences == ()
    assert (verdict.digest, verdict.row_count) == reference.sums[-1]
    assert verdict.prefix_hash == shop.log.hash.hex()
    assert verdict.checkpoints == len(reference.checkpoints)
    assert len(verdict.snapshots) == 4
    assert verdict.verified is not None
    assert verdict.verified.revision == at_checkpoint
    covered = verdict.covered
    assert (covered.first_revision, covered.last_revision) == (1, reference.state.revision)
    assert covered.entries == len(reference.entries)


def test_a_trimmed_log_is_proved_from_the_oldest_snapshot_that_it_continues(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = lived(make_log, str(tmp_path), 12)
    shop.log.trim(1)
    verdict = proved(spark, shop, lake=str(tmp_path))
    assert verdict.ok
    assert (verdict.digest, verdict.row_count) == shop.reference.sums[-1]
    assert f"snapshot of revision {verdict.covered.first_revision - 1}" in verdict.covered.begins
    assert "is not proved again" in verdict.covered.begins
    assert len(verdict.snapshots) == 3


def test_a_leader_that_did_not_apply_a_record_is_found_with_the_record(
    spark: SparkSession, make_log: Callable[..., Any]
) -> None:
    shop = ShopLog(make_log, 13)
    shop.grow(20, is_rolled=True)
    # The last row that a record wrote since the last checkpoint, as it was before that record.
    rows = {row for row in shop.reference.rows[-1] if row.table in {"orders", "stock"}}
    forgotten = max(rows, key=lambda row: row.revision)
    assert forgotten.revision > shop.reference.checkpoints[-1]
    before = next((r for r in shop.reference.rows[forgotten.revision - 1] if r[:2] == forgotten[:2]), None)
    found, count = _sum([row for row in shop.reference.rows[-1] if row != forgotten] + ([before] if before else []))
    fields = (shop.reference.state.revision, digest_bytes(found), count)
    shop.log.append([Record(KernelRecord.CHECKPOINT_LOGGED, None, fields)])
    verdict = proved(spark, shop)
    assert not verdict.ok
    (difference,) = verdict.differences
    assert (difference.what, difference.revision) == ("checkpoint", fields[0])
    assert (difference.table, difference.record) == (forgotten.table, forgotten.revision)
    assert (difference.ledger, difference.entry) == _place_of(shop, forgotten.revision)


def _sum(rows: list[Any]) -> tuple[int, int]:
    return sum(row_term(table_prefix(r.table), r.key, r.row) for r in rows) % DIGEST_MODULUS, len(rows)


def test_a_snapshot_with_a_wrong_row_is_followed_to_the_entry(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = ShopLog(make_log, 14)
    shop.grow(25)
    rows = sorted(shop.reference.rows[-1])
    number = next(i for i, row in enumerate(rows) if row.table == "orders")
    wrong = rows[number]._replace(row=pack((0.5, False, b"lie")))
    _forge(shop, str(tmp_path), [*rows[:number], wrong, *rows[number + 1 :]])
    verdict = proved(spark, shop, lake=str(tmp_path))
    (difference,) = verdict.differences
    assert not verdict.ok
    assert verdict.snapshots == ()
    assert difference.what == f"lake snapshot of revision {shop.reference.state.revision}"
    assert (difference.table, difference.found, difference.row_count) == ("orders", '[0.5,false,"lie"]', 1)
    assert difference.record == wrong.revision
    assert (difference.ledger, difference.entry) == _place_of(shop, wrong.revision)


def test_a_proof_does_not_rest_on_a_damaged_snapshot(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    shop = ShopLog(make_log, 15)
    shop.grow(12, is_rolled=True)
    _forge(shop, str(tmp_path), sorted(shop.reference.rows[-1])[1:])
    lie = shop.reference.state.revision
    shop.grow(6)
    shop.snapshot(str(tmp_path))
    truth = shop.reference.state.revision
    shop.grow(6)
    shop.log.trim(1)
    verdict = proved(spark, shop, lake=str(tmp_path))
    (difference,) = verdict.differences
    assert (difference.what, difference.revision) == (f"lake snapshot of revision {lie}", lie)
    assert "is damaged" in difference.text
    assert verdict.covered.first_revision == truth + 1
    assert (verdict.digest, verdict.row_count) == shop.reference.sums[-1]


def _forge(shop: ShopLog, lake: str, rows: list[Row]) -> None:
    """Write a snapshot whose manifest is right and whose rows are not."""
    right = shop.snapshot(str(Path(lake) / "right"))
    place = lake_place(lake, shop.name)
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), ROW_SCHEMA, strict=True)]
    file = write_lake_file(place, [pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)])
    assert file is not None
    LakeSnapshots(place).write_files(right, lambda: [file])


def _place_of(shop: ShopLog, revision: int) -> tuple[int, int]:
    return next(
        (ledger, entry)
        for ledger, entry, payload in reversed(shop.reference.entries)
        if int.from_bytes(payload[32:40], "big") <= revision
    )


def test_a_damaged_table_is_followed_to_the_version_and_to_the_entry(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    for number in range(6):
        log.put({b"k%d" % i: b"%d-%d" % (i, number) for i in range(8)})
    log.roll()
    place = str(tmp_path / "table")
    settings = MaterializeSettings(
        log=log.name,
        place=place,
        checkpoint=str(tmp_path / "checkpoint"),
        source={"metadataUri": log.metadata_uri},
        available_now=True,
        records_per_batch_max=8,
    )
    Materializer(spark, settings, report=lambda _progress: None).run()
    proof = VerifySettings(log.name, tables=(place,), source={"metadataUri": log.metadata_uri})
    right = verify_log(spark, proof)
    assert right.ok
    assert right.tables[place] > 2
    DeltaTable(place).update(updates={"value": "'nonsense'"}, predicate="key = 'k3'")
    verdict = verify_log(spark, proof)
    assert not verdict.ok
    (difference,) = verdict.differences
    assert (difference.table, difference.key) == ("map", '["k3"]')
    assert (difference.in_log, difference.found) == ('["3-5"]', '["nonsense"]')
    assert (difference.ledger, difference.entry) == log.entries[-1][:2]
    assert difference.record == log.revision - 4
    assert difference.version == DeltaTable(place).version()
    assert "was not written by a materializer" in difference.text
    before = follower_evidence(place).positions[-2]
    DeltaTable(place).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    (difference,) = verify_log(spark, proof).differences
    assert (difference.table, difference.key, difference.found) == ("map", '["k3"]', '["nonsense"]')
    assert difference.version == DeltaTable(place).version()
    assert f"version {before[0]}, of revision {before[1].revision}, cannot be read, as VACUUM" in difference.text


def test_a_fork_ends_the_proof_at_its_entry(spark: SparkSession, log: Any) -> None:
    log.fill(3)
    log.roll()
    log.hash = bytes(32)
    log.fill(1)
    with pytest.raises(ForkedLogError, match=f"ledger {log.ledger_ids[1]} entry 0 does not continue"):
        verify_log(spark, VerifySettings(log.name, source={"metadataUri": log.metadata_uri}))
