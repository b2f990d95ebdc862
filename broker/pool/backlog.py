"""Backlog of a pool at the broker: read again when the broker says that something has changed, not by the clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec

from broker.client.client import AsyncBrokerClient
from broker.client.errors import BrokerClientError, NotAllowedError
from broker.client.shapes import Overview
from rsm_spark.errors import RsmError

_LOGGER = logging.getLogger(__name__)
_PACE_S = 0.5
"""Between two looks, however much happens."""
_SILENCE_S = 15.0
"""A look now and then though nothing is said: a stream may have broken unnoticed."""
_RETRY_S = 1.0


class PoolBacklog(msgspec.Struct, frozen=True):
    """Tasks by type and status at one moment.

    Attributes:
        by_type: Status -> tasks, by type.
        revision: Of the state that it was read from.

    """

    by_type: dict[str, dict[str, int]] = {}
    revision: int = 0

    @classmethod
    def of(cls, overview: Overview) -> PoolBacklog:
        """Return what an overview says of tasks."""
        return cls({one.type: one.by_status for one in overview.types}, overview.revision)

    def count(self, status: str, types: Collection[str] | None, *, without: Collection[str] = ()) -> int:
        """Return how many tasks are in a status.

        Args:
            status: Such as "waiting".
            types: Of these types; None = of any.
            without: Of none of these.

        """
        return sum(
            by_status.get(status, 0)
            for name, by_status in self.by_type.items()
            if (types is None or name in types) and name not in without
        )


class BacklogWatch:
    """Looks on; every method is for one loop.

    Args:
        client: Of the broker; whose tasks its token may see are those that count.
        on_look: Called with what there is, after every change, at most twice a second.

    """

    def __init__(self, client: AsyncBrokerClient, on_look: Callable[[PoolBacklog], None]) -> None:
        self._client = client
        self._on_look = on_look
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Look on, for ever.

        Raises:
            NotAllowedError: The token is not entitled to this.

        """
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                # Whatever happens during the look makes another one.
                self._changed.clear()
                if not await self._look():
                    await asyncio.sleep(_RETRY_S)
                    continue
                await asyncio.sleep(_PACE_S)
                if listening.done():
                    listening.result()
                try:
                    async with asyncio.timeout(_SILENCE_S):
                        await self._changed.wait()
                except TimeoutError:
                    pass
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _look(self) -> bool:
        try:
            overview = await self._client.overview()
        except NotAllowedError:
            raise
        except (BrokerClientError, RsmError, OSError) as error:
            _LOGGER.warning("the broker does not say what waits: %s", error)
            return False
        self._on_look(PoolBacklog.of(overview))
        return True

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.event_stream(summary=True) as events:
                    self._changed.set()
                    async for _ in events:
                        self._changed.set()
            except NotAllowedError:
                raise
            except (BrokerClientError, RsmError, OSError, EOFError) as error:
                _LOGGER.info("the stream of events begins anew: %s", error)
            await asyncio.sleep(_RETRY_S)
