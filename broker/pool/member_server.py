"""The keeper's end of its workers' connections: a server that hears what they say and gives them orders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.pool.channel import LINE_BYTES_MAX, ChannelError, ControllerEnd, accept
from broker.pool.core.messages import FromController, FromMember, Hello, Order
from ledger.errors import UsageError

_LOGGER = logging.getLogger(__name__)


class MemberServer:
    """See the module.

    Args:
        secret: Of the pool.
        on_said: Called with a connection and what its worker says; the first is its hello.
        on_lost: Called with a connection that is down, if its worker has said hello.

    """

    def __init__(
        self,
        secret: bytes,
        on_said: Callable[[ControllerEnd, FromMember], None],
        on_lost: Callable[[ControllerEnd], None],
    ) -> None:
        self._secret = secret
        self._on_said = on_said
        self._on_lost = on_lost
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        """Listen; return the port.

        Args:
            host: To bind to.
            port: 0 = any that is free.

        Raises:
            UsageError: That is not possible.

        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise UsageError(f"cannot listen for the pool's workers at {host}:{port}: {error}") from None
        return int(self._server.sockets[0].getsockname()[1])

    def tell(self, link: ControllerEnd, order: Order) -> None:
        link.say(FromController(order))
        if order is Order.STOP:
            link.close()  # What was said still leaves.

    async def close(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._hear(await accept(reader, writer, self._secret))
        except ChannelError as error:
            _LOGGER.warning("a connection to the pool ends: %s", error)
        except asyncio.CancelledError:
            pass  # `close`; nobody waits for this task but that.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _hear(self, link: ControllerEnd) -> None:
        hello = await link.hear()
        if not isinstance(hello, Hello):
            raise ChannelError("a worker's first words are its hello")
        self._on_said(link, hello)
        try:
            while (message := await link.hear()) is not None:
                self._on_said(link, message)
        finally:
            self._on_lost(link)
