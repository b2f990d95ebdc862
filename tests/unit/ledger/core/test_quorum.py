"""Where entries live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.quorum import QuorumConfig, write_set
from ledger.errors import UsageError


def test_write_sets_go_round() -> None:
    quorum = QuorumConfig(3, 2, 2)
    assert [write_set(entry_id, quorum) for entry_id in range(4)] == [(0, 1), (1, 2), (2, 0), (0, 1)]


@given(st.integers(1, 6), st.integers(0, 2**62), st.data())
def test_a_write_set_has_distinct_positions(size: int, entry_id: int, data: st.DataObject) -> None:
    write_quorum = data.draw(st.integers(1, size))
    positions = write_set(entry_id, QuorumConfig(size, write_quorum, write_quorum))
    assert len(set(positions)) == write_quorum
    assert all(0 <= position < size for position in positions)


@pytest.mark.parametrize(("e", "w", "a"), [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_quorums_that_do_not_fit_together_are_refused(e: int, w: int, a: int) -> None:
    with pytest.raises(UsageError, match="ack quorum <= write quorum <= ensemble"):
        QuorumConfig(e, w, a)


def test_coverage_of_a_write_set_leaves_no_ack_quorum() -> None:
    assert [QuorumConfig(3, 3, a).coverage_count for a in (1, 2, 3)] == [3, 2, 1]
