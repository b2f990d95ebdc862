"""Features of Delta that somebody has given a follower's table: written on, or refused at once, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from connectors.delta.follower import FollowerTable
from connectors.delta.proof import follower_evidence
from connectors.errors import DeltaSinkError
from rsm_spark.core.machine import Field, FieldType, TableDescription
from tests.unit.connectors.delta.logged import LOG_ID, MAP, digest_of, follower, gone, machine, put, records, state_of


def add_feature(place: Path, feature: TableFeatures) -> None:
    DeltaTable(str(place)).alter.add_feature(feature, allow_protocol_versions_increase=True)


def rows_of(place: Path) -> list[dict[str, Any]]:
    rows = pa.RecordBatchReader.from_stream(DeltaTable(str(place)).scan()).read_all()
    return sorted(rows.to_pylist(), key=lambda row: row["_revision"])


def clear_history(place: Path) -> None:
    DeltaTable(str(place)).create_checkpoint()
    for commit in sorted((place / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_follower_goes_on_where_deletion_vectors_are_on(tmp_path: Path, mode: str) -> None:
    place = tmp_path / "t"
    changes = [put(b"a", b"1"), put(b"b", b"1"), put(b"a", b"2"), gone(b"b"), put(b"c", b"1")]
    follower(place, mode=mode).apply(records(changes[:2]))
    add_feature(place, TableFeatures.DeletionVectors)
    DeltaTable(str(place)).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    position = follower(place, mode=mode).apply(records(changes[2:], 3)).position
    assert "deletionVectors" in (DeltaTable(str(place)).protocol().writer_features or [])
    assert [row["_revision"] for row in rows_of(place)] == ([3, 5] if mode == "merge" else [1, 2, 3, 4, 5])
    if mode == "merge":
        assert position.digest == digest_of(state_of(changes))
    assert follower_evidence(str(place)).foreign_versions == ()

    named = TableDescription("map", MAP.key, (Field("content", FieldType.BYTES, was=("value",)),))
    renamed = follower(place, mode=mode).apply(records([machine(named), put(b"d", b"4")], 6)).position
    assert {row["content"] for row in rows_of(place)} >= {b"2", b"1", b"4"}
    DeltaTable(str(place)).optimize.compact()
    clear_history(place)
    summed = follower(place, mode=mode).position()
    assert summed is not None
    assert (summed.revision, summed.digest, summed.prefix_hash) == (7, renamed.digest, "")


@pytest.mark.parametrize("name", ["DomainMetadata", "RowTracking"])
def test_features_that_cannot_be_written_are_refused_at_once(tmp_path: Path, name: str) -> None:
    place = tmp_path / "t"
    table = FollowerTable(
        str(place), log="orders", log_id=LOG_ID, table=MAP, sleep=lambda _s: pytest.fail("nothing is waited for")
    )
    table.apply(records([put(b"a", b"1")]))
    add_feature(place, getattr(TableFeatures, name))
    before = DeltaTable(str(place)).version()
    with pytest.raises(DeltaSinkError, match=f"features of Delta that followers cannot write, .*{name}"):
        table.apply(records([put(b"a", b"2")], 2))
    assert DeltaTable(str(place)).version() == before
    assert [row["value"] for row in rows_of(place)] == [b"1"]
