"""Following the tables of a log: every change from a revision on, each once, in order, none missing.

    async for change in shop.changes("item"):
        print(change.revision, change.kind, change.key, change.old, change.new)

A feed goes on over lost connections, failovers and restarts of replicas. Only confirmed changes are told. To go on in
another process, keep the revision of the last change that was processed, and begin behind it:

    shop.changes("item", begin=change.revision + 1)

or have the log held, and the place kept, under the name of a consumer: `consumer`, and `SqlClient.processed`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Literal, Self

import msgspec

from rsm_spark.client.told_attempts import ToldAttempts
from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.errors import ConnectionLostError
from rsm_spark.sql.feed.events import (
    BEGINNING,
    FEED_METHOD,
    NOW,
    SqlChange,
    SqlFeedRequest,
    SqlFeedSlice,
    check_feed_request,
    decode_feed_slice,
)
from rsm_spark.sql.messages import encode
from rsm_spark.transport.told_stream import ToldRequest, told_by

PROGRESS_MS = 2_000
_SILENCE_PROGRESSES = 4
_SILENCE_S_MIN = 3.0

FeedBegin = int | Literal["now", "beginning"]
"""Beginning of a feed: at a revision, inclusive; with what comes; with the first revision that the log holds."""

Registered = Callable[[int | None], Awaitable[int | None]]
"""Registers a consumer at a revision, or where it stands (None); returns the last revision that it has processed."""


def begin_of(begin: FeedBegin) -> int:
    """Return a beginning as it is asked for."""
    return {"now": NOW, "beginning": BEGINNING}[begin] if isinstance(begin, str) else begin


class SqlChangeStream:
    """A feed under way: iterate over it, once. Made by `SqlClient.changes`.

    Args:
        replicas: That may be asked.
        request: What is asked for.
        patience_s: See `SqlClient.changes`.
        register: Of its consumer; None = it has none.
        is_where_it_stands: It begins where its consumer stands, if there is one of its name.

    Attributes:
        revision: All changes up to here have been given, the one in hand included; 0 before the first word of a
            replica.
        address: Of the replica that tells; "" while there is none.
        is_partial: All tables were asked for, and of some nothing is told: the reader has no right to them. Known once
            a replica has said its first word.
        on_partial: Called when that is known; may be set before the first change is waited for.

    """

    def __init__(
        self,
        replicas: WatchedReplicas,
        request: SqlFeedRequest,
        patience_s: float | None,
        register: Registered | None = None,
        *,
        is_where_it_stands: bool = False,
    ) -> None:
        check_feed_request(request)
        self.revision = max(0, request.begin - 1)
        self.address = ""
        self.is_partial = False
        self.on_partial: Callable[[], object] = lambda: None
        self._replicas = replicas
        self._request = request
        self._patience_s = patience_s
        self._register = register
        self._is_where_it_stands = is_where_it_stands
        self._begin = request.begin
        self._given = self._run()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> SqlChange:
        """Wait for the next change.

        Raises:
            MissingLogError: The log does not hold the next revision any more, or nobody knows what the tables were: its
                `last_revision` + 1 is the first from which a feed can begin.
            NoLeaderError: No replica has said anything for `patience_s`.
            AccessDeniedError: Replicas refuse this caller, for some seconds: it has no right to the log, or to a table
                that it names.
            InvalidCommandError: The replica does not know such a request.
            ConsumerError: The consumer cannot be registered.

        """
        return await anext(self._given)

    async def aclose(self) -> None:
        """End the feed."""
        await self._given.aclose()

    async def _run(self) -> AsyncGenerator[SqlChange, None]:
        is_registered = await self._registered_before()
        attempts = ToldAttempts(self._replicas, self._request.log, self._patience_s)
        while True:
            address = await attempts.pick()
            if address is not None:
                try:
                    async for told in self._told(address, await self._replicas.find_framed(address)):
                        attempts.heard()
                        if told.is_partial and not self.is_partial:
                            self.is_partial = True
                            self.on_partial()
                        if not is_registered and self._register is not None:
                            first = min((change.revision - 1 for change in told.changes), default=told.up_to)
                            await self._register(first)
                            is_registered = True
                        for change in told.changes:
                            if change.revision > self.revision:
                                self.revision, self._begin = change.revision, change.revision + 1
                                yield change
                        self.revision = max(self.revision, told.up_to)
                        self._begin = self.revision + 1
                except ConnectionLostError as error:
                    attempts.failed(error)
                finally:
                    self.address = ""
            await attempts.pause()

    async def _registered_before(self) -> bool:
        """Register the consumer where that can be said before a replica is asked; return whether it was."""
        if self._register is None:
            return True
        known = await self._register(None) if self._is_where_it_stands else None
        if known is None and self._begin > 0:
            known = await self._register(self._begin - 1)
        if known is None:
            return False
        self.revision, self._begin = known, known + 1
        return True

    def _told(self, address: str, framed: str) -> AsyncIterator[SqlFeedSlice]:
        self.address = address
        request = msgspec.structs.replace(self._request, begin=self._begin)
        silence_s = max(_SILENCE_S_MIN, _SILENCE_PROGRESSES * request.progress_ms / 1000)
        asked = ToldRequest(FEED_METHOD, encode(request), "feed of changes", request.log, max(1, self._begin))
        return told_by(
            address, asked, decode_feed_slice, self._replicas.security, framed=framed, silence_s_max=silence_s
        )
