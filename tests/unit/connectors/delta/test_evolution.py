from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from connectors.delta.place import APPEND_MODE, MERGE_MODE
from connectors.delta.proof import follower_evidence
from connectors.errors import DeltaSinkError
from rsm_spark.core.machine import TableDescription
from tests.unit.connectors.delta.logged import (
    MAP,
    Change,
    Logged,
    content,
    digest_of,
    follower,
    gone,
    machine,
    put,
    records,
    state_of,
    wider,
)

WIDE = wider(MAP, "more")
WIDEST = wider(MAP, "more", "most")


def put_wide(key: bytes, value: bytes, *more: int | None) -> Change:
    return ((key,), (value, *more))


HISTORY: list[Logged] = [
    machine(MAP),
    put(b"a", b"1"),
    put(b"b", b"1"),
    put(b"c", b"1"),
    machine(WIDE),
    put_wide(b"a", b"2", 7),
    put_wide(b"b", b"1", None),  # the same values, other bytes
    machine(WIDEST),
    put_wide(b"d", b"4", None, 9),
    gone(b"a"),
    gone(b"c"),
]


@pytest.mark.parametrize("steps", [[11], [3, 11], [4, 5, 7, 8, 11], list(range(1, 12))])
def test_columns_are_added_in_mid_stream_and_the_digest_is_the_logs(tmp_path: Path, steps: list[int]) -> None:
    begin = 0
    for end in steps:
        position = follower(tmp_path / "t").apply(records(HISTORY[begin:end], begin + 1)).position
        assert position.digest == digest_of(state_of(HISTORY[:end]))
        begin = end
    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by([("key", "ascending")]).to_pylist()
    assert rows == [
        {"key": b"b", "value": b"1", "more": None, "most": None, "_revision": 7},
        {"key": b"d", "value": b"4", "more": None, "most": 9, "_revision": 9},
    ]


def test_the_schema_evolves_in_the_commit_that_has_the_position(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records(HISTORY[:4]))
    version = DeltaTable(str(tmp_path / "t")).version()
    table.apply(records(HISTORY[4:6], 5))
    handle = DeltaTable(str(tmp_path / "t"))
    assert handle.version() == version + 1
    assert "more" in {field.name for field in handle.schema().fields}
    table.apply(records(HISTORY[6:8], 7))
    table.apply(records([gone(b"nobody")], 9))
    handle = DeltaTable(str(tmp_path / "t"))
    assert "most" in {field.name for field in handle.schema().fields}, "without a row, too"


def test_a_column_alone_is_committed_at_once(tmp_path: Path) -> None:
    table = follower(tmp_path / "t", position_interval_s=1e9)
    table.apply(records(HISTORY[:4]))
    assert table.apply(records([machine(WIDE)], 5)).is_committed


def test_what_lies_before_a_change_that_is_no_addition_is_committed(tmp_path: Path) -> None:
    table = follower(tmp_path / "t", position_interval_s=1e9)
    other = TableDescription("map", MAP.key, ())
    changes: list[Logged] = [machine(MAP), put(b"a", b"1"), None, put(b"b", b"2"), machine(other), gone(b"a")]
    for _ in range(2):
        with pytest.raises(
            DeltaSinkError, match="at revision 5 the machine describes it anew, and column value is gone"
        ):
            table.apply(records(changes))
    position = follower(tmp_path / "t").position()
    assert position is not None
    assert position.revision == 4
    assert content(tmp_path / "t") == {b"a": (b"1", 2), b"b": (b"2", 4)}


def test_entries_are_not_cut_by_a_change_that_is_no_addition(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    changes: list[Logged] = [put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3"), machine()]
    with pytest.raises(DeltaSinkError, match="it is gone"):
        table.apply(records(changes, ends=2))
    assert content(tmp_path / "t") == {b"a": (b"1", 1), b"b": (b"2", 2)}


def test_a_table_that_is_not_described_yet_is_waited_for(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([machine(), machine(), machine(MAP), put(b"a", b"1")]))
    assert content(tmp_path / "t") == {b"a": (b"1", 4)}


@pytest.mark.parametrize("mode", [MERGE_MODE, APPEND_MODE])
def test_several_columns_that_come_at_once_keep_their_places(tmp_path: Path, mode: str) -> None:
    names = ["zeta", "alpha", "mid", "beta"]
    wide = machine(wider(MAP, *names))
    table = follower(tmp_path / "t", mode=mode)
    table.apply(records([machine(MAP), put(b"a", b"1"), put(b"b", b"1")]))
    # The key is there already: a merge adds columns in an order of its own.
    table.apply(records([wide, put_wide(b"a", b"2", 1, 2, 3, 4), wide], 4))
    later = follower(tmp_path / "t", mode=mode)
    later.apply(records([put_wide(b"b", b"2", 5, 6, 7, 8), machine(wider(MAP, *names, "last")), None], 7))
    later.apply(records([put_wide(b"c", b"3", 9, 10, 11, 12, 13)], 10))
    loaded = follower(tmp_path / "t", mode=mode).at.load()
    assert loaded is not None
    assert loaded.followed.row_names == ["value", *names, "last"]
    assert follower_evidence(str(tmp_path / "t")).shape.row == (
        ("value", 0), *((name, 4) for name in names), ("last", 8)
    )  # fmt: skip
    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("_revision").to_pylist()
    last = {row["key"]: [row[name] for name in (*names, "last")] for row in rows}
    assert last == {b"a": [1, 2, 3, 4, None], b"b": [5, 6, 7, 8, None], b"c": [9, 10, 11, 12, 13]}
    position = loaded.position
    assert position is not None
    if mode == MERGE_MODE:
        said: list[Logged] = [put_wide(b"a", b"2", 1, 2, 3, 4), put_wide(b"b", b"2", 5, 6, 7, 8)]
        said.append(put_wide(b"c", b"3", 9, 10, 11, 12, 13))
        assert position.digest == digest_of(state_of(said))
