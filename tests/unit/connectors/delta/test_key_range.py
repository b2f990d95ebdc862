from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.delta.follower import FollowerTable
from connectors.delta.key_range import key_range
from rsm_spark.core.machine import Field, FieldType, TableDescription
from rsm_spark.core.records import pack
from tests.unit.connectors.delta.logged import LOG_ID, digest_of, gone, put, records, state_of


def test_a_range_has_both_ends_and_quotes_what_sql_would_read_otherwise() -> None:
    assert key_range("k", pa.array([5, -3, 4])) == "`k` >= -3 AND `k` <= 5"
    assert key_range("a name", pa.array(["b", "it's", "a"])) == "`a name` >= 'a' AND `a name` <= 'it''s'"
    assert key_range("k", pa.array([b"\x00\xff", b"a"])) == "`k` >= X'00ff' AND `k` <= X'61'"


@pytest.mark.parametrize(
    "values",
    [["a", "b\n"], ["a", "b\\"], ["\x00"], ["x" * 257, "y"], [b"x" * 257], [], [1.5], [True]],
)
def test_what_cannot_be_said_safely_is_no_range(values: list[Any]) -> None:
    assert key_range("k", pa.array(values)) is None


def followed(place: Path, kind: FieldType, name: str = "key") -> FollowerTable:
    table = TableDescription("map", (Field(name, kind),), (Field("value", FieldType.BYTES),))
    return FollowerTable(str(place), log="orders", log_id=LOG_ID, table=table, position_interval_s=0)


def rows_of(place: Path, name: str = "key") -> dict[Any, bytes]:
    table = pa.RecordBatchReader.from_stream(DeltaTable(str(place)).scan()).read_all().to_pylist()
    return {row[name]: row["value"] for row in table}


@pytest.mark.parametrize("kind", [FieldType.STR, FieldType.INT])
def test_files_of_keys_that_are_elsewhere_are_neither_read_nor_written(tmp_path: Path, kind: FieldType) -> None:
    def keys(first: int, last: int) -> list[Any]:
        return [number if kind is FieldType.INT else f"{number:04}" for number in range(first, last)]

    table = followed(tmp_path / "t", kind)
    revision = 1
    for first in (0, 100, 200):
        table.apply(records([put(key, b"old") for key in keys(first, first + 100)], revision))
        revision += 100
    uris = DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)
    columns = pa.table(uris).to_pydict()
    far = [path for path, least in zip(columns["path"], columns["min.key"], strict=True) if least != keys(100, 101)[0]]
    assert len(far) == 2
    held = {path: (tmp_path / "t" / path).rename(tmp_path / Path(path).name) for path in far}
    table.apply(records([put(key, b"new") for key in keys(120, 130)] + [gone(keys(130, 131)[0])], revision))
    table.apply(records([put(key, b"more") for key in keys(300, 310)], revision + 11))
    for path, kept in held.items():
        kept.rename(tmp_path / "t" / path)
    expected = dict.fromkeys(keys(0, 300), b"old") | dict.fromkeys(keys(120, 130), b"new")
    expected |= dict.fromkeys(keys(300, 310), b"more")
    del expected[keys(130, 131)[0]]
    assert rows_of(tmp_path / "t") == expected


_KEYS = {
    FieldType.STR: st.text(st.sampled_from("aAé'`\"\\\n%_ \U0001f600\x00z"), max_size=3),
    FieldType.INT: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    FieldType.BYTES: st.binary(max_size=2),
}


@pytest.mark.parametrize("kind", list(_KEYS))
@pytest.mark.parametrize("name", ["key", "Order-Key"])
def test_whatever_the_keys_are_the_table_is_what_a_fold_gives(
    tmp_path_factory: pytest.TempPathFactory, kind: FieldType, name: str
) -> None:
    change = st.tuples(_KEYS[kind], st.booleans())

    @settings(max_examples=12)
    @given(st.lists(st.lists(change, min_size=1, max_size=4), min_size=1, max_size=4))
    def check(batches: list[list[tuple[Any, bool]]]) -> None:
        place = tmp_path_factory.mktemp("table")
        table = followed(place / "t", kind, name)
        done: list[Any] = []
        for batch in batches:
            changes = [gone(key) if is_gone else put(key, b"%d" % at) for at, (key, is_gone) in enumerate(batch)]
            table.apply(records(changes, len(done) + 1))
            done += changes
        state = state_of(done)
        found = rows_of(place / "t", name)
        assert {pack((key,)): pack((value,)) for key, value in found.items()} == state
        position = table.position()
        assert position is not None
        assert (position.row_count, position.digest) == (len(state), digest_of(state))

    check()
