"""Seats for the connections of a replica's ports, and how a caller is named that takes turns with others."""

from __future__ import annotations

import functools
import urllib.parse
from typing import Final

from ledger.http.connection_slots import ConnectionSlots, address_key
from ledger.open_files import allow_files
from ledger.rights.principal import Principal, turns_name

PORTS: Final = 2
"""Number of ports that share the files of a replica as a rule: HTTP is the other one."""

_PEERS_KEPT: Final = 4_096
"""Names that are not read anew with each call of a connection."""


def seats_for(connections_max: int, *, ports: int = PORTS) -> ConnectionSlots:
    """Return seats for connections: an address has half of them at most, one principal a quarter.

    Args:
        connections_max: Wanted; fewer if the process may open fewer files.
        ports: Number of ports that share the files of the process.

    """
    bound = allow_files(connections_max, ports=ports)
    # An eighth of the files is left for connections that have no seat yet, or none any more.
    return ConnectionSlots(max(1, bound - bound // 8), of_owner=max(1, bound // 4), of_address=max(1, bound // 2))


@functools.lru_cache(maxsize=_PEERS_KEPT)
def peer_key(peer: str) -> tuple[str, int] | None:
    """Return address and port of what gRPC calls a peer; None = it has none."""
    kind, _, place = urllib.parse.unquote(peer).partition(":")
    host, _, port = place.rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdigit():
        return None
    return address_key(host.strip("[]")), int(port)


def turns_of(principal: Principal, peer: str) -> str:
    """Return who takes turns with others: the principal that calls, or its address where nobody says who it is.

    Args:
        principal: See `calling_principal`.
        peer: Where it calls from, as gRPC names that.

    """
    key = peer_key(peer)
    return turns_name(principal, "" if key is None else key[0])
