"""The ASGI application of a console: who asks, how often, whether it may; then the handler of the path.

`ledger.http.connection` bounds what comes before a request is whole. Few paths take a body: what is sent to another as
one is not read, and the connection ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import msgspec

from ledger.audit_lines import tell
from ledger.errors import LedgerError
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of, is_json, read_body, send_reply
from ledger.http.origins import HostCheck
from ledger.http.parameters import decode_query
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import HttpReply, json_reply
from ledger.http.route_table import RouteTable
from ledger.rights.table import may
from rsm_spark.console.calls import ConsoleCall, ConsoleRoute, ConsoleState
from rsm_spark.errors import MissingLogError, NoSuchLogError, RsmError

_LOGGER = logging.getLogger(__name__)


class ConsoleEdge:
    """See the module.

    Args:
        state: What all requests share.
        routes: What is served.
        hosts: Which names are its own.

    Attributes:
        state: The same.
        routes: The same.

    """

    def __init__(self, state: ConsoleState, routes: Sequence[ConsoleRoute], hosts: HostCheck) -> None:
        self.state = state
        self.routes = routes
        self._table = RouteTable(routes, "see docs/console.md")
        self._hosts = hosts

    @property
    def seats(self) -> ConnectionSlots:
        """Seats of its connections."""
        return self.state.seats

    def close(self) -> None:
        """End what waits for a long time: the server stops."""
        self.state.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        call = ConsoleCall(self.state, scope, receive, send)
        route: ConsoleRoute | None = None
        reply: HttpReply | None
        try:
            call.headers = headers_of(scope)
            self._hosts.check(call.headers.get(b"host"), call.headers.get(b"origin"))
            route, call.values = self._table.match(scope["method"], scope["raw_path"])
            reply = await self._answer(route, call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            problem = _known(error) or self._unexpected(error, scope)
            if route is not None and problem.status in (401, 403):
                said = _line(call, route, f"refused ({problem.reason})")
                self.state.refusals.add(said, self.state.clock_s(), reason=problem.reason)
            reply = problem.reply()
        if route is not None:
            status = 200 if reply is None else reply.status
            if route.is_audited and status not in (401, 403):
                tell(_line(call, route, str(status)))
            route.counts[status] = route.counts.get(status, 0) + 1
        if reply is not None:
            await send_reply(reply, scope, send)

    async def _answer(self, route: ConsoleRoute, call: ConsoleCall) -> HttpReply | None:
        if route.right is None:
            return await self._handled(route, call)
        state = self.state
        caller = call.caller = state.caller(call.headers, call.scope, state.clock_s())
        state.admit(caller)
        caller.running += 1
        try:
            state.seat(call.scope, caller)
            if not may(caller.principal, route.right):
                needed = f"{route.path} needs the right to {route.right.value}"
                raise HttpProblem(403, "not-allowed", f"{needed}: {caller.principal} has it not")
            return await self._handled(route, call)
        finally:
            caller.running -= 1

    async def _handled(self, route: ConsoleRoute, call: ConsoleCall) -> HttpReply | None:
        call.query = decode_query(call.scope["query_string"], route.query)
        if route.decoder is not None:
            call.body = route.decoder.decode(await self._body(call))
        elif call.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in call.headers:
            raise HttpProblem(413, "too-large", "this path takes no body", headers=((b"connection", b"close"),))
        answer = await route.handler(call)
        return json_reply(answer) if isinstance(answer, msgspec.Struct) else answer

    async def _body(self, call: ConsoleCall) -> bytes:
        # A form of another site's page can send no JSON: a browser asks first whether it may, and is told no.
        if not is_json(call.headers.get(b"content-type", b"")):
            said = "send the body as JSON, with the header Content-Type: application/json"
            raise HttpProblem(415, "not-json", said, headers=((b"connection", b"close"),))
        state = call.state
        limit = state.settings.http.body_bytes_max
        return await read_body(state, call.caller, call.headers, call.scope, call.receive, limit)

    def _unexpected(self, error: Exception, scope: Scope) -> HttpProblem:
        self.state.unexpected += 1
        number = os.urandom(6).hex()
        path = scope["raw_path"].decode("latin-1")
        _LOGGER.error("error %s: %s", number, path, exc_info=error, extra={"number": number, "path": path})
        said = f"an error of the console's own; its log tells more of error {number}"
        return HttpProblem(500, "unexpected", said, error=number)


def _line(call: ConsoleCall, route: ConsoleRoute, outcome: str) -> dict[str, object]:
    peer = call.scope.get("client")
    return {
        "principal": call.caller.name,
        "role": call.caller.role.value,
        "source": "" if peer is None else f"{peer[0]}:{peer[1]}",
        "action": f"{route.method} {route.path}",
        "target": (f"log {call.values[0]}" if call.values else "console") + call.about,
        "outcome": outcome,
    }


def _known(error: Exception) -> HttpProblem | None:
    """Return the answer to what is raised on purpose; None = it is none of that."""
    match error:
        case HttpProblem():
            return error
        case NoSuchLogError():
            return HttpProblem(404, "no-such-log", str(error))
        case MissingLogError():
            return HttpProblem(410, "trimmed", str(error), oldest_revision=(error.last_revision or 0) + 1)
        case TimeoutError() | LedgerError() | RsmError():
            return HttpProblem(503, "not-now", str(error) or "it took too long", headers=retry_after(1))
    return None
