"""The ASGI application: authentication, limits and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> route -> who asks -> may it -> how often -> query -> body -> handler -> answer

There is no stack of middleware: a single submit must cost little more than its group commit. It runs under any ASGI
server; `broker.http.connection` bounds what comes before a request is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from broker.http.call import Call
from broker.http.event_desk import EventDesk
from broker.http.origins import HostCheck
from broker.http.parameters import decode_query
from broker.http.ports import Broker
from broker.http.problems import Problem, problem_of_error, retry_after
from broker.http.replies import Reply
from broker.http.routes import Access, Route, RouteTable
from broker.http.settings import HttpSettings
from broker.http.tokens import ADMINISTRATOR, Caller, Role, Tokens

__all__ = ["SINGLE_HEADERS", "Edge"]

_log = logging.getLogger(__name__)

# Of every answer that is no page: nobody keeps it, frames it, or takes it for something else.
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
SINGLE_HEADERS = frozenset({b"host", b"origin", b"authorization", b"content-type", b"x-tenant", b"idempotency-key",
                            b"last-event-id", b"x-rsm-min-revision", b"x-rsm-consistency"})  # fmt: skip
"""Headers that must not be there twice: two readers might take different ones."""
_ALLOWED: dict[Access, frozenset[Role]] = {
    Access.READ: frozenset(Role),
    Access.WRITE: frozenset({Role.ADMIN, Role.TENANT}),
    Access.CLUSTER: frozenset({Role.ADMIN, Role.VIEWER}),
    Access.ADMIN: frozenset({Role.ADMIN}),
}
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="rsm broker"'),)


class Edge:
    """See the module.

    Args:
        broker: Executes and answers.
        settings: See `HttpSettings`.
        table: What is served.
        hosts: Which names are its own.
        tokens: Who may; None = everybody is the administrator.
        clock_s: Monotonic.
        wall_s: Wall clock.

    Attributes:
        broker: The same.
        settings: The same.
        table: The same.
        tokens: The same.
        unexpected: Requests that ended in an error of our own.
        refused: Answers by status, of requests that had no route.
        events_open: Streams of events.
        held_bytes: Of bodies that are not whole yet.
        desk: Makes the events.

    """

    def __init__(
        self,
        broker: Broker,
        settings: HttpSettings,
        table: RouteTable,
        hosts: HostCheck,
        tokens: Tokens | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.table = table
        self.tokens = tokens
        self._hosts = hosts
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._closing: asyncio.Future[None] | None = None
        self._is_closed = False
        self.unexpected = 0
        self.refused: dict[int, int] = {}
        self.events_open = 0
        self.held_bytes = 0
        self.desk = EventDesk(broker)

    @property
    def closing(self) -> asyncio.Future[None]:
        """Return what is done when the server stops."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            if self._is_closed:
                self._closing.set_result(None)
        return self._closing

    def close(self) -> None:
        """End what waits for a long time: long polls answer what is, streams of events end."""
        self._is_closed = True
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began_s = self._clock_s()
        route: Route | None = None
        admitted: Caller | None = None
        try:
            headers = _headers(scope)
            self._hosts.check(headers.get(b"host"), headers.get(b"origin"))
            route, values = self.table.match(scope["method"], scope["raw_path"])
            call = Call(self, scope, receive, send, headers, values)
            if route.access is not Access.OPEN:
                call.caller = admitted = self._admit(route, headers, began_s)
                admitted.running += 1
            call.query = decode_query(scope["query_string"], route.query)
            if route.body is not None:
                call.body = await self._body(route, headers, receive)
            reply = await route.handler(call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            reply = self._problem(error, scope).reply()
        finally:
            if admitted is not None:
                admitted.running -= 1
        if reply is not None:
            await _send(reply, send)
        status = reply.status if reply is not None else 200
        if route is None:
            self.refused[status] = self.refused.get(status, 0) + 1
        else:
            route.counts[status] = route.counts.get(status, 0) + 1
            route.seconds += self._clock_s() - began_s

    def _admit(self, route: Route, headers: dict[bytes, bytes], now_s: float) -> Caller:
        caller = self._caller(headers, now_s)
        if caller.bucket is not None:
            wait_s = caller.bucket.take(now_s)
            if wait_s:
                raise Problem(
                    429, "rate-limited", f"more requests a second than this token may send: come again in "
                    f"{wait_s:.2f} s, or submit in batches", headers=retry_after(wait_s)
                )  # fmt: skip
        if caller.running >= self.settings.requests_max and self.tokens is not None:
            raise Problem(
                429, "too-many-at-once", f"{caller.running} requests of this token run: wait for some of them",
                headers=retry_after(1),
            )  # fmt: skip
        may = _ALLOWED[route.access]
        if caller.role not in may or (route.access is Access.CLUSTER and caller.tenant):
            who = f"{caller.role.value} of {caller.tenant!r}" if caller.tenant else caller.role.value
            what = f"{route.method} {route.path}"
            raise Problem(403, "not-allowed", f"{what} is for {_named(route.access)}; this token's role: {who}")
        return caller

    def readmit(self, call: Call) -> None:
        """Look again whether the caller of a stream may have it: its token may have been taken back.

        Raises:
            Problem: 401.

        """
        self._caller(call.headers, self._clock_s())

    def _caller(self, headers: dict[bytes, bytes], now_s: float) -> Caller:
        if self.tokens is None:
            return ADMINISTRATOR
        authorization = headers.get(b"authorization")
        if authorization is None:
            raise Problem(401, "no-token", "send the header Authorization: Bearer <token>", headers=_CHALLENGE)
        caller = self.tokens.caller(authorization, now_s=now_s, wall_s=self._wall_s())
        if caller is None:
            raise Problem(401, "bad-token", "this token is not known here, or has expired", headers=_CHALLENGE)
        return caller

    async def _body(self, route: Route, headers: dict[bytes, bytes], receive: Receive) -> object:
        limit = route.body_bytes_max or self.settings.body_bytes_max
        length = headers.get(b"content-length", b"0")
        if length != b"0" and (not length.isdigit() or len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        decoder = route.decoder
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            body = await self._rest(body, limit, receive)
        elif len(body) > limit:
            raise _too_large(limit)
        elif message["type"] == "http.disconnect":
            raise _gone()
        if decoder is None:
            return body
        if not body and route.is_body_optional:
            body = b"{}"
        elif not _is_json(headers.get(b"content-type", b"")):
            raise Problem(415, "not-json", "send the body as JSON, with the header Content-Type: application/json")
        return decoder.decode(body)

    async def _rest(self, body: bytes, limit: int, receive: Receive) -> bytes:
        """Read what follows of a body; what all that are half here hold together is bounded."""
        parts, size = [body], len(body)
        self.held_bytes += size
        try:
            while size <= limit:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _gone()
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self.held_bytes += len(part)
                if self.held_bytes > self.settings.bodies_bytes_max:
                    raise Problem(
                        503, "overloaded", "many large requests come at once: send it again, or less at once",
                        headers=retry_after(1),
                    )  # fmt: skip
                if not message.get("more_body", False):
                    if size > limit:
                        break
                    return b"".join(parts)
        finally:
            self.held_bytes -= size
        raise _too_large(limit)

    def _problem(self, error: Exception, scope: Scope) -> Problem:
        if isinstance(error, Problem):
            return error
        known = problem_of_error(error, leader=self.broker.leader_http(), target=_target(scope))
        if known is not None:
            return known
        self.unexpected += 1
        number = os.urandom(6).hex()
        # The path as it was sent: what it means may hold a line break.
        path = scope["raw_path"].decode("latin-1")
        _log.error("error %s: %s %s", number, scope["method"], path, exc_info=error)
        return Problem(
            500, "unexpected", f"an error of the broker's own; its log tells more of error {number}", error=number
        )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    pairs = scope["headers"]
    headers: dict[bytes, bytes] = dict(pairs)
    if len(headers) != len(pairs):
        seen: set[bytes] = set()
        for name, _ in pairs:
            if name in seen and name in SINGLE_HEADERS:
                raise Problem(400, "invalid", f"the header {name.decode('ascii')} is there twice")
            seen.add(name)
    return headers


def _is_json(content_type: bytes) -> bool:
    if content_type == b"application/json":
        return True
    kind, _, more = content_type.lower().partition(b";")
    return kind.strip() == b"application/json" and more.strip() in {b"", b"charset=utf-8", b'charset="utf-8"'}


async def _send(reply: Reply, send: Send) -> None:
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
    if reply.headers:
        own = {name for name, _ in reply.headers}
        headers += reply.headers
        headers += [pair for pair in _HEADERS if pair[0] not in own]
    else:
        headers += _HEADERS
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _target(scope: Scope) -> str:
    query = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    return str(path.decode("latin-1"))


def _named(access: Access) -> str:
    return {
        Access.WRITE: "administrators and tenants", Access.CLUSTER: "administrators, and viewers of all tenants",
        Access.ADMIN: "administrators",
    }[access]  # fmt: skip


def _too_large(limit: int) -> Problem:
    return Problem(413, "too-large", f"a body of more than {limit:,} bytes is not read: send less at once")


def _gone() -> Problem:
    return Problem(400, "gone", "the client went before its request was whole")
