"""A stream of messages that a replica tells whoever may read its state: the server's end of `told_stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from ledger.errors import LedgerError
from ledger.rights.principal import Principal
from ledger.rights.table import Right
from rsm_spark.errors import AccessDeniedError, ConnectionLostError, InvalidCommandError, MissingLogError, RsmError
from rsm_spark.transport.guard import calling_principal
from rsm_spark.transport.reach import KeyScopes, fault_of
from rsm_spark.transport.server import ReplicaServer, owner_of
from rsm_spark.transport.told_stream import FIRST_REVISION_KEY


async def end_told(context: Any, error: Exception) -> None:
    """End a stream whose messages have ended with an error of ours, so that `told_by` raises its like."""
    if isinstance(error, MissingLogError):
        first = (error.last_revision or 0) + 1
        await context.abort(
            grpc.StatusCode.OUT_OF_RANGE, str(error), trailing_metadata=((FIRST_REVISION_KEY, str(first)),)
        )
    elif isinstance(error, AccessDeniedError):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
    elif isinstance(error, ConnectionLostError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    elif isinstance(error, InvalidCommandError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    await context.abort(grpc.StatusCode.UNAVAILABLE, f"the log cannot be read: {error}")


class ToldService:
    """Serves one method; for callers who may read all of the log's state.

    Args:
        log: Name of the replica's log.
        service: gRPC's name of the service, with its package.
        method: Of it.
        messages: Returns the messages for a request of an owner; raises what `told_by` raises, and any `RsmError` or
            `LedgerError` where another replica is to be tried.

    """

    def __init__(
        self, log: str, service: str, method: str, messages: Callable[[bytes, str], AsyncIterator[bytes]]
    ) -> None:
        self._log = log
        self._service = service
        self._method = method
        self._messages = messages
        self._keys: KeyScopes | None = None
        self._on_refused: Callable[[Principal, str, str, str], object] = lambda *_: None

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        self._keys = server.keys
        self._on_refused = server.guard.refused
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(self._tell)
        rights = {self._method: Right.STATE_READ}
        server.add_service(self._service, {self._method: handler}, rights, framed=[self._method])

    async def _tell(self, text: bytes, context: Any) -> None:
        principal, source = calling_principal(), str(context.peer())
        fault = fault_of(principal, self._log, self._keys)
        if fault:
            self._on_refused(principal, f"/{self._service}/{self._method}", source, fault)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, fault)
        messages = self._messages(text, owner_of(context))
        try:
            async for message in messages:
                await context.write(message)
        except (RsmError, LedgerError) as error:
            if isinstance(error, AccessDeniedError):
                self._on_refused(principal, f"/{self._service}/{self._method}", source, str(error))
            await end_told(context, error)
        finally:
            await messages.aclose()  # type: ignore[attr-defined]  # it is a generator
