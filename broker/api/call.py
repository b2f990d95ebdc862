"""One request, as handlers see it: who asks, what for, and the broker that knows."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from broker.api.problems import problem_of_refusal
from broker.api.shared import SharedState
from broker.machine.commands import BrokerCommand
from broker.machine.holds import Author, AuthorRole
from broker.machine.limits import NAME_BYTES_MAX
from broker.machine.queries import BrokerQuery
from broker.machine.replies import BrokerReply, Refused
from broker.machine.views import BrokerResult
from ledger.http.asgi import Message, Receive, Scope, Send
from ledger.http.pools import Holder
from ledger.http.problems import HttpProblem
from ledger.http.tokens import ADMINISTRATOR, Caller
from ledger.rights.principal import Role
from ledger.telemetry.tracing import Span
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least

DEFAULT_TENANT = "default"
"""Tenant of what an administrator submits without naming one."""
TENANT_HEADER = "X-Tenant"
REVISION_HEADER = "X-Rsm-Min-Revision"
CONSISTENCY_HEADER = "X-Rsm-Consistency"
_DIGITS_MAX = 16
_READMIT_S = 2.0
"""After which it is looked again whether who waits may still see it; the file of tokens is looked at once a second."""

_Wanted = TypeVar("_Wanted")


class ApiRequest:
    """See the module.

    Args:
        shared: What all requests share.
        scope: ASGI's.
        receive: ASGI's.
        send: ASGI's; only for streams.
        headers: By lower-case name.
        values: Of the names in the path.

    Attributes:
        caller: Who asks.
        body: As the route reads it.
        query: The same.
        span: Of the call; None = it is not traced.

    """

    __slots__ = ("body", "caller", "headers", "query", "receive", "scope", "send", "shared", "span", "values")

    def __init__(
        self,
        shared: SharedState,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        values: tuple[str, ...],
    ) -> None:
        self.shared = shared
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers = headers
        self.values = values
        self.caller: Caller = ADMINISTRATOR
        self.body: Any = None
        self.query: Any = None
        self.span: Span | None = None

    # ---- whose

    def tenant_to_write(self, named: str = "") -> str:
        """Return the tenant that something is done for: the caller's own, or whom the administrator names.

        Args:
            named: In body or query.

        Raises:
            Problem: 404: another's; 400: two are named.

        """
        return self.tenant_to_see(named) or DEFAULT_TENANT

    def tenant_to_see(self, named: str = "") -> str:
        """Return the tenant whose things are looked at, or are changed by id; "" = all.

        Raises:
            Problem: 404: another's; 400: two are named.

        """
        header = self.headers.get(b"x-tenant")
        if header is not None:
            told = _header_text(header, TENANT_HEADER)
            if named and told != named:
                raise HttpProblem(400, "invalid", f"two tenants are named: {named!r} and, in {TENANT_HEADER}, {told!r}")
            named = told
        own = self.caller.tenant
        if own:
            if named and named != own:
                raise HttpProblem(404, "not-found", f"there is no tenant {named!r} that you may see")
            return own
        return named

    @property
    def turn_key(self) -> str:
        """Key of its turn: the caller's tenant, or the one an operator names in the header; "" = the operator's own."""
        return self.caller.tenant or self.headers.get(b"x-tenant", b"")[:NAME_BYTES_MAX].decode("latin-1")

    @property
    def is_bound(self) -> bool:
        """True if a tenant's policy says what the caller may name: it does for all but operators."""
        return self.caller.role is not Role.OPERATOR

    @property
    def author(self) -> Author:
        """Author of what the caller does, as the log keeps it."""
        role = AuthorRole.OPERATOR if self.caller.role is Role.OPERATOR else AuthorRole.TENANT
        return Author(role, self.caller.name)

    @property
    def sees_all(self) -> bool:
        """True if the caller belongs to no tenant."""
        return not self.caller.tenant

    # ---- what all share

    def take_tasks(self, count: int) -> None:
        """Count tasks that the caller is about to submit.

        Raises:
            Problem: 429: they are more than its tenant may submit by now.

        """
        self.shared.take(self.caller, self.caller.tasks, count, "tasks")

    def holder(self) -> Holder:
        """Return who is bound by a part of what all share."""
        return self.shared.holder(self.caller, self.scope)

    # ---- the broker

    async def execute(self, command: BrokerCommand, expected: type[_Wanted]) -> _Wanted:
        """Execute a command.

        Args:
            command: What is done.
            expected: Type of the reply.

        Raises:
            Problem: The state machine refuses.
            RsmError: As `Broker.execute`.

        """
        reply: BrokerReply = await self.shared.broker.execute(command)
        if isinstance(reply, expected):
            return reply
        if isinstance(reply, Refused):
            raise problem_of_refusal(reply)
        raise TypeError(f"{type(command).__name__} was answered by {type(reply).__name__}")

    async def ask(self, query: BrokerQuery) -> tuple[BrokerResult, int]:
        """Ask for something; return it and the revision of the state.

        Raises:
            Problem: 400: the query is not understood.
            RsmError: As `Broker.query`.

        """
        result, revision = await self.shared.broker.query(query, freshness=self.freshness())
        if isinstance(result, Refused):
            raise problem_of_refusal(result)
        return result, revision

    async def expect(self, query: BrokerQuery, expected: type[_Wanted], what: str) -> tuple[_Wanted, int]:
        """Ask for something that is to be there.

        Args:
            query: What is asked.
            expected: Type of the result.
            what: For the problem.

        Raises:
            Problem: 404: there is none that the caller may see.
            RsmError: As `Broker.query`.

        """
        result, revision = await self.ask(query)
        if not isinstance(result, expected):
            raise HttpProblem(404, "not-found", f"there is no {what}", revision=revision)
        return result, revision

    def freshness(self) -> Freshness:
        """Return how new the state has to be: see `REVISION_HEADER` and `CONSISTENCY_HEADER`.

        Raises:
            Problem: 400.

        """
        revision = self.headers.get(b"x-rsm-min-revision", b"0")
        if not revision.isdigit() or len(revision) > _DIGITS_MAX:
            raise HttpProblem(400, "invalid", f"{REVISION_HEADER}: a revision is a number, 0 or more")
        wanted = self.headers.get(b"x-rsm-consistency", b"stale")
        if wanted == b"linearizable":
            return LINEARIZABLE
        if wanted != b"stale":
            raise HttpProblem(400, "invalid", f"{CONSISTENCY_HEADER}: linearizable or stale")
        return at_least(int(revision)) if int(revision) else STALE

    # ---- the connection

    async def until_gone(self) -> None:
        """Return when the client has gone. The body has been read."""
        while True:
            message: Message = await self.receive()
            if message["type"] == "http.disconnect":
                return

    async def race(self, work: asyncio.Task[_Wanted]) -> _Wanted | None:
        """Wait for something; None if the client has gone or the server stops before. The loser is cancelled.

        Raises:
            Problem: 401: meanwhile the caller's token was taken back, has expired, or became another's.

        """
        gone = asyncio.get_running_loop().create_task(self.until_gone())
        awaited: list[asyncio.Future[Any]] = [work, gone, self.shared.closing]
        try:
            while True:
                done, _ = await asyncio.wait(awaited, timeout=_READMIT_S, return_when=asyncio.FIRST_COMPLETED)
                self.shared.readmit(self.caller, self.headers, self.scope)
                if done:
                    return work.result() if work.done() else None
        finally:
            if work.done() and not work.cancelled():
                work.exception()  # It was looked at, whatever is raised instead.
            losers: list[asyncio.Task[Any]] = [one for one in (work, gone) if not one.done()]
            for one in losers:
                one.cancel()
            if losers:
                await asyncio.wait(losers)

    def number(self, text: str, what: str) -> int:
        """Read a number of the path.

        Raises:
            Problem: 400: it is none.

        """
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
            raise HttpProblem(400, "invalid", f"{what} is a number, 0 or more")
        return int(text)


def _header_text(raw: bytes, name: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise HttpProblem(400, "invalid", f"{name} is not UTF-8") from None
    if not text or not text.isprintable() or len(raw) > NAME_BYTES_MAX:
        raise HttpProblem(400, "invalid", f"{name} is empty, holds control characters, or is too long")
    return text
