"""Service of relays: a replica that does not lead passes clients' streams on, the leader serves what is passed on.

Who calls is decided twice. The replica that is called lets nobody in who may not call the leader's method. It passes on
what the client has shown, its token or the names in its certificate, and the leader looks at that as if it had been
shown there: rights, scope, turns, bounds and the audit are those of the client, by the leader's own files. Only a
replica may pass on. So a token proves itself to the leader; for the names in a certificate it takes the word of a
replica, which writes the log as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from ledger.errors import UsageError
from ledger.rights.table import Right
from ledger.tls import is_loopback
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, OverloadedError, RsmError
from rsm_spark.runtime.relaying import LeaderPlace, Relay, RelayRoom
from rsm_spark.transport.channel import lost, lost_by
from rsm_spark.transport.connections import turns_of
from rsm_spark.transport.guard import calling_principal, shown_credential
from rsm_spark.transport.reach import fault_of
from rsm_spark.transport.relay_codec import (
    PASS_ON_METHOD,
    RELAY_METHOD,
    RELAY_SERVICE,
    PassedCaller,
    decode_caller,
    encode_caller,
)
from rsm_spark.transport.security import Security
from rsm_spark.transport.served_call import ServedCall
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.stream_factory import StreamFactory

CONNECT_S_MAX = 3.0
_FIRST_S_MAX = 10.0
"""For the word who it is that is passed on."""


class RelayService:
    """See the module.

    Args:
        log: Name of the replica's log.
        server: Of the replica; serves what was passed on.
        leader: Says where the leader serves; None = it is not known, or is this replica.
        leads: Says whether this replica leads.
        security: Of this replica as a caller of others.
        room: For streams that this replica passes on.

    """

    def __init__(
        self,
        log: str,
        server: ReplicaServer,
        leader: Callable[[], LeaderPlace | None],
        leads: Callable[[], bool],
        security: Security,
        room: RelayRoom | None = None,
    ) -> None:
        self.room = room if room is not None else RelayRoom()
        # Streams that others have passed on; what they hold is bounded like that of streams that come directly.
        self.taken = RelayRoom()
        self._log = log
        self._server = server
        self._leader = leader
        self._leads = leads
        self._security = security
        self._relays: dict[Relay, None] = {}
        self._is_closed = False

    def add(self) -> None:
        """Have the server, which has not started yet, serve this too."""
        self._server.add_service(
            RELAY_SERVICE,
            {
                "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
                "PassOn": grpc.stream_stream_rpc_method_handler(self._pass_on),
            },
            {"Exchange": Right.STATE_READ, "PassOn": Right.REPORT},
            framed=["Exchange", "PassOn"],
        )

    def close(self) -> None:
        """Take nothing more in from clients whose streams are passed on; they end when that is answered."""
        self._is_closed = True
        for relay in list(self._relays):
            relay.drain()

    # ---- the replica that is called

    async def _exchange(self, _requests: Any, context: Any) -> None:
        peer, principal = str(context.peer()), calling_principal()
        if self._leads():
            await self._server.exchange(context, RELAY_METHOD, peer, is_packed=isinstance(context, ServedCall))
            return
        fault = fault_of(principal, self._log, self._server.keys)
        if fault:
            self._server.guard.refused(principal, RELAY_METHOD, peer, fault)
            await _abort(context, grpc.StatusCode.PERMISSION_DENIED, fault)
        place = self._leader()
        if place is None or self._is_closed:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "this replica knows no leader to pass anything on to")
        owner = turns_of(principal, peer)
        token, names = shown_credential()
        caller = PassedCaller(self._log, token, names, peer, isinstance(context, ServedCall))
        try:
            with self.room.relay_of(owner):
                await self._relay(_ClientEnd(context), place, caller, owner)
        except OverloadedError as error:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (ConnectionLostError, UsageError) as error:
            # Whatever the leader says of this replica or of the client: nothing of it is the client's to act upon.
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"passed on to the leader: {error}")

    async def _relay(self, client: _ClientEnd, place: LeaderPlace, caller: PassedCaller, owner: str) -> None:
        is_plain = not self._security.calls_encrypted and not is_loopback(_host_of(place.address))
        if caller.token and is_plain:
            raise UsageError(f"the caller's token would travel to {place.address} in plain text")
        factory = StreamFactory(place.address, place.framed, self._security)
        try:
            leader = _LeaderEnd(place.address, self._log)
            await leader.open(factory, caller)
            relay = Relay(client, leader, self.room, owner)
            self._relays[relay] = None
            try:
                await relay.run()
            finally:
                del self._relays[relay]
        finally:
            await factory.close()

    # ---- the leader

    async def _pass_on(self, _requests: Any, context: Any) -> None:
        """Serve a client by way of another replica. A replica that does not lead says so, as to anybody."""
        speaker = calling_principal()
        caller = await self._caller(context)
        server, peer = self._server, caller.peer

        async def serve(_nothing: Any, context: Any) -> None:
            owner = turns_of(calling_principal(), peer)
            try:
                with self.taken.relay_of(owner):
                    await server.exchange(
                        context, PASS_ON_METHOD, peer, is_packed=caller.is_packed, way=f" by way of {speaker.name}"
                    )
            except OverloadedError as error:
                await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

        await server.guard.serve_for(caller.token, caller.names, peer, serve, context)

    async def _caller(self, context: Any) -> PassedCaller:
        try:
            async with asyncio.timeout(_FIRST_S_MAX):
                text = await context.read()
            caller = decode_caller(b"\xff" if text is grpc.aio.EOF else text)
        except TimeoutError:
            reason = f"no word whose stream this is within {_FIRST_S_MAX:g} s"
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, reason)
        except InvalidCommandError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if caller.log != self._log:
            reason = f"this replica serves the log {self._log!r}, the call is meant for {caller.log!r}"
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, reason)
        return caller


class _ClientEnd:
    """The client's half: the context of its call."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def read(self) -> bytes | None:
        text = await self._context.read()
        return None if text is grpc.aio.EOF else text

    async def write(self, text: bytes) -> None:
        try:
            await self._context.write(text)
        except asyncio.InvalidStateError as error:
            raise ConnectionLostError(f"the client has left: {error}") from error

    async def end(self) -> None:
        """Do nothing: the call ends with its handler."""

    def cut(self) -> None:
        """Do nothing either."""


class _LeaderEnd:
    """The leader's half: a call to it."""

    def __init__(self, address: str, log: str) -> None:
        self._address = address
        self._log = log
        self._call: Any = None

    async def open(self, factory: StreamFactory, caller: PassedCaller) -> None:
        """Connect, and say whose stream it is."""
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                self._call = await factory.open(PASS_ON_METHOD)
                await self._call.write(encode_caller(caller))
        except TimeoutError as error:
            self.cut()
            raise ConnectionLostError(f"{self._address}: no connection within {CONNECT_S_MAX:g} s") from error
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise lost(self._address, self._log, error) from error
        factory.reached()

    async def read(self) -> bytes | None:
        try:
            text = await self._call.read()
            if text is not grpc.aio.EOF:
                return bytes(text)
            code, details = await self._call.code(), await self._call.details()
        except grpc.aio.AioRpcError as error:
            raise lost(self._address, self._log, error) from error
        if code is not grpc.StatusCode.OK:
            raise lost_by(self._address, self._log, code, details or "")
        return None

    async def write(self, text: bytes) -> None:
        try:
            await self._call.write(text)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise lost(self._address, self._log, error) from error

    async def end(self) -> None:
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # It has ended: reading tells how.

    def cut(self) -> None:
        if self._call is not None:
            self._call.cancel()


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


async def _abort(context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
    await context.abort(code, reason)
    raise RsmError(reason)
