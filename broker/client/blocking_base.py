"""The parts of the broker's blocking client that are written by hand; `broker.client.blocking` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from broker.client.client import AsyncBrokerClient
from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, cancel_others, quickest_loop


class BlockingBrokerBase(BlockingClient[AsyncBrokerClient]):
    """Thread and connection of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, AsyncBrokerClient]]) -> None:
        super().__init__(LoopThread("broker-client", new_loop=quickest_loop), make)

    async def _end(self) -> None:
        # First, so that an executor's work ends as cancelled and not in errors of broken connections.
        await cancel_others()
        await self.asynchronous.close()
