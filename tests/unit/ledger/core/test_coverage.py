"""Coverage against its meaning: no ack quorum is left that nobody heard of."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.coverage import is_covered
from ledger.core.quorum import QuorumConfig, write_set


@given(st.integers(1, 5), st.data())
def test_covered_means_that_every_ack_quorum_has_a_bookie_that_was_heard(size: int, data: st.DataObject) -> None:
    write_quorum = data.draw(st.integers(1, size))
    quorum = QuorumConfig(size, write_quorum, data.draw(st.integers(1, write_quorum)))
    ensemble = "abcde"[:size]
    heard = data.draw(st.sets(st.sampled_from(ensemble)))
    ack_quorums = [set(c) for e in range(size) for c in combinations(write_set(e, quorum), quorum.ack_quorum)]
    assert is_covered(ensemble, heard, quorum) == all({ensemble[p] for p in chosen} & heard for chosen in ack_quorums)


def test_with_full_write_sets_it_takes_all_but_an_ack_quorum_and_one() -> None:
    quorum = QuorumConfig(5, 5, 3)
    assert not is_covered("abcde", "ab", quorum)
    assert is_covered("abcde", "abe", quorum)
