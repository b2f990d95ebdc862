"""Look whether anybody listens at the addresses of ZooKeeper: known much sooner than whether a session can be had.

A server that listens may be slow, or have no quorum yet, and is worth waiting for. Where nobody does, the address is
most often a wrong one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence


async def why_unreached(hosts: Sequence[str], limit_s: float) -> str:
    """Return why none of the servers takes a connection; "" as soon as one of them does.

    Args:
        hosts: Servers as "host:port"; all are tried at once.
        limit_s: For each of them.

    """
    asking = [asyncio.create_task(_why(host, limit_s)) for host in hosts]
    try:
        while waiting := [one for one in asking if not one.done()]:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(one.done() and not one.result() for one in asking):
                return ""
    finally:
        for one in asking:
            one.cancel()
    return "; ".join(one.result() for one in asking)


async def _why(host: str, limit_s: float) -> str:
    name, _, port = host.rpartition(":")
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(name.strip("[]"), int(port))
    except TimeoutError:
        return f"{host}: nothing came back for {limit_s:.1f} s"
    except OSError as error:
        return f"{host}: {_said(error)}"
    writer.close()
    return ""


def _said(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror or error)
    return os.strerror(error.errno)
