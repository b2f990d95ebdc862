"""Callers of etcd's API: who each is, how far its keys reach, and how its call ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from ledger.errors import LedgerError
from ledger.rights.principal import ANYBODY, CLUSTER, ClientAccess, Principal, Role
from ledger.rights.table import Right, may
from rsm_spark.errors import RsmError
from rsm_spark.map import commands as c
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.requests import Span
from rsm_spark.map.etcd.work_bounds import WorkBounds
from rsm_spark.map.messages import encode
from rsm_spark.map.scopes import MapScopes
from rsm_spark.transport.connections import peer_key
from rsm_spark.transport.guard import Guard, calling_principal
from rsm_spark.transport.reach import fault_of

Call = Callable[[Any, "EtcdCaller"], Awaitable[Message]]
TextCall = Callable[[Any, "EtcdCaller"], Awaitable[bytes]]

_CALLERS_MAX = 4_096
"""Callers that are known from one call to the next."""


class EtcdCaller:
    """Principal of calls of one method over one connection.

    Args:
        principal: Who calls.
        method: "/service/Method".
        peer: The connection's other end.
        log: Name of the log.
        scopes: Looks into commands.
        guard: Is told what was refused.

    Attributes:
        principal: The same.
        owner: Whose call it is, for bounds.

    """

    def __init__(self, principal: Principal, method: str, peer: str, log: str, scopes: MapScopes, guard: Guard) -> None:
        self.principal = principal
        self._method = method
        self._peer = peer
        self._scopes = scopes
        self._guard = guard
        key = peer_key(peer)
        is_nobody = not principal.name or principal in (ANYBODY, CLUSTER)
        self.owner = f"address {key[0] if key else peer}" if is_nobody else f"principal {principal.name}"
        self._is_bounded = principal.role is Role.CLIENT and bool(principal.prefix)
        fault = fault_of(principal, log, scopes)
        if fault:
            self._deny(fault)

    @property
    def can_write(self) -> bool:
        """True if it may write at all."""
        principal = self.principal
        is_reader = principal.role is Role.CLIENT and principal.access is not ClientAccess.WRITE
        return may(principal, Right.STATE_WRITE) and not is_reader

    @property
    def is_administrator(self) -> bool:
        """True if it may raise and end alarms; who has the token of a replica could write them into the log."""
        return may(self.principal, Right.GOVERN) or self.principal.role is Role.REPLICA

    def check_administrator(self, what: str) -> None:
        """Check that something may be done that is for administrators; see `check_read`."""
        if not self.is_administrator:
            self._deny(f"{self.principal} is no operator: {what} is not for it")

    def may_read(self, span: Span) -> bool:
        """Return whether all keys of a range are in its scope."""
        return not self._is_bounded or self.principal.has_range(*span)

    def check_read(self, span: Span) -> None:
        """Check that a range may be read.

        Raises:
            EtcdError: It may not.

        """
        if not self.may_read(span):
            self._deny(f"{self.principal} has the keys of {self.principal.prefix!r} only")

    def check_command(self, command: c.MapCommand) -> None:
        """Check that a command may be given; see `check_read`."""
        if not self.can_write:
            self._deny(f"{self.principal} reads only")
        fault = self._scopes.command_fault(encode(command), self.principal) if self._is_bounded else ""
        if fault:
            self._deny(fault)

    def check_whole(self, what: str) -> None:
        """Check that something may be asked that concerns all keys; see `check_read`."""
        if self._is_bounded:
            self._deny(f"{self.principal} has the keys of {self.principal.prefix!r} only: {what} is beyond them")

    def own_keys(self, keys: list[bytes]) -> list[bytes]:
        """Return those of some keys that are in its scope."""
        return [key for key in keys if self.principal.has_key(key)] if self._is_bounded else keys

    def check_lease(self, keys: list[bytes]) -> None:
        """Check that a lease may be shown: it has no keys, or one in scope; see `check_read`."""
        if keys and not self.own_keys(keys):
            self._deny(f"no key of the lease is in the scope of {self.principal}")

    def _deny(self, why: str) -> None:
        self._guard.refused(self.principal, self._method, self._peer, why)
        raise e.denied()


class CallHandlers:
    """Makes handlers of gRPC of methods that are plain functions.

    Args:
        log: Name of the log.
        scopes: Of the map.
        guard: Of the port.
        bounds: On what is under way.

    """

    def __init__(self, log: str, scopes: MapScopes, guard: Guard, bounds: WorkBounds) -> None:
        self._log = log
        self._scopes = scopes
        self._guard = guard
        self.bounds = bounds
        # Those that may call, by method and connection.
        self._callers: dict[tuple[str, str], EtcdCaller] = {}

    def caller(self, method: str, context: Any) -> EtcdCaller:
        """Return who calls.

        Raises:
            EtcdError: It may not call anything of this log.

        """
        principal, peer = calling_principal(), str(context.peer())
        caller = self._callers.get((method, peer))
        if caller is None or caller.principal is not principal:
            caller = EtcdCaller(principal, method, peer, self._log, self._scopes, self._guard)
            if len(self._callers) >= _CALLERS_MAX:
                self._callers.clear()
            self._callers[method, peer] = caller
        return caller

    def unary(self, method: str, kind: type[Message], call: Call | TextCall) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of a method with one request and one answer.

        Args:
            method: "/service/Method".
            kind: Of its request.
            call: Answers it.

        """

        async def handle(text: bytes, context: Any) -> bytes:
            try:
                caller = self.caller(method, context)
                with self.bounds.room(caller.owner, len(text)):
                    response = await call(parsed(kind, text), caller)
                    return response if isinstance(response, bytes) else response.SerializeToString()
            except (RsmError, LedgerError, msgspec.MsgspecError, OverflowError) as error:
                await abort(context, error)
                raise

        return grpc.unary_unary_rpc_method_handler(handle)


def parsed(kind: type[Message], text: bytes) -> Any:
    """Return a message of its bytes.

    Raises:
        EtcdError: They are none.

    """
    try:
        return kind.FromString(text)
    except DecodeError:
        raise e.invalid(f"rsm: the message is no {kind.DESCRIPTOR.name}") from None


async def abort(context: Any, error: Exception) -> None:
    """End a call with an error, in the words that etcd's clients know."""
    if isinstance(error, RsmError | LedgerError):
        told = e.told(error)
        await context.abort(told.code, told.text)
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "rsm: a number of the request is too large")
