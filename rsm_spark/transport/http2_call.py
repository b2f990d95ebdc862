"""One call of gRPC that an `Http2Port` serves: its handler reads, writes and aborts as by gRPC's own context."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NoReturn, Protocol

import grpc
import grpc.aio

from ledger.http.connection_slots import ConnectionSlot
from rsm_spark.transport.http2_heads import ENDED_WELL, RpcHead, ending
from rsm_spark.transport.served_call import CallAbortedError

_AT_ONCE: Final = 16
"""Messages of a call that its handler reads before others have a turn."""


class CallLink(Protocol):
    """Part of the connection that a call needs."""

    slot: ConnectionSlot

    def peer(self) -> str:
        """Return the name of the other end."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names in the caller's certificate."""
        ...

    def taken(self, stream_id: int, text: bytes) -> None:
        """Take note that a message was taken."""
        ...

    def drained(self, stream_id: int) -> asyncio.Future[None] | None:
        """Return what to wait for before a message is sent; None = nothing."""
        ...

    def send(self, stream_id: int, text: bytes) -> None:
        """Send a message."""
        ...

    def answer(self, stream_id: int, text: bytes, tail: bytes) -> None:
        """Send the only message, and the end."""
        ...

    def finish(self, stream_id: int, tail: bytes) -> None:
        """End the call."""
        ...


class Http2Call:
    """See the module.

    Args:
        carrier: Its connection.
        stream_id: Its number there.
        head: What its caller said first.
        handler: gRPC's, wrapped by the guard.

    Attributes:
        head: The same.
        task: Serves it; None = it waits for its message.
        timer: Its time limit; None = it has none.
        is_over: Nothing is sent any more.

    """

    __slots__ = (
        "_at_once", "_carrier", "_has_ended", "_inbox", "_message_came", "_status", "_stream_id", "handler", "head",
        "is_over", "task", "timer",
    )  # fmt: skip

    def __init__(self, carrier: CallLink, stream_id: int, head: RpcHead, handler: Any) -> None:
        self._carrier = carrier
        self._stream_id = stream_id
        self.head = head
        self.handler = handler
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self._inbox: deque[bytes] = deque()
        self._has_ended = False
        self._at_once = 0  # Messages that were read since others had a turn.
        self._message_came: asyncio.Future[None] | None = None
        self._status: tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]] = (grpc.StatusCode.OK, "", ())

    # ---- as gRPC has it

    def peer(self) -> str:
        """Return the name of the other end."""
        return self._carrier.peer()

    async def read(self) -> Any:
        """Return the next message; `grpc.aio.EOF` if none will come."""
        if self._at_once >= _AT_ONCE:
            self._at_once = 0
            await asyncio.sleep(0)
        while not self._inbox:
            if self._has_ended:
                return grpc.aio.EOF
            self._at_once = 0
            self._message_came = asyncio.get_running_loop().create_future()
            await self._message_came
        self._at_once += 1
        text = self._inbox.popleft()
        self._carrier.taken(self._stream_id, text)
        return text if self.handler.request_deserializer is None else self.handler.request_deserializer(text)

    async def write(self, message: Any) -> None:
        """Send a message; waits while the caller takes too little.

        Raises:
            InvalidStateError: The call is over.

        """
        serialize = self.handler.response_serializer
        text = message if serialize is None else serialize(message)
        await self.drained()
        self._carrier.send(self._stream_id, text)

    async def drained(self) -> None:
        """Wait while the caller takes too little: what is written then leaves at once, or soon.

        Raises:
            InvalidStateError: The call is over.

        """
        # Many may write to one call: each of them waits, and looks again.
        while not self.is_over and (drained := self._carrier.drained(self._stream_id)) is not None:
            await asyncio.wait([drained])
        if self.is_over:
            raise asyncio.InvalidStateError("the call is over")

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str], ...] = ()
    ) -> NoReturn:
        """End the call with this status; raises, so that nothing of the handler follows."""
        self._status = (code, details, tuple(trailing_metadata))
        raise CallAbortedError(details)

    def __aiter__(self) -> Http2Call:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message

    # ---- the connection's side

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the caller's certificate."""
        return self._carrier.names()

    @property
    def is_whole(self) -> bool:
        """True if its one message is there."""
        return len(self._inbox) == 1

    @property
    def slot(self) -> ConnectionSlot:
        """Place of its connection at the port."""
        return self._carrier.slot

    def came(self, text: bytes) -> None:
        """Take a message."""
        self._inbox.append(text)
        self._wake()

    def half_close(self) -> None:
        """Take note that no message follows."""
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._message_came is not None and not self._message_came.done():
            self._message_came.set_result(None)

    async def serve(self) -> None:
        """Run the handler to its end.

        Raises:
            CallAbortedError: It has ended the call: see `aborted`.

        """
        handler = self.handler
        if handler.unary_unary is not None:
            response = await handler.unary_unary(await self.read(), self)
            self._carrier.answer(
                self._stream_id,
                response if handler.response_serializer is None else handler.response_serializer(response),
                ENDED_WELL,
            )
            self.is_over = True
            return
        if handler.unary_stream is not None:
            await handler.unary_stream(await self.read(), self)
        elif handler.stream_stream is not None:
            await handler.stream_stream(self, self)
        self.finish(grpc.StatusCode.OK)

    def aborted(self) -> None:
        """End the call as its handler has said."""
        self.finish(*self._status)

    def finish(self, code: grpc.StatusCode, details: str = "", metadata: tuple[tuple[str, str], ...] = ()) -> None:
        """Say how the call has ended, once."""
        if not self.is_over:
            self.is_over = True
            self._carrier.finish(self._stream_id, ending(code.value[0], details, metadata))

    def cut(self) -> None:
        """End what serves it: its caller has left."""
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()
