"""Single calls to a replica; what clients send all the time goes through `rsm_spark.transport.replica_stream`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from rsm_spark.core.operation import Message
from rsm_spark.errors import AccessDeniedError, ConnectionLostError
from rsm_spark.transport.codec import (
    CALL_METHOD,
    STATUS_METHOD,
    ReceivedAnswers,
    decode_answers,
    decode_status,
    encode_message,
    encode_status_request,
)
from rsm_spark.transport.security import Security, open_channel

DENIALS = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
"""Status codes with which a server refuses a call before anything of it is read."""


class ReplicaChannel:
    """A connection to one replica.

    Args:
        address: "host:port".
        log: Name of the log meant.
        security: TLS and token; None = as the environment says.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    def __init__(self, address: str, log: str, *, security: Security | None = None) -> None:
        self.address = address
        self._log = log
        self._channel = open_channel(address, security if security is not None else Security.from_environment())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def call(self, message: Message, timeout_s: float) -> ReceivedAnswers:
        """Send one message without a stream.

        Raises:
            ConnectionLostError: There was no answer.

        """
        text = encode_message(message, self._log)
        call: Any = self._channel.unary_unary(CALL_METHOD)
        try:
            return decode_answers(await call(text, timeout=timeout_s))
        except (grpc.aio.AioRpcError, ValueError) as error:
            raise self._lost(error) from error

    async def status(self, timeout_s: float) -> bytes:
        """Return the JSON that the replica says of itself.

        Raises:
            ConnectionLostError: There was no answer.

        """
        call: Any = self._channel.unary_unary(STATUS_METHOD)
        try:
            text: bytes = await call(encode_status_request(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from error
        return decode_status(text)

    def _lost(self, error: Exception) -> ConnectionLostError:
        return lost(self.address, self._log, error)


def lost(address: str, log: str, error: Exception) -> ConnectionLostError:
    """Return what the failure of a call to a replica means."""
    if isinstance(error, grpc.aio.AioRpcError):
        return lost_by(address, log, error.code(), error.details() or "")
    return ConnectionLostError(f"{address}: replica of log {log}: {error}")


def lost_by(address: str, log: str, code: grpc.StatusCode, details: str) -> ConnectionLostError:
    """Return what a status means with which a call to a replica ended."""
    kind = AccessDeniedError if code in DENIALS else ConnectionLostError
    return kind(f"{address}: replica of log {log}: {code.name.lower()}: {details}")
