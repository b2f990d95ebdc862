from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from connectors.delta.upkeep import TableUpkeep
from tests.unit.connectors.delta.logged import content, digest_of, follower, put, records, state_of

CHANGES = [put(b"k%d" % number, b"%d" % number) for number in range(20)]


def files_of(place: Path) -> list[Path]:
    return sorted(place.glob("*.parquet"))


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_small_files_are_merged_and_old_ones_go_while_the_table_stays(tmp_path: Path, mode: str) -> None:
    table = follower(tmp_path / "t", mode=mode)
    upkeep = TableUpkeep(optimize_every=5, vacuum_retain_hours=0)
    done = []
    for revision, change in enumerate(CHANGES, 1):
        table.apply(records([change], revision))
        done.append(upkeep.after(table))
    assert [number for number, one in enumerate(done, 1) if one is not None] == [5, 10, 15, 20]
    assert done[4] is not None
    assert (done[4].files_merged, done[4].files_removed) == (5, 5)
    assert len(files_of(tmp_path / "t")) == 1
    position = follower(tmp_path / "t", mode=mode).position()
    assert position is not None
    assert position.revision == 20
    if mode == "merge":
        assert position.digest == digest_of(state_of(CHANGES))
        assert len(content(tmp_path / "t")) == 20
    assert follower(tmp_path / "t", mode=mode).apply(records([put(b"z", b"z")], 21)).is_new


def test_the_position_is_found_though_all_commits_but_upkeeps_are_cleared_away(tmp_path: Path) -> None:
    table = follower(tmp_path / "t")
    for revision, change in enumerate(CHANGES[:5], 1):
        table.apply(records([change], revision))
    right = table.position()
    TableUpkeep(optimize_every=5, vacuum_retain_hours=0).after(table)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for commit in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert follower(tmp_path / "t").position() == right


def test_two_writers_with_upkeep_between_their_commits_leave_one_table(tmp_path: Path) -> None:
    writers = [follower(tmp_path / "t"), follower(tmp_path / "t")]
    upkeeps = [TableUpkeep(optimize_every=2, vacuum_retain_hours=1) for _ in writers]
    for revision in range(1, 21):
        for writer, upkeep in zip(writers, upkeeps, strict=True):
            writer.apply(records(CHANGES[:revision]))
            upkeep.after(writer)
    assert content(tmp_path / "t") == {b"k%d" % n: (b"%d" % n, n + 1) for n in range(20)}
    position = writers[0].position()
    assert position is not None
    assert position.digest == digest_of(state_of(CHANGES))


def test_a_conflict_puts_upkeep_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = follower(tmp_path / "t")
    upkeep = TableUpkeep(optimize_every=2, vacuum_retain_hours=None)
    look_after = upkeep._look_after

    def refused(*_args: Any) -> None:
        monkeypatch.setattr(upkeep, "_look_after", look_after)
        raise CommitFailedError("somebody committed")

    monkeypatch.setattr(upkeep, "_look_after", refused)
    for revision in (1, 2):
        table.apply(records([CHANGES[revision]], revision))
    assert upkeep.after(table) is None
    done = upkeep.after(table)
    assert done is not None
    assert done.files_merged == 2
