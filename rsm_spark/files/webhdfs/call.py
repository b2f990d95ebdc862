"""One request to the door as its operations see it, and what all requests of a door share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ledger.http.api_settings import ApiSettings
from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope
from ledger.http.pools import Holder, Pool
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.tokens import NOBODY, Caller, Tokens
from ledger.http.turn_queue import TurnQueue
from ledger.rights.table import Right, may
from rsm_spark.files.commands import FileCommand, FileDone, FileQuery, FileResult, UploadBegun
from rsm_spark.files.content_ledgers import ContentLedgers
from rsm_spark.files.desk import FileDesk
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import FILE_BYTES_MAX, LARGE_BYTES_MAX, PART_BYTES_MAX
from rsm_spark.files.scopes import message_fault, path_fault
from rsm_spark.files.webhdfs.parameters import WebHdfsParameters

ANSWERS_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of answers that are on their way, of all callers."""
_CONTENT_S = 0.000_2
_LENGTH_DIGITS_MAX = 18
_BYTE_S = 0.000_000_02


class WebHdfsState(ApiState):
    """State of one door that its requests share.

    Args:
        desk: Carries out what is asked.
        contents: Contents in ledgers of their own.
        log: Name of the store's log.
        settings: See `ApiSettings`.
        tokens: Who may; None = everybody is the administrator.

    Attributes:
        desk: The same.
        contents: The same.
        writes_ledgers: Files above 1 MiB go to ledgers of their own.
        log: The same.
        answers: Bytes of long answers that callers have not taken yet.
        turns: Where contents wait until it is their caller's turn.
        address: "host:port" of the door, once it listens.
        url: The same as a URL.

    """

    def __init__(
        self,
        desk: FileDesk,
        contents: ContentLedgers,
        log: str,
        settings: ApiSettings,
        tokens: Tokens | None,
        *,
        writes_ledgers: bool,
    ) -> None:
        super().__init__(settings, tokens)
        self.desk = desk
        self.contents = contents
        self.writes_ledgers = writes_ledgers
        self.log = log
        whole = ANSWERS_BYTES_MAX
        self.answers = Pool(whole, settings.of_token(whole), settings.of_address(whole))
        # A body is passed on as it comes: of a file of any length no more is held than of one that fits the records.
        bodies, part = settings.bodies_bytes_max, FILE_BYTES_MAX
        self.bodies = Pool(bodies, max(part, settings.of_token(bodies)), max(part, settings.of_address(bodies)))
        self.turns = TurnQueue(settings.bodies_bytes_max // 2)
        self.address = self.url = ""


class WebHdfsCall:
    """One request.

    Args:
        state: What all requests share.
        scope: As ASGI has it.
        receive: Of the request.

    Attributes:
        headers: By lower-case name.
        caller: Whose it is.
        path: In the store.
        parameters: Of the query.
        operation: Name of what is asked for, once it is known to be served; "" = it is not.

    """

    __slots__ = ("caller", "headers", "operation", "parameters", "path", "receive", "scope", "state")

    def __init__(self, state: WebHdfsState, scope: Scope, receive: Receive) -> None:
        self.state = state
        self.scope = scope
        self.receive = receive
        self.headers: dict[bytes, bytes] = {}
        self.caller: Caller = NOBODY
        self.path = "/"
        self.operation = ""
        self.parameters = WebHdfsParameters(b"")

    @property
    def owner(self) -> str:
        """Owner of what the caller makes: its name, or where nobody has to say who it is, the name that it gives."""
        if self.state.tokens is not None:
            return self.caller.name
        return self.parameters.text("user.name")[:100] or self.caller.name

    @property
    def bytes_max(self) -> int:
        """Bytes of a file that this door takes."""
        return LARGE_BYTES_MAX if self.state.writes_ledgers and self.operation == "CREATE" else FILE_BYTES_MAX

    @property
    def turns_key(self) -> str:
        """Name under which the caller takes turns."""
        client = self.scope.get("client")
        return self.caller.name if self.state.tokens is not None or client is None else str(client[0])

    async def execute(self, command: FileCommand) -> FileDone | UploadBegun:
        """Have a command carried out; return its reply.

        Raises:
            HttpProblem: 403: it is beyond the caller's paths.
            FileError: It was refused.
            RsmError: See `FileDesk.execute`.

        """
        self._check_reach(message_fault(command, self.caller.principal))
        return await self.state.desk.execute(command, self.turns_key)

    async def query(self, query: FileQuery) -> FileResult:
        """Return what is asked.

        Raises:
            HttpProblem: 403: it is beyond the caller's paths.
            FileError: There is no such thing.
            RsmError: See `FileDesk.query`.

        """
        self._check_reach(message_fault(query, self.caller.principal))
        return await self.state.desk.query(query, self.turns_key)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Iterate over the body, what is to be written, in pieces of `PART_BYTES_MAX`; the last one is shorter.

        Nothing more is read while a piece is being written.

        Raises:
            FileError: `TOO_LARGE`.
            HttpProblem: It is too much just now, or the client has gone.

        """
        state, holder = self.state, self.state.holder(self.caller, self.scope)
        said = min(self._said_bytes(), FILE_BYTES_MAX)  # What is longer is counted as it comes.
        state.take(self.caller, self.caller.bytes, said, "bytes")
        gathered, size, is_first, more = bytearray(), 0, True, True
        try:
            while more:
                part, more = await self._received()
                size += len(part)
                if size > self.bytes_max:
                    raise self._too_large()
                if size > said:
                    await self._take_bytes(min(len(part), size - said), size)
                self._take_room(len(part), holder)
                gathered += part
                while len(gathered) >= PART_BYTES_MAX or (not more and (gathered or is_first)):
                    piece = bytes(gathered[:PART_BYTES_MAX])
                    async with state.turns.turn(self.turns_key, _CONTENT_S + len(piece) * _BYTE_S, len(piece)):
                        yield piece
                    del gathered[:PART_BYTES_MAX]
                    state.bodies.give(len(piece), holder)
                    is_first = False
        finally:
            state.bodies.give(len(gathered), holder)

    async def short_body(self, bytes_max: int) -> bytes:
        """Return a body that is no content.

        Raises:
            HttpProblem: 413: it is longer; or it is too much just now, or the client has gone.

        """
        holder, gathered, more = self.state.holder(self.caller, self.scope), bytearray(), True
        try:
            while more:
                part, more = await self._received()
                if len(gathered) + len(part) > bytes_max:
                    raise HttpProblem(413, "too-large", f"this takes {bytes_max} bytes at most")
                self._take_room(len(part), holder)
                gathered += part
            return bytes(gathered)
        finally:
            self.state.bodies.give(len(gathered), holder)

    async def _take_bytes(self, amount: int, size: int) -> None:
        """Count bytes that come: a short file is refused above the caller's rate, a long one is read more slowly."""
        while size > FILE_BYTES_MAX and self.caller.bytes is not None:
            wait_s = self.caller.bytes.take(self.state.clock_s(), amount)
            if not wait_s:
                return
            await asyncio.sleep(wait_s)
        self.state.take(self.caller, self.caller.bytes, amount, "bytes")

    def _said_bytes(self) -> int:
        """Return the length that the head says; 0 = it does not."""
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX or int(length) > self.bytes_max:
            raise self._too_large()
        return int(length)

    async def _received(self) -> tuple[bytes, bool]:
        """Return what has come of the body, and whether more is to come."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(400, "gone", "the client went before its request was whole")
        return message.get("body", b""), message.get("more_body", False)

    def _take_room(self, size: int, holder: Holder) -> None:
        bodies = self.state.bodies
        if not bodies.has(size) or not bodies.has_for(size, holder):
            raise HttpProblem(
                429, "too-much-at-once", "too many contents come at once, of all or of this caller: send less at once",
                headers=retry_after(1),
            )  # fmt: skip
        bodies.take(size, holder)

    def _too_large(self) -> FileError:
        says = f"{self.path[:200]}: a file has at most {self.bytes_max} bytes"
        if self.operation == "APPEND":
            says = f"{self.path[:200]}: at most {self.bytes_max} bytes are appended to a file"
        return FileError(FileFault.TOO_LARGE, says)

    def may_do(self, right: Right) -> bool:
        """Return whether the caller has a right to this store, and its paths hold the one that is asked for."""
        principal = self.caller.principal
        is_allowed = may(principal, right) and principal.may_log(self.state.log)
        return is_allowed and not path_fault(principal, self.path)

    def _check_reach(self, fault: str) -> None:
        if fault:
            raise HttpProblem(403, "not-allowed", fault)
