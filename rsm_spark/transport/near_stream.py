"""Streams to the replica of the same process: what clients there send reaches its admission by calls, not by a socket.

A replica that serves another protocol on a port of its own is its own client. What it sends is bounded, takes turns and
is answered as what comes over a connection: only bytes and sockets fall away. Everything else is the client's as ever:
the session, what is sent again, and where to when this replica leads no more.

What is to be sent when the event loop comes round goes in one message.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from rsm_spark.core.commands import Answer
from rsm_spark.core.operation import Message, payloads_of, sequences_of
from rsm_spark.errors import ConnectionLostError
from rsm_spark.transport.codec import ReceivedRequests, received_answers, received_requests
from rsm_spark.transport.reach import Reach
from rsm_spark.transport.replica_stream import ReplicaStreamUser
from rsm_spark.transport.request_admission import RequestAdmission


class NearReplica:
    """The replica of this process, as clients in it find it.

    Args:
        log: Name of its log.
        address: "host:port" that clients are told.

    Attributes:
        address: The same.

    """

    def __init__(self, log: str, address: str) -> None:
        self.address = address
        self._log = log
        self._intake: RequestAdmission | None = None
        self._reach: Reach | None = None
        self._streams: dict[NearStream, None] = {}

    def open(self, intake: RequestAdmission, reach: Reach | None) -> None:
        """Take messages from now on.

        Args:
            intake: Of the replica.
            reach: How far messages of its own process may go; None = everywhere.

        """
        self._intake, self._reach = intake, reach

    def is_at(self, address: str) -> bool:
        """Return whether a replica is this one, and takes messages."""
        return self._intake is not None and address == self.address

    def attach(self, user: ReplicaStreamUser, owner: str) -> NearStream:
        """Return a client's stream; this replica takes messages.

        Args:
            user: The client.
            owner: Whose messages they are: who takes turns with others at the leader.

        """
        assert self._intake is not None
        stream = NearStream(self._log, self.address, user, self._intake, self._reach, owner, self._forget)
        self._streams[stream] = None
        return stream

    def close(self) -> None:
        """Take nothing more in; streams end when all that was taken is answered."""
        self._intake = None
        for stream in list(self._streams):
            stream.drain()

    def _forget(self, stream: NearStream) -> None:
        self._streams.pop(stream, None)


class NearStream:
    """One client's stream to the replica of its process; made by `NearReplica.attach`.

    Args:
        log: Name of the log.
        address: Of the replica.
        user: The client.
        intake: Of the replica.
        reach: See `RequestAdmission.submit`.
        owner: The same.
        on_end: Told that it is over.

    Attributes:
        address: The same.
        is_framed: False: no port is used.
        messages_max: In flight at once. A message costs nothing here: what has come since the last one need not wait
            for an answer, and is in the next entry.

    """

    is_framed = False
    messages_max = 16

    def __init__(
        self,
        log: str,
        address: str,
        user: ReplicaStreamUser,
        intake: RequestAdmission,
        reach: Reach | None,
        owner: str,
        on_end: Callable[[NearStream], None],
    ) -> None:
        self.address = address
        self._log = log
        # None = it is over.
        self._user: ReplicaStreamUser | None = user
        self._intake = intake
        self._reach = reach
        self._owner = owner
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._in_work = 0
        self._is_draining = False

    def ready(self, _user: ReplicaStreamUser) -> None:
        """Ask the client for messages when the event loop comes round."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def detach(self, _user: ReplicaStreamUser, *, is_suspect: bool = False) -> None:  # noqa: ARG002 - as of a socket
        """Leave; answers that come later are dropped."""
        if self._user is not None:
            self._user = None
            self._on_end(self)

    async def wait_closed(self) -> None:
        """Wait until nothing is left of it: that is so at once."""

    def drain(self) -> None:
        """Send nothing more; end when all that was sent is answered."""
        self._is_draining = True
        self._end_if_drained()

    def _send(self) -> None:
        self._is_due = False
        while self._user is not None and not self._is_draining and (message := self._user.compose()) is not None:
            future = self._intake.submit(_received(message, self._log), self._reach, self._owner)
            self._in_work += 1
            future.add_done_callback(functools.partial(self._on_answered, message.message_id))

    def _on_answered(self, message_id: int, future: asyncio.Future[Sequence[Answer]]) -> None:
        self._in_work -= 1
        if self._user is None:
            return
        if future.cancelled():
            self._lose("it gave a message up")
            return
        self._user.on_answers(received_answers(message_id, future.result(), self._intake.leader_address))
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._is_draining and not self._in_work:
            self._lose("it is about to stop")

    def _lose(self, why: str) -> None:
        if self._user is not None:
            user, self._user = self._user, None
            self._on_end(self)
            user.on_lost(ConnectionLostError(f"{self.address}: log {self._log}: the replica of this process: {why}"))


def _received(message: Message, log: str) -> ReceivedRequests:
    return received_requests(
        message.message_id,
        log,
        message.session,
        sequences_of(message.commands),
        payloads_of(message.commands),
        payloads_of(message.queries),
        opens_session=message.opens_session,
        answered_up_to=message.answered_up_to,
        freshness=message.freshness,
        traces=message.traces,
    )
