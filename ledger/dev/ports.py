"""Ports of the development cluster: chosen once, kept for ever."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path

from ledger.dev.errors import ClusterError

HOST = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 20_000
_EPHEMERAL_DEFAULT = 32_768
_ATTEMPTS_MAX = 200


def choose_port(*, taken: Collection[int], preferred: int | None = None) -> int:
    """Choose a port of the loopback address that nobody listens on.

    It lies below the range from which the system gives ports to outgoing connections: a port from that range
    may belong to somebody's connection when the cluster wants it again.

    Args:
        taken: Ports that were chosen already but are not in use yet.
        preferred: Taken if it is free.

    Raises:
        ClusterError: No free port was found.

    """
    if preferred is not None and preferred not in taken and is_free(preferred):
        return preferred
    width = _ephemeral_first() - _FIRST
    for _ in range(_ATTEMPTS_MAX):
        port = _FIRST + int.from_bytes(os.urandom(4), "big") % width
        if port not in taken and is_free(port):
            return port
    raise ClusterError(f"no free port between {_FIRST} and {_FIRST + width} on {HOST}: stop a few programs")


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of the loopback address now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that are still being wound up do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _ephemeral_first() -> int:
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_DEFAULT
    return first if first > _FIRST + _ATTEMPTS_MAX else _EPHEMERAL_DEFAULT
