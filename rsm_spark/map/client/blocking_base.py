"""The parts of the map's blocking client that are written by hand; `rsm_spark.map.client.blocking` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop
from rsm_spark.core.freshness import Freshness
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.queries import KeyValue


class BlockingMapBase(BlockingClient[MapClient]):
    """Thread, connection and scan of the blocking client."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, MapClient]]) -> None:
        super().__init__(LoopThread("rsm-map-client", new_loop=quickest_loop), make)

    def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        keys_only: bool = False,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> Iterator[KeyValue]:
        """Iterate over rows in order of their keys, all as of one revision; see `MapClient.scan`."""
        # Page by page: a hop to the other thread costs more than a row.
        pages = self.asynchronous.scan_pages(
            prefix=prefix, start=start, end=end, limit=limit, keys_only=keys_only, timeout_s=timeout_s, read=read
        )
        for page in self.thread.iterate(pages):
            yield from page.rows
