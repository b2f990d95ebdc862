"""What a client of any replicated machine sends its operations through, and what their ends mean to its caller.

Commands, and reads that must be linearizable, go to the leader. Other reads go there too, or with `read_from="any"` to
the followers in turn; whatever one of those cannot answer, another replica is asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Literal

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness
from rsm_spark.errors import (
    AccessDeniedError,
    InvalidCommandError,
    NoLeaderError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    RsmError,
    TooStaleError,
)
from rsm_spark.grpc.codec import SESSION_BYTES
from rsm_spark.grpc.security import Security
from rsm_spark.store.core.command_stream import CommandStream
from rsm_spark.store.core.operation import Ending, Operation, SeenRevision, StreamLimits
from rsm_spark.store.leader_finder import FollowerFinder, LeaderFinder
from rsm_spark.store.leader_link import LeaderLink
from rsm_spark.store.read_lanes import ReadLanes

__all__ = ["ClientLink", "ReadFrom"]

ReadFrom = Literal["leader", "any"]
"""Which replicas answer reads that need not be linearizable."""


class ClientLink:
    """One client's connections to the replicas of one log. For one event loop.

    Args:
        finder: Names the replica to send to.
        log: Name of the log.
        is_one_replica: The finder always names the same replica, which need not lead: its refusals are final, and
            reads are stale unless they say otherwise.
        followers: Names the replicas that answer reads which need not be linearizable; None = the leader does.
        limits: Of messages, and of what may wait.
        security: TLS and token; None = as the environment says.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    def __init__(
        self,
        finder: LeaderFinder,
        log: str,
        *,
        is_one_replica: bool = False,
        followers: FollowerFinder | None = None,
        limits: StreamLimits | None = None,
        security: Security | None = None,
    ) -> None:
        self._log = log
        self._seen = SeenRevision()
        self._freshness = STALE if is_one_replica else LINEARIZABLE
        stream = CommandStream(_new_session, limits, follows_leader=not is_one_replica, seen=self._seen)
        security = security if security is not None else Security.from_environment()
        self._leader = LeaderLink(stream, finder, log, security=security)
        self._lanes: ReadLanes | None = None
        if followers is not None:
            self._lanes = self._leader.lanes = ReadLanes(
                followers,
                log,
                security=security,
                seen=self._seen,
                limits=limits,
                on_ended=self._leader.resolve,
                on_left_over=self._leader.take_over,
            )

    @property
    def address(self) -> str:
        """Address of the replica that commands go to; "" while not connected."""
        return self._leader.address

    @property
    def follower_reads(self) -> int:
        """Reads that followers have answered."""
        return self._lanes.answered if self._lanes is not None else 0

    @property
    def revision(self) -> int:
        """Highest revision that any answer has named: what a session read is at least as new as."""
        return self._seen.revision

    async def close(self) -> None:
        """Give up what has no answer yet, and disconnect."""
        if self._lanes is not None:
            await self._lanes.close()
        await self._leader.close()

    def submit(
        self, payload: bytes, timeout_s: float, *, is_query: bool, freshness: Freshness | None = None
    ) -> asyncio.Future[Operation]:
        """Queue one operation; the future gets it when it has ended: then `check` it.

        Raises:
            NoLeaderError: This client is closed.
            OverloadedError: Too many operations wait.

        """
        read = freshness if freshness is not None and is_query else self._freshness
        return self._leader.submit(payload, timeout_s, is_query=is_query, freshness=read)

    def submit_many(
        self, payloads: Sequence[bytes], timeout_s: float, *, is_query: bool, freshness: Freshness | None = None
    ) -> asyncio.Future[list[Operation]]:
        """Queue operations in order; one future gets all of them when the last has ended.

        Raises:
            NoLeaderError: This client is closed.
            OverloadedError: Too many operations wait.

        """
        read = freshness if freshness is not None and is_query else self._freshness
        return self._leader.submit_many(payloads, timeout_s, is_query=is_query, freshness=read)

    def check(self, operation: Operation) -> None:
        """Raise what the end of an operation without an answer means; see `rsm_spark.errors`."""
        if operation.outcome is not Ending.ANSWERED:
            raise self._error_of(operation)

    def _error_of(self, operation: Operation) -> RsmError:
        log = f"log {self._log}"
        what, done = ("query", "answered") if operation.is_query else ("command", "applied")
        trouble = self._leader.trouble
        why = f" ({trouble})" if trouble else ""
        match operation.outcome:
            case Ending.UNKNOWN:
                return OutcomeUnknownError(
                    f"{log}: no answer to command {operation.sequence}; it may have been applied{why}. Read what it "
                    "writes before sending it anew"
                )
            case Ending.NOT_LEADER:
                leader = self._leader.leader_hint
                return NotLeaderError(
                    f"{log}: the replica asked does not lead; the {what} was not applied"
                    + (f". {leader} leads, as far as it knows" if leader else ""),
                    leader=leader or None,
                )
            case Ending.TOO_LARGE:
                return InvalidCommandError(f"{log}: the command does not fit one entry of the log")
            case Ending.REFUSED:
                reason = operation.reason.decode(errors="replace")
                return InvalidCommandError(f"{log}: the service failed on the {what}, nothing was changed: {reason}")
            case Ending.TOO_STALE:
                lag_ms = int(operation.reason) if operation.reason.isdigit() else None
                lag = "an unknown time" if lag_ms is None else f"{lag_ms} ms"
                return TooStaleError(
                    f"{log}: the replica asked is at revision {operation.revision}, {lag} behind: not new enough for "
                    "this read. Ask the leader, or allow for more",
                    lag_ms=lag_ms,
                )
            case Ending.DENIED:
                return AccessDeniedError(f"{log}: the {what} was not {done}{why}")
            case Ending.NOT_READY:
                return NotReadyError(f"{log}: the replica asked installs a snapshot; ask another one, or again later")
            case _ if operation.refusal is AnswerStatus.OVERLOADED:
                return OverloadedError(f"{log}: the leader's queues were full; the {what} was not {done}. Send less")
            case _:
                return NoLeaderError(f"{log}: no leader answered in time; the {what} was not {done}{why}")


def _new_session() -> bytes:
    return os.urandom(SESSION_BYTES)
