from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from connectors.delta.follower import FollowerTable
from connectors.errors import DeltaSinkError
from tests.unit.connectors.delta.logged import (
    LOG_ID,
    MAP,
    content,
    digest_of,
    follower,
    gone,
    put,
    records,
    state_of,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def clocked(place: Path, clock: Clock) -> FollowerTable:
    return FollowerTable(str(place), log="orders", log_id=LOG_ID, table=MAP, clock=clock, sleep=clock.sleep)


def version(place: Path) -> int:
    return int(DeltaTable(str(place)).version())


def test_rows_that_do_not_change_are_not_written_again(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([put(b"a", b"1"), put(b"b", b"2")]))
    applied = table.apply(records([put(b"a", b"1"), put(b"b", b"3"), put(b"b", b"2"), gone(b"x")], 3))
    assert (applied.upserted, applied.deleted, applied.position.revision) == (0, 0, 6)
    assert content(tmp_path / "t") == {b"a": (b"1", 1), b"b": (b"2", 2)}
    added = DeltaTable(str(tmp_path / "t")).history(1)[0]["operationMetrics"]
    assert added["num_added_rows"] == 0


def test_the_position_alone_is_committed_once_an_interval(tmp_path: Path) -> None:
    clock = Clock()
    table = clocked(tmp_path / "t", clock)
    table.apply(records([put(b"a", b"1")]))
    for revision in range(2, 6):
        clock.now_s += 2
        applied = table.apply(records([None], revision))
        assert (applied.is_new, applied.is_committed) == (True, False)
        assert applied.position.revision == revision
    assert version(tmp_path / "t") == 1
    clock.now_s += 2
    assert table.apply(records([None], 6)).is_committed
    assert version(tmp_path / "t") == 2


def test_a_position_that_is_held_back_goes_with_the_next_row_and_with_flush(tmp_path: Path) -> None:
    clock = Clock()
    table = clocked(tmp_path / "t", clock)
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([None], 2))
    assert table.apply(records([put(b"b", b"1")], 3)).position.revision == 3
    assert version(tmp_path / "t") == 2
    table.apply(records([None], 4))
    assert table.flush(only_due=True) is None
    position = table.flush()
    assert position is not None
    assert position == clocked(tmp_path / "t", clock).position()
    assert position.revision == 4
    assert version(tmp_path / "t") == 3
    table.flush()
    assert version(tmp_path / "t") == 3, "nothing is held back any more"


def test_a_held_position_is_lost_with_its_process_and_read_again(tmp_path: Path) -> None:
    clock = Clock()
    table = clocked(tmp_path / "t", clock)
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([None, None], 2))
    successor = clocked(tmp_path / "t", clock)
    assert successor.open().revision == 1
    successor.apply(records([None, None, put(b"b", b"2")], 2))
    assert table.apply(records([put(b"b", b"2"), gone(b"a")], 4)).position.revision == 5
    assert content(tmp_path / "t") == {b"b": (b"2", 4)}


def test_a_held_position_outlives_maintenance_and_a_slower_writer(tmp_path: Path) -> None:
    clock = Clock()
    table = clocked(tmp_path / "t", clock)
    table.apply(records([put(b"a", b"1")]))
    table.apply(records([put(b"b", b"1")], 2))
    table.apply(records([None, None], 3))
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    follower(tmp_path / "t").apply(records([None], 3))
    assert table.apply(records([put(b"c", b"1")], 5)).position.revision == 5


@pytest.mark.parametrize("error", [DeltaError("the store did not answer"), OSError("connection reset")])
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_commit_that_landed_though_its_reply_was_lost_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, mode: str
) -> None:
    table = follower(tmp_path / "t", mode=mode, sleep=lambda _s: None)
    table.apply(records([put(b"a", b"1")]))
    write = table.mode.write

    def lost(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(table.mode, "write", write)
        write(*args, **kwargs)
        raise error

    monkeypatch.setattr(table.mode, "write", lost)
    changes = [put(b"a", b"1"), put(b"a", b"2"), put(b"b", b"2")]
    assert table.apply(records(changes[1:], 2)).position.revision == 3
    assert version(tmp_path / "t") == 2
    position = table.apply(records([gone(b"b")], 4)).position
    if mode == "merge":
        assert position.digest == digest_of(state_of([*changes, gone(b"b")]))
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == (1 if mode == "merge" else 4)


def test_a_store_that_fails_again_and_again_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = follower(tmp_path / "t", sleep=lambda _s: None)
    table.apply(records([put(b"a", b"1")]))

    def failing(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(table.mode, "write", failing)
    with pytest.raises(DeltaSinkError, match=r"records 2 to 2 could not be committed, 5 attempts failed.*disk full"):
        table.apply(records([put(b"b", b"1")], 2))


def test_a_history_that_was_cleared_away_is_summed_up_and_stated_again(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    changes = [put(b"a", b"1"), put(b"b", b"2"), gone(b"a")]
    right = table.apply(records(changes)).position
    handle = DeltaTable(str(tmp_path / "t"))
    handle.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})
    handle.create_checkpoint()
    for commit in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    position = follower(tmp_path / "t").position()
    assert position is not None
    assert (position.revision, position.digest, position.prefix_hash) == (3, right.digest, "")
    table.restate(right)
    assert follower(tmp_path / "t").position() == right
    assert follower(tmp_path / "t").apply(records([put(b"c", b"3")], 4)).position.digest == digest_of(
        state_of([*changes, put(b"c", b"3")])
    )
