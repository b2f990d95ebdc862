"""The stream between the clients of one process and one replica: one message per wake-up and direction.

A message of gRPC costs some hundred microseconds of CPU at both ends, however little is in it; one of the framed port a
tenth. All clients of a process that speak with the same replica share one stream; when it is free it takes along
whatever any of them has to send.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Protocol

import grpc
import grpc.aio

from ledger.errors import UsageError
from rsm_spark.core.operation import Message
from rsm_spark.errors import ConnectionLostError
from rsm_spark.transport.channel import lost, lost_by
from rsm_spark.transport.codec import (
    EXCHANGE_METHOD,
    PROTOBUF_EXCHANGE,
    ReceivedAnswers,
    join_answers,
)
from rsm_spark.transport.framed_call import FramedCall
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory

CONNECT_TIMEOUT_S = 3.0
_BATCH_BYTES_MAX = 4 * 1024 * 1024
"""A batch takes no further message above this; the last one may have 1 MiB, or be one large command."""


class ReplicaStreamUser(Protocol):
    """One client, as the stream sees it. Nothing of it may raise."""

    def compose(self) -> Message | None:
        """Return the next message, or None if there is nothing to send now."""
        ...

    def on_answers(self, received: ReceivedAnswers) -> None:
        """Take the answers to one message, whose id is the client's own."""
        ...

    def on_lost(self, error: ConnectionLostError) -> None:
        """Hear that the stream has ended; whatever has no answer may have been executed."""
        ...


class ReplicaStream:
    """A stream to one replica; made by `attach`.

    Args:
        address: "host:port".
        log: Name of the log meant.
        framed: "host:port" of its framed port; "" = over gRPC.
        security: TLS and token.
        method: That is called: `EXCHANGE_METHOD`, or `RELAY_METHOD` for a replica that passes on to the leader.

    Attributes:
        address: "host:port".
        is_framed: The stream goes over the framed port.
        messages_max: In flight at once of a client; None = as its own limits say.
        messages_sent: Of the stream; one takes along what all clients have.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    messages_max: int | None = None

    def __init__(self, address: str, log: str, framed: str, security: Security, method: str = EXCHANGE_METHOD) -> None:
        self.address = address
        self._method = method
        self.is_framed = False
        self.messages_sent = 0
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._factory = StreamFactory(address, framed, security)
        self._stream: Any = None
        self._codec = PROTOBUF_EXCHANGE
        self._users: dict[ReplicaStreamUser, None] = {}
        self._ready: dict[ReplicaStreamUser, None] = {}
        # Message id on the stream -> its client, its id there, the pieces of the answers so far.
        self._in_flight: dict[int, tuple[ReplicaStreamUser, int, list[ReceivedAnswers]]] = {}
        self._last_id = 0
        self._wake: asyncio.Future[None] | None = None
        self.is_closed = False
        self._reader: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._writer = self._loop.create_task(self._write(), name=f"rsm-exchange-{address}")

    def ready(self, user: ReplicaStreamUser) -> None:
        """Ask this client for messages when the stream is free."""
        self._ready[user] = None
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def detach(self, user: ReplicaStreamUser, *, is_suspect: bool = False) -> None:
        """Leave; answers that come later are dropped. The last one to leave closes the stream.

        Args:
            user: The client.
            is_suspect: The replica seems to hang: whoever attaches from now on gets a stream of its own.

        """
        self._users.pop(user, None)
        self._ready.pop(user, None)
        if is_suspect:
            _forget(self)
        if not self._users:
            self._close()

    def _attach(self, user: ReplicaStreamUser) -> None:
        self._users[user] = None

    def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        _forget(self)
        self._writer.cancel()
        if self._reader is not None:
            self._reader.cancel()
        self._closing = self._loop.create_task(self._close_channel(), name=f"rsm-exchange-closing-{self.address}")
        _CLOSING.add(self._closing)
        self._closing.add_done_callback(_CLOSING.discard)

    async def wait_closed(self) -> None:
        """Wait until the connection is gone, if nobody uses it any more."""
        if self._closing is not None:
            await asyncio.wait([self._closing, self._writer])

    async def _close_channel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._factory.close()

    def _fail(self, error: Exception) -> None:
        if self.is_closed:
            return
        users = list(self._users)
        self._users.clear()
        self._close()
        what = error if isinstance(error, ConnectionLostError) else lost(self.address, self._log, error)
        for user in users:
            user.on_lost(what)

    def _compose(self) -> bytes:
        """Return what there is to send, encoded; empty if nothing."""
        texts: list[bytes] = []
        size = 0
        while self._ready and size <= _BATCH_BYTES_MAX:
            user = next(iter(self._ready))
            message = user.compose()
            if message is None:
                self._ready.pop(user, None)
                continue
            self._last_id += 1
            self._in_flight[self._last_id] = (user, message.message_id, [])
            texts.append(self._codec.encode_requests(message, self._log, self._last_id))
            size += len(texts[-1])
        return self._codec.join(texts) if texts else b""

    async def _write(self) -> None:
        try:
            while True:
                if self._stream is None and self._ready:
                    await self._begin()
                batch = self._compose()
                if not batch:
                    self._wake = self._loop.create_future()
                    await self._wake
                    continue
                self.messages_sent += 1
                await self._stream.write(batch)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, UsageError) as error:
            # An RPC that ended meanwhile is an invalid state: the reader knows why it ended.
            if self._reader is not None and not isinstance(error, grpc.aio.AioRpcError):
                await asyncio.wait([self._reader])
            self._fail(error)
        except TimeoutError:
            self._fail(TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s; it may be paused or cut off"))
        except asyncio.CancelledError:
            # gRPC tells a cancelled stream by the error that also tells a cancelled task.
            self._fail(grpc.aio.UsageError("the stream was broken off"))
            raise

    async def _begin(self) -> None:
        """Open the stream; gRPC connects with what is sent first."""
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            self._stream = await self._factory.open(self._method)
            self.is_framed = isinstance(self._stream, FramedCall)
            self._codec = PACKED_EXCHANGE if self.is_framed else PROTOBUF_EXCHANGE
            batch = self._compose()
            if batch:
                self.messages_sent += 1
                await self._stream.write(batch)
        self._factory.reached()
        self._reader = self._loop.create_task(self._read(), name=f"rsm-exchange-reader-{self.address}")

    async def _read(self) -> None:
        try:
            while (text := await self._stream.read()) is not grpc.aio.EOF:
                for received in self._codec.decode_answer_batch(text):
                    self._on_answers(received)
            # A stream that ended with an error says so by its status.
            code, details = await self._stream.code(), await self._stream.details()
            if code is grpc.StatusCode.OK:
                self._fail(grpc.aio.UsageError("it ended the stream"))
            else:
                self._fail(lost_by(self.address, self._log, code, details))
        except (grpc.aio.AioRpcError, ValueError) as error:
            self._fail(error)

    def _on_answers(self, received: ReceivedAnswers) -> None:
        place = self._in_flight.get(received.message_id)
        if place is None:
            raise ValueError(f"answers to message {received.message_id}, which is not in flight")
        user, message_id, pieces = place
        if received.more or pieces:
            pieces.append(received)
            if received.more:
                return
            received = join_answers(pieces)
        del self._in_flight[received.message_id]
        if user in self._users:
            received.message_id = message_id
            user.on_answers(received)


_CLOSING: set[asyncio.Task[None]] = set()
_Key = tuple[str, str, str, Security, str]
_EXCHANGES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, ReplicaStream]] = (
    weakref.WeakKeyDictionary()
)
"""Streams that may be shared, per event loop."""


def attach(
    user: ReplicaStreamUser,
    address: str,
    log: str,
    security: Security,
    *,
    framed: str = "",
    method: str = EXCHANGE_METHOD,
) -> ReplicaStream:
    """Return the stream of this process to a replica; the first one to ask opens it.

    Args:
        user: The client.
        address: "host:port" of gRPC, which names the replica.
        log: Name of the log meant.
        security: TLS and token.
        framed: "host:port" of its framed port; "" = over gRPC.
        method: See `ReplicaStream`.

    Raises:
        UsageError: A file of `security` cannot be used.

    """
    streams = _EXCHANGES.setdefault(asyncio.get_running_loop(), {})
    key = (address, log, framed, security, method)
    exchange = streams.get(key)
    if exchange is None:
        exchange = streams[key] = ReplicaStream(address, log, framed, security, method)
    exchange._attach(user)
    return exchange


def _forget(exchange: ReplicaStream) -> None:
    streams = _EXCHANGES.get(exchange._loop, {})
    for key in [key for key, one in streams.items() if one is exchange]:
        del streams[key]
