"""What only a stream can show of followers: several tables, new columns, a trimmed log, two runs at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings, Summary
from connectors.delta.wait import wait_for
from connectors.errors import DeltaSinkError
from jobs import materialize as job
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.records import KernelRecord, Record, pack
from rsm_spark.core.state import ReplicatedState
from rsm_spark.map.machine import MapMachine
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.spark.conftest import MACHINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEY, _VALUE, _MORE = Field("key", FieldType.BYTES), Field("value", FieldType.BYTES), Field("more", FieldType.INT)
_STOCK = TableDescription("stock", (Field("item", FieldType.STR),), (Field("count", FieldType.INT),))
WIDE = MachineDescription(
    "map",
    2,
    (TableDescription("map", (_KEY,), (_VALUE, _MORE)), _STOCK),
    (
        RecordDescription(16, "put", (_KEY, _VALUE, _MORE), "map", Fold.UPSERT, ("key",), ("value", "more")),
        RecordDescription(17, "deleted", (_KEY,), "map", Fold.DELETE, ("key",)),
        RecordDescription(18, "counted", (*_STOCK.key, *_STOCK.row), "stock", Fold.UPSERT, ("item",), ("count",)),
    ),
)
NARROW = MachineDescription("map", 3, (TableDescription("map", (_KEY,), ()),), MACHINE.records[1:])


def described(machine: MachineDescription) -> Record:
    return Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(machine),))


def settings_of(log: Any, folder: Path, **more: Any) -> MaterializeSettings:
    given = {"place": str(folder / "table"), "checkpoint": str(folder / "checkpoint"), "available_now": True, **more}
    return MaterializeSettings(log=log.name, source={"metadataUri": log.metadata_uri}, **given)


def materialize(spark: SparkSession, log: Any, folder: Path, **more: Any) -> Summary:
    return Materializer(spark, settings_of(log, folder, **more), report=lambda _progress: None).run()


def rows_of(place: Path, key: str) -> dict[Any, dict[str, Any]]:
    return {row[key]: row for row in DeltaTable(str(place)).to_pyarrow_table().to_pylist()}


def digest_of(table: str, rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> str:
    terms = [row_term(table_prefix(table), pack(key), pack(row)) for key, row in rows.items()]
    return digest_bytes(sum(terms) % DIGEST_MODULUS).hex()


def map_digest(log: Any) -> str:
    return digest_of("map", {(key,): (value,) for key, (value, _) in log.state.items()})


def test_columns_and_tables_that_come_in_mid_stream_are_followed_and_other_changes_are_one_error(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"is_every_table": True, "place": str(tmp_path / "lake"), "records_per_batch_max": 4}
    log.put({b"a": b"1", b"b": b"1", b"c": b"1"})
    log.roll()
    log.append([described(WIDE), Record(16, None, (b"a", b"2", 7)), Record(18, None, ("nut", 3))])
    log.append([Record(17, None, (b"b",)), Record(18, None, ("nut", 4))])
    summary = materialize(spark, log, tmp_path, **more)
    assert [(one.table, one.revision) for one in summary.positions] == [("map", log.revision), ("stock", log.revision)]
    assert [one.digest for one in summary.positions] == [
        digest_of("map", {(b"a",): (b"2", 7), (b"c",): (b"1",)}),
        digest_of("stock", {("nut",): (4,)}),
    ]
    found = rows_of(tmp_path / "lake" / "map", "key")
    assert {key: (row["value"], row["more"]) for key, row in found.items()} == {b"a": (b"2", 7), b"c": (b"1", None)}
    assert rows_of(tmp_path / "lake" / "stock", "item")["nut"]["count"] == 4

    last = log.revision
    log.append([Record(16, None, (b"d", b"4", None))])
    log.roll()
    log.append([described(NARROW), Record(17, None, (b"d",))])
    with pytest.raises(DeltaSinkError, match=f"at revision {last + 2} the machine describes it anew, and column value"):
        materialize(spark, log, tmp_path, **more)
    assert set(rows_of(tmp_path / "lake" / "map", "key")) == {b"a", b"c", b"d"}


def test_a_follower_of_a_trimmed_log_begins_with_the_lakes_snapshot(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.fill(5)
    materialize(spark, log, tmp_path, place=str(tmp_path / "late"))
    log.fill(20)
    log.roll()
    write_snapshot(log, tmp_path / "lake")
    log.append([described(MACHINE)])  # as a leader does in each ledger
    log.delete(b"key-1", b"key-7")
    log.fill(2)
    log.trim(1)
    with pytest.raises(DeltaSinkError, match="Begin with a snapshot: --lake"):
        materialize(spark, log, tmp_path)
    for place in ("table", "late"):
        summary = materialize(spark, log, tmp_path, place=str(tmp_path / place), lake=str(tmp_path / "lake"))
        assert summary.position.revision == log.revision
        assert summary.position.digest == map_digest(log)
        assert (summary.position.prefix_hash, summary.records) == (log.hash.hex(), 23)
        assert {key: row["value"] for key, row in rows_of(tmp_path / place, "key").items()} == {
            key: value for key, (value, _) in log.state.items()
        }


def write_snapshot(log: Any, lake: Path) -> None:
    """Write what a replica would of all entries so far."""
    replica = ReplicatedState(MapMachine(), log.log_id)
    for _, _, payload in log.entries:
        replica.apply_entry(payload)
    ledger_id, entry_id, _ = log.entries[-1]
    manifest = SnapshotManifest(
        log_name=log.name,
        log_id=log.log_id.hex(),
        revision=log.revision,
        ledger_id=ledger_id,
        entry_id=entry_id,
        prefix_hash=log.hash.hex(),
        digest=digest_bytes(replica.digest).hex(),
        row_count=replica.row_count,
        leader_epoch=1,
        logged_ms=1,
        created_ms=1,
        machine=MACHINE,
    )
    LakeSnapshots(lake_place(str(lake), log.name)).write(manifest, replica.rows())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_two_runs_at_once_with_upkeep_in_between_keep_one_table(
    spark: SparkSession, log: Any, tmp_path: Path, mode: str
) -> None:
    log.fill(3)
    stop = threading.Event()
    more: dict[str, Any] = {"available_now": False, "trigger": "0 seconds", "records_per_batch_max": 30, "mode": mode}
    settings = settings_of(log, tmp_path, optimize_every=2, vacuum_retain_hours=1, **more)
    found: list[Summary] = []

    def run() -> None:
        found.append(Materializer(spark, settings, report=lambda _progress: None, should_stop=stop.is_set).run())

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    try:
        for _ in range(6):
            log.fill(3)
            log.delete(b"key-3")
        assert wait_for(settings.place, log.revision, 200) == log.revision
    finally:
        stop.set()
        for one in runs:
            one.join()
    assert len(found) == 2
    positions = {one.position for one in found}
    assert {position.revision for position in positions} == {log.revision}
    assert len({position.digest for position in positions}) == 1
    rows = DeltaTable(settings.place).to_pyarrow_table()
    if mode == "merge":
        assert positions.pop().digest == map_digest(log)
        assert {row["key"]: row["value"] for row in rows.to_pylist()} == {
            key: value for key, (value, _) in log.state.items()
        }
    else:
        revisions = rows["_revision"].to_pylist()
        assert len(revisions) == len(set(revisions)) == log.revision - 1, "each change once; one record describes"


def test_the_job_tells_what_it_did_and_waits_for_a_revision(
    spark: SparkSession, log: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.fill(4)
    argv = ["--log", log.name, "--metadata-uri", log.metadata_uri, "--table", str(tmp_path / "t")]
    assert job.main([*argv, "--mode", "append", "--available-now", "--max-bytes", "1m"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["ok"], last["position"]["revision"], last["upserted"]) == (True, log.revision, 40)
    assert job.main([*argv, "--wait-for", str(log.revision)]) == 0
    assert json.loads(capsys.readouterr().out)["revision"] == log.revision
    assert job.main([*argv, "--wait-for", str(log.revision + 5), "--timeout", "0.1"]) == 1
    assert "5 records behind" in json.loads(capsys.readouterr().out)["error"]
    assert job.main([*argv, "--vacuum-retain", "5"]) == 2
