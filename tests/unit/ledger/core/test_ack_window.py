"""Confirmation against a deliberately dumb count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.core import ack_window
from ledger.core.ack_window import AckWindow
from ledger.core.quorum import QuorumConfig, write_set


@st.composite
def quorums(draw: st.DrawFn) -> QuorumConfig:
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    return QuorumConfig(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))


@given(quorums(), st.integers(0, 5), st.integers(0, 12), st.data())
def test_confirmed_is_the_longest_run_on_ack_quorums(
    quorum: QuorumConfig, first: int, count: int, data: st.DataObject
) -> None:
    window = AckWindow(quorum, first)
    window.push(count)
    stored: dict[int, set[int]] = {entry_id: set() for entry_id in range(first, first + count)}
    answers = [(p, e) for e in stored for p in write_set(e, quorum)]
    for position, entry_id in data.draw(st.lists(st.sampled_from(answers), max_size=40)) if answers else []:
        before = window.confirmed
        moved = window.store(position, [entry_id])
        stored[entry_id].add(position)
        run = first
        while run in stored and len(stored[run]) >= quorum.ack_quorum:
            run += 1
        assert window.confirmed == run - 1
        assert moved == (window.confirmed != before)
        assert window.missing(position) == [
            e for e in stored if e > window.confirmed and position in write_set(e, quorum) and position not in stored[e]
        ]
        window.validate()


@given(quorums(), st.integers(1, 8), st.sets(st.integers(0, 4)), st.data())
def test_an_entry_is_stuck_when_too_few_positions_can_still_store_it(
    quorum: QuorumConfig, count: int, failed: set[int], data: st.DataObject
) -> None:
    window = AckWindow(quorum)
    window.push(count)
    stored: dict[int, set[int]] = {entry_id: set() for entry_id in range(count)}
    answers = [(p, e) for e in stored for p in write_set(e, quorum)]
    for position, entry_id in data.draw(st.lists(st.sampled_from(answers), max_size=20)):
        window.store(position, [entry_id])
        stored[entry_id].add(position)
    dumb = next(
        (
            e
            for e in stored
            if e > window.confirmed and len(stored[e] | (set(write_set(e, quorum)) - failed)) < quorum.ack_quorum
        ),
        None,
    )
    assert window.stuck(sum(1 << position for position in failed)) == dumb


def test_a_dropped_position_counts_no_more() -> None:
    window = AckWindow(QuorumConfig(3, 3, 2))
    window.push(2)
    window.store(0, [1])
    window.store(1, [1])
    window.drop(0)
    assert not window.store(2, [0])
    assert window.store(1, [0])
    assert window.confirmed == 0
    assert window.store(0, [1])
    assert window.confirmed == 1


def test_memory_of_confirmed_entries_is_given_back() -> None:
    window = AckWindow(QuorumConfig(1, 1, 1))
    for entry_id in range(3 * ack_window._COMPACT_AT):
        window.push(1)
        window.store(0, [entry_id])
    assert len(window._masks) <= ack_window._COMPACT_AT
    assert window.confirmed == 3 * ack_window._COMPACT_AT - 1
    window.validate()
