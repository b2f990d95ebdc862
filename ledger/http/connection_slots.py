"""Seats at a server's port: each connection has one, and no address and no caller more than its part.

1. A connection has its seat from accept on: a file is a file, whatever has been said over it.
2. A stranger is who has not shown yet that it may ask. Where a seat is wanted and none is free, the oldest stranger
   of the address that has most of them loses its own: who comes last is never turned away for who came to sit.
3. Who is known keeps its seat; its address, and whose it is, have at most their part of all seats.

    stranger   it may ask nothing so far     -> `_strangers`, by address, oldest first
    known      a request of it was admitted  -> counted in `_addresses` and `_owners` alone
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable

_IPV6_NETWORK_BITS = 64


class ConnectionSlot:
    """One connection's place.

    Args:
        address: See `address_key`.

    Attributes:
        address: The same.
        cut: Breaks the connection off; set by who has it.
        is_known: It is no stranger's.
        owner: Whose it is, once that is known and bounded.
        is_taken: It has not been given back.

    """

    __slots__ = ("address", "cut", "is_known", "is_taken", "owner")

    def __init__(self, address: str) -> None:
        self.address = address
        self.cut: Callable[[], object] = _nothing
        self.is_known = False
        self.owner: Hashable = None
        self.is_taken = True


class ConnectionSlots:
    """See the module.

    Args:
        seats_max: Connections in all.
        of_owner: Of one owner at most.
        of_address: Of one address at most.
        shared: Addresses that many callers come from: the part does not bind them.

    Attributes:
        taken: Seats that are taken.
        cut_count: Strangers that lost theirs to somebody else.
        refused_count: Those for whom there was none.

    """

    def __init__(self, seats_max: int, *, of_owner: int, of_address: int, shared: frozenset[str] = frozenset()) -> None:
        self._seats_max = seats_max
        self._of_owner = of_owner
        self._of_address = of_address
        self._shared = shared
        self.taken = 0
        self.cut_count = 0
        self.refused_count = 0
        # Seats by address, strangers' too; none is 0.
        self._addresses: dict[str, int] = {}
        self._owners: dict[Hashable, int] = {}
        # In the order in which they came; no dict is empty.
        self._strangers: dict[str, dict[ConnectionSlot, None]] = {}

    def take(self, address: str) -> ConnectionSlot | None:
        """Return a seat for who has just come; None = there is none, not even a stranger's."""
        loser: ConnectionSlot | None = None
        if address not in self._shared and self._addresses.get(address, 0) >= self._of_address:
            loser = self._oldest(address)
            if loser is None:
                self.refused_count += 1
                return None
        elif self.taken >= self._seats_max:
            loser = self._oldest_of_most()
            if loser is None:
                self.refused_count += 1
                return None
        if loser is not None:
            self._cut(loser)
        seat = ConnectionSlot(address)
        self.taken += 1
        self._addresses[address] = self._addresses.get(address, 0) + 1
        self._strangers.setdefault(address, {})[seat] = None
        return seat

    def cut_one(self) -> bool:
        """Take a stranger's seat away; return whether there was one."""
        loser = self._oldest_of_most()
        if loser is not None:
            self._cut(loser)
        return loser is not None

    def know(self, seat: ConnectionSlot, owner: Hashable = None) -> bool:
        """Take note that a seat's holder may ask.

        Args:
            seat: The seat.
            owner: Whose the connection is; None = nobody's who is bounded.

        Returns:
            Whether the owner may have one more; if not, the seat remains what it was.

        """
        if not seat.is_taken:
            return True
        if owner is not None and owner != seat.owner:
            if self._owners.get(owner, 0) >= self._of_owner:
                return False
            self._disown(seat)
            self._owners[owner] = self._owners.get(owner, 0) + 1
            seat.owner = owner
        self._forget_stranger(seat)
        seat.is_known = True
        return True

    def has_room(self, owner: Hashable) -> bool:
        """Return whether an owner may have one more, as far as its seats are known."""
        return owner is None or self._owners.get(owner, 0) < self._of_owner

    def give_back(self, seat: ConnectionSlot) -> None:
        """Take a seat back; twice is once."""
        if not seat.is_taken:
            return
        seat.is_taken = False
        self.taken -= 1
        self._disown(seat)
        self._forget_stranger(seat)
        left = self._addresses[seat.address] - 1
        if left:
            self._addresses[seat.address] = left
        else:
            del self._addresses[seat.address]

    def _cut(self, seat: ConnectionSlot) -> None:
        self.cut_count += 1
        self.give_back(seat)
        seat.cut()

    def _oldest(self, address: str) -> ConnectionSlot | None:
        strangers = self._strangers.get(address)
        return next(iter(strangers)) if strangers else None

    def _oldest_of_most(self) -> ConnectionSlot | None:
        if not self._strangers:
            return None
        most = max(self._strangers, key=lambda address: len(self._strangers[address]))
        return self._oldest(most)

    def _forget_stranger(self, seat: ConnectionSlot) -> None:
        strangers = self._strangers.get(seat.address)
        if strangers is not None and seat in strangers:
            del strangers[seat]
            if not strangers:
                del self._strangers[seat.address]

    def _disown(self, seat: ConnectionSlot) -> None:
        if seat.owner is not None:
            left = self._owners[seat.owner] - 1
            if left:
                self._owners[seat.owner] = left
            else:
                del self._owners[seat.owner]
            seat.owner = None

    def validate(self) -> None:
        """Check that the counts are those of the seats; for tests."""
        assert self.taken == sum(self._addresses.values())
        assert self.taken <= self._seats_max
        assert all(0 < count <= self._of_owner for count in self._owners.values())
        assert all(count > 0 for count in self._addresses.values())
        bound = [count for address, count in self._addresses.items() if address not in self._shared]
        assert all(count <= self._of_address for count in bound)
        assert all(0 < len(strangers) <= self._addresses[address] for address, strangers in self._strangers.items())


def address_key(host: str) -> str:
    """Return what counts as one address: of IPv6 the network, since a host has all of its addresses."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.IPv6Network((int(address), _IPV6_NETWORK_BITS), strict=False))


def _nothing() -> None:
    """Nobody has the seat's connection yet."""
