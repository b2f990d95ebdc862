"""Change feeds of followers: what a commit tells is what its records did to rows, and upkeep adds nothing to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.delta.upkeep import TableUpkeep
from rsm_spark.core.records import pack
from rsm_spark.snapshots import delta_sync
from tests.sets import examples
from tests.unit.connectors.delta.logged import (
    MAP,
    Change,
    In,
    Logged,
    digest_of,
    follower,
    gone,
    machine,
    put,
    records,
    state_of,
    wider,
)

Told = tuple[int, str, bytes, bytes | None, int]
"""A row of a feed: version, type, key, value, revision."""


def feed_of(place: Path, since: int = 0) -> list[Told]:
    rows = pa.table(DeltaTable(str(place)).load_cdf(starting_version=since)).to_pylist()
    return sorted(
        (row["_commit_version"], row["_change_type"], row["key"], row["value"], row["_revision"]) for row in rows
    )


def told_by(spans: Sequence[Sequence[Logged]]) -> list[Told]:
    """Return what a dict has changed after each span, the first of which is version 1."""
    told: list[Told] = []
    state: dict[bytes, tuple[bytes, int]] = {}
    revision = 0
    for version, span in enumerate(spans, 1):
        before = dict(state)
        for change in span:
            revision += 1
            assert isinstance(change, tuple)
            assert not isinstance(change, In)
            key_columns, row = change
            key: bytes = key_columns[0]
            if row is None:
                state.pop(key, None)
            else:
                state[key] = (row[0], revision)
        for key in before.keys() | state.keys():
            old, new = before.get(key), state.get(key)
            if old is not None and new is not None and old[0] == new[0]:
                state[key] = old  # What says the same again is not written.
            elif old is None and new is not None:
                told.append((version, "insert", key, *new))
            elif old is not None and new is None:
                told.append((version, "delete", key, *old))
            elif old is not None and new is not None:
                told += [(version, "update_preimage", key, *old), (version, "update_postimage", key, *new)]
    return sorted(told)


def test_each_record_is_one_change_where_each_is_a_commit(tmp_path: Path) -> None:
    changes = [put(b"a", b"1"), put(b"b", b"1"), put(b"a", b"2"), gone(b"b"), put(b"b", b"3"), put(b"a", b"2")]
    table = follower(tmp_path / "t", has_change_feed=True)
    for revision, change in enumerate(changes, 1):
        table.apply(records([change], revision))
    assert feed_of(tmp_path / "t") == told_by([[change] for change in changes])


_KEYS = st.sampled_from([b"a", b"b", b"c"])
_CHANGES = st.one_of(st.builds(put, _KEYS, st.sampled_from([b"1", b"2"])), st.builds(gone, _KEYS))


@settings(max_examples=examples(15))
@given(spans=st.lists(st.lists(_CHANGES, min_size=1, max_size=8), min_size=1, max_size=5))
def test_the_feed_is_what_a_dict_does(tmp_path_factory: Any, spans: list[list[Change]]) -> None:
    place = tmp_path_factory.mktemp("feed") / "t"
    table = follower(place, has_change_feed=True)
    revision = 1
    for span in spans:
        table.apply(records(span, revision))
        revision += len(span)
    assert feed_of(place) == told_by(spans)


def test_a_column_that_comes_later_is_in_the_feed(tmp_path: Path) -> None:
    table = follower(tmp_path / "t", has_change_feed=True)
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([machine(wider(MAP, "more")), ((b"a",), (b"2", 7))], 2))
    rows = pa.table(DeltaTable(str(tmp_path / "t")).load_cdf(starting_version=1)).to_pylist()
    assert sorted((row["_change_type"], row["value"], row["more"]) for row in rows) == [
        ("insert", b"1", None), ("update_postimage", b"2", 7), ("update_preimage", b"1", None),
    ]  # fmt: skip


def test_a_table_gets_its_feed_later_and_keeps_it(tmp_path: Path) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    before = follower(tmp_path / "t").position()
    table = follower(tmp_path / "t", has_change_feed=True)
    assert table.open() == before
    version = DeltaTable(str(tmp_path / "t")).version()
    assert table.open() == before
    assert DeltaTable(str(tmp_path / "t")).version() == version, "it is switched on once"
    follower(tmp_path / "t").apply(records([put(b"a", b"2")], 2))
    assert feed_of(tmp_path / "t", version) == [
        (version + 1, "update_postimage", b"a", b"2", 2), (version + 1, "update_preimage", b"a", b"1", 1),
    ]  # fmt: skip
    position = follower(tmp_path / "t").position()
    assert position is not None
    assert position.digest == digest_of({pack((b"a",)): pack((b"2",))})


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_upkeep_tells_nothing_and_removes_old_changes(tmp_path: Path, mode: str) -> None:
    changes = [put(b"k%d" % (number % 3), b"%d" % number) for number in range(8)]
    table = follower(tmp_path / "t", mode=mode, has_change_feed=True)
    upkeep = TableUpkeep(optimize_every=4, vacuum_retain_hours=1)
    for revision, change in enumerate(changes, 1):
        table.apply(records([change], revision))
        upkeep.after(table)
    told = feed_of(tmp_path / "t")
    if mode == "merge":
        assert [one[1:] for one in told] == [one[1:] for one in sorted(_moved(told, told_by([[c] for c in changes])))]
        assert digest_of(state_of(changes)) == table.open().digest
    else:
        assert [(kind, value, revision) for _, kind, _, value, revision in told] == [
            ("insert", b"%d" % number, number + 1) for number in range(8)
        ]
    change_files = list((tmp_path / "t" / "_change_data").glob("*.parquet"))
    assert bool(change_files) == (mode == "merge")
    for file in change_files:
        os.utime(file, (0, 0))  # As old as can be.
    for revision in range(9, 13):
        table.apply(records([put(b"k0", b"%d" % revision)], revision))
        upkeep.after(table)
    assert not set(change_files) & set((tmp_path / "t" / "_change_data").glob("*.parquet"))


def _moved(told: list[Told], expected: list[Told]) -> list[Told]:
    """Return what is expected under the versions of the table, which upkeep has commits in between of."""
    versions = sorted({one[0] for one in told})
    return [(versions[one[0] - 1], *one[1:]) for one in expected]


def test_changes_are_on_the_disk_before_the_commit_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = delta_sync._sync

    def noted(path: Path) -> None:
        synced.append(path.parent.name)
        sync(path)

    monkeypatch.setattr(delta_sync, "_sync", noted)
    table = follower(tmp_path / "t", has_change_feed=True)
    table.apply(records([put(b"a", b"1")]))
    assert "_change_data" not in synced
    table.apply(records([put(b"a", b"2")], 2))
    assert "_change_data" in synced
