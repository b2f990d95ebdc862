"""The ASGI application of a gateway: bounds, callers and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> route -> the entrance (`rsm_spark.gateway.entrance`) -> query -> body -> handler

`ledger.http.connection` bounds what comes before a request is whole, `ledger.http.exchanges` bodies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of, is_json, read_body, send_reply
from ledger.http.origins import HostCheck
from ledger.http.parameters import decode_query
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply, json_reply
from ledger.http.route_table import RouteTable
from rsm_spark.gateway.calls import GatewayRoute, HttpGatewayCall
from rsm_spark.gateway.entrance import GatewayEntrance


class GatewayEdge:
    """See the module.

    Args:
        entrance: Who gets in.
        routes: What is served.
        hosts: Which names are its own.

    Attributes:
        entrance: The same.
        state: What all requests share.
        routes: The same.

    """

    def __init__(self, entrance: GatewayEntrance, routes: Sequence[GatewayRoute], hosts: HostCheck) -> None:
        self.entrance = entrance
        self.state = entrance.state
        self.routes = routes
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
        call = HttpGatewayCall(state, scope, receive, send)
        try:
            call.headers = headers_of(scope)
            self._hosts.check(call.headers.get(b"host"), call.headers.get(b"origin"))
            route, values = self._table.match(scope["method"], scope["raw_path"])
            call.log = values[0] if values else ""
            if route.right is None:
                reply = await self._handled(route, call)
            else:
                with self.entrance.admitted(route, call):
                    reply = await self._handled(route, call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            reply = self.entrance.problem(error, route, call, _action(route, scope)).reply()
        if reply is not None:
            await send_reply(reply, scope, send)
        if route is not None:
            status = 200 if reply is None else reply.status
            route.counts[status] = route.counts.get(status, 0) + 1
            route.seconds += state.clock_s() - began_s
            self.entrance.answered(route, call, _action(route, scope), status)

    async def _handled(self, route: GatewayRoute, call: HttpGatewayCall) -> HttpReply | None:
        call.query = decode_query(call.scope["query_string"], route.query)
        if route.body is not None:
            call.body = await self._body(route, call)
        answer = await route.handler(call)
        return answer if answer is None or isinstance(answer, HttpReply) else json_reply(answer)

    async def _body(self, route: GatewayRoute, call: HttpGatewayCall) -> object:
        limit = self.state.settings.http.body_bytes_max
        body = await read_body(self.state, call.caller, call.headers, call.scope, call.receive, limit)
        if route.decoder is None:
            return body
        if not is_json(call.headers.get(b"content-type", b"")):
            raise HttpProblem(415, "not-json", "send the body as JSON, with the header Content-Type: application/json")
        return await self.entrance.decode(call, body, route.decoder.decode)


def _action(route: GatewayRoute | None, scope: Scope) -> str:
    return (
        f"{scope['method']} {scope['raw_path'].decode('latin-1')}" if route is None else f"{route.method} {route.path}"
    )
