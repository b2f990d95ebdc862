"""Notices at once that another process has died while its host lives on: its kernel resets what it had open.

A lifeline is a plain TCP connection to the address at which a replica serves clients. Nothing is ever sent on it. When
it ends, the address is tried again a few times: only if its host refuses each time, because nobody listens there any
more, the process counts as dead. A process that is frozen, a host that is down and a network that is cut refuse
nothing; for them only the session with the metadata store tells. An address that was never reached proves nothing
either.

Being wrong costs a failover and nothing else: whoever takes over claims the chain and fences the ledger, dead or not.
"""

from __future__ import annotations

import asyncio
import contextlib

from ledger.errors import MetadataError
from rsm_spark.log.discovery import Discovery

_REFUSALS = 3
_REFUSAL_PAUSE_S = 0.03
_CONNECT_S_MAX = 1.0


class LivenessProbe:
    """Watches the processes of one log.

    Args:
        discovery: Of the log.
        retry_s: Pause before a process that is not found or reached is looked for again.

    """

    def __init__(self, discovery: Discovery, retry_s: float = 1.0) -> None:
        self._discovery = discovery
        self._retry_s = retry_s

    async def until_dead(self, incarnation: str) -> None:
        """Return when the process of this incarnation was reached at its address, and is gone from it."""
        while True:
            with contextlib.suppress(MetadataError):
                for member in await self._discovery.members():
                    if member.incarnation == incarnation and member.address:
                        await self._until_gone(member.address)
                        return
            await asyncio.sleep(self._retry_s)

    async def _until_gone(self, address: str) -> None:
        was_reached = False
        while True:
            try:
                await self._hold(address)
                was_reached = True
                if await self._is_refused(address):
                    return
            except (OSError, TimeoutError):
                if was_reached and await self._is_refused(address):
                    return
            await asyncio.sleep(self._retry_s)

    async def _hold(self, address: str) -> None:
        """Connect, and return when the connection has ended.

        Raises:
            OSError: It cannot be reached.
            TimeoutError: Nor does it refuse.

        """
        reader, writer = await self._connect(address)
        try:
            with contextlib.suppress(OSError):
                while await reader.read(4096):  # A server may greet.
                    pass
        finally:
            writer.close()

    async def _is_refused(self, address: str) -> bool:
        for _ in range(_REFUSALS):
            await asyncio.sleep(_REFUSAL_PAUSE_S)  # A dying process closes its connections one by one.
            try:
                _, writer = await self._connect(address)
            except ConnectionRefusedError:
                continue
            except (OSError, TimeoutError):
                return False
            else:
                writer.close()
                return False
        return True

    @staticmethod
    async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(_CONNECT_S_MAX):
            return await asyncio.open_connection(host.strip("[]"), int(port))
