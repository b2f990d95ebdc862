"""Rows of before, remembered within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.records import pack
from rsm_spark.errors import InvalidCommandError, MissingLogError
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import PUT
from rsm_spark.map.row_ring import RowRing
from rsm_spark.map.rows import MapEntry


@given(st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 40)), max_size=60), st.booleans())
def test_it_tells_what_was_or_from_when_on_it_knows(steps: list[tuple[int, int | None]], is_new: bool) -> None:
    ring, revision, noted = RowRing(1_000), 0, {}
    ring.clear(first=1 if is_new else 0)
    for step, size in steps:
        revision += step
        noted[revision] = None if size is None else MapEntry(pack((b"v" * size,)), revision, revision, 1, revision)
        ring.note(revision, noted[revision])
    known = []
    first = 1
    for each, row in noted.items():
        try:
            before = ring.before(each)
        except MissingLogError as error:
            first = (error.last_revision or 0) + 1
        else:
            assert before is row
            known.append(each)
    assert known == [each for each in noted if each >= first], "from the one that the error names on"
    assert not noted or known[-1:] == [revision], "the last one is always known"
    assert len(ring._early[0]) + len(ring._late[0]) <= 2 * (500 // 100 + 1)
    with pytest.raises(MissingLogError):
        ring.before(revision + 1)


def test_after_a_snapshot_the_map_knows_what_came_since() -> None:
    machine = MapMachine()
    machine.apply(PUT, (b"a", b"1", 1, 1, None), 1)
    machine.apply(PUT, (b"a", b"2", 1, 2, None), 2)
    before = machine.row_before("map", 2)
    assert before is not None
    assert (before.row, before.revision) == (pack((b"1", 1, 1, None)), 1)
    machine.restore(list(machine.rows()))
    with pytest.raises(MissingLogError, match="no revision behind 2 yet"):
        machine.row_before("map", 2)
    machine.apply(PUT, (b"a", b"3", 1, 3, None), 5)
    assert machine.row_before("map", 5) is not None
    with pytest.raises(InvalidCommandError, match="leases"):
        machine.row_before("leases", 5)
