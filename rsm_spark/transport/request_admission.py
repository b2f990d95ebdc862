"""Admission of requests: the bounds of a replica over all its callers, and the answers to refused ones."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Protocol

import grpc

from ledger.telemetry.tracing import tracer
from rsm_spark.core.commands import Answer, AnswerStatus, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import RsmError, WrongLogError
from rsm_spark.transport.codec import ReceivedRequests
from rsm_spark.transport.reach import Reach
from rsm_spark.transport.traced_requests import served

WORK_BYTES_MAX = 256 * 1024 * 1024
"""Payload bytes of all messages without an answer, of one owner half of it; messages beyond are answered OVERLOADED."""


class Backend(Protocol):
    """Part of a replica that the server needs; `rsm_spark.runtime.Replica` is one."""

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        ...

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        """Queue requests; one future of all their answers."""
        ...


def status_code_of(error: RsmError) -> grpc.StatusCode:
    """Return gRPC's word for a message that cannot be served."""
    if isinstance(error, WrongLogError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.INVALID_ARGUMENT


class RequestAdmission:
    """Messages on their way into one replica.

    Args:
        log: Name of its log.
        address: Its own.
        backend: The replica.

    Attributes:
        successor: Address of the replica that leads now, once this one is about to stop; "" = not known.
        bytes_in_work: Payload bytes of messages without an answer.

    """

    def __init__(self, log: str, address: str, backend: Backend) -> None:
        self._log = log
        self._address = address
        self._backend = backend
        self.successor = ""
        self.bytes_in_work = 0
        self._bytes_of: dict[str, int] = {}  # By owner.

    @property
    def leader_address(self) -> str | None:
        """Address of the leader, for clients that asked the wrong replica."""
        return self.successor or self._backend.leader_address

    def submit(
        self, received: ReceivedRequests, reach: Reach | None = None, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        """Give a message to the replica; return the future of its answers.

        Args:
            received: The message.
            reach: How far its sender may go; None = everywhere.
            owner: Who takes turns with others: a principal, or an address.

        Raises:
            WrongLogError: It is meant for another log.

        """
        if received.log != self._log:
            raise WrongLogError(
                f"this replica, {self._address}, serves the log {self._log!r}, the message is meant for "
                f"{received.log!r}"
            )
        size, own = received.payload_bytes, self._bytes_of.get(owner, 0)
        if (self.bytes_in_work and self.bytes_in_work + size > WORK_BYTES_MAX) or (
            own and own + size > WORK_BYTES_MAX // 2
        ):
            refused: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
            refused.set_result([Answer(AnswerStatus.OVERLOADED, 0, b"")] * len(received.requests))
            return refused
        self.bytes_in_work += size
        self._bytes_of[owner] = own + size
        if tracer() is None:
            future = self._give(received, reach, owner)
        else:
            future = served(received, self._log, functools.partial(self._give, received, reach, owner))
        future.add_done_callback(functools.partial(self._on_done, owner, size))
        return future

    def _give(self, received: ReceivedRequests, reach: Reach | None, owner: str) -> asyncio.Future[Sequence[Answer]]:
        if reach is None:
            return self._backend.submit(received.requests, freshness=received.freshness, owner=owner)
        return reach.submit(self._backend, received, owner)

    def _on_done(self, owner: str, size: int, _future: asyncio.Future[Sequence[Answer]]) -> None:
        self.bytes_in_work -= size
        left = self._bytes_of.get(owner, 0) - size
        if left:
            self._bytes_of[owner] = left
        else:
            self._bytes_of.pop(owner, None)
