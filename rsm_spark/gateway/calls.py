"""Requests to a gateway as its handlers see them, its routes, and its answers to what goes wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ledger.errors import LedgerError
from ledger.http.api_settings import ApiSettings
from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.pools import Holder
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.strict_json import StrictDecoder
from ledger.http.tokens import NOBODY, Caller, Tokens
from ledger.http.turn_queue import TurnQueue
from ledger.rights.table import Right
from rsm_spark.core.producers import (
    PartitionsChangedError,
    ProducerGapError,
)
from rsm_spark.errors import MissingLogError, RsmError
from rsm_spark.gateway.held_logs import (
    ForeignWriterError,
    HeldLogs,
    RouteError,
    TooMuchWaitsError,
    WrittenElsewhereError,
)
from rsm_spark.gateway.settings import GatewaySettings
from rsm_spark.gateway_client.errors import REFUSALS
from rsm_spark.logs.namespace import Logs

_RETRY_S = 1


class NoQuery(msgspec.Struct, frozen=True):
    """A query string that says nothing."""


class GatewayState(ApiState):
    """State of one gateway that its requests share.

    Args:
        logs: Names and readers.
        partition_logs: Readers of partitioned logs, whose partitions read ahead less than a log.
        settings: See `GatewaySettings`.
        bounded: The part of it that is HTTP's, as the process can have it.
        tokens: Who may; None = everybody is the administrator.

    Attributes:
        logs: The same.
        partition_logs: The same.
        settings: The same.
        held: Writers; set before anything is served.
        turns: Where what keeps the event loop busy waits until it is its caller's turn.

    """

    held: HeldLogs

    def __init__(
        self,
        logs: Logs,
        partition_logs: Logs,
        settings: GatewaySettings,
        bounded: ApiSettings,
        tokens: Tokens | None,
    ) -> None:
        super().__init__(bounded, tokens)
        self.turns = TurnQueue(bounded.bodies_bytes_max // 2)
        self.logs = logs
        self.partition_logs = partition_logs
        self.settings = settings


class GatewayCall:
    """One request, over HTTP or gRPC.

    Args:
        state: What all requests share.
        headers: By lower-case name; of gRPC those that say who calls.
        scope: As ASGI has it; of gRPC the caller's address and the names of its certificate.
        log: Name of the log that it is about; "" = of none.

    Attributes:
        caller: Whose it is.
        log: The same.
        query: As the route reads it.
        body: The same.

    """

    __slots__ = ("body", "caller", "headers", "log", "query", "scope", "state")

    def __init__(self, state: GatewayState, headers: dict[bytes, bytes], scope: Scope, log: str = "") -> None:
        self.state = state
        self.headers = headers
        self.scope = scope
        self.log = log
        self.caller: Caller = NOBODY
        self.query: Any = None
        self.body: Any = None

    @property
    def owner(self) -> str:
        """Owner of the producers that the caller uses: its name, or that of all who have none."""
        return self.caller.name

    @property
    def holder(self) -> Holder:
        """Holder of places in pools that all share."""
        return self.state.holder(self.caller, self.scope)

    @property
    def target(self) -> str:
        """Path and query, as they were asked for; "" = the call has none."""
        return ""


class HttpGatewayCall(GatewayCall):
    """The same over HTTP, with what streams need.

    Args:
        state: See there.
        scope: See there.
        receive: Of the request.
        send: Of the same.

    """

    __slots__ = ("receive", "send")

    def __init__(self, state: GatewayState, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(state, {}, scope)
        self.receive = receive
        self.send = send

    @property
    def target(self) -> str:
        """Path and query, as they were asked for."""
        query = self.scope["query_string"]
        return str((self.scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1"))


class GatewayRoute:
    """One method on one path; gRPC serves the same handlers.

    Args:
        method: "GET", "POST", …
        path: With `{log}` in it, or without.
        handler: Answers with a shape, or with a whole reply; None = it has answered by itself, as a stream.
        right: That a caller needs; None = everybody may.
        summary: What it does, in a few words.
        answer: Shape of the answer, or several that it may have; or its media type.
        query: Struct of the query string.
        body: Struct of the JSON body; bytes = it is taken as it is; None = there is none.
        is_audited: Each use is a line of the audit.

    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: Callable[[Any], Awaitable[object]],
        right: Right | None,
        *,
        summary: str,
        answer: Any,
        query: type[msgspec.Struct] = NoQuery,
        body: Any = None,
        is_audited: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.handler = handler
        self.right = right
        self.summary = summary
        self.answer = answer
        self.query = query
        self.body = body
        self.decoder = None if body is None or body is bytes else StrictDecoder(body)
        self.is_audited = is_audited
        self.counts: dict[int, int] = {}
        self.seconds = 0.0


_REFUSALS: tuple[tuple[type[Exception], int, str], ...] = (
    (TooMuchWaitsError, 429, "too-much-waits"),
    (ForeignWriterError, 409, "written-by-a-program"),
    (RouteError, 400, "invalid"),
    *REFUSALS,
)


def problem_of(error: Exception, target: str) -> HttpProblem | None:
    """Translate what a gateway meets; None if it is none of what is raised on purpose."""
    match error:
        case HttpProblem():
            return error
        case WrittenElsewhereError(url=url, grpc_address=address):
            location = (url + target).encode("latin-1", "replace")
            where: dict[str, Any] = {"grpc_writer": address} if address else {}
            return HttpProblem(
                307, "written-elsewhere", str(error), headers=((b"location", location),), writer=url, **where
            )
        case ProducerGapError(expected=expected):
            return HttpProblem(409, "sequence-gap", str(error), expected=expected)
        case PartitionsChangedError(partition_count=count, positions=positions):
            return HttpProblem(409, "partitions-changed", str(error), partitions=count, positions=positions)
        case MissingLogError():
            oldest = (error.last_revision or 0) + 1
            where = {} if error.partition is None else {"partition": error.partition}
            return HttpProblem(410, "trimmed", str(error), oldest_position=oldest, **where)
    for kind, status, reason in _REFUSALS:
        if isinstance(error, kind):
            headers = retry_after(_RETRY_S) if status == 429 else ()
            return HttpProblem(status, reason, str(error), headers=headers)
    if isinstance(error, TimeoutError | LedgerError | RsmError):
        why = str(error) or "it took too long"
        return HttpProblem(
            503, "not-now", f"{why}; an append may be in the log: send it again, with the same producer and sequence",
            headers=retry_after(_RETRY_S),
        )  # fmt: skip
    return None
