from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.delta.columns import FollowedTable
from connectors.delta.fold import RecordRange, last_rows
from connectors.delta.follower import FollowerTable
from connectors.delta.packing import terms_of
from connectors.delta.place import APPEND_MODE, MERGE_MODE
from connectors.errors import DeltaSinkError, ForeignTableError, SinkConflictError, SinkGapError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes
from rsm_spark.core.machine import Field, FieldType, MachineDescription
from tests.sets import examples
from tests.unit.connectors.delta.logged import (
    LOG_ID,
    MAP,
    PAIRS,
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
    unpack,
)


def test_the_last_record_of_a_key_wins_in_a_batch_in_any_order(tmp_path: Path) -> None:
    batch = records([put(b"a", b"1"), put(b"b", b"2"), put(b"a", b"3"), gone(b"b"), put(b"c", b"4"), None])
    follower(tmp_path / "t").apply(batch.take([4, 2, 0, 5, 3, 1]))
    assert content(tmp_path / "t") == {b"a": (b"3", 3), b"c": (b"4", 5)}


def test_the_position_comes_with_the_rows_in_one_commit(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    assert table.position() is None
    applied = table.apply(records([put(b"a", b"1"), gone(b"x")]))
    assert applied.is_new
    assert (applied.upserted, applied.deleted) == (1, 0)
    position = table.position()
    assert position == applied.position
    assert position is not None
    assert (position.revision, position.ledger, position.entry) == (2, 3, 1)
    assert position.prefix_hash == "02" * 32
    handle = DeltaTable(str(tmp_path / "t"))
    assert handle.version() == 1
    assert handle.transaction_version(f"rsm:orders:{LOG_ID}:map") == 2
    assert msgspec.json.decode(handle.history(1)[0]["userMetadata"]) == {
        "table": "map", "log": "orders", "log_id": LOG_ID, "revision": 2, "ledger_id": 3, "entry_id": 1,
        "prefix_hash": "02" * 32, "digest": position.digest, "rows": 1,
    }  # fmt: skip
    assert handle.metadata().description == (
        f"table map of log orders (id {LOG_ID}); the history says revision and prefix hash of each version"
    )


def test_every_commit_is_on_the_disk_before_it_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("connectors.delta.follower.sync_commit", lambda _place, version: synced.append(version))
    table = follower(tmp_path / "t")
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([None], 2))
    table.apply(records([gone(b"a")], 3))
    assert synced == [0, 1, 2, 3]


def test_running_a_batch_again_changes_nothing(tmp_path: Path) -> None:
    batch = records([put(b"a", b"1"), put(b"b", b"2")])
    first = follower(tmp_path / "t").apply(batch)
    again = follower(tmp_path / "t").apply(batch)
    assert not again.is_new
    assert again.position == first.position
    assert DeltaTable(str(tmp_path / "t")).version() == 1


def test_a_batch_that_overlaps_applies_its_new_part_only(tmp_path: Path) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1"), gone(b"b")]))
    follower(tmp_path / "t").apply(records([put(b"a", b"old"), gone(b"b"), put(b"b", b"3")]))
    assert content(tmp_path / "t") == {b"a": (b"1", 1), b"b": (b"3", 3)}


def test_a_batch_that_changes_no_row_moves_the_position(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([put(b"a", b"1")]))
    assert table.apply(records([None, gone(b"nobody")], 2)).position.revision == 3
    position = table.position()
    assert position is not None
    assert position.revision == 3
    assert content(tmp_path / "t") == {b"a": (b"1", 1)}


@pytest.mark.parametrize("keep", [[1], [0, 2]])
def test_a_batch_with_a_gap_is_refused(tmp_path: Path, keep: list[int]) -> None:
    batch = records([put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3")]).take(keep)
    with pytest.raises(SinkGapError, match="records are missing in between"):
        follower(tmp_path / "t").apply(batch)


def test_a_table_of_another_log_is_left_alone(tmp_path: Path) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    with pytest.raises(ForeignTableError, match="follows the log with id abab"):
        follower(tmp_path / "t", log_id="cd" * 16).apply(records([put(b"z", b"1")]))
    write_deltalake(str(tmp_path / "u"), pa.table({"x": [1]}))
    with pytest.raises(ForeignTableError, match="follows no log"):
        follower(tmp_path / "u").position()
    assert content(tmp_path / "t") == {b"a": (b"1", 1)}


@pytest.mark.parametrize("is_told", [True, False])
def test_the_table_of_a_log_that_was_renamed_goes_on(
    tmp_path: Path, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_told:  # By a version whose tables did not say it.
        monkeypatch.setattr("connectors.delta.place._APP_PROPERTY", "rsm.none")
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    monkeypatch.undo()
    renamed = follower(tmp_path / "t", log="bills")
    applied = renamed.apply(records([put(b"a", b"1"), put(b"b", b"2")]))
    assert (applied.is_new, applied.upserted) == (True, 1)
    assert follower(tmp_path / "t", log="bills").position() == applied.position
    assert content(tmp_path / "t") == {b"a": (b"1", 1), b"b": (b"2", 2)}
    assert DeltaTable(str(tmp_path / "t")).transaction_version(f"rsm:orders:{LOG_ID}:map") == 2
    with pytest.raises(ForeignTableError, match="or another table of it"):
        follower(tmp_path / "t", PAIRS, log="bills").position()


def test_a_table_restored_to_an_older_version_is_refused(tmp_path: Path) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    follower(tmp_path / "t").apply(records([put(b"a", b"2")], 2))
    DeltaTable(str(tmp_path / "t")).restore(1)
    with pytest.raises(ForeignTableError, match="restored to an older version"):
        follower(tmp_path / "t").open()


def test_another_writer_of_the_same_batch_does_not_apply_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    slow, fast = follower(tmp_path / "t"), follower(tmp_path / "t")
    commit, batch = slow._write, records([put(b"a", b"2"), gone(b"a")], 2)

    def overtaken(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(slow, "_write", commit)
        fast.apply(batch)
        commit(*args, **kwargs)

    monkeypatch.setattr(slow, "_write", overtaken)
    assert not slow.apply(batch).is_new
    assert content(tmp_path / "t") == {}
    assert DeltaTable(str(tmp_path / "t")).version() == 2


def test_maintenance_by_others_in_between_is_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([put(b"b", b"1")], 2))
    commit = table._write

    def overtaken(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(table, "_write", commit)
        DeltaTable(str(tmp_path / "t")).optimize.compact()
        commit(*args, **kwargs)

    monkeypatch.setattr(table, "_write", overtaken)
    table.apply(records([put(b"a", b"3")], 3))
    assert content(tmp_path / "t") == {b"a": (b"3", 3), b"b": (b"1", 2)}


def test_conflicts_without_end_are_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    table = FollowerTable(
        str(tmp_path / "t"),
        log="orders",
        log_id=LOG_ID,
        table=MAP,
        clock=lambda: now[0],
        sleep=lambda s: now.__setitem__(0, now[0] + s),
    )
    table.apply(records([put(b"a", b"1")]))
    commit = table._write

    def overtaken(*args: Any, **kwargs: Any) -> None:
        write_deltalake(
            str(tmp_path / "t"), pa.table({"key": [b"z"], "value": [b"z"], "_revision": [0]}), mode="append"
        )
        DeltaTable(str(tmp_path / "t")).delete("_revision = 0")
        commit(*args, **kwargs)

    monkeypatch.setattr(table, "_write", overtaken)
    monkeypatch.setattr("connectors.delta.commits._CONFLICT_WAIT_S_MAX", 1.0)
    with pytest.raises(SinkConflictError, match="records 2 to 2 could not be committed"):
        table.apply(records([put(b"a", b"2")], 2))
    assert content(tmp_path / "t") == {b"a": (b"1", 1)}


def test_columns_have_the_described_types_and_composite_keys(tmp_path: Path) -> None:
    changes: list[Change | None] = [
        (("a", 1), (0.5, True)),
        (("a", 2), (1.5, False)),
        (("b", 1), (None, None)),
        (("a", 1), None),
    ]
    table = follower(tmp_path / "t", PAIRS)
    table.apply(records(changes, table="pairs"))
    table.apply(records([(("a", 2), (2.5, True))], 5, table="pairs"))
    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by([("left", "ascending")]).to_pylist()
    assert rows == [
        {"left": "a", "right": 2, "weight": 2.5, "is_on": True, "_revision": 5},
        {"left": "b", "right": 1, "weight": None, "is_on": None, "_revision": 3},
    ]
    with pytest.raises(DeltaSinkError, match="does not fit its described column"):
        table.apply(records([(("a", "x"), (0.5, True))], 6, table="pairs"))


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
CHANGES = st.lists(
    st.one_of(st.none(), st.builds(put, KEYS, st.binary(max_size=3)), st.builds(gone, KEYS)), min_size=1, max_size=30
)


@given(changes=CHANGES, data=st.data())
def test_folding_in_batches_equals_a_dict(changes: list[Change | None], data: st.DataObject) -> None:
    expected: dict[Any, Any] = {}
    for change in changes:
        if change is not None:
            expected[change[0]] = change[1]
    seen: dict[Any, Any] = {}
    revision = 0
    while revision < len(changes):
        end = data.draw(st.integers(revision + 1, len(changes)))
        begin = data.draw(st.integers(0, revision))
        span = RecordRange(records(changes[begin:end], begin + 1))
        last = last_rows(span.of_table("map", revision))
        for key, row in zip(last.keys, last.rows, strict=True):
            seen[unpack(key)] = None if row is None else unpack(row)
        revision = span.end.revision
    assert seen == expected


@settings(max_examples=examples(4), deadline=None)
@given(changes=CHANGES, data=st.data())
def test_the_digest_in_the_commit_is_that_of_the_rows(
    changes: list[Change | None], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("follower")
    middle = data.draw(st.integers(0, len(changes)))
    for begin, end in ((0, middle), (middle, len(changes))):
        if begin < end:
            follower(place).apply(records(changes[begin:end], begin + 1))
    position = follower(place).position()
    rows = DeltaTable(str(place)).to_pyarrow_table()
    assert position is not None
    assert position.digest == digest_bytes(terms_of(rows, FollowedTable.described(MAP)) % DIGEST_MODULUS).hex()
    assert position.row_count == rows.num_rows


def renamed(*names: str) -> MachineDescription:
    old = Field("value", FieldType.BYTES)
    row = tuple(
        msgspec.structs.replace(old, name=name, was=(*names[:place], "value")) for place, name in enumerate(names)
    )
    return machine(msgspec.structs.replace(MAP, row=row[-1:]))


RENAMES: list[Logged] = [
    put(b"a", b"1"),
    put(b"b", b"2"),
    renamed("text"),
    put(b"b", b"3"),
    gone(b"a"),
    renamed("text", "said"),
]


def _apply_renames(place: Path, mode: str, monkeypatch: pytest.MonkeyPatch, breaks: int | None) -> FollowerTable:
    """Apply them, broken off behind one of the commits; return the follower that has all of it."""
    table = follower(place, mode=mode)
    if breaks is not None:
        commits = 0

        def sync(_place: str, _version: int) -> None:
            nonlocal commits
            commits += 1
            if commits == breaks:
                raise OSError("broken off behind a commit")

        monkeypatch.setattr("connectors.delta.follower.sync_commit", sync)
        with pytest.raises(DeltaSinkError):
            table.apply(records(RENAMES))
        table = follower(place, mode=mode)
    table.apply(records(RENAMES))
    return table


@pytest.mark.parametrize("breaks", [None, 1, 2, 3, 4])
def test_a_renamed_column_is_followed_in_mid_range_wherever_a_run_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: int | None
) -> None:
    table = _apply_renames(tmp_path / "t", MERGE_MODE, monkeypatch, breaks)
    rows = {
        row["key"]: (row["said"], row["_revision"])
        for row in DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    }
    assert rows == {b"b": (b"3", 4)}
    position = table.flush() or table.position()
    assert position is not None
    assert (position.revision, position.digest) == (6, digest_of(state_of(RENAMES)))


@pytest.mark.parametrize("breaks", [None, 1, 2, 3, 4])
def test_a_history_has_each_change_once_under_the_new_names_wherever_a_run_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: int | None
) -> None:
    table = _apply_renames(tmp_path / "t", APPEND_MODE, monkeypatch, breaks)
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("_revision")
    assert [(row["_revision"], row["_fold"], row["key"], row["said"]) for row in found.to_pylist()] == [
        (1, "upsert", b"a", b"1"),
        (2, "upsert", b"b", b"2"),
        (4, "upsert", b"b", b"3"),
        (5, "delete", b"a", None),
    ]
    position = table.flush() or table.position()
    assert position is not None
    plain = follower(tmp_path / "plain", mode=APPEND_MODE)
    plain.apply(records([put(b"a", b"1"), put(b"b", b"2"), machine(MAP), put(b"b", b"3"), gone(b"a")]))
    expected = plain.flush() or plain.position()
    assert expected is not None
    assert (position.revision, position.digest, position.row_count) == (6, expected.digest, 4)
