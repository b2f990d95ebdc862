"""The ASGI application: authentication, limits and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> route -> who asks -> may it -> how often -> query -> body -> its turn -> handler

There is no stack of middleware: a single submit must cost little more than its group commit. It runs under any ASGI
server; `broker.api.connection` bounds what comes before a request is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable

from broker.api.asgi import Receive, Scope, Send
from broker.api.call import ApiRequest
from broker.api.origins import HostCheck
from broker.api.parameters import decode_query
from broker.api.problems import HttpProblem, problem_of_error, retry_after
from broker.api.replies import HttpReply
from broker.api.routes import Access, Route, RouteTable
from broker.api.shared import SharedState
from broker.api.tokens import NOBODY, Caller
from broker.api.turns import cost_of_body
from ledger.http.connection_slots import ConnectionSlot
from ledger.rights.table import ROLES_OF, Right, may
from rsm_spark.core.commands import Audited

_LOGGER = logging.getLogger(__name__)

# Of every answer that is no page: nobody keeps it, frames it, or takes it for something else.
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
SINGLE_HEADERS = frozenset({b"host", b"origin", b"authorization", b"content-type", b"x-tenant", b"idempotency-key",
                            b"last-event-id", b"x-rsm-min-revision", b"x-rsm-consistency"})  # fmt: skip
"""Headers that must not be there twice: two readers might take different ones."""
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

    """

    def __init__(self, shared: SharedState, table: RouteTable, hosts: HostCheck) -> None:
        self.shared = shared
        self.table = table
        self._hosts = hosts
        self._clock_s = shared.clock_s
        self.unexpected = 0
        self.refused: dict[int, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began_s = self._clock_s()
        route: Route | None = None
        admitted: Caller | None = None
        try:
            headers = _headers(scope)
            self._hosts.check(headers.get(b"host"), headers.get(b"origin"))
            route, values = self.table.match(scope["method"], scope["raw_path"])
            call = ApiRequest(self.shared, scope, receive, send, headers, values)
            if route.access is not Access.OPEN:
                admitted = self._admit(route, call, began_s)
                admitted.running += 1
                self._seat(scope, admitted)
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
            await _send(reply, scope, send)
        status = reply.status if reply is not None else 200
        if route is None:
            self.refused[status] = self.refused.get(status, 0) + 1
        else:
            route.counts[status] = route.counts.get(status, 0) + 1
            route.seconds += self._clock_s() - began_s

    def _handled(self, route: Route, call: ApiRequest) -> Awaitable[HttpReply | None]:
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
        self.shared.take(caller, caller.bucket, 1, "requests", "come again in {:.2f} s, or submit in batches")
        if caller.running >= self.shared.settings.requests_max and self.shared.tokens is not None:
            raise HttpProblem(
                429, "too-many-at-once", f"{caller.running} requests of this token run: wait for some of them",
                headers=retry_after(1),
            )  # fmt: skip
        right = _RIGHTS[route.access]
        if not may(caller.principal, right):
            who = f"{caller.role.value} of {caller.tenant!r}" if caller.tenant else caller.role.value
            what = f"{route.method} {route.path}"
            raise HttpProblem(403, "not-allowed", f"{what} is for {_named(right)}; this caller is: {who}")
        return caller

    def _seat(self, scope: Scope, caller: Caller) -> None:
        """Take note whose a connection is."""
        seat: ConnectionSlot | None = scope["extensions"].get("rsm.seat") if "extensions" in scope else None
        owner = caller if self.shared.tokens is not None else None
        if seat is None or (seat.is_known and seat.owner is owner):
            return
        if not self.shared.seats.know(seat, owner):
            raise HttpProblem(
                429, "too-many-connections", f"this token has {self.shared.settings.token_part:.0%} of all "
                "connections: use those again, or close some", headers=(*retry_after(1), (b"connection", b"close"))
            )  # fmt: skip

    async def _body(self, route: Route, call: ApiRequest) -> bytes:
        headers, receive = call.headers, call.receive
        limit = route.body_bytes_max or self.shared.settings.body_bytes_max
        length = headers.get(b"content-length", b"0")
        if length != b"0" and (not length.isdigit() or len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        caller, decoder, said = call.caller, route.decoder, int(length)
        # What is said to be too much by now is not read.
        self.shared.take(caller, caller.bytes, said, "bytes")
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            body = await self._rest(body, limit, call)
        elif len(body) > limit:
            raise _too_large(limit)
        elif message["type"] == "http.disconnect":
            raise _gone()
        if len(body) > said:
            self.shared.take(caller, caller.bytes, len(body) - said, "bytes")
        if decoder is None:
            return body
        if not body and route.is_body_optional:
            body = b"{}"
        elif not _is_json(headers.get(b"content-type", b"")):
            raise HttpProblem(415, "not-json", "send the body as JSON, with the header Content-Type: application/json")
        return body

    async def _rest(self, body: bytes, limit: int, call: ApiRequest) -> bytes:
        """Read what follows of a body; what all that are half here hold together is bounded, and each one's part."""
        bodies, parts, size, holder = self.shared.bodies, [body], 0, call.holder()
        part, more = body, True
        try:
            while True:
                if not bodies.has(len(part)):
                    raise HttpProblem(
                        503, "overloaded", "many large requests come at once: send it again, or less at once",
                        headers=retry_after(1),
                    )  # fmt: skip
                if not bodies.has_for(len(part), holder):
                    raise HttpProblem(
                        429, "too-much-at-once", "large requests of this token, or from this address, hold their "
                        "part of the room for all: send less at once", headers=retry_after(1),
                    )  # fmt: skip
                bodies.take(len(part), holder)
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                if not more:
                    return b"".join(parts)
                message = await call.receive()
                if message["type"] == "http.disconnect":
                    raise _gone()
                part, more = message.get("body", b""), message.get("more_body", False)
                parts.append(part)
        finally:
            bodies.give(size, holder)

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
        _LOGGER.error("error %s: %s %s", number, scope["method"], path, exc_info=error)
        return HttpProblem(
            500, "unexpected", f"an error of the broker's own; its log tells more of error {number}", error=number
        )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    pairs = scope["headers"]
    headers: dict[bytes, bytes] = dict(pairs)
    if len(headers) != len(pairs):
        seen: set[bytes] = set()
        for name, _ in pairs:
            if name in seen and name in SINGLE_HEADERS:
                raise HttpProblem(400, "invalid", f"the header {name.decode('ascii')} is there twice")
            seen.add(name)
    return headers


def _audited_by(route: Route, call: ApiRequest, outcome: str = "") -> Audited:
    caller, client = call.caller, call.scope.get("client")
    source = "" if client is None else f"{client[0]}:{client[1]}"
    return Audited(caller.name, caller.role.value, source, f"{route.method} {route.path}", _target(call.scope), outcome)


def _is_json(content_type: bytes) -> bool:
    if content_type == b"application/json":
        return True
    kind, _, more = content_type.lower().partition(b";")
    return kind.strip() == b"application/json" and more.strip() in {b"", b"charset=utf-8", b'charset="utf-8"'}


async def _send(reply: HttpReply, scope: Scope, send: Send) -> None:
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
    if reply.headers:
        own = {name for name, _ in reply.headers}
        headers += reply.headers
        headers += [pair for pair in _HEADERS if pair[0] not in own]
    else:
        headers += _HEADERS
    answer = scope.get("extensions", {}).get("rsm.answer")
    if answer is not None:
        await answer(reply.status, headers, reply.body)
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _target(scope: Scope) -> str:
    query = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    return str(path.decode("latin-1"))


def _named(right: Right) -> str:
    roles = " and ".join(sorted(f"{role.value}s" for role in ROLES_OF[right]))
    return f"{roles} of all tenants" if right is Right.CLUSTER_READ else roles


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, "too-large", f"a body of more than {limit:,} bytes is not read: send less at once")


def _gone() -> HttpProblem:
    return HttpProblem(400, "gone", "the client went before its request was whole")
