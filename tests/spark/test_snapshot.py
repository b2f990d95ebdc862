from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.state.snapshot import snapshot_log
from rsm_spark.core.digest import digest_bytes
from rsm_spark.core.records import CommandHead, KernelRecord, Record
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.errors import ForkedLogError, LogError, MissingLogError, SnapshotError
from rsm_spark.map.machine import MapMachine
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def put(key: bytes, value: bytes, head: CommandHead | None = None) -> Record:
    return Record(16, head, (key, value))


def opened(session: bytes) -> Record:
    return Record(KernelRecord.SESSION_OPENED, None, (session,))


def expired(session: bytes) -> Record:
    return Record(KernelRecord.SESSION_EXPIRED, None, (session,))


def verified(place: str, revision: int) -> Record:
    fields = (place, "disk", revision, b"d" * 16, b"h" * 32, 4, "b")
    return Record(KernelRecord.SNAPSHOT_VERIFIED, None, fields)


def answered(session: bytes, sequence: int, up_to: int, reply: bytes) -> CommandHead:
    return CommandHead(session, sequence, up_to, 1, reply)


def write_history(log: Any) -> None:
    """Sessions that live, end, are opened again; keys that come and go; snapshots verified; a roll; empty entries."""
    log.append([opened(A), opened(B), opened(C)])
    log.append([put(b"k1", b"v1", answered(A, 1, 0, b"r1")), put(b"k2", b"v2", answered(A, 2, 0, b"r2"))])
    log.append([put(b"k3", b"v3", CommandHead(B, 1, 0, 2, b"two")), put(b"k4", b"v4")])
    log.append([])
    log.append([Record(KernelRecord.COMMAND_ANSWERED, answered(A, 3, 2, b"no"), ())])
    log.roll()
    log.append([Record(17, answered(A, 4, 2, b"gone"), (b"k1",)), expired(B), expired(C), opened(B)])
    log.fill(20)
    log.append([verified("replica:a", 3), verified("lake", 3), verified("replica:c", 2)])
    log.append([verified("replica:a", 9), Record(KernelRecord.SNAPSHOT_WITHDRAWN, None, ("lake",))])
    log.append([put(b"k1", b"back", answered(B, 1, 0, b""))])


def replica_of(log: Any, entry_count: int | None = None) -> ReplicatedState:
    state = ReplicatedState(MapMachine(), log.log_id)
    for _, _, payload in log.entries[:entry_count]:
        state.apply_entry(payload)
    return state


def test_a_snapshot_from_the_log_alone_is_what_a_replica_has(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    write_history(log)
    source = {"metadataUri": log.metadata_uri}
    summary = snapshot_log(spark, log.name, str(tmp_path), source=source)
    replica = replica_of(log)
    manifest = summary.manifest
    assert (manifest.revision, manifest.prefix_hash) == (log.revision, log.hash.hex())
    assert (manifest.digest, manifest.row_count) == (digest_bytes(replica.digest).hex(), replica.row_count)
    assert summary.entries_verified == len(log.entries)
    store = LakeSnapshots(lake_place(str(tmp_path), log.name))
    assert store.manifests() == [manifest]
    assert sorted(store.read(manifest)) == sorted(replica.rows())
    assert snapshot_log(spark, log.name, str(tmp_path), source=source).manifest == manifest

    booted = ReplicatedState(MapMachine(), log.log_id)
    tip = StateTip(manifest.revision, bytes.fromhex(manifest.prefix_hash), manifest.leader_epoch, manifest.logged_ms)
    booted.restore(store.read(manifest), tip, manifest.machine)
    log.put({b"after": b"x"})
    booted.apply_entry(log.entries[-1][2])
    assert booted.digest == replica_of(log).digest


def test_a_snapshot_of_the_past_ends_with_a_whole_entry(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    write_history(log)
    manifest = snapshot_log(
        spark, log.name, str(tmp_path), revision=7, source={"metadataUri": log.metadata_uri}
    ).manifest
    replica = replica_of(log, 3)
    assert (manifest.revision, replica.revision) == (6, 6), "record 7 lies inside an entry"
    assert manifest.digest == digest_bytes(replica.digest).hex()
    assert manifest.prefix_hash == replica.prefix_hash.hex()
    with pytest.raises(LogError, match="there is no record 9999"):
        snapshot_log(spark, log.name, str(tmp_path), revision=9999, source={"metadataUri": log.metadata_uri})


def test_the_leaders_checkpoint_is_compared(spark: SparkSession, make_log: Callable[[], Any], tmp_path: Path) -> None:
    for is_right in (True, False):
        log = make_log()
        write_history(log)
        replica = replica_of(log)
        digest = digest_bytes(replica.digest if is_right else replica.digest ^ 1)
        checkpoint = (replica.revision, digest, replica.row_count)
        log.append([Record(KernelRecord.CHECKPOINT_LOGGED, None, checkpoint)])
        log.put({b"z": b"z"})
        source = {"metadataUri": log.metadata_uri}
        if is_right:
            assert snapshot_log(spark, log.name, str(tmp_path), source=source).checkpoint_revision == replica.revision
        else:
            with pytest.raises(SnapshotError, match=f"at revision {replica.revision} its leader logged digest"):
                snapshot_log(spark, log.name, str(tmp_path), source=source)
            assert LakeSnapshots(lake_place(str(tmp_path), log.name)).manifests() == []


def test_a_log_that_forks_between_ledgers_is_refused(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(3)
    log.roll()
    log.hash = bytes(32)
    log.fill(1)
    with pytest.raises(ForkedLogError, match=f"ledger {log.ledger_ids[1]} entry 0 does not continue"):
        snapshot_log(spark, log.name, str(tmp_path), source={"metadataUri": log.metadata_uri})


def test_a_trimmed_log_is_refused(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(3)
    log.roll()
    log.fill(1)
    log.trim(1)
    with pytest.raises(MissingLogError, match="records 1 to 31 have been trimmed"):
        snapshot_log(spark, log.name, str(tmp_path), source={"metadataUri": log.metadata_uri})


def test_a_trimmed_log_is_folded_from_the_lakes_newest_snapshot(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    write_history(log)
    source = {"metadataUri": log.metadata_uri}
    base = snapshot_log(spark, log.name, str(tmp_path), source=source).manifest
    log.roll()
    log.trim(2)
    log.fill(4)
    log.append([Record(17, answered(A, 5, 4, b"again"), (b"k1",)), put(b"k9", b"v9", answered(B, 2, 1, b"new"))])
    made = snapshot_log(spark, log.name, str(tmp_path), source=source)
    replica = replica_of(log)
    assert made.base_revision == base.revision
    assert (made.manifest.revision, made.manifest.prefix_hash) == (replica.revision, replica.prefix_hash.hex())
    assert (made.manifest.digest, made.manifest.row_count) == (f"{replica.digest:032x}", replica.row_count)
    assert sorted(LakeSnapshots(lake_place(str(tmp_path), log.name)).read(made.manifest)) == sorted(replica.rows())


def test_manifests_are_plain_json(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(1)
    summary = snapshot_log(spark, log.name, str(tmp_path), source={"metadataUri": log.metadata_uri})
    assert msgspec.json.decode(msgspec.json.encode(summary))["manifest"]["machine"]["name"] == "map"
