"""Callers that wait until a key is gone: each change is looked at once for all of them."""

from __future__ import annotations

import asyncio

from ledger.errors import LedgerError
from rsm_spark.errors import MissingLogError, RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.runtime.change_feed import FeedCursor

_IDLE_S = 10.0


class KeyWaits:
    """See the module.

    Args:
        backend: The map.

    """

    def __init__(self, backend: EtcdBackend) -> None:
        self._backend = backend
        self._waiting: dict[bytes, dict[asyncio.Future[None], None]] = {}
        self._follower: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of callers that wait."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def gone(self, key: bytes, create_revision: int) -> None:
        """Wait until a key that was created at a revision is there no more.

        Raises:
            RsmError, LedgerError: This replica cannot tell; another one may.

        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[waiting] = None
        try:
            self._follow()
            # What was told before is looked up, what comes from here on is told.
            await self._backend.applied(self._backend.feed.revision)
            found = self._backend.view_before(self._backend.revision).get(key)
            if found is not None and found.entry.create_revision == create_revision:
                await waiting
        finally:
            mine = self._waiting[key]
            del mine[waiting]
            if not mine:
                del self._waiting[key]

    def _follow(self) -> None:
        if self._follower is None or self._follower.done():
            feed = self._backend.feed
            self._follower = asyncio.get_running_loop().create_task(self._run(feed.cursor(feed.revision + 1)))

    async def _run(self, cursor: FeedCursor) -> None:
        """Wake those whose keys go, as long as somebody waits."""
        feed, events_of = self._backend.feed, self._backend.events.of
        try:
            while self._waiting:
                for entry in await cursor.read(_IDLE_S):
                    for event in events_of(entry):
                        if event.entry is None:
                            self._wake(event.key)
                if feed.is_closed:
                    raise e.unavailable(e.STOPPED)
        except MissingLogError:
            for key in list(self._waiting):
                self._wake(key)  # They look again.
        except (RsmError, LedgerError) as error:
            for waiting in self._waiting.values():
                for one in waiting:
                    if not one.done():
                        one.set_exception(error)
        finally:
            await cursor.close()

    def _wake(self, key: bytes) -> None:
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(None)

    def close(self) -> None:
        """Follow no more; who waits is told by its own task's end."""
        if self._follower is not None:
            self._follower.cancel()
