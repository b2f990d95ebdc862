"""Limbo, and what is left of it: ledgers that existed when data were lost stay fenced, later ones are served."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledger.storage.limbo import LEDGER_ID_MAX, Limbo, id_ranges, load_limbo, save_limbo
from ledger.testing import Simulation

_HUGE = 2_645_547_439_667_508_482


def test_a_limbo_that_was_left_fences_the_ledgers_of_then_and_no_others() -> None:
    limbo = Limbo(_HUGE, ("lost",)).repaired([0, 1, 7, 500_000, _HUGE])
    assert limbo.ledger_id_max < 0
    assert limbo.reasons == ()
    for ledger_id in (0, 1, 7, 500_000, _HUGE):
        assert limbo.is_fencing(ledger_id)
    for ledger_id in (500_001, 2_000_000, _HUGE - 1, _HUGE + 1, LEDGER_ID_MAX):
        assert not limbo.is_fencing(ledger_id)


def test_what_an_earlier_limbo_fenced_stays_fenced_after_the_next() -> None:
    first = Limbo(10, ("lost",)).repaired(range(11))
    second = first.with_losses(["lost again"]).bounded(3_000_000)
    assert second.is_fencing(2_999_999)
    last = second.repaired([3_000_000])
    assert last.fenced == ((0, 10), (3_000_000, 3_000_000))


def test_it_is_read_back_as_it_was_written() -> None:
    disk = Simulation(1).host("b").disk
    disk.make_dirs("/l")
    limbo = Limbo(5, ("lost",), ((0, 3), (_HUGE, _HUGE)))
    save_limbo(disk, "/l", limbo)
    assert load_limbo(disk, "/l") == limbo


@given(st.lists(st.integers(0, 300_000), unique=True).map(sorted), st.lists(st.integers(0, 300_000), unique=True))
def test_ranges_cover_every_id_and_little_else(ids, others) -> None:
    limbo = Limbo(fenced=id_ranges(ids))
    assert all(limbo.is_fencing(i) for i in ids)
    for other in others:
        is_between = any(a < other < b for a, b in pairwise(ids) if b - a <= 1 << 16)
        assert limbo.is_fencing(other) == (other in ids or is_between)
