"""What a replica takes in at once, from all its callers, and what it tells those it turns away."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Protocol

import grpc

from rsm_spark.core.commands import Answer, AnswerStatus, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import RsmError, WrongLogError
from rsm_spark.grpc.codec import ReceivedRequests

__all__ = ["WORK_BYTES_MAX", "Backend", "Intake", "status_code_of"]

WORK_BYTES_MAX = 256 * 1024 * 1024
"""Payload bytes of all messages without an answer; messages beyond are answered OVERLOADED."""


class Backend(Protocol):
    """What the server needs of a replica; `rsm_spark.runtime.Replica` is one."""

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        ...

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE
    ) -> asyncio.Future[list[Answer]]:
        """Queue requests; one future of all their answers."""
        ...


def status_code_of(error: RsmError) -> grpc.StatusCode:
    """Return gRPC's word for a message that cannot be served."""
    if isinstance(error, WrongLogError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.INVALID_ARGUMENT


class Intake:
    """Messages on their way into one replica.

    Args:
        log: Name of its log.
        address: Its own.
        backend: The replica.

    Attributes:
        successor: Address of the replica that leads now, once this one is about to stop; "" = not known.
        bytes_in_work: Payload bytes of messages without an answer.
        overloaded: Requests turned away for their size.

    """

    def __init__(self, log: str, address: str, backend: Backend) -> None:
        self._log = log
        self._address = address
        self._backend = backend
        self.successor = ""
        self.bytes_in_work = 0
        self.overloaded = 0

    @property
    def leader_address(self) -> str | None:
        """Who leads, for those who asked the wrong replica."""
        return self.successor or self._backend.leader_address

    def submit(self, received: ReceivedRequests) -> asyncio.Future[list[Answer]]:
        """Give a message to the replica; return the future of its answers.

        Raises:
            WrongLogError: It is meant for another log.

        """
        if received.log != self._log:
            raise WrongLogError(
                f"this replica, {self._address}, serves the log {self._log!r}, the message is meant for "
                f"{received.log!r}"
            )
        size = received.payload_bytes
        if self.bytes_in_work and self.bytes_in_work + size > WORK_BYTES_MAX:
            self.overloaded += len(received.requests)
            refused: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
            refused.set_result([Answer(AnswerStatus.OVERLOADED, 0, b"")] * len(received.requests))
            return refused
        self.bytes_in_work += size
        future = self._backend.submit(received.requests, freshness=received.freshness)
        future.add_done_callback(functools.partial(self._on_done, size))
        return future

    def _on_done(self, size: int, _future: asyncio.Future[list[Answer]]) -> None:
        self.bytes_in_work -= size
