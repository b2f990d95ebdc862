"""Takes connections of a listening socket: each has a seat from accept on, before its part of TLS.

Who says nothing costs a file and a seat: buffers and TLS are made when the first byte is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots, address_key

_LOGGER = logging.getLogger(__name__)
_BACKLOG = 1_024
_AT_ONCE = 16
"""Connections taken before everybody else has a turn."""
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_FILES_S = 0.1
_NO_FILES_SAID_S = 60.0
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, seconds and a count: a client that is gone without a word is noticed also where nothing is said to it."""


def listen(bind: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: The address cannot be used, or the port is taken.
        OverflowError: The port is none.

    """
    found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _keep_alive(listening)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)  # noqa: FBT003
    except BaseException:
        listening.close()
        raise
    return listening


def _keep_alive(listening: socket.socket) -> None:
    """Ask whoever connects, now and then, whether it is still there: connections have what their listener has."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)  # Not every system has them.
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class Acceptor:
    """See the module.

    Args:
        listening: Socket, closed by `close`.
        seats: Of its connections.
        make: Returns the protocol of one; it gives the seat back when the connection is lost.
        tls: How connections are encrypted; None = not.
        first_byte_s: In which a client has to say something.
        handshake_s: Given to it then for its part of TLS.
        full: Said to who finds no seat, where that can be read.

    """

    def __init__(
        self,
        listening: socket.socket,
        seats: ConnectionSlots,
        make: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        first_byte_s: float = 10.0,
        handshake_s: float = 10.0,
        full: bytes = b"",
    ) -> None:
        self._listening = listening
        self._seats = seats
        self._make = make
        self._tls = tls
        self._first_byte_s = first_byte_s
        self._handshake_s = handshake_s
        self._full = full
        self._accepting: asyncio.Task[None] | None = None
        self._entering: set[asyncio.Task[None]] = set()
        self._said_s: float | None = None

    def open(self) -> None:
        """Take connections from now on."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        """Take no more; who is not through yet stays outside."""
        tasks = [*self._entering] if self._accepting is None else [self._accepting, *self._entering]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        count = 0
        while True:
            try:
                client, address = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._make_room(error)
                    await asyncio.sleep(_NO_FILES_S)
                elif self._listening.fileno() < 0:
                    return
                continue
            seat = self._seats.take(address_key(address[0]))
            if seat is None:
                self._turn_away(client)
            else:
                task = loop.create_task(self._enter(client, seat))
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
                seat.cut = task.cancel
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _enter(self, client: socket.socket, seat: ConnectionSlot) -> None:
        is_through = False
        try:
            await self._first_byte(client)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(seat),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s if self._tls is not None else None,
            )
            is_through = True
        except (OSError, TimeoutError):  # It left, said nothing, or its part of TLS was wrong or late.
            pass
        finally:
            if not is_through:
                client.close()
                self._seats.give_back(seat)

    async def _first_byte(self, client: socket.socket) -> None:
        """Wait until there is something to read, or its end."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(client.fileno(), _done, readable)
        try:
            async with asyncio.timeout(self._first_byte_s):
                await readable
        finally:
            loop.remove_reader(client.fileno())

    def _turn_away(self, client: socket.socket) -> None:
        if self._full and self._tls is None:
            with contextlib.suppress(OSError):
                client.send(self._full)
        client.close()

    def _make_room(self, error: OSError) -> None:
        self._seats.cut_one()
        now_s = asyncio.get_running_loop().time()
        if self._said_s is None or now_s - self._said_s > _NO_FILES_SAID_S:
            self._said_s = now_s
            _LOGGER.error("a connection cannot be taken: %s; raise the limit of open files (ulimit -n)", error.strerror)


def _done(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
