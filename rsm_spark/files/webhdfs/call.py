"""One request to the door as its operations see it, and what all requests of a door share."""

from __future__ import annotations

from ledger.http.api_settings import ApiSettings
from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope
from ledger.http.exchanges import read_body
from ledger.http.pools import Pool
from ledger.http.problems import HttpProblem
from ledger.http.tokens import NOBODY, Caller, Tokens
from ledger.http.turn_queue import TurnQueue
from ledger.rights.table import Right, may
from rsm_spark.files.commands import FileCommand, FileQuery, FileResult
from rsm_spark.files.desk import FileDesk
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import PART_BYTES_MAX
from rsm_spark.files.scopes import message_fault, path_fault
from rsm_spark.files.webhdfs.parameters import WebHdfsParameters

ANSWERS_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of answers that are on their way, of all callers."""
_CONTENT_S = 0.000_2
_BYTE_S = 0.000_000_02


class WebHdfsState(ApiState):
    """State of one door that its requests share.

    Args:
        desk: Carries out what is asked.
        log: Name of the store's log.
        settings: See `ApiSettings`.
        tokens: Who may; None = everybody is the administrator.

    Attributes:
        desk: The same.
        log: The same.
        answers: Bytes of long answers that callers have not taken yet.
        turns: Where contents wait until it is their caller's turn.
        address: "host:port" of the door, once it listens.
        url: The same as a URL.

    """

    def __init__(self, desk: FileDesk, log: str, settings: ApiSettings, tokens: Tokens | None) -> None:
        super().__init__(settings, tokens)
        self.desk = desk
        self.log = log
        whole = ANSWERS_BYTES_MAX
        self.answers = Pool(whole, settings.of_token(whole), settings.of_address(whole))
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
    def turns_key(self) -> str:
        """Name under which the caller takes turns."""
        client = self.scope.get("client")
        return self.caller.name if self.state.tokens is not None or client is None else str(client[0])

    async def execute(self, command: FileCommand) -> bool:
        """Have a command carried out; return whether there was anything to do it with.

        Raises:
            HttpProblem: 403: it is beyond the caller's paths.
            FileError: It was refused.
            RsmError: See `FileDesk.execute`.

        """
        self._check_reach(message_fault(command, self.caller.principal))
        return await self.state.desk.execute(command)

    async def query(self, query: FileQuery) -> FileResult:
        """Return what is asked.

        Raises:
            HttpProblem: 403: it is beyond the caller's paths.
            FileError: There is no such thing.
            RsmError: See `FileDesk.query`.

        """
        self._check_reach(message_fault(query, self.caller.principal))
        return await self.state.desk.query(query, self.turns_key)

    async def content(self) -> bytes:
        """Read the body: what is to be written.

        Raises:
            FileError: `TOO_LARGE`.
            HttpProblem: It is too much just now, or the client has gone.

        """
        try:
            body = await read_body(self.state, self.caller, self.headers, self.scope, self.receive, PART_BYTES_MAX)
        except HttpProblem as problem:
            if problem.status == 413:
                raise FileError(
                    FileFault.TOO_LARGE, f"{self.path[:200]}: at most {PART_BYTES_MAX} bytes are written at once"
                ) from None
            raise
        async with self.state.turns.turn(self.turns_key, _CONTENT_S + len(body) * _BYTE_S, len(body)):
            return body

    def may_do(self, right: Right) -> bool:
        """Return whether the caller has a right to this store, and its paths hold the one that is asked for."""
        principal = self.caller.principal
        is_allowed = may(principal, right) and principal.may_log(self.state.log)
        return is_allowed and not path_fault(principal, self.path)

    def _check_reach(self, fault: str) -> None:
        if fault:
            raise HttpProblem(403, "not-allowed", fault)
