"""A worker's end of its connection to the pool's keeper: connected again when it breaks, given up after a while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from broker.pool.channel import ChannelError, MemberEnd, connect
from broker.pool.core.messages import FromMember, Hello, Left, Order, Report

_LOGGER = logging.getLogger(__name__)
_PAUSE_S = 0.5
_GOODBYE_S = 10.0
"""Long: a keeper that hears of the end before the reason starts a worker that will end for the same."""


class PoolLink:
    """See the module.

    Args:
        host: Where the keeper is.
        port: Its port.
        secret: Of the pool.
        hello: Said first on every connection.
        on_order: Hears of orders, on the loop.

    """

    def __init__(self, host: str, port: int, secret: bytes, hello: Hello, on_order: Callable[[Order], None]) -> None:
        self._host, self._port, self._secret = host, port, secret
        self._hello = hello
        self._on_order = on_order
        self._end: MemberEnd | None = None
        self._newest: Report | None = None
        self._hung_up = asyncio.Event()

    async def keep(self, orphaned_s: float) -> str:
        """Stay connected; return why not, once the keeper has not been there for so long."""
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while True:
            try:
                end = await connect(self._host, self._port, self._secret)
            except ChannelError as error:
                if loop.time() - heard_s > orphaned_s:
                    return str(error)
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                await self._use(end)
            except ChannelError as error:
                _LOGGER.warning("not connected to the pool's driver: %s", error)
            finally:
                self._end = None
                self._hung_up.set()
                end.close()
            heard_s = loop.time()
            await asyncio.sleep(_PAUSE_S)

    async def _use(self, end: MemberEnd) -> None:
        end.say(self._hello)
        first = True
        while (message := await end.hear()) is not None:
            if first:
                first = False
                self._end = end
                if self._newest is not None:
                    end.say(self._newest)
            self._on_order(message.order)

    def report(self, report: Report) -> None:
        """Tell how the worker is, now or when there is a connection."""
        self._newest = report
        self._say(report)

    async def leave(self, left: Left) -> None:
        """Say the last words, and wait until they were heard: the keeper hangs up then."""
        if self._end is None:
            return
        self._hung_up.clear()
        self._say(left)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._hung_up.wait()

    def _say(self, message: FromMember) -> None:
        if self._end is not None:
            self._end.say(message)
