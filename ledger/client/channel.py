"""Bytes of one TCP connection to whole answers; before the first of them, what is asked one by one, TLS among it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.client.in_flight import Asker
from ledger.errors import RemoteProtocolError, TlsError
from ledger.tls import describe_tls_error
from ledger.wire import v3
from ledger.wire.codes import Status
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import StartTlsRequest, StartTlsResponse

if TYPE_CHECKING:
    # A connection opens channels, and each one tells it what comes: two halves of one thing, in one folder.
    from ledger.client.connection import BookieConnection


Stored: TypeAlias = list[tuple[Asker, Sequence[Any]]]
"""Adds that were answered "stored", as runs."""


class Channel(asyncio.BufferedProtocol):
    """The receiving half; whole frames are matched where they lie, in one go per wake-up."""

    def __init__(self, receiver: BookieConnection) -> None:
        self.transport: asyncio.Transport | None = None
        self.awaited = "connection"
        """Step that has not happened when the time to connect is over."""
        self._greeting: asyncio.Future[bytes] | None = None  # while set, the next packet goes here
        self.is_open = False
        """True if answers count: only after the connection is handed over, and not after it was given up."""
        self._receiver = receiver
        self._frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the transport writes next."""
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Match what is whole now."""
        receiver = self._receiver
        try:
            if self._greeting is not None:
                self._greet(self._frames.take(nbytes))
                return
            if not self.is_open:
                assert self.transport is not None
                self.transport.abort()
                return
            stored, packets = self._frames.take_after_run(nbytes, receiver.in_flight.adds.take_stored)
            if stored or packets:
                receiver.on_answers(self, stored, packets)
            if self._frames.damage is not None:
                raise self._frames.damage
        except RemoteProtocolError as error:
            receiver.on_broken(self, str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whose channel it is."""
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(exc or ConnectionResetError("it closed the connection"))
        self._receiver.on_lost(self, exc)

    async def ask(self, frame: bytes) -> bytes:
        """Send the frame of one request before the channel is open; return the packet that answers it.

        Raises:
            ConnectionError: The connection is lost.

        """
        assert self.transport is not None
        self._greeting = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        try:
            return await self._greeting
        finally:
            self._greeting = None

    def _greet(self, packets: list[memoryview]) -> None:
        if not packets:
            return
        assert self._greeting is not None
        if len(packets) > 1 or self._greeting.done():
            raise RemoteProtocolError("it says more than was asked before the connection is ready")
        self._greeting.set_result(bytes(packets[0]))


async def start_tls(channel: Channel, context: ssl.SSLContext, host: str, txn_id: int) -> None:
    """Ask the bookie to go on in TLS, and do it; `channel.transport` is then the encrypted one.

    Raises:
        TlsError: It does not, or the handshake failed; the text says why.
        RemoteProtocolError: It answers with something else.

    """
    loop = asyncio.get_running_loop()
    transport = channel.transport
    assert transport is not None
    response = v3.decode_response(await channel.ask(v3.encode_request(StartTlsRequest(txn_id))))
    if not isinstance(response, StartTlsResponse) or response.status != Status.EOK:
        raise TlsError(f"TLS: the bookie answers {response.status.name} to START_TLS: it has TLS switched off")
    try:
        encrypted = await loop.start_tls(transport, channel, context, server_hostname=host)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(describe_tls_error(error)) from error
    if encrypted is None:
        raise TlsError("TLS: it closed the connection during the handshake")
    channel.transport = encrypted
