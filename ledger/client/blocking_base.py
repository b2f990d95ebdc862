"""The parts of the blocking client of ledgers that are written by hand; `ledger.client.blocking` has the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from ledger.blocking_base import BlockingCalls, BlockingClient
from ledger.client.client import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerClosedError
from ledger.loop_thread import LoopThread, settled

T = TypeVar("T")


class BlockingWriteBase(BlockingCalls[WriteHandle]):
    """Appends, which give futures in asyncio and entry ids here."""

    def append(self, payload: bytes) -> int:
        """Append one entry and return its id once it is confirmed. Raises as `WriteHandle.append_many`."""
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[bytes]) -> int:
        """Append entries and return the id of the last once all are confirmed."""

        async def _append() -> int:
            return await self.asynchronous.append_many(payloads)

        return self.thread.run(_append())

    def append_soon(self, payloads: Sequence[bytes]) -> Future[int]:
        """Append entries without waiting: the future gives the id of the last when all are confirmed.

        Waits only while too much is in flight. `flush` waits for all that was appended.

        Raises:
            LedgerError: The handle is frozen, or a payload does not fit an entry.

        """

        async def _append() -> asyncio.Future[int]:
            await self.asynchronous.drain()
            return self.asynchronous.append_many(payloads)

        return settled(self.thread.run(_append()))


class BlockingLedgerBase(BlockingClient[LedgerClient]):
    """Thread and connection of a blocking client of ledgers."""

    def __init__(self, metadata_uri: str | None = None, *, settings: ClientSettings | None = None) -> None:
        thread = LoopThread("ledger-client", closed=LedgerClosedError)
        super().__init__(thread, lambda: LedgerClient.connect(metadata_uri, settings=settings))

    @classmethod
    def connect(cls, metadata_uri: str | None = None, *, settings: ClientSettings | None = None) -> Self:
        """Connect to a cluster. Raises as `LedgerClient.connect`."""
        return cls(metadata_uri, settings=settings)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine on the client's loop, for example a call to `store`."""
        return self.thread.run(coroutine)
