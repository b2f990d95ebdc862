"""Opens streams to one replica: over its framed port where it has one that answers, else over gRPC.

What is opened has gRPC's `read`, `write`, `code`, `details` and `cancel`, whichever it is. A framed port that lets
nobody in within a second, behind a firewall for example, is left alone for a while once gRPC has reached the replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any, Final, Literal

import grpc
import grpc.aio

from ledger.errors import UsageError
from ledger.rights.token_file import TokenFile
from ledger.tls import ClientContexts, TlsSettings
from rsm_spark.errors import RsmError
from rsm_spark.transport.call_frames import ALPN, CallHello
from rsm_spark.transport.framed_call import FramedCall
from rsm_spark.transport.security import HeldToken, RpcChannel, Security, check_token_way, open_channel, shown_token

Transport = Literal["framed", "grpc"]
"""Way to a replica: "framed" = over its framed port where it has one; "grpc" = over gRPC whatever it has."""

_GREETING_S_MAX: Final = 1.0
_LEFT_ALONE_S: Final = 60.0
_LEFT_ALONE_MAX: Final = 1_000

# Framed ports that did not answer where gRPC did, and until when they are left alone; the oldest goes first.
_left_alone: dict[str, float] = {}


def transport_of(given: Transport | None) -> Transport:
    """Return what a client was told, or the environment says.

    Args:
        given: None = `RSM_STORE__TRANSPORT`, else "framed".

    Raises:
        UsageError: It is neither.

    """
    told = given or os.environ.get("RSM_STORE__TRANSPORT") or "framed"
    if told not in {"framed", "grpc"}:
        raise UsageError(f"transport {told!r}: framed or grpc (RSM_STORE__TRANSPORT)")
    return "framed" if told == "framed" else "grpc"


class StreamFactory:
    """See the module.

    Args:
        address: "host:port" of gRPC.
        framed: The same of the framed port; "" = there is none, or it is not to be used.
        security: Of the caller.

    Raises:
        UsageError: A file of `security` cannot be used, or the token would travel in plain text beyond loopback.

    """

    def __init__(self, address: str, framed: str, security: Security) -> None:
        self._address = address
        self._framed = framed
        self._security = security
        self._channel: RpcChannel | None = None
        self._is_missed = False
        self._token: TokenFile | HeldToken | None = None
        self._contexts: ClientContexts | None = None
        if not framed:
            self._channel = open_channel(address, security)
            return
        check_token_way(framed, security)
        self._token = shown_token(security)
        if security.calls_encrypted:
            self._contexts = ClientContexts(
                TlsSettings(ca=security.tls_ca, cert=security.tls_cert, key=security.tls_key)
            )

    async def open(self, method: str) -> Any:
        """Return a stream both ways.

        Raises:
            AioRpcError: The replica refuses the call.
            UsageError: A file of `security` cannot be used.

        """
        call = await self._open_framed(method) if self._framed else None
        return self.grpc_channel().stream_stream(method)() if call is None else call

    async def call(self, method: str, request: bytes) -> Any:
        """Return a stream of answers to one request; raises as `open`."""
        call = await self._open_framed(method) if self._framed else None
        if call is None:
            return self.grpc_channel().unary_stream(method)(request)
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # To read tells why.
            await call.write(request)
            await call.done_writing()
        return call

    def reached(self) -> None:
        """Take note that what was opened has reached the replica."""
        if self._is_missed:
            self._is_missed = False
            _left_alone.pop(self._framed, None)
            _left_alone[self._framed] = time.monotonic() + _LEFT_ALONE_S
            if len(_left_alone) > _LEFT_ALONE_MAX:
                del _left_alone[next(iter(_left_alone))]

    def grpc_channel(self) -> RpcChannel:
        """Return the channel of gRPC; it connects with the first call."""
        if self._channel is None:
            self._channel = open_channel(self._address, self._security)
        return self._channel

    async def close(self) -> None:
        """Break off every call of gRPC, and disconnect; framed calls are ended one by one."""
        if self._channel is not None:
            await self._channel.close()

    async def _open_framed(self, method: str) -> FramedCall | None:
        """Return a call, or None: this port is of no use now, and gRPC will tell why if it is of none either."""
        if _left_alone.get(self._framed, 0.0) > time.monotonic():
            return None
        host, _, port = self._framed.rpartition(":")
        token = b""
        if self._token is not None:
            self._token.look(time.monotonic())
            token = self._token.known[0]
        context = None
        if self._contexts is not None:
            context = self._contexts.newest()
            context.set_alpn_protocols([ALPN])
        hello = CallHello(method, token)
        call: FramedCall | None = None
        try:
            async with asyncio.timeout(_GREETING_S_MAX):
                _, call = await asyncio.get_running_loop().create_connection(
                    lambda: FramedCall(hello), host.strip("[]"), int(port), ssl=context
                )
                await call.greeted()
        except TimeoutError:
            self._is_missed = True
        except (OSError, ValueError, RsmError):  # No connection, no port, wrong TLS, a token beyond all bounds.
            return None
        finally:
            if call is not None and not call.is_greeted:
                call.cancel()
        if call is None or not call.is_greeted:
            return None
        if call.is_welcome:
            return call
        if await call.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise call.failure()
