from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.delta.follower import FollowerTable
from connectors.delta.followers import FollowerSet, wanted_table
from connectors.errors import DeltaSinkError
from rsm_spark.core.machine import TableDescription
from tests.sets import examples
from tests.unit.connectors.delta.logged import (
    MAP,
    PAIRS,
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


def followers(folder: Path, *tables: TableDescription, interval_s: float = 0) -> FollowerSet:
    def make(table: TableDescription) -> FollowerTable:
        return follower(folder / table.name, table, position_interval_s=interval_s)

    found = FollowerSet(make)
    for table in tables:
        found.add(make(table))
    return found


def pair(left: str, right: int, weight: float | None) -> In:
    row = None if weight is None else (weight, True)
    return In("pairs", ((left, right), row))


def digest_at(folder: Path, table: TableDescription) -> tuple[int, str]:
    position = follower(folder / table.name, table).position()
    assert position is not None
    return position.revision, position.digest


def test_one_stream_feeds_all_tables(tmp_path: Path) -> None:
    changes: list[Logged] = [machine(MAP, PAIRS), put(b"a", b"1"), pair("x", 1, 0.5), gone(b"a"), pair("y", 1, 1.5)]
    tables = followers(tmp_path, MAP, PAIRS)
    done = tables.apply(records(changes))
    assert {name: (one.upserted, one.deleted) for name, one in done.applied.items()} == {"map": (0, 0), "pairs": (2, 0)}
    for table in (MAP, PAIRS):
        assert digest_at(tmp_path, table) == (5, digest_of(state_of(changes, table.name), table.name))


def test_a_table_that_appears_in_mid_stream_begins_there(tmp_path: Path) -> None:
    tables = followers(tmp_path, MAP)
    tables.apply(records([machine(MAP), put(b"a", b"1")]))
    tables.apply(records([put(b"b", b"1"), machine(MAP, PAIRS), pair("x", 1, 0.5)], 3))
    assert [table.name for table in tables] == ["map", "pairs"]
    assert digest_at(tmp_path, PAIRS)[0] == digest_at(tmp_path, MAP)[0] == 5
    first = DeltaTable(str(tmp_path / "pairs")).history()[-1]
    assert '"revision":2' in first["rsm_position"]


def test_a_table_is_made_before_others_commit_the_range_that_describes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = followers(tmp_path, MAP)
    monkeypatch.setattr(FollowerTable, "apply", lambda _self, _span: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tables.apply(records([machine(MAP, PAIRS), put(b"a", b"1")]))
    assert digest_at(tmp_path, PAIRS)[0] == digest_at(tmp_path, MAP)[0] == 0


def test_tables_that_stand_apart_meet_again(tmp_path: Path) -> None:
    changes: list[Logged] = [machine(MAP, PAIRS), put(b"a", b"1"), pair("x", 1, 0.5), pair("x", 1, 2.5)]
    follower(tmp_path / "map").apply(records(changes[:3]))
    tables = followers(tmp_path, MAP, PAIRS)
    assert tables.next_revision == 1
    tables.apply(records(changes))
    assert tables.next_revision == 5
    assert digest_at(tmp_path, PAIRS) == (4, digest_of(state_of(changes, "pairs"), "pairs"))


def test_positions_of_tables_without_changes_wait_for_the_end(tmp_path: Path) -> None:
    tables = followers(tmp_path, MAP, PAIRS, interval_s=1e9)
    for revision in range(1, 5):
        tables.apply(records([put(b"a", b"%d" % revision)], revision))
    assert DeltaTable(str(tmp_path / "pairs")).version() == 0
    assert [position.revision for position in tables.flush()] == [4, 4]
    assert DeltaTable(str(tmp_path / "pairs")).version() == 1


def test_the_error_of_one_table_comes_after_the_others_have_applied(tmp_path: Path) -> None:
    tables = followers(tmp_path, MAP, PAIRS)
    with pytest.raises(DeltaSinkError, match="weight"):
        tables.apply(records([pair("x", 1, 1), put(b"a", b"1")]))  # an int where a float is described
    assert digest_at(tmp_path, MAP)[0] == 2
    assert digest_at(tmp_path, PAIRS)[0] == 0


KEYS = st.sampled_from([b"a", b"b"])
HISTORIES = st.lists(
    st.one_of(
        st.none(),
        st.builds(put, KEYS, st.binary(max_size=1)),
        st.builds(gone, KEYS),
        st.builds(pair, st.sampled_from("xy"), st.just(1), st.none() | st.floats(0, 1)),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=examples(4), deadline=None)
@given(history=HISTORIES, added_at=st.integers(0, 20), data=st.data())
def test_broken_off_and_repeated_runs_end_as_the_dict(
    history: list[Change | In | None], added_at: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("set")
    changes: list[Logged] = [machine(MAP, PAIRS), *history]
    at = min(added_at + 1, len(changes))
    wide = wider(MAP, "more")
    late = [
        ((one[0], (*one[1], 7)) if isinstance(one, tuple) and not isinstance(one, In) and one[1] is not None else one)
        for one in changes[at:]
    ]
    changes = [*changes[:at], machine(wide, PAIRS), *late]
    revision, table = 0, followers(folder, MAP, PAIRS, interval_s=1e9)
    while revision < len(changes):
        if data.draw(st.booleans()):
            table = followers(folder, MAP, PAIRS, interval_s=1e9)  # killed: what was held back is lost
            revision = table.next_revision - 1
        end = data.draw(st.integers(min(revision + 1, len(changes)), len(changes)))
        if end > revision:
            table.apply(records(changes[revision:end], revision + 1))
            revision = end
    for position in table.flush():
        state = state_of(changes, position.table)
        assert (position.revision, position.digest) == (len(changes), digest_of(state, position.table))
        assert position.row_count == len(state)


def test_the_table_that_is_meant_is_the_only_one_or_the_machines_namesake() -> None:
    assert wanted_table(machine(PAIRS), "") == "pairs"
    assert wanted_table(machine(PAIRS, TableDescription("orders", (), ())), "") == "orders"
    assert wanted_table(machine(MAP, PAIRS), "map") == "map"
    with pytest.raises(DeltaSinkError, match="map, pairs: say which by --machine-table, or take them all by --tables"):
        wanted_table(machine(MAP, PAIRS), "")
    with pytest.raises(DeltaSinkError, match="has no table stocks: it has map"):
        wanted_table(machine(MAP), "stocks")
