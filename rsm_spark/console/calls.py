"""Requests to a console as its handlers see them, and its routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ledger.audit_lines import Refusals
from ledger.http.api_settings import ApiSettings
from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply
from ledger.http.strict_json import StrictDecoder
from ledger.http.tokens import NOBODY, Caller, Tokens
from ledger.rights.table import Right
from rsm_spark.console.core.callers import sees_log
from rsm_spark.console.settings import ConsoleSettings
from rsm_spark.console.watching import ClusterWatcher
from rsm_spark.errors import LogError
from rsm_spark.log.partition_names import check_name

_NAME_MAX = 200


class WholeQuery(msgspec.Struct, frozen=True):
    """A query string without parameters."""


class ConsoleState(ApiState):
    """State of one console that its requests share.

    Args:
        watcher: What is shown.
        settings: See `ConsoleSettings`.
        bounded: The part of it that is HTTP's, as the process can have it.
        tokens: Who may; None = everybody is an operator.

    Attributes:
        watcher: The same.
        settings: The same.
        refusals: Who was refused.
        unexpected: Requests that ended in an error of the console's own.

    """

    def __init__(
        self, watcher: ClusterWatcher, settings: ConsoleSettings, bounded: ApiSettings, tokens: Tokens | None
    ) -> None:
        super().__init__(bounded, tokens)
        self.watcher = watcher
        self.settings = settings
        self.refusals = Refusals()
        self.unexpected = 0


class ConsoleCall:
    """One request.

    Args:
        state: What all requests share.
        scope: As ASGI has it.
        receive: Of the request.
        send: Of the same.

    Attributes:
        caller: Whose it is.
        headers: By lower-case name.
        values: Of the names in the path.
        query: As the route reads it.
        body: The same; None = it has none.
        about: What it is done to, for the audit, besides the log that the path names.

    """

    __slots__ = ("about", "body", "caller", "headers", "query", "receive", "scope", "send", "state", "values")

    def __init__(self, state: ConsoleState, scope: Scope, receive: Receive, send: Send) -> None:
        self.state = state
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = {}
        self.caller: Caller = NOBODY
        self.values: tuple[str, ...] = ()
        self.query: Any = None
        self.body: Any = None
        self.about = ""


class ConsoleRoute:
    """One path that is read, or under which something is done.

    Args:
        path: With names in braces, or without.
        handler: Answers with a struct or a reply; None = it has answered by itself, as a stream.
        right: That a caller needs; None = everybody may.
        query: Struct of the query string.
        body: Struct of the JSON body; None = it takes none, and only reads.
        is_audited: Each use is a line of the audit.

    Attributes:
        method: "GET", or "POST" where it takes a body.
        decoder: Reads the body.
        counts: Answers by status.

    """

    def __init__(
        self,
        path: str,
        handler: Callable[[ConsoleCall], Awaitable[HttpReply | msgspec.Struct | None]],
        right: Right | None,
        query: type[msgspec.Struct] = WholeQuery,
        *,
        body: type[msgspec.Struct] | None = None,
        is_audited: bool = False,
    ) -> None:
        self.method = "GET" if body is None else "POST"
        self.path = path
        self.handler = handler
        self.right = right
        self.query = query
        self.decoder = None if body is None else StrictDecoder(body)
        self.is_audited = is_audited
        self.counts: dict[int, int] = {}


def log_of(call: ConsoleCall) -> str:
    """Return the log that the path of a request names.

    Raises:
        HttpProblem: 404: it is no name, or the caller may not see it.

    """
    (log,) = call.values
    try:
        check_name(log)
    except LogError as error:
        raise HttpProblem(404, "no-such-log", str(error)) from None
    check_seen(call, log)
    return log


def check_seen(call: ConsoleCall, log: str) -> None:
    """Refuse who may not see a log, in the same words as where there is none.

    Raises:
        HttpProblem: 404.

    """
    if not sees_log(call.caller.principal, log):
        raise HttpProblem(404, "no-such-log", f"no log {log[:_NAME_MAX]!r} that you may see is known here")
