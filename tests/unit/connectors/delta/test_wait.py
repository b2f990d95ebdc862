from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from connectors.delta.wait import wait_for
from connectors.errors import FollowerLagError, ForeignTableError
from tests.unit.connectors.delta.logged import follower, put, records


def test_a_revision_that_is_there_is_no_wait(tmp_path: Path) -> None:
    follower(tmp_path / "t").apply(records([put(b"a", b"1"), put(b"b", b"1")]))
    assert wait_for(str(tmp_path / "t"), 1, 0) == 2


def test_a_table_that_comes_later_and_grows_is_waited_for(tmp_path: Path) -> None:
    slept: list[float] = []

    def grow(seconds: float) -> None:
        slept.append(seconds)
        revision = len(slept)
        if revision > 1:
            follower(tmp_path / "t").apply(records([put(b"a", b"%d" % revision)], revision - 1))

    assert wait_for(str(tmp_path / "t"), 3, 60, sleep=grow) == 3
    assert len(slept) == 4


def test_a_lag_is_named_in_time(tmp_path: Path) -> None:
    now = [0.0]

    def wait(revision: int) -> str:
        with pytest.raises(FollowerLagError) as failed:
            wait_for(
                str(tmp_path / "t"),
                revision,
                5,
                clock=lambda: now[0],
                sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
            )
        return str(failed.value)

    assert "there is no table yet; 5 s were waited for revision 7" in wait(7)
    follower(tmp_path / "t").apply(records([put(b"a", b"1")]))
    assert "holds revision 1, 6 records behind 7, after 5 s" in wait(7)
    assert now[0] == pytest.approx(10)


def test_a_table_that_follows_no_log_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"x": [1]}))
    with pytest.raises(ForeignTableError, match="follows no log"):
        wait_for(str(tmp_path / "t"), 1, 0)


def test_a_waiting_thread_sees_another_ones_commit(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    table.apply(records([put(b"a", b"1")]))
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(wait_for(str(tmp_path / "t"), 2, 60)))
    thread.start()
    table.apply(records([put(b"a", b"2")], 2))
    thread.join(60)
    assert found == [2]
