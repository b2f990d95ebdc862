"""Bounds on the number of connections: in all, of one address, and of those that are not admitted yet.

Above a bound it is never the newcomer that goes, else whoever came first could keep everybody out. Of the address that
has most connections those go that are of least use: never a whole frame from them, then quiet for longest. Only where
all of them are busy is the newcomer refused. A client whose quiet connection went opens another one by itself.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Final, Protocol

import msgspec

_CUT_SHARE: Final = 64
"""So many at a time, as a share of what is there, so that the look at all of them is rare."""


class GateLimits(msgspec.Struct, frozen=True):
    """Bounds of counts.

    Attributes:
        connections_max: In all.
        address_max: Of one address.
        strangers_max: Of those that have not gone over to TLS or logged in yet, though they must, or are about to.

    """

    connections_max: int = 20_000
    address_max: int = 5_000
    strangers_max: int = 1_000


class GateConnection(Protocol):
    """A connection as the gate sees it."""

    @property
    def address(self) -> str:
        """Address of the client; see `address_of`."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if it has asked for something and waits for it."""
        ...

    @property
    def use_rank(self) -> tuple[bool, float]:
        """The lower, the less is lost with it."""
        ...

    def cut(self, reason: str) -> None:
        """End it at once."""
        ...


class Gate:
    """See the module.

    Args:
        limits: The bounds.

    Invariants: `_strangers` are among those of `_by_address`, each group in the order of opening; no group is empty.

    """

    def __init__(self, limits: GateLimits) -> None:
        self._limits = limits
        self._by_address: dict[str, dict[GateConnection, None]] = {}
        self._strangers: dict[GateConnection, None] = {}
        self._count = 0

    def open(self, connection: GateConnection, *, is_stranger: bool) -> bool:
        """Take note of a new connection and cut others if there are too many; False if it is refused itself."""
        limits = self._limits
        group = self._by_address.setdefault(connection.address, {})
        group[connection] = None
        self._count += 1
        if is_stranger:
            self.doubt(connection)
        if len(group) > limits.address_max:
            self._thin(group, connection, f"{limits.address_max} connections of one address")
        elif self._count > limits.connections_max:
            most = max(self._by_address.values(), key=len)
            self._thin(most, connection, f"{limits.connections_max} connections")
        is_taken = len(group) <= limits.address_max and self._count <= limits.connections_max
        if not is_taken:
            self.leave(connection)
        return is_taken

    def doubt(self, connection: GateConnection) -> None:
        """Take a connection for a stranger's until it is admitted: what it begins costs much, and may never end."""
        self._strangers.setdefault(connection)
        if len(self._strangers) > self._limits.strangers_max:
            self._thin_strangers(connection)

    def admit(self, connection: GateConnection) -> None:
        """Take note that it has done what it must."""
        self._strangers.pop(connection, None)

    def leave(self, connection: GateConnection) -> None:
        """Forget a connection; more than once does no harm."""
        self._strangers.pop(connection, None)
        group = self._by_address.get(connection.address, {})
        if connection in group:
            del group[connection]
            self._count -= 1
            if not group:
                del self._by_address[connection.address]

    def count_of(self, address: str) -> int:
        """Return how many connections there are of an address."""
        return len(self._by_address.get(address, ()))

    def _thin_strangers(self, newest: GateConnection) -> None:
        """Cut the oldest of the address that has most of them; they had the time to log in."""
        ((address, count),) = Counter(x.address for x in self._strangers).most_common(1)
        oldest = [x for x in self._strangers if x.address == address and x is not newest]
        reason = f"{self._limits.strangers_max} connections that are not let in yet are open, the limit"
        self._cut(oldest[: max(1, count // _CUT_SHARE)], reason)

    def _thin(self, group: dict[GateConnection, None], newest: GateConnection, what: str) -> None:
        idle = [x for x in group if x is not newest and not x.is_busy]
        idle.sort(key=lambda x: x.use_rank)
        self._cut(idle[: max(1, len(group) // _CUT_SHARE)], f"{what} are open, the limit")

    def _cut(self, connections: list[GateConnection], reason: str) -> None:
        for connection in connections:
            self.leave(connection)
            connection.cut(reason)


def address_of(peername: object) -> str:
    """Return what counts as one address: of IPv6 a network of 64 bits, which a single host may have whole."""
    host = peername[0] if isinstance(peername, tuple) and peername else peername
    if not isinstance(host, str):
        return ""
    if ":" in host:
        try:
            ip = ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            return host
        return str(ip.ipv4_mapped or ipaddress.IPv6Address(int(ip) >> 64 << 64))
    return host
