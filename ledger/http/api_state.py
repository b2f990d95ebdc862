"""State that all requests of one server share: settings, tokens, and the bounds of what all have together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ledger.http.api_settings import ApiSettings
from ledger.http.asgi import Scope
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots, address_key
from ledger.http.pools import Holder, Pool
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.rates import TokenBucket
from ledger.http.tokens import ADMINISTRATOR, Caller, Tokens

_CHALLENGE = ((b"www-authenticate", b'Bearer realm="rsm"'),)


class ApiState:
    """State of one server that its requests share.

    Args:
        settings: See `ApiSettings`.
        tokens: Who may; None = everybody is the administrator.
        clock_s: Monotonic.
        wall_s: Wall clock.

    Attributes:
        streams: Streams of events.
        bodies: Bytes of bodies that are not whole yet.
        seats: Connections.

    """

    def __init__(
        self,
        settings: ApiSettings,
        tokens: Tokens | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.tokens = tokens
        self.clock_s = clock_s
        self._bounds = settings
        self._wall_s = wall_s
        self._closing: asyncio.Future[None] | None = None
        self._is_closed = False
        streams, bodies, seats = settings.events_max, settings.bodies_bytes_max, settings.connections_max
        self.streams = Pool(streams, settings.of_token(streams), settings.of_address(streams))
        # One body is always allowed.
        largest = settings.body_bytes_max
        self.bodies = Pool(bodies, max(largest, settings.of_token(bodies)), max(largest, settings.of_address(bodies)))
        self._proxies = frozenset(address_key(address) for address in settings.proxies)
        self.seats = ConnectionSlots(
            seats, of_owner=settings.of_token(seats), of_address=settings.of_address(seats), shared=self._proxies
        )

    @property
    def closing(self) -> asyncio.Future[None]:
        """Future that is done when the server stops."""
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

    def caller(self, headers: dict[bytes, bytes], scope: Scope, now_s: float) -> Caller:
        """Return who asks.

        Raises:
            Problem: 401: no token, or one that is not known.

        """
        if self.tokens is None:
            return ADMINISTRATOR
        authorization = headers.get(b"authorization")
        names = scope.get("extensions", {}).get("rsm.certificate", ())
        if authorization is None and names:
            caller = self.tokens.caller_of_certificate(names, now_s=now_s, wall_s=self._wall_s())
            if caller is not None:
                return caller
        if authorization is None:
            raise HttpProblem(401, "no-token", "send the header Authorization: Bearer <token>", headers=_CHALLENGE)
        caller = self.tokens.caller(authorization, now_s=now_s, wall_s=self._wall_s())
        if caller is None:
            raise HttpProblem(401, "bad-token", "this token is not known here, or has expired", headers=_CHALLENGE)
        return caller

    def readmit(self, before: Caller, headers: dict[bytes, bytes], scope: Scope) -> None:
        """Look again whether who waits is who he was: his token may have been taken back, or be another's now.

        Raises:
            Problem: 401.

        """
        now = self.caller(headers, scope, self.clock_s())
        if _reach(now) != _reach(before):
            raise HttpProblem(401, "bad-token", "this token means something else now: ask again", headers=_CHALLENGE)

    def take(
        self, caller: Caller, bucket: TokenBucket | None, amount: int, what: str, then: str = "come again in {:.2f} s"
    ) -> None:
        """Take from what a caller may send.

        Args:
            caller: For the problem.
            bucket: One of the caller's; None = no limit.
            amount: How much is sent.
            what: For the problem.
            then: What to do, for the problem.

        Raises:
            Problem: 429: more than may be sent by now.

        """
        wait_s = 0.0 if bucket is None else bucket.take(self.clock_s(), amount)
        if wait_s:
            who = f"tenant {caller.tenant!r}, with all its tokens," if caller.tenant else "this token"
            says = f"more {what} a second than {who} may send: {then.format(wait_s)}"
            raise HttpProblem(429, "rate-limited", says, headers=retry_after(wait_s))

    def holder(self, caller: Caller, scope: Scope) -> Holder:
        """Return who is bound by a part of what all share."""
        client = scope.get("client")
        address = address_key(client[0]) if client else None
        return Holder(caller if self.tokens is not None else None, None if address in self._proxies else address)

    def admit(self, caller: Caller) -> None:
        """Count a request of a caller; `Caller.running` is the caller's of this to give back.

        Raises:
            Problem: 429: more than it may send by now, or at once.

        """
        self.take(caller, caller.bucket, 1, "requests", "come again in {:.2f} s, or send more at once")
        if caller.running >= self._bounds.requests_max and self.tokens is not None:
            raise HttpProblem(
                429, "too-many-at-once", f"{caller.running} requests of this token run: wait for some of them",
                headers=retry_after(1),
            )  # fmt: skip

    def seat(self, scope: Scope, caller: Caller) -> None:
        """Take note whose a connection is.

        Raises:
            Problem: 429: it has its part of them.

        """
        seat: ConnectionSlot | None = scope["extensions"].get("rsm.seat") if "extensions" in scope else None
        owner = caller if self.tokens is not None else None
        if seat is None or (seat.is_known and seat.owner is owner):
            return
        if not self.seats.know(seat, owner):
            raise HttpProblem(
                429, "too-many-connections", f"this token has {self._bounds.token_part:.0%} of all "
                "connections: use those again, or close some", headers=(*retry_after(1), (b"connection", b"close"))
            )  # fmt: skip


def _reach(caller: Caller) -> tuple[object, ...]:
    """Return what a caller may see, as far as a change of it is one of who it is."""
    one = caller.principal
    return caller.role, caller.tenant, one.logs, one.access, one.prefix, one.tables_read
