"""TLS on a bookie's connections: who must use it, and the change from plain text."""

from __future__ import annotations

import asyncio
import ssl

import msgspec


class TlsPolicy(msgspec.Struct, frozen=True):
    """Policy of a bookie for TLS.

    Attributes:
        context: With certificate and key, and the CA of clients if they must show a certificate; None is no TLS.
        is_required: A connection may ask for nothing but START_TLS before its handshake.
        handshake_s: Limit of a handshake.

    """

    context: ssl.SSLContext | None = None
    is_required: bool = False
    handshake_s: float = 10.0

    async def upgrade(
        self, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol
    ) -> asyncio.Transport | None:
        """Shake hands as the server; return the transport to go on with, or None if the connection was lost.

        Raises:
            OSError: The handshake failed (`ssl.SSLError` is one), or took too long.

        """
        assert self.context is not None
        loop = asyncio.get_running_loop()
        return await loop.start_tls(
            transport, protocol, self.context, server_side=True, ssl_handshake_timeout=self.handshake_s
        )
