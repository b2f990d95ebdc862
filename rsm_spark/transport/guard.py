"""Guard of methods, over gRPC and the framed port: who calls, and whether that one may.

Default deny, before a call's content is read:

    a token in the metadata -> its principal; a wrong one is nobody's, whatever certificate comes with it
    no token, a client's certificate -> the principal of its names
    neither -> refused, unless nothing is demanded here (a port on loopback without token and principals)

A stream is looked at again once a second: it ends when its principal has expired, is gone, or has other rights now.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from ledger.rights.callers import Callers
from ledger.rights.file import bearer_token
from ledger.rights.principal import CLUSTER, Principal, Role
from ledger.rights.table import Right, may
from rsm_spark.transport.security import AUTHORIZATION, Security

_REFUSAL_S = 0.05
"""gRPC's client in Python that writes its first request just when the stream ends says "Internal error from Core" in
place of the reason: the request has this long to come before."""
_CALLER: ContextVar[_Caller | None] = ContextVar("rsm_grpc_caller", default=None)


def calling_principal() -> Principal:
    """Return who calls; in a handler that a `Guard` has wrapped."""
    caller = _CALLER.get()
    assert caller is not None, "no guard has let this call through"
    return caller.principal


def caller_or_nobody() -> Principal | None:
    """Return who calls; None = this is no call that came over a guarded port."""
    caller = _CALLER.get(None)
    return None if caller is None else caller.principal


def calling_source() -> str:
    """Return where the call came from; "" = that is not known, or this is no call that came over a guarded port."""
    caller = _CALLER.get(None)
    return "" if caller is None else caller.source


def shown_credential() -> tuple[bytes, tuple[str, ...]]:
    """Return what the caller has shown: its token, or the names in its certificate; in a handler likewise."""
    caller = _CALLER.get()
    assert caller is not None, "no guard has let this call through"
    return caller.token, caller.names


class _Caller:
    """A principal, how it is found again, and what it has shown."""

    __slots__ = ("again", "names", "principal", "source", "token")

    def __init__(
        self,
        principal: Principal,
        again: Callable[[], Principal | None],
        token: bytes = b"",
        names: Sequence[str] = (),
        source: str = "",
    ) -> None:
        self.source = source
        self.principal = principal
        self.again = again
        self.token = token
        self.names = tuple(names)


class _OpenStream:
    __slots__ = ("caller", "is_cut", "task")

    def __init__(self, caller: _Caller, task: asyncio.Task[Any]) -> None:
        self.caller = caller
        self.task = task
        self.is_cut = False


class Guard:
    """See the module.

    Args:
        security: Of the server.
        clock_s: Monotonic.
        wall_s: Wall clock.
        open_methods: Methods that anybody may call: who has no token yet gets one there.

    Attributes:
        refused_calls: Calls that were not let through, and what was refused behind this door for its scope.
        on_refused: Told of each of them: who (None = nobody that is known here), the method ("" = one that is not
            served), the name of the connection's other end, why.
        on_admitted: Told of each call that was, by its context, and whose it is (None = of somebody who may have any
            number of connections); returns whether that one may have this connection.

    Raises:
        UsageError: A file cannot be used.

    """

    def __init__(
        self,
        security: Security,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        self._open_methods = open_methods
        self._callers = Callers(security.principals, security.token_file, clock_s=clock_s, wall_s=wall_s)
        self._rights: dict[str, Right | None] = {}
        self._streams: dict[_OpenStream, None] = {}
        self._anybody = _Caller(CLUSTER, lambda: CLUSTER)
        self.refused_calls = 0
        self.on_refused: Callable[[Principal | None, str, str, str], object] = _nobody_counts
        self.on_admitted: Callable[[Any, str | None], bool] = _nobody_asks

    @property
    def is_open(self) -> bool:
        """True if nothing is demanded."""
        return self._callers.is_open

    @property
    def rights(self) -> Mapping[str, Right | None]:
        """Right that each served method needs; None = it is for nobody."""
        return self._rights

    def principal_of(self, token: bytes) -> Principal | None:
        """Return whose token this is; None = nobody's."""
        return self._callers.of_token(token)

    def principal_by(self, token: bytes, names: Sequence[str]) -> Principal | None:
        """Return whose token this is, or without one whose certificate has these names; None = nobody's."""
        return self._callers.of(token, names)

    def wrap(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], rights: Mapping[str, Right]
    ) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return handlers of a service that this guard stands before.

        Args:
            service: Its name.
            handlers: By method name.
            rights: What each method needs; one without is refused for everybody.

        """
        wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            if method in self._open_methods:
                wrapped[name] = handler
                continue
            self._rights[method] = rights.get(name)
            wrapped[name] = self._wrapped(method, handler)
        return wrapped

    def refused(self, principal: Principal | None, method: str, peer: str, why: str) -> None:
        """Take note of a refusal: of this guard, or of a handler behind it that looked further into what was asked."""
        self.refused_calls += 1
        # A stranger names methods as it likes: they are all one.
        self.on_refused(principal, method if method in self._rights else "", peer, why)

    def sweep(self) -> None:
        """End the streams of those who may not have them any more; called once a second."""
        self._callers.look()
        for stream in list(self._streams):
            if not stream.is_cut and stream.caller.again() != stream.caller.principal:
                stream.is_cut = True
                stream.task.cancel()

    # ---- one call

    def enter(self, token: bytes, names: Sequence[str]) -> None:
        """Take note, in the task of a call, who calls; handlers of `wrap` ask that.

        Args:
            token: Of the caller; empty = it has none.
            names: In its certificate.

        """
        principal = self.principal_by(token, names)
        _CALLER.set(None if principal is None else self._caller(principal, token, names))

    async def serve_for(
        self, token: bytes, names: Sequence[str], peer: str, inner: Callable[[Any, Any], Awaitable[Any]], context: Any
    ) -> None:
        """Serve a stream for a caller that another replica has let in, for as long as that caller may have it.

        It must be allowed to read the state; what else it may, handlers look at. The stream is the other replica's, and
        ends when that one may not have it any more, too.

        Args:
            token: What the caller has shown there.
            names: In its certificate.
            peer: Where it called from.
            inner: Handler; `calling_principal` is that caller.
            context: Of the other replica's call.

        """
        principal = self.principal_by(token, names)
        speaker = calling_principal()
        if principal is None:
            fault = self._stranger()
        elif may(principal, Right.STATE_READ):
            fault = ""
        else:
            fault = f"{principal} has not the right to {Right.STATE_READ.value}"
        if fault:
            source = f"{peer} by way of {speaker.name}"
            self.refused(principal, "", source, fault)
            code = grpc.StatusCode.UNAUTHENTICATED if principal is None else grpc.StatusCode.PERMISSION_DENIED
            await context.abort(code, f"of the caller that is passed on: {fault}")
        assert principal is not None
        caller = self._caller(principal, token, names)
        caller.source = f"{peer} by way of {speaker.name}"
        _CALLER.set(caller)
        await self._hold(caller, inner, None, context)

    def _caller(self, principal: Principal, token: bytes, names: Sequence[str]) -> _Caller:
        return _Caller(principal, lambda: self.principal_by(token, names), token, names)

    async def _admit(self, method: str, context: Any, *, are_streamed: bool = False) -> _Caller:
        """Return who calls, or end the call; `are_streamed` = its requests are a stream."""
        caller = self._anybody if self.is_open else _CALLER.get()
        fault = self._stranger() if caller is None else self._fault(method, caller.principal)
        if fault and are_streamed:
            await asyncio.sleep(_REFUSAL_S)
        if caller is None:
            await self._abort(context, None, method, fault)
        assert caller is not None
        if fault:
            await self._abort(context, caller.principal, method, fault)
        if not self.on_admitted(context, _bounded(caller.principal)):
            why = f"{caller.principal} has its part of this port's connections already: close some, or share them"
            self.refused(caller.principal, method, context.peer(), why)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        if caller is not self._anybody:
            caller.source = str(context.peer())
        _CALLER.set(caller)
        return caller

    def _fault(self, method: str, principal: Principal) -> str:
        right = self._rights.get(method)
        if right is None:
            return f"{method} is for nobody"
        return "" if may(principal, right) else f"{method} needs the right to {right.value}: {principal} has it not"

    def _stranger(self) -> str:
        if not self._callers.has_principals:
            return "this replica needs the cluster's token: name its file (RSM_STORE__TOKEN_FILE)"
        return (
            "this replica does not know the caller: its token or certificate is no principal's here, or has expired. "
            "Name the file of a token (RSM_STORE__TOKEN_FILE, --token-file), or a certificate"
        )

    async def _abort(self, context: Any, principal: Principal | None, method: str, reason: str) -> None:
        self.refused(principal, method, context.peer(), reason)
        is_known = principal is not None
        code = grpc.StatusCode.PERMISSION_DENIED if is_known else grpc.StatusCode.UNAUTHENTICATED
        await context.abort(code, reason)

    # ---- handlers

    def _wrapped(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        given: Any = handler
        kind = f"{_word(given.request_streaming)}_{_word(given.response_streaming)}"
        inner = getattr(given, kind)
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        if not given.request_streaming and not given.response_streaming:

            async def call(request: Any, context: Any) -> Any:
                await self._admit(method, context)
                return await inner(request, context)

            wrapped = make(call, given.request_deserializer, given.response_serializer)
        else:

            async def stream(request: Any, context: Any) -> Any:
                caller = await self._admit(method, context, are_streamed=given.request_streaming)
                return await self._hold(caller, inner, request, context)

            wrapped = make(stream, given.request_deserializer, given.response_serializer)
        result: grpc.RpcMethodHandler[Any, Any] = wrapped
        return result

    async def _hold(self, caller: _Caller, inner: Any, request: Any, context: Any) -> Any:
        """Serve a stream for as long as its caller may have it."""
        task = asyncio.current_task()
        assert task is not None
        held = _OpenStream(caller, task)
        self._streams[held] = None
        try:
            if not inspect.isasyncgenfunction(inner):
                return await inner(request, context)
            async for message in inner(request, context):
                await context.write(message)
        except asyncio.CancelledError:
            if not held.is_cut:
                raise
            task.uncancel()
            await context.abort(
                grpc.StatusCode.ABORTED, f"{caller.principal} is not in force here any more, or has other rights now"
            )
        finally:
            del self._streams[held]


def _nobody_counts(_principal: Principal | None, _method: str, _peer: str, _why: str) -> None:
    """Nobody keeps an audit here."""


def _nobody_asks(_context: Any, _owner: str | None) -> bool:
    """Nobody looks after connections here."""
    return True


def _bounded(principal: Principal) -> str | None:
    """Return whose connections are counted; None = the cluster itself and who administers it are never kept out."""
    return None if principal.role in (Role.REPLICA, Role.OPERATOR) else principal.name


def _word(is_streaming: bool) -> str:
    return "stream" if is_streaming else "unary"


def token_of(metadata: Any, plain_key: str) -> bytes | None:
    """Return the token that metadata carries, None if it carries none; `plain_key` names one that is sent as it is."""
    for key, value in metadata or ():
        if key in (AUTHORIZATION, plain_key):
            text = value if isinstance(value, bytes) else value.encode()
            return bearer_token(text) if key == AUTHORIZATION else text
    return None
