"""One request, as handlers see it: who asks, what for, and the broker that knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import Message, Receive, Scope, Send

from broker.core.commands import BrokerCommand
from broker.core.limits import NAME_BYTES_MAX
from broker.core.queries import BrokerQuery
from broker.core.replies import BrokerReply, Refused
from broker.core.shown import BrokerResult
from broker.http.problems import Problem, problem_of_refusal
from broker.http.tokens import ADMINISTRATOR, Caller, Role
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least

if TYPE_CHECKING:
    from broker.http.edge import Edge

__all__ = ["CONSISTENCY_HEADER", "DEFAULT_TENANT", "REVISION_HEADER", "TENANT_HEADER", "Call"]

DEFAULT_TENANT = "default"
"""Whose what an administrator submits is, when nothing is said."""
TENANT_HEADER = "X-Tenant"
REVISION_HEADER = "X-Rsm-Min-Revision"
CONSISTENCY_HEADER = "X-Rsm-Consistency"
_DIGITS_MAX = 16

_Wanted = TypeVar("_Wanted")


class Call:
    """See the module.

    Args:
        edge: What all requests share.
        scope: ASGI's.
        receive: ASGI's.
        send: ASGI's; only for streams.
        headers: By lower-case name.
        values: Of the names in the path.

    Attributes:
        caller: Who asks.
        body: As the route reads it.
        query: The same.

    """

    __slots__ = ("body", "caller", "edge", "headers", "query", "receive", "scope", "send", "values")

    def __init__(
        self,
        edge: Edge,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        values: tuple[str, ...],
    ) -> None:
        self.edge = edge
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers = headers
        self.values = values
        self.caller: Caller = ADMINISTRATOR
        self.body: Any = None
        self.query: Any = None

    # ---- whose

    def tenant_to_write(self, named: str = "") -> str:
        """Return the tenant that something is done for: the caller's own, or whom the administrator names.

        Args:
            named: In body or query.

        Raises:
            Problem: 404: another's; 400: two are named.

        """
        return self._tenant(named) or DEFAULT_TENANT

    def tenant_to_see(self, named: str = "") -> str:
        """Return the tenant whose things are looked at, or are changed by id; "" = all.

        Raises:
            Problem: 404: another's; 400: two are named.

        """
        return self._tenant(named)

    def _tenant(self, named: str) -> str:
        header = self.headers.get(b"x-tenant")
        if header is not None:
            told = _header_text(header, TENANT_HEADER)
            if named and told != named:
                raise Problem(400, "invalid", f"two tenants are named: {named!r} and, in {TENANT_HEADER}, {told!r}")
            named = told
        own = self.caller.tenant
        if own:
            if named and named != own:
                raise Problem(404, "not-found", f"there is no tenant {named!r} that you may see")
            return own
        return named

    @property
    def sees_all(self) -> bool:
        """Whether the caller belongs to no tenant."""
        return not self.caller.tenant

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
        reply: BrokerReply = await self.edge.broker.execute(command)
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
        result, revision = await self.edge.broker.query(query, freshness=self.freshness())
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
            raise Problem(404, "not-found", f"there is no {what}", revision=revision)
        return result, revision

    def freshness(self) -> Freshness:
        """Return how new the state has to be: see `REVISION_HEADER` and `CONSISTENCY_HEADER`.

        Raises:
            Problem: 400.

        """
        revision = self.headers.get(b"x-rsm-min-revision", b"0")
        if not revision.isdigit() or len(revision) > _DIGITS_MAX:
            raise Problem(400, "invalid", f"{REVISION_HEADER}: a revision is a number, 0 or more")
        wanted = self.headers.get(b"x-rsm-consistency", b"stale")
        if wanted == b"linearizable":
            return LINEARIZABLE
        if wanted != b"stale":
            raise Problem(400, "invalid", f"{CONSISTENCY_HEADER}: linearizable or stale")
        return at_least(int(revision)) if int(revision) else STALE

    # ---- the connection

    async def until_gone(self) -> None:
        """Return when the client has gone. The body has been read."""
        while True:
            message: Message = await self.receive()
            if message["type"] == "http.disconnect":
                return

    async def race(self, work: asyncio.Task[_Wanted]) -> _Wanted | None:
        """Wait for something; None if the client has gone or the server stops before. The loser is cancelled."""
        gone = asyncio.get_running_loop().create_task(self.until_gone())
        awaited: list[asyncio.Future[Any]] = [work, gone, self.edge.closing]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
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
            raise Problem(400, "invalid", f"{what} is a number, 0 or more")
        return int(text)

    def role_is(self, role: Role) -> bool:
        """Tell whether the caller has a role."""
        return self.caller.role is role


def _header_text(raw: bytes, name: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Problem(400, "invalid", f"{name} is not UTF-8") from None
    if not text or not text.isprintable() or len(raw) > NAME_BYTES_MAX:
        raise Problem(400, "invalid", f"{name} is empty, holds control characters, or is too long")
    return text
