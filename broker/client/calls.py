"""One call, whatever fails meanwhile: it is sent again, to whoever leads, until it is answered or its time is up.

A request that changes something carries a key (`Idempotency-Key`) that stays the same however often it is sent, or is
one that may be carried out twice without harm (`is_repeatable`). Any other is not sent again once it may have arrived.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from broker.client.directory import BrokerDirectory
from broker.client.errors import BadAnswerError, BrokerUnavailableError, refusal
from broker.client.shapes import Problem
from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.tls import is_loopback
from rsm_spark.client.http_connections import HttpConnectionPool, NotSentError, Response
from rsm_spark.client.http_wire import BadResponseError, Head, Origin, parse_origin
from rsm_spark.client.shown_token import ShownToken
from rsm_spark.errors import OutcomeUnknownError

API = "/api/v1"
Answer = TypeVar("Answer")

_ATTEMPT_S = 2.0
_ATTEMPT_S_MAX = 10.0
"""One broker may take so long, on top of what it was asked to wait: a stopped one is not waited for until the end. Each
silent broker of a call gives the next one twice as long: they may all be slow. What must not be sent again is given all
of it at once."""
_UPLOAD_BYTES_S = 1_000_000
"""A body may take so much longer: who uploads it slowly is not silent."""
_BACKOFF_S = (0.05, 1.0)
_REDIRECTS_MAX = 5
"""Redirections in a row without a pause: brokers that name each other are asked again more slowly."""


def path_of(*parts: object) -> str:
    """Return a path below the API, its parts quoted."""
    return "/".join([API, *(quote(str(part), safe="") for part in parts)])


class Request(NamedTuple):
    """Request to a broker.

    Attributes:
        method: Of HTTP.
        path: Quoted; see `path_of`.
        query: None values are left out.
        content: Sent as JSON; None = no body.
        body: Sent as it is, instead of `content`.
        key: Idempotency key; "" = none.
        is_repeatable: Carried out twice it does no harm.
        wait_s: How long the broker may wait before it answers.
        names_tenant: It says by itself whose it is, or is the cluster's: the client's tenant is not sent with it.

    """

    method: str
    path: str
    query: Mapping[str, Any] = {}
    content: Any = None
    body: bytes | None = None
    key: str = ""
    is_repeatable: bool = True
    wait_s: float = 0.0
    names_tenant: bool = False

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        pairs = [(name, value) for name, value in self.query.items() if value is not None and value != ""]
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path


class _Trouble:
    """Failures of a call so far."""

    def __init__(self) -> None:
        self.text = ""
        self.may_have_arrived = False
        self.pause_s = _BACKOFF_S[0]
        self.redirects = 0
        self.silent_count = 0


def _attempt_s(request: Request, body: bytes | None, trouble: _Trouble) -> float:
    """Return how long the next broker is waited for."""
    patience_s = (
        min(_ATTEMPT_S * 2.0**trouble.silent_count, _ATTEMPT_S_MAX) if request.is_repeatable else _ATTEMPT_S_MAX
    )
    return patience_s + request.wait_s + len(body or b"") / _UPLOAD_BYTES_S


class BrokerCalls:
    """Sends calls to the brokers of one directory.

    Args:
        directory: Which there are.
        headers: Of every request: token, tenant.
        tls: For https; None = as the system trusts.
        token: Shown by every request, in the place of one in the headers.

    """

    def __init__(
        self,
        directory: BrokerDirectory,
        headers: Mapping[str, str],
        *,
        tls: ssl.SSLContext | None = None,
        token: ShownToken | None = None,
    ) -> None:
        self._directory = directory
        self._headers = dict(headers)
        self._token = token
        self._is_tls = tls is not None
        self._pool = HttpConnectionPool(tls)
        self._origin: Origin | None = None
        # Those not tried yet since the last look at the directory.
        self._candidates: list[Origin] = []

    @property
    def url(self) -> str:
        """URL of the broker in use; "" while none is."""
        return "" if self._origin is None else str(self._origin)

    def close(self) -> None:
        """Disconnect."""
        self._pool.close()

    async def call(self, request: Request, kind: type[Answer], *, timeout_s: float) -> Answer:
        """Carry out a request and return its answer, read as JSON.

        Raises:
            BrokerClientError: See `broker.client.errors`.
            OutcomeUnknownError: It may or may not have been carried out.

        """
        response = await self.response(request, timeout_s=timeout_s)
        try:
            return json_decoder(kind).decode(response.body or b"{}")
        except msgspec.MsgspecError as error:
            raise BadAnswerError(f"{request.method} {request.path} at {self.url}: {error}") from None

    async def response(self, request: Request, *, timeout_s: float) -> Response:
        """Carry out a request and return its response; see `call`."""
        body = request.body if request.content is None else msgspec.json.encode(request.content)
        headers = self._headers_of(request)
        if body is not None:
            headers["Content-Type"] = "application/json" if request.content is not None else "application/zip"
        if request.key:
            headers["Idempotency-Key"] = request.key
        trouble = _Trouble()
        due_s = asyncio.get_running_loop().time() + timeout_s
        try:
            while True:
                response = await self._attempt(request, headers, body, trouble, due_s)
                if response is not None:
                    return response
        except BadResponseError as error:
            raise BadAnswerError(f"{request.method} {request.path} at {self.url}: {error}") from None
        except TimeoutError:
            raise self._too_late(request, timeout_s, trouble) from None

    def _headers_of(self, request: Request) -> dict[str, str]:
        headers = dict(self._headers)
        if request.names_tenant:
            headers.pop("X-Tenant", None)
        return headers

    def _shown(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers with the token as it is now: a call may outlive the one that it began with."""
        if self._token is None:
            return headers
        return {**headers, "Authorization": f"Bearer {self._token.look(time.monotonic())}"}

    def _too_late(self, request: Request, timeout_s: float, trouble: _Trouble) -> Exception:
        asked = f"{request.method} {request.path}: not answered within {timeout_s:g} s"
        text = f"{asked}: {trouble.text or 'the last broker asked is silent'}"
        if trouble.may_have_arrived and request.method != "GET":
            return OutcomeUnknownError(f"{text}; it may have been carried out: read before you ask again")
        return BrokerUnavailableError(text)

    async def _attempt(
        self, request: Request, headers: Mapping[str, str], body: bytes | None, trouble: _Trouble, due_s: float
    ) -> Response | None:
        """Ask one broker; None = ask another one.

        Raises:
            TimeoutError: The call's time is up.

        """
        origin = self._origin
        if origin is None:
            async with asyncio.timeout_at(due_s):
                origin = await self._next(trouble)
            if origin is None:
                return None
        had_arrived, trouble.may_have_arrived = trouble.may_have_arrived, True
        loop = asyncio.get_running_loop()
        try:
            # One timer for attempt and call: the usual call has one attempt.
            async with asyncio.timeout_at(min(due_s, loop.time() + _attempt_s(request, body, trouble))):
                response = await self._pool.request(origin, request.method, request.target, self._shown(headers), body)
        except (OSError, EOFError) as error:  # TimeoutError is one of them.
            if isinstance(error, TimeoutError):
                if loop.time() >= due_s:
                    raise
                trouble.silent_count += 1
            async with asyncio.timeout_at(due_s):
                await self._broken(request, origin, error, trouble, had_arrived=had_arrived)
            return None
        if response.head.status < 300:
            return response
        async with asyncio.timeout_at(due_s):
            await self._not_done(request, origin, response, trouble, had_arrived=had_arrived)
        return None

    async def _broken(
        self, request: Request, origin: Origin, error: Exception, trouble: _Trouble, *, had_arrived: bool
    ) -> None:
        """Leave a broker that gave no answer; raise if the request must not be sent again."""
        if isinstance(error, NotSentError):
            trouble.may_have_arrived = had_arrived
            await self._leave(origin, str(error), trouble)
        elif request.is_repeatable:
            await self._leave(origin, f"{origin} broke off: {type(error).__name__}", trouble)
        else:
            raise OutcomeUnknownError(
                f"{request.method} {request.path}: {origin} broke off ({type(error).__name__}); it may have been "
                "carried out: read before you ask again"
            ) from error

    async def _not_done(
        self, request: Request, origin: Origin, response: Response, trouble: _Trouble, *, had_arrived: bool
    ) -> None:
        """Follow to the leader, wait for one, or raise what the broker said."""
        head = response.head
        problem = _problem(response)
        said = f"{origin} says: {problem.detail or problem.title or head.status} ({problem.reason or head.status})"
        match head.status:
            case 307 | 308:
                trouble.may_have_arrived = had_arrived
                await self._follow(origin, head, said, trouble)
            case 429 if problem.reason != "queue-full":
                trouble.may_have_arrived = had_arrived
                trouble.text = said
                await asyncio.sleep(_retry_after_s(head, trouble.pause_s))
            case 503:
                trouble.may_have_arrived = had_arrived
                await self._leave(origin, said, trouble, pause_s=_retry_after_s(head, trouble.pause_s))
            case 502 | 504 if request.is_repeatable:  # the outcome is unknown, and asking again finds it out
                await self._leave(origin, said, trouble)
            case 502 | 504:
                raise OutcomeUnknownError(f"{request.method} {request.path}: {said}")
            case 500 if request.method != "GET":
                raise OutcomeUnknownError(f"{request.method} {request.path}: {said}")
            case _:
                raise refusal(f"{request.method} {request.path}", head.status, problem)

    async def _follow(self, origin: Origin, head: Head, said: str, trouble: _Trouble) -> None:
        try:
            leader = parse_origin(head.headers.get("location", ""))
        except UsageError as error:
            raise BadAnswerError(f"{origin} redirects to nowhere: {error}") from None
        if origin.is_tls and not leader.is_tls:
            raise BadAnswerError(f"{origin} redirects to {leader}, which is not encrypted")
        unfit = self.unfit(leader)
        if unfit:
            raise BadAnswerError(f"{origin} redirects to {leader}: {unfit}")
        trouble.text = said
        trouble.redirects += 1
        self._origin = leader
        if trouble.redirects % _REDIRECTS_MAX == 0:
            await self._leave(leader, said, trouble)

    async def _leave(self, origin: Origin, why: str, trouble: _Trouble, *, pause_s: float | None = None) -> None:
        """Go on to another broker, after a pause if all were tried."""
        trouble.text = why
        self._pool.forget(origin)
        if self._origin == origin:
            self._origin = None
        if not self._candidates:
            await asyncio.sleep((trouble.pause_s if pause_s is None else pause_s) * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            trouble.pause_s = min(trouble.pause_s * 2, _BACKOFF_S[1])

    async def _next(self, trouble: _Trouble) -> Origin | None:
        if not self._candidates:
            found = await self._directory.origins()
            # What the metadata store names may have been written by anybody who reaches it.
            self._candidates = [one for one in found if not self.unfit(one)]
            if found and not self._candidates:
                trouble.text = f"{found[0]}: {self.unfit(found[0])}"
                await self._pause(trouble)
                return None
        if not self._candidates:
            trouble.text = self._directory.trouble
            await self._pause(trouble)
            return None
        self._origin = self._candidates.pop(0)
        return self._origin

    @staticmethod
    async def _pause(trouble: _Trouble) -> None:
        await asyncio.sleep(trouble.pause_s)
        trouble.pause_s = min(trouble.pause_s * 2, _BACKOFF_S[1])

    def unfit(self, origin: Origin) -> str:
        """Return why nothing is sent to a broker; "" = it is."""
        if origin.is_tls:
            return ""
        if self._is_tls:
            return "it is not encrypted, and this client is to use TLS"
        has_token = self._token is not None or "Authorization" in self._headers
        if has_token and not is_loopback(origin.host):
            return "the token would travel in plain text: use https, and name the authority of its certificate"
        return ""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Get a body without an end, once, from the broker in use or the next one.

        Raises:
            OSError, EOFError: It broke off, or could not be begun: try again.
            BrokerClientError: The broker says no.

        """
        trouble = _Trouble()
        origin = self._origin or await self._next(trouble)
        if origin is None:
            raise NotSentError(trouble.text)
        headers = self._shown(self._headers_of(request))
        try:
            async with self._pool.stream(origin, request.target, headers) as (head, pieces):
                if head.status != 200:
                    body = b"".join([piece async for piece in pieces])
                    await self._not_done(request, origin, Response(head, body), trouble, had_arrived=False)
                    raise NotSentError(trouble.text)
                yield pieces
        except BadResponseError as error:
            raise BadAnswerError(f"{request.method} {request.path} at {origin}: {error}") from None
        except (OSError, EOFError):
            if self._origin == origin:
                self._origin = None
            raise


def _problem(response: Response) -> Problem:
    try:
        return json_decoder(Problem).decode(response.body)
    except msgspec.MsgspecError:
        return Problem(title=response.body[:200].decode(errors="replace"))


def _retry_after_s(head: Head, otherwise: float) -> float:
    """Return how long the broker asks to wait, within bounds."""
    try:
        return min(max(float(head.headers.get("retry-after", otherwise)), _BACKOFF_S[0]), 5.0)
    except ValueError:
        return otherwise
