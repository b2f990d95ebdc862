"""The ASGI application: authentication, limits and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> route -> who asks -> may it -> how often -> query -> body -> its turn -> handler

There is no stack of middleware: a single submit must cost little more than its group commit. It runs under any ASGI
server; `ledger.http.connection` bounds what comes before a request is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

from broker.api.call import ApiRequest
from broker.api.problems import problem_of_error
from broker.api.routes import Access, Route
from broker.api.shared import SharedState
from broker.api.traced_calls import begin_call, handled
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of, is_json, read_body, send_reply
from ledger.http.origins import HostCheck
from ledger.http.parameters import decode_query
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply
from ledger.http.route_table import RouteTable
from ledger.http.tokens import NOBODY, Caller
from ledger.http.turns import cost_of_body
from ledger.rights.table import ROLES_OF, Right, may
from ledger.telemetry.tracing import tracer
from rsm_spark.core.commands import Audited

_LOGGER = logging.getLogger(__name__)

_RIGHTS: dict[Access, Right] = {
    Access.READ: Right.TASKS_READ,
    Access.WRITE: Right.TASKS_WRITE,
    Access.CLUSTER: Right.CLUSTER_READ,
    Access.ADMIN: Right.GOVERN,
}
_REFUSALS = frozenset({401, 403})


class Edge:
    """See the module.

    Args:
        shared: What all requests share.
        table: What is served.
        hosts: Which names are its own.

    Attributes:
        shared: The same.
        table: The same.
        unexpected: Requests that ended in an error of our own.
        refused: Answers by status, of requests that had no route.
        metrics: Prometheus' text of all that the process counts.

    """

    def __init__(self, shared: SharedState, table: RouteTable[Route], hosts: HostCheck) -> None:
        self.shared = shared
        self.table = table
        self._hosts = hosts
        self._clock_s = shared.clock_s
        self.unexpected = 0
        self.refused: dict[int, int] = {}
        self.metrics: Callable[[], Awaitable[bytes]] = shared.broker.metrics

    @property
    def seats(self) -> ConnectionSlots:
        """Seats of its connections."""
        return self.shared.seats

    def close(self) -> None:
        """End what waits for a long time: the server stops."""
        self.shared.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_s = self._clock_s()
        route: Route | None = None
        admitted: Caller | None = None
        try:
            headers = headers_of(scope)
            self._hosts.check(headers.get(b"host"), headers.get(b"origin"))
            route, values = self.table.match(scope["method"], scope["raw_path"])
            call = ApiRequest(self.shared, scope, receive, send, headers, values)
            if route.access is not Access.OPEN:
                admitted = self._admit(route, call, began_s)
                admitted.running += 1
                self.shared.seat(scope, admitted)
            call.query = decode_query(scope["query_string"], route.query)
            if route.body is None:
                reply = await self._handled(route, call)
            else:
                body = await self._body(route, call)
                async with self.shared.turns.turn(call.turn_key, cost_of_body(body), len(body)) as work:
                    call.body = body if route.decoder is None else route.decoder.decode(body)
                    if work.is_heavy:
                        await asyncio.sleep(0)  # What has come meanwhile need not wait for the handler too.
                    reply = await self._handled(route, call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            problem = self._problem(error, scope)
            if route is not None and problem.status in _REFUSALS:
                self.shared.broker.audit.refused(_audited_by(route, call, problem.reason), began_s)
            reply = problem.reply()
        finally:
            if admitted is not None:
                admitted.running -= 1
        if reply is not None:
            await send_reply(reply, scope, send)
        status = reply.status if reply is not None else 200
        if route is None:
            self.refused[status] = self.refused.get(status, 0) + 1
        else:
            route.counts[status] = route.counts.get(status, 0) + 1
            route.seconds += self._clock_s() - began_s

    def _handled(self, route: Route, call: ApiRequest) -> Awaitable[HttpReply | None]:
        if tracer() is None:
            return self._answered(route, call)
        call.span = begin_call(call.headers, f"{route.method} {route.path}")
        return handled(call.span, partial(self._answered, route, call))

    def _answered(self, route: Route, call: ApiRequest) -> Awaitable[HttpReply | None]:
        return self._audited(route, call) if route.is_audited else route.handler(call)

    async def _audited(self, route: Route, call: ApiRequest) -> HttpReply | None:
        """Log who asks for what, have it done, and log what came of it."""
        audit, audited = self.shared.broker.audit, _audited_by(route, call)
        await audit.asked(audited)
        try:
            reply = await route.handler(call)
        except HttpProblem as problem:
            await audit.ended(audited, f"refused: {problem.reason}")
            raise
        except Exception as error:
            await audit.ended(audited, type(error).__name__)
            raise
        await audit.ended(audited, "done")
        return reply

    def _admit(self, route: Route, call: ApiRequest, now_s: float) -> Caller:
        call.caller = NOBODY
        call.caller = caller = self.shared.caller(call.headers, call.scope, now_s)
        self.shared.admit(caller)
        right = _RIGHTS[route.access]
        if not may(caller.principal, right):
            who = f"{caller.role.value} of {caller.tenant!r}" if caller.tenant else caller.role.value
            what = f"{route.method} {route.path}"
            raise HttpProblem(403, "not-allowed", f"{what} is for {_named(right)}; this caller is: {who}")
        return caller

    async def _body(self, route: Route, call: ApiRequest) -> bytes:
        limit = route.body_bytes_max or self.shared.settings.body_bytes_max
        body = await read_body(self.shared, call.caller, call.headers, call.scope, call.receive, limit)
        if route.decoder is None:
            return body
        if not body and route.is_body_optional:
            body = b"{}"
        elif not is_json(call.headers.get(b"content-type", b"")):
            raise HttpProblem(415, "not-json", "send the body as JSON, with the header Content-Type: application/json")
        return body

    def _problem(self, error: Exception, scope: Scope) -> HttpProblem:
        if isinstance(error, HttpProblem):
            return error
        known = problem_of_error(error, leader=self.shared.broker.leader_http(), target=_target(scope))
        if known is not None:
            return known
        self.unexpected += 1
        number = os.urandom(6).hex()
        # The path as it was sent: what it means may hold a line break.
        path = scope["raw_path"].decode("latin-1")
        extra = {"number": number, "path": path}
        _LOGGER.error("error %s: %s %s", number, scope["method"], path, exc_info=error, extra=extra)
        return HttpProblem(
            500, "unexpected", f"an error of the broker's own; its log tells more of error {number}", error=number
        )


def _audited_by(route: Route, call: ApiRequest, outcome: str = "") -> Audited:
    caller, client = call.caller, call.scope.get("client")
    source = "" if client is None else f"{client[0]}:{client[1]}"
    return Audited(caller.name, caller.role.value, source, f"{route.method} {route.path}", _target(call.scope), outcome)


def _target(scope: Scope) -> str:
    query = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    return str(path.decode("latin-1"))


def _named(right: Right) -> str:
    roles = " and ".join(sorted(f"{role.value}s" for role in ROLES_OF[right]))
    return f"{roles} of all tenants" if right is Right.CLUSTER_READ else roles
