from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.delta.columns import FollowedTable
from connectors.delta.modes import AppendMode, change_terms
from connectors.delta.packing import PackedRows
from connectors.errors import DeltaSinkError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes
from rsm_spark.core.records import pack
from tests.sets import examples
from tests.unit.connectors.delta.logged import MAP, Change, Logged, follower, gone, machine, put, records, wider

KEYS = st.sampled_from([b"a", b"b", b"c"])
CHANGES = st.lists(
    st.one_of(st.none(), st.builds(put, KEYS, st.binary(max_size=2)), st.builds(gone, KEYS)), min_size=1, max_size=20
)


def digest_of(changes: list[Change | None]) -> str:
    """Return the digest of a history, from the changes alone."""
    found = [(revision, *change) for revision, change in enumerate(changes, 1) if change is not None]
    rows = PackedRows(
        [pack(key) for _, key, _ in found],
        [None if row is None else pack(row) for _, _, row in found],
        [revision for revision, _, _ in found],
    )
    folds = ["delete" if row is None else "upsert" for row in rows.rows]
    return digest_bytes(change_terms("map", rows, folds) % DIGEST_MODULUS).hex()


def test_every_change_is_a_row(tmp_path: Path) -> None:
    table = follower(tmp_path / "t", mode="append")
    table.apply(records([put(b"a", b"1"), put(b"a", b"1"), None, gone(b"a"), gone(b"nobody")]))
    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by([("_revision", "ascending")]).to_pylist()
    assert [(row["key"], row["value"], row["_fold"], row["_revision"]) for row in rows] == [
        (b"a", b"1", "upsert", 1),
        (b"a", b"1", "upsert", 2),
        (b"a", None, "delete", 4),
        (b"nobody", None, "delete", 5),
    ]
    assert rows[2]["_logged_at"] == datetime(1970, 1, 1, 0, 0, 0, 4000, tzinfo=UTC)


@settings(max_examples=examples(4), deadline=None)
@given(changes=CHANGES, data=st.data())
def test_ranges_that_overlap_and_repeat_leave_each_change_once(
    changes: list[Change | None], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("append")
    revision = 0
    while revision < len(changes):
        end = data.draw(st.integers(revision + 1, len(changes)))
        begin = data.draw(st.integers(0, revision))
        position = follower(place, mode="append").apply(records(changes[begin:end], begin + 1)).position
        revision = end
    rows = DeltaTable(str(place)).to_pyarrow_table()
    assert sorted(rows["_revision"].to_pylist()) == [n for n, change in enumerate(changes, 1) if change is not None]
    assert position.digest == digest_of(changes)
    assert position.row_count == rows.num_rows
    summed = AppendMode().sum(FollowedTable.described(MAP), rows) % DIGEST_MODULUS
    assert position.digest == digest_bytes(summed).hex()


def test_columns_are_added_to_a_history(tmp_path: Path) -> None:
    changes: list[Logged] = [put(b"a", b"1"), machine(wider(MAP, "more")), ((b"a",), (b"2", 7)), gone(b"a")]
    table = follower(tmp_path / "t", mode="append")
    table.apply(records(changes[:1]))
    table.apply(records(changes[1:], 2))
    found = DeltaTable(str(tmp_path / "t"))
    rows = found.to_pyarrow_table().sort_by([("_revision", "ascending")])
    assert rows["more"].to_pylist() == [None, 7, None]
    position = table.position()
    assert position is not None
    loaded = table.at.load()
    assert loaded is not None
    assert position.digest == digest_bytes(AppendMode().sum(loaded.followed, rows) % DIGEST_MODULUS).hex()


def test_a_table_goes_on_in_its_own_mode_only(tmp_path: Path) -> None:
    follower(tmp_path / "t", mode="append").apply(records([put(b"a", b"1")]))
    with pytest.raises(DeltaSinkError, match="made in mode append, mode merge was asked for"):
        follower(tmp_path / "t").open()
