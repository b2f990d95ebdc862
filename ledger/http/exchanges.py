"""Heads, bodies and answers of requests to an API, under the bounds that all its callers share."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import HttpReply
from ledger.http.tokens import Caller

# Of every answer that is no page: nobody keeps it, frames it, or takes it for something else.
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
SINGLE_HEADERS = frozenset({b"host", b"origin", b"authorization", b"content-type", b"x-tenant", b"idempotency-key",
                            b"last-event-id", b"x-rsm-min-revision", b"x-rsm-consistency"})  # fmt: skip
"""Headers that must not be there twice: two readers might take different ones."""


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request by lower-case name.

    Raises:
        Problem: 400: one that must not be there twice is.

    """
    pairs = scope["headers"]
    headers: dict[bytes, bytes] = dict(pairs)
    if len(headers) != len(pairs):
        seen: set[bytes] = set()
        for name, _ in pairs:
            if name in seen and name in SINGLE_HEADERS:
                raise HttpProblem(400, "invalid", f"the header {name.decode('ascii')} is there twice")
            seen.add(name)
    return headers


async def read_body(
    state: ApiState, caller: Caller, headers: Mapping[bytes, bytes], scope: Scope, receive: Receive, limit: int
) -> bytes:
    """Read a body; what all that are half here hold together is bounded, and each one's part.

    Args:
        state: Has the bounds.
        caller: Whose it is.
        headers: Of the request.
        scope: Of the same.
        receive: Of the same.
        limit: Bytes that it may have.

    Raises:
        Problem: 413, 429, 503: it is too much; 400: the client has gone.

    """
    length = headers.get(b"content-length", b"0")
    if length != b"0" and (not length.isdigit() or len(length) > 18 or int(length) > limit):
        raise _too_large(limit)
    said = int(length)
    # What is said to be too much by now is not read.
    state.take(caller, caller.bytes, said, "bytes")
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        body = await _rest(state, caller, scope, receive, limit, body)
    elif len(body) > limit:
        raise _too_large(limit)
    elif message["type"] == "http.disconnect":
        raise _gone()
    if len(body) > said:
        state.take(caller, caller.bytes, len(body) - said, "bytes")
    return body


async def _rest(state: ApiState, caller: Caller, scope: Scope, receive: Receive, limit: int, body: bytes) -> bytes:
    bodies, parts, size, holder = state.bodies, [body], 0, state.holder(caller, scope)
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
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _gone()
            part, more = message.get("body", b""), message.get("more_body", False)
            parts.append(part)
    finally:
        bodies.give(size, holder)


def is_json(content_type: bytes) -> bool:
    """Return whether a content type says JSON."""
    if content_type == b"application/json":
        return True
    kind, _, more = content_type.lower().partition(b";")
    return kind.strip() == b"application/json" and more.strip() in {b"", b"charset=utf-8", b'charset="utf-8"'}


async def send_reply(reply: HttpReply, scope: Scope, send: Send) -> None:
    """Send an answer, with the headers of every one."""
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


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, "too-large", f"a body of more than {limit:,} bytes is not read: send less at once")


def _gone() -> HttpProblem:
    return HttpProblem(400, "gone", "the client went before its request was whole")
