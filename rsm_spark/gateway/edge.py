"""The ASGI application of a gateway: bounds, callers and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> route -> who asks -> how often -> may it, this log -> query -> body -> handler

`ledger.http.connection` bounds what comes before a request is whole, `ledger.http.exchanges` bodies.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ledger.audit_lines import Refusals, tell
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of, is_json, read_body, send_reply
from ledger.http.origins import HostCheck
from ledger.http.parameters import decode_query
from ledger.http.problems import HttpProblem
from ledger.http.route_table import RouteTable
from ledger.http.tokens import NOBODY, Caller
from ledger.rights.table import may
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute, GatewayState, problem_of

_LOGGER = logging.getLogger(__name__)
_REFUSED = frozenset({401, 403})
_DECODING_S = 0.000_2
_BYTE_S = 0.000_000_02


class GatewayEdge:
    """See the module.

    Args:
        state: What all requests share.
        routes: What is served.
        hosts: Which names are its own.

    Attributes:
        routes: The same.
        refusals: Who was refused.
        unexpected: Requests that ended in an error of our own.

    """

    def __init__(self, state: GatewayState, routes: Sequence[GatewayRoute], hosts: HostCheck) -> None:
        self.state = state
        self.routes = routes
        self.refusals = Refusals()
        self.unexpected = 0
        self._table = RouteTable(routes, "see docs/logs-http.md")
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
        state, began_s = self.state, self.state.clock_s()
        route: GatewayRoute | None = None
        admitted: Caller | None = None
        call = GatewayCall(state, scope, receive, send, {}, "")
        call.caller = NOBODY
        try:
            call.headers = headers = headers_of(scope)
            self._hosts.check(headers.get(b"host"), headers.get(b"origin"))
            route, values = self._table.match(scope["method"], scope["raw_path"])
            call.log = values[0] if values else ""
            if route.right is not None:
                call.caller = state.caller(headers, scope, began_s)
                state.admit(call.caller)
                admitted = call.caller
                admitted.running += 1
                state.seat(scope, admitted)
                _check_right(route, call)
            call.query = decode_query(scope["query_string"], route.query)
            if route.body is not None:
                call.body = await self._body(route, call)
            reply = await route.handler(call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            problem = self._problem(error, call)
            if route is not None and problem.status in _REFUSED:
                said = _line(route, call, f"refused ({problem.reason})")
                self.refusals.add(said, state.clock_s(), reason=problem.reason)
            reply = problem.reply()
        finally:
            if admitted is not None:
                admitted.running -= 1
        if reply is not None:
            await send_reply(reply, scope, send)
        if route is not None:
            status = 200 if reply is None else reply.status
            route.counts[status] = route.counts.get(status, 0) + 1
            route.seconds += state.clock_s() - began_s
            if route.is_audited and status not in _REFUSED:
                tell(_line(route, call, str(status)))

    async def _body(self, route: GatewayRoute, call: GatewayCall) -> object:
        limit = self.state.settings.http.body_bytes_max
        body = await read_body(self.state, call.caller, call.headers, call.scope, call.receive, limit)
        if route.decoder is None:
            return body
        if not is_json(call.headers.get(b"content-type", b"")):
            raise HttpProblem(415, "not-json", "send the body as JSON, with the header Content-Type: application/json")
        async with self.state.turns.turn(call.owner, _DECODING_S + len(body) * _BYTE_S, len(body)):
            return route.decoder.decode(body)

    def _problem(self, error: Exception, call: GatewayCall) -> HttpProblem:
        known = problem_of(error, call.target)
        if known is not None:
            return known
        self.unexpected += 1
        number = os.urandom(6).hex()
        path = call.scope["raw_path"].decode("latin-1")
        _LOGGER.error("error %s: %s %s", number, call.scope["method"], path, exc_info=error)
        return HttpProblem(
            500, "unexpected", f"an error of the gateway's own; its log tells more of error {number}", error=number
        )


def _check_right(route: GatewayRoute, call: GatewayCall) -> None:
    """Refuse who may not do this, or not to this log.

    Raises:
        HttpProblem: 403.

    """
    principal = call.caller.principal
    assert route.right is not None
    if not may(principal, route.right):
        raise HttpProblem(
            403, "not-allowed", f"{route.method} {route.path} needs the right to {route.right.value}: {principal} has "
            "it not"
        )  # fmt: skip
    if call.log and not principal.may_log(call.log):
        raise HttpProblem(403, "not-allowed", f"{principal} may not touch this log")


def _line(route: GatewayRoute, call: GatewayCall, outcome: str) -> dict[str, object]:
    client = call.scope.get("client")
    source = "" if client is None else f"{client[0]}:{client[1]}"
    action = f"{route.method} {route.path}"
    name, role = call.caller.name, call.caller.role.value
    return {"principal": name, "role": role, "source": source, "action": action, "target": call.log, "outcome": outcome}
