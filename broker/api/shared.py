"""State that all requests of one server share: the broker, the settings, the tokens, and common bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from broker.api.asgi import Scope
from broker.api.event_hub import EventHub
from broker.api.pools import Holder, Pool
from broker.api.ports import Broker
from broker.api.problems import HttpProblem, retry_after
from broker.api.rates import TokenBucket
from broker.api.settings import HttpSettings
from broker.api.tokens import ADMINISTRATOR, Caller, Tokens
from broker.api.turn_queue import TurnQueue
from ledger.http.connection_slots import ConnectionSlots, address_key

_CHALLENGE = ((b"www-authenticate", b'Bearer realm="rsm broker"'),)


class SharedState:
    """State of one server that its requests share.

    Args:
        broker: Executes and answers.
        settings: See `HttpSettings`.
        tokens: Who may; None = everybody is the administrator.
        clock_s: Monotonic.
        wall_s: Wall clock.

    Attributes:
        streams: Streams of events.
        bodies: Bytes of bodies that are not whole yet.
        seats: Connections.
        hub: Makes the events.
        turns: Where requests wait until it is their tenant's turn.

    """

    def __init__(
        self,
        broker: Broker,
        settings: HttpSettings,
        tokens: Tokens | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.tokens = tokens
        self.clock_s = clock_s
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
        self.hub = EventHub(broker)
        self.turns = TurnQueue(bodies // 2, broker.weight_of)

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
        if (now.role, now.tenant) != (before.role, before.tenant):
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
