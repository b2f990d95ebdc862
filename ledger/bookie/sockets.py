"""Socket options of a bookie's connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel notice a client that has vanished without a word."""
    found = transport.get_extra_info("socket")
    if found is None or not hasattr(found, "setsockopt"):
        return
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
