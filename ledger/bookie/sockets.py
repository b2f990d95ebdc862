"""What a bookie asks of the kernel for its connections."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from typing import Final

__all__ = ["allow_files", "keep_alive"]

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
_OTHER_FILES: Final = 512
"""Segments, journal files, the index, ZooKeeper."""


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


def allow_files(connection_count: int) -> int:
    """Raise this process's limit of open files for so many connections; return for how many it is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connection_count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return connection_count if soft == resource.RLIM_INFINITY else max(1, min(connection_count, soft - _OTHER_FILES))
