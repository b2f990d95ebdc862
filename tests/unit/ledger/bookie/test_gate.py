"""Who is cut where connections, or what they hold of unfinished frames, are too many: never just who comes last."""

from __future__ import annotations

import struct

import pytest

from ledger.bookie.gate import Gate, GateLimits, address_of
from ledger.bookie.inbox import Inbox, ReceiveRoom
from ledger.frame_pot import FramePot, FrameShare

ROOM_BYTES = 512 << 10


class Holders:
    """Connections that hold parts of frames."""

    def __init__(self, pot: FramePot) -> None:
        self.pot, self.room = pot, ReceiveRoom(ROOM_BYTES)
        self.cut: list[str] = []
        self.inboxes: dict[str, Inbox] = {}

    def bring(self, name: str, size: int, *, address: str = "a", frame: int = 100_000) -> None:
        """Let a connection bring bytes of one frame, the prefix first."""
        data = bytes(size)
        if name not in self.inboxes:
            share = FrameShare(self.pot, address, lambda: self.cut.append(name))
            self.inboxes[name] = Inbox(self.room, share)
            data = struct.pack(">I", frame) + data[4:]
        inbox = self.inboxes[name]
        inbox.get_buffer()[: len(data)] = data
        inbox.take(len(data), lambda _chunk, _end: 0)


def test_above_the_bound_of_unfinished_frames_those_go_that_hold_most_and_never_who_comes_last() -> None:
    holders = Holders(FramePot(1_000, 1_000))
    holders.bring("first", 450)
    holders.bring("second", 450)
    holders.bring("third", 150)
    assert holders.cut == ["first"]
    assert holders.pot.held_bytes == 600
    for inbox in holders.inboxes.values():
        inbox.clear()
    assert holders.pot.held_bytes == 0


def test_a_long_frame_that_arrives_is_not_pushed_out_by_many_small_ones_that_lie_there() -> None:
    holders = Holders(FramePot(1_000_000, 1_000_000))
    for number in range(3_000):
        holders.bring(f"idle {number}", 3_000)
        if number % 10 == 0:
            holders.bring(f"honest {number}", 45_000, frame=90_000)
            holders.bring(f"honest {number}", 45_004, frame=90_000)
        assert holders.pot.held_bytes <= 1_000_000
    assert len(holders.cut) > 2_000
    assert not [x for x in holders.cut if x.startswith("honest")]


def test_one_address_has_a_bound_of_its_own_and_others_do_not_pay_for_it() -> None:
    holders = Holders(FramePot(1_000, 500))
    holders.bring("early", 300, address="b")
    for number in range(20):
        holders.bring(f"greedy {number}", 100, address="a")
    assert holders.cut == [f"greedy {number}" for number in range(20)][: len(holders.cut)]
    assert len(holders.cut) >= 14
    assert holders.pot.held_bytes <= 800


class Guest:
    """A connection at the gate."""

    def __init__(self, address: str, since_s: float = 0.0, *, is_busy: bool = False, has_asked: bool = True) -> None:
        self.address, self.is_busy, self.use_rank = address, is_busy, (has_asked, since_s)
        self.reason: str | None = None

    def cut(self, reason: str) -> None:
        self.reason = reason


def test_a_full_gate_cuts_the_quietest_of_the_address_that_has_most_and_takes_the_newcomer() -> None:
    gate = Gate(GateLimits(4, 3, 10))
    crowd = [Guest("a", 5.0), Guest("a", 3.0), Guest("a", 9.0, has_asked=False)]
    assert all(gate.open(x, is_stranger=False) for x in [*crowd, Guest("b")])
    assert gate.open(Guest("c"), is_stranger=False)
    assert [x.reason is not None for x in crowd] == [False, False, True]
    assert gate.open(Guest("b"), is_stranger=False)
    assert [x.reason is not None for x in crowd] == [False, True, True]


def test_the_gate_counts_each_address_and_refuses_only_where_all_are_busy() -> None:
    gate = Gate(GateLimits(100, 2, 10))
    busy = [Guest("a", is_busy=True) for _ in range(3)]
    assert [gate.open(x, is_stranger=False) for x in busy] == [True, True, False]
    assert gate.open(Guest("b"), is_stranger=False)
    gate.leave(busy[0])
    gate.leave(busy[0])
    assert gate.open(busy[2], is_stranger=False)
    assert gate.count_of("a") == 2


def test_of_those_not_let_in_the_oldest_of_the_address_that_has_most_go() -> None:
    gate = Gate(GateLimits(100, 100, 3))
    honest, crowd = Guest("b"), [Guest("a") for _ in range(10)]
    for guest in [crowd[0], honest, *crowd[1:]]:
        assert gate.open(guest, is_stranger=True)
    assert honest.reason is None
    assert [x.reason is None for x in crowd] == [False] * 8 + [True] * 2
    gate.admit(honest)
    gate.admit(crowd[-1])
    assert gate.open(Guest("a"), is_stranger=True)
    assert crowd[-1].reason is None


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("10.0.0.7", 4000), "10.0.0.7"),
        (("::ffff:10.0.0.7", 4000, 0, 0), "10.0.0.7"),
        (("2001:db8:1:2:3:4:5:6", 4000, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 4000, 0, 2), "fe80::"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_address_is_a_host_or_a_network_that_one_host_may_have_whole(peername, address: str) -> None:
    assert address_of(peername) == address
