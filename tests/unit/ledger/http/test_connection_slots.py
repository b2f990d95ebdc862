"""Who has a seat, who loses it, and that nobody has more than its part."""

from __future__ import annotations

import random

import pytest

from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots, address_key


def _seats(seats_max: int, *, of_owner: int = 100, of_address: int = 100, shared: str = "") -> ConnectionSlots:
    return ConnectionSlots(seats_max, of_owner=of_owner, of_address=of_address, shared=frozenset(shared.split()))


def _sit(seats: ConnectionSlots, address: str, cut: list[ConnectionSlot] | None = None) -> ConnectionSlot:
    seat = seats.take(address)
    assert seat is not None
    if cut is not None:
        seat.cut = lambda: cut.append(seat)
    return seat


def test_the_oldest_stranger_of_the_address_with_most_makes_room() -> None:
    seats, cut = _seats(4), list[ConnectionSlot]()
    lone = _sit(seats, "b", cut)
    first, second, _ = (_sit(seats, "a", cut) for _ in range(3))
    _sit(seats, "c", cut)
    _sit(seats, "d", cut)
    assert cut == [first, second]
    assert lone.is_taken
    assert (seats.taken, seats.cut_count) == (4, 2)


def test_who_is_known_keeps_its_seat_and_who_comes_to_a_full_house_of_them_finds_none() -> None:
    seats = _seats(2)
    for _ in range(2):
        assert seats.know(_sit(seats, "a"))
    assert seats.take("b") is None
    assert seats.refused_count == 1


def test_an_address_has_its_part_and_loses_a_stranger_of_its_own_for_more() -> None:
    seats, cut = _seats(10, of_address=2), list[ConnectionSlot]()
    other = _sit(seats, "b", cut)
    first = _sit(seats, "a", cut)
    seats.know(_sit(seats, "a", cut))
    third = _sit(seats, "a", cut)
    assert cut == [first]
    assert seats.know(third)
    assert seats.take("a") is None
    assert other.is_taken


def test_an_address_that_many_share_has_as_many_as_there_are() -> None:
    seats = _seats(10, of_address=2, shared="proxy")
    for _ in range(10):
        assert seats.know(_sit(seats, "proxy"))
    assert seats.take("proxy") is None


def test_an_owner_has_its_part_whatever_address_it_comes_from() -> None:
    seats = _seats(10, of_owner=2)
    for address in "ab":
        assert seats.know(_sit(seats, address), "acme")
    third = _sit(seats, "c")
    assert not seats.know(third, "acme")
    assert seats.know(third, "bolt")
    seats.give_back(third)
    seats.validate()


@pytest.mark.parametrize("seed", range(20))
def test_seats_are_counted_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    seats = _seats(12, of_owner=3, of_address=5, shared="p")
    taken: list[ConnectionSlot] = []
    for _ in range(1_000):
        action = chance.random()
        if action < 0.5:
            seat = seats.take(chance.choice("abcdp"))
            if seat is not None:
                taken.append(seat)
        elif taken and action < 0.75:
            seats.know(chance.choice(taken), chance.choice([None, "x", "y"]))
        elif taken:
            seats.give_back(taken.pop(chance.randrange(len(taken))))
        seats.validate()
        assert seats.taken == sum(seat.is_taken for seat in taken)
    for seat in taken:
        seats.give_back(seat)
    assert seats.taken == 0
    seats.validate()


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("what:ever", "what:ever"),
    ],
)
def test_an_address_of_the_newer_kind_is_its_network(host: str, key: str) -> None:
    assert address_key(host) == key
