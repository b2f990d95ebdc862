"""One request to the gateways of a cluster, whatever fails meanwhile: sent again until it is answered or too late.

Every request of a gateway may be sent again: records have their producer's sequence, and what else changes something
changes it only once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.tls import is_loopback
from rsm_spark.client.http_connections import HttpConnectionPool, NotSentError, Response
from rsm_spark.client.http_wire import BadResponseError, Head, Origin, parse_origin
from rsm_spark.client.shown_token import ShownToken
from rsm_spark.errors import OutcomeUnknownError
from rsm_spark.gateway_client.errors import GatewayProblem, GatewayUnavailableError, refusal_of

Answer = TypeVar("Answer")

_ATTEMPT_S = (5.0, 20.0)
"""One gateway may take so long, on top of what it was asked to wait; each silent one gives the next twice as long."""
_BYTE_S = 0.000_001
_BACKOFF_S = (0.05, 1.0)
_RETRY_AFTER_S_MAX = 5.0
_REDIRECTS_MAX = 5
"""Redirections in a row without a pause."""
_JSON = {"Content-Type": "application/json"}
_PASSING = frozenset({429, 500, 502, 503, 504})


class GatewayRequest(NamedTuple):
    """Request to a gateway.

    Attributes:
        method: Of HTTP.
        parts: Of the path below /v1/logs.
        query: None values are left out.
        body: Sent as JSON; None = there is none.
        wait_s: How long the gateway may wait before it answers.

    """

    method: str
    parts: Sequence[str] = ()
    query: Mapping[str, Any] = {}
    body: msgspec.Struct | None = None
    wait_s: float = 0.0

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        path = "/".join(["/v1/logs", *(quote(part, safe="") for part in self.parts)])
        pairs = [(name, value) for name, value in self.query.items() if value is not None]
        return f"{path}?{urlencode(pairs)}" if pairs else path


class _Attempts:
    """Attempts of a request so far."""

    def __init__(self) -> None:
        self.text = ""
        self.may_have_arrived = False
        self.pause_s = _BACKOFF_S[0]
        self.redirects = 0
        self.silent_count = 0


class GatewayCalls:
    """Sends requests to gateways.

    Args:
        urls: Of gateways, at least one.
        token: Who calls; "" = as `shown` says.
        shown: A token that is read again; None = none is shown.
        tls: For https; None = as the system trusts.

    Raises:
        UsageError: A URL is none, would have the token travel in plain text beyond loopback, or is not of https though
            `tls` is given.

    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str = "",
        shown: ShownToken | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._token = token
        self._shown = shown
        self._is_tls = tls is not None
        self._origins = [parse_origin(url) for url in urls]
        if not self._origins:
            raise UsageError("no URL of a gateway is given: name at least one, such as http://127.0.0.1:8090")
        for url, origin in zip(urls, self._origins, strict=True):
            if unfit := self._unfit(origin):
                raise UsageError(f"{url}: {unfit}")
        self._pool = HttpConnectionPool(tls)
        self._turn = 0
        # By log, the gateway that writes it, as far as is known.
        self._writers: dict[str, Origin] = {}

    def close(self) -> None:
        """Disconnect."""
        self._pool.close()

    async def call(self, request: GatewayRequest, kind: type[Answer], *, timeout_s: float) -> Answer:
        """Carry out a request and return its answer.

        Raises:
            RsmError: See `rsm_spark.gateway_client.errors`.
            OutcomeUnknownError: It may or may not have been carried out.
            BadResponseError: What came is not what a gateway answers.

        """
        body = None if request.body is None else msgspec.json.encode(request.body)
        attempts = _Attempts()
        due_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            response = await self._attempt(request, body, attempts, due_s)
            if response is not None:
                try:
                    return json_decoder(kind).decode(response.body)
                except msgspec.MsgspecError as error:
                    raise BadResponseError(f"{request.method} {request.target}: {error}") from None
            if asyncio.get_running_loop().time() >= due_s:
                asked = f"{request.method} {request.target[:200]}: not answered within {timeout_s:g} s"
                if attempts.may_have_arrived and request.method != "GET":
                    raise OutcomeUnknownError(f"{asked}: {attempts.text}; it may have been carried out")
                raise GatewayUnavailableError(f"{asked}: {attempts.text}")

    async def _attempt(
        self, request: GatewayRequest, body: bytes | None, attempts: _Attempts, due_s: float
    ) -> Response | None:
        """Ask one gateway; None = ask another one, or the same again, unless the time is up."""
        loop, log = asyncio.get_running_loop(), request.parts[0] if request.parts else ""
        origin = self._writers.get(log) if request.method != "GET" else None
        origin = origin or self._origins[self._turn % len(self._origins)]
        had_arrived, attempts.may_have_arrived = attempts.may_have_arrived, True
        patience_s = min(_ATTEMPT_S[0] * 2.0**attempts.silent_count, _ATTEMPT_S[1])
        patience_s += request.wait_s + len(body or b"") * _BYTE_S
        headers = self._headers() if body is None else {**self._headers(), **_JSON}
        try:
            async with asyncio.timeout_at(min(due_s, loop.time() + patience_s)):
                response = await self._pool.request(origin, request.method, request.target, headers, body)
        except (OSError, EOFError) as error:  # TimeoutError is one of them.
            if isinstance(error, NotSentError):
                attempts.may_have_arrived = had_arrived
            attempts.silent_count += isinstance(error, TimeoutError)
            why = str(error) if isinstance(error, NotSentError) else f"{origin} broke off: {type(error).__name__}"
            await self._leave(log, origin, why, attempts, due_s)
            return None
        head = response.head
        if head.status < 300:
            return response
        attempts.may_have_arrived = had_arrived or head.status in {500, 502, 504}
        problem = _problem(response)
        attempts.text = f"{origin} says: {problem.detail or problem.title} ({problem.reason or head.status})"
        if head.status == 307:
            self._writers[log] = self._writer(origin, head)
            attempts.redirects += 1
            if attempts.redirects % _REDIRECTS_MAX == 0:
                await self._leave(log, origin, attempts.text, attempts, due_s)
        elif head.status not in _PASSING or problem.reason in {"too-many-producers", "corrupt-log"}:
            if request.method == "DELETE" and head.status == 404 and had_arrived:
                return Response(head, b'{"log":"%s"}' % log.encode())
            raise refusal_of(f"{request.method} {request.target[:200]} at {origin}", head.status, problem)
        elif head.status == 429:
            await _sleep(_retry_after_s(head, attempts.pause_s), due_s)
        else:
            await self._leave(log, origin, attempts.text, attempts, due_s, pause_s=_retry_after_s(head, 0.0))
        return None

    async def _leave(
        self, log: str, origin: Origin, why: str, attempts: _Attempts, due_s: float, *, pause_s: float | None = None
    ) -> None:
        """Go on to another gateway after a pause."""
        attempts.text = why
        self._pool.forget(origin)
        self._writers.pop(log, None)
        self._turn += 1
        await _sleep(attempts.pause_s if pause_s is None else max(pause_s, attempts.pause_s), due_s)
        attempts.pause_s = min(attempts.pause_s * 2, _BACKOFF_S[1])

    def _writer(self, origin: Origin, head: Head) -> Origin:
        try:
            writer = parse_origin(head.headers.get("location", ""))
        except UsageError as error:
            raise BadResponseError(f"{origin} redirects to nowhere: {error}") from None
        unfit = self._unfit(writer)
        if origin.is_tls and not writer.is_tls:
            unfit = "it is not encrypted"
        if unfit:
            raise BadResponseError(f"{origin} redirects to {writer}: {unfit}")
        return writer

    def _unfit(self, origin: Origin) -> str:
        """Return why nothing is sent to a gateway; "" = it is."""
        if origin.is_tls:
            return ""
        if self._is_tls:
            return "it is not encrypted, and this client is to use TLS"
        if (self._token or self._shown) and not is_loopback(origin.host):
            return "the token would travel in plain text: use https, and name the authority of its certificate"
        return ""

    def _headers(self) -> dict[str, str]:
        token = self._token if self._shown is None else self._shown.look(time.monotonic())
        return {"Authorization": f"Bearer {token}"} if token else {}

    @contextlib.asynccontextmanager
    async def stream(self, request: GatewayRequest, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Get a body without an end, once, from the gateway whose turn it is.

        Raises:
            OSError, EOFError: It broke off, or could not be begun: try again, which asks the next one.
            RsmError: The gateway says no.

        """
        origin = self._origins[self._turn % len(self._origins)]
        try:
            async with self._pool.stream(origin, request.target, {**self._headers(), **headers}) as (head, pieces):
                if head.status == 200:
                    yield pieces
                    return
                problem = _problem(Response(head, b"".join([piece async for piece in pieces])))
            if head.status not in _PASSING or problem.reason == "corrupt-log":
                raise refusal_of(f"GET {request.target[:200]} at {origin}", head.status, problem)
            raise ConnectionRefusedError(f"{origin} says: {problem.detail or problem.title or head.status}")
        except (OSError, EOFError):
            self._turn += 1
            raise


async def _sleep(pause_s: float, due_s: float) -> None:
    left_s = due_s - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, min(pause_s * random.uniform(0.8, 1.2), left_s)))  # noqa: S311 - jitter


def _problem(response: Response) -> GatewayProblem:
    try:
        return json_decoder(GatewayProblem).decode(response.body)
    except msgspec.MsgspecError:
        return GatewayProblem(title=response.body[:200].decode(errors="replace"))


def _retry_after_s(head: Head, otherwise: float) -> float:
    """Return how long the gateway asks to wait, within bounds."""
    try:
        return min(max(float(head.headers.get("retry-after", otherwise)), _BACKOFF_S[0]), _RETRY_AFTER_S_MAX)
    except ValueError:
        return otherwise
