"""The framed port of a replica: the methods of its gRPC port, behind the same guard, for a tenth of the work.

Each connection is one call: see `rsm_spark.transport.call_frames`. Connections share their seats with those of the gRPC
port; certificate, token, principals, rights and the audit of refusals are the same.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc

from ledger.frame_pot import FramePot
from ledger.http.acceptor import Acceptor, listen
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots
from ledger.tls import TlsSettings, server_context
from rsm_spark.errors import RsmError
from rsm_spark.transport.call_frames import ALPN, CallHello
from rsm_spark.transport.connection_keeper import ConnectionKeeper
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.security import Security
from rsm_spark.transport.served_call import CallAbortedError, ServedCall

_LOGGER = logging.getLogger(__name__)

_UNFINISHED_BYTES_MAX: Final = 256 << 20


def listening_on(bind: str, port: int, *, what: str, option: str) -> tuple[socket.socket, str]:
    """Return a socket that listens, and its address as "host:port".

    Args:
        bind: Address to listen on.
        port: 0 = the system chooses.
        what: Served there, for messages.
        option: Of the command that names the port.

    Raises:
        RsmError: The port is taken.

    """
    host = f"[{bind}]" if ":" in bind else bind
    try:
        found = listen(bind, port)
    except (OSError, OverflowError) as error:
        raise RsmError(
            f"cannot serve {what} on {host}:{port}: the port is taken or not allowed; {option} 0 finds a free one"
        ) from error
    return found, f"{host}:{found.getsockname()[1]}"


class FramedPort:
    """See the module. The port is bound first: the replica advertises it.

    Args:
        bind: Address to listen on; the gRPC port has been allowed there.
        port: 0 = the system chooses.
        seats: Of its connections.
        guard: Who may call.
        security: TLS.

    Attributes:
        address: "host:port".
        calls: Open ones, strangers too.

    Raises:
        RsmError: The port is taken.
        UsageError: A file of TLS cannot be used.

    """

    def __init__(self, bind: str, port: int, *, seats: ConnectionSlots, guard: Guard, security: Security) -> None:
        self._guard = guard
        self._seats = seats
        self._handlers: dict[str, Callable[[Any, Any], Any]] = {}
        self._pot = FramePot(_UNFINISHED_BYTES_MAX, _UNFINISHED_BYTES_MAX // 2)
        self._is_draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls: dict[ServedCall, None] = {}
        self._keeper = ConnectionKeeper(lambda: self.calls)
        tls = None
        if security.tls_cert is not None:
            files = TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_client_ca)
            tls = server_context(files, alpn=[ALPN])
        listening, self.address = listening_on(bind, port, what="framed calls", option="--framed-port")
        self._acceptor = Acceptor(listening, seats, self._make, tls=tls)

    def add(self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        """Serve these methods, streams of bytes both ways that the guard has wrapped."""
        for name, handler in handlers.items():
            given: Any = handler
            self._handlers[f"/{service}/{name}"] = given.stream_stream

    def open(self) -> None:
        """Take calls."""
        self._acceptor.open()
        self._keeper.start()

    async def close(self, grace_s: float) -> None:
        """Take no more calls; wait so long for those that run, and cut the rest."""
        self._is_draining = True
        await self._acceptor.close()
        for call in [call for call in self.calls if not call.is_begun]:
            call.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # What the last ones said is on its way.
        for call in list(self.calls):
            if not call.is_over:
                call.cut()
        self._keeper.stop()

    # ---- one call

    def _make(self, slot: ConnectionSlot) -> ServedCall:
        return ServedCall(slot, self._pot, self)

    def opened(self, call: ServedCall) -> None:
        """See `CallOwner`."""
        self.calls[call] = None

    def closed(self, call: ServedCall) -> None:
        """See `CallOwner`."""
        self.calls.pop(call, None)
        self._seats.give_back(call.slot)

    def begin(self, call: ServedCall, hello: CallHello) -> asyncio.Task[None]:
        """See `CallOwner`."""
        task = asyncio.get_running_loop().create_task(self._serve(call, hello))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, call: ServedCall, hello: CallHello) -> None:
        handler = self._handlers.get(hello.method)
        try:
            if self._is_draining:
                await call.abort(grpc.StatusCode.UNAVAILABLE, "this replica stops")
            if handler is None:
                why = f"{hello.method!r} is not served here"
                self._guard.refused(None, hello.method, call.peer(), why)
                await call.abort(grpc.StatusCode.UNIMPLEMENTED, why)
            self._guard.enter(hello.token, call.names())
            await handler(None, call)
            call.finish(grpc.StatusCode.OK)
        except CallAbortedError:
            call.aborted()
        except asyncio.CancelledError:
            if not call.is_over:
                call.cut()
            raise
        except Exception:
            if call.is_over:  # The caller has left while it was answered.
                return
            _LOGGER.exception("a call failed", extra={"method": hello.method, "peer": call.peer()})
            call.finish(grpc.StatusCode.UNKNOWN, "the call failed at the replica: its log says why")
