"""A call of the JSON gateway, as handlers of gRPC methods use it: `read`, `write`, `abort`.

* `JsonCallEndedError(RsmError)`   a handler has ended its call; never leaves the gateway
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Any, NoReturn

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlot
from ledger.http.problems import retry_after
from ledger.http.replies import HttpReply
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd.json_text import json_of, json_steps
from rsm_spark.transport.caller_turns import CallerTurns

_STEP_PIECES = 200
_STREAM_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_CODES = grpc.StatusCode
_STATUSES: dict[grpc.StatusCode, int] = {
    _CODES.INVALID_ARGUMENT: 400,
    _CODES.FAILED_PRECONDITION: 400,
    _CODES.OUT_OF_RANGE: 400,
    _CODES.UNAUTHENTICATED: 401,
    _CODES.PERMISSION_DENIED: 403,
    _CODES.NOT_FOUND: 404,
    _CODES.ABORTED: 409,
    _CODES.ALREADY_EXISTS: 409,
    _CODES.RESOURCE_EXHAUSTED: 429,
    _CODES.UNIMPLEMENTED: 501,
    _CODES.UNAVAILABLE: 503,
    _CODES.DEADLINE_EXCEEDED: 504,
}
"""Of HTTP, as the gateway of etcd has them; all else is 500."""


class JsonCallEndedError(RsmError):
    """A handler has ended its call; never leaves the gateway.

    Attributes:
        code: gRPC's.

    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class JsonCall:
    """See the module.

    Args:
        scope: Of the request.
        receive: Of the same.
        send: Of the same.
        read_body: Reads its body.
        turns: At making JSON, which keeps the event loop busy.
        write_s: In which a client has to take something.

    Attributes:
        has_begun: An answer is on its way.
        is_read: Set when the body is there.
        receive: The same.

    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        read_body: Callable[[], Awaitable[bytes]],
        turns: CallerTurns,
        write_s: float,
    ) -> None:
        self.receive = receive
        self.has_begun = False
        self.is_read = asyncio.Event()
        self._scope = scope
        self._send = send
        self._read_body = read_body
        self._turns = turns
        self._owner = ""
        self._write_s = write_s
        self._requests: deque[bytes] = deque()
        self._is_held = False
        self._answers: type[Message] | None = None
        self.reply: HttpReply | None = None

    # ---- as gRPC has it

    def peer(self) -> str:
        """Return the name of the other end."""
        host, port = self._scope.get("client") or ("", 0)
        return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    async def abort(self, code: grpc.StatusCode, details: str = "", _trailing: Any = ()) -> NoReturn:
        """End the call with this status; raises, so that nothing of the handler follows."""
        raise JsonCallEndedError(code, details)

    async def read(self) -> Any:
        """Return the next request; behind the last one the end, or nothing until the caller leaves."""
        if self._requests:
            await asyncio.sleep(0)  # All of them are here: others have their turn in between.
            return self._requests.popleft()
        if self._is_held:
            await asyncio.get_running_loop().create_future()
        return grpc.aio.EOF

    async def write(self, text: bytes) -> None:
        """Send an answer as a line."""
        assert self._answers is not None, "a stream has begun"
        # In turns: who has many streams holds up nobody.
        async with self._turns.of(self._owner):
            line = b'{"result":%s}\n' % json_of(self._answers.FromString(text))
        await self._line(line)

    # ---- the call

    async def body(self) -> bytes:
        """Return the body; once.

        Raises:
            HttpProblem: See `read_body`.

        """
        text = await self._read_body()
        self.is_read.set()
        return text

    def begin_stream(self, owner: str, requests: list[bytes], answers: type[Message], *, is_held: bool) -> None:
        """Have these requests of a caller read, and answers of a kind written."""
        self._owner = owner
        self._requests.extend(requests)
        self._answers = answers
        self._is_held = is_held

    async def answer(self, message: Message, owner: str) -> None:
        """Answer a caller with a message; a large one is written in turns with other callers."""
        parts = [part async for part in _parts(message, self._turns, owner)]
        self.reply = HttpReply(200, b"".join(parts))

    async def end(self, code: grpc.StatusCode, details: str) -> None:
        """Tell an error: as the answer, or as the last line of a stream."""
        problem = msgspec.json.encode({"code": code.value[0], "message": details})
        if self.has_begun:
            await self._line(b'{"error":%s}\n' % problem)
            return
        status = _STATUSES.get(code, 500)
        headers = retry_after(1) if status in {429, 503} else ()
        self.reply = HttpReply(status, problem, headers)

    async def finish_stream(self) -> None:
        """End a stream."""
        await self._begin()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})

    async def _line(self, text: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_s):
                await self._begin()
                await self._send({"type": "http.response.body", "body": text, "more_body": True})
        except TimeoutError:
            abort = self._scope.get("extensions", {}).get("rsm.abort")
            if abort is not None:
                abort()
            raise JsonCallEndedError(grpc.StatusCode.ABORTED, "the caller takes nothing any more") from None

    @property
    def seat(self) -> ConnectionSlot | None:
        """Place of the connection."""
        seat: ConnectionSlot | None = self._scope.get("extensions", {}).get("rsm.seat")
        return seat


async def _parts(message: Message, turns: CallerTurns, owner: str) -> AsyncIterator[bytes]:
    steps = json_steps(message)
    while True:
        async with turns.of(owner):
            part = b"".join(islice(steps, _STEP_PIECES))
        if not part:
            return
        yield part
