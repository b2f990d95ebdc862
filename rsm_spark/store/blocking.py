"""The map's client for programs without an event loop.

    from rsm_spark.store.blocking import BlockingMapClient

    with BlockingMapClient.connect(log="orders") as orders:
        orders.put(b"order/1", b"new")
        print(orders.get(b"order/1"))
        for row in orders.scan(prefix=b"order/"):
            print(row.key, row.value)

Same calls, same errors as `rsm_spark.store.client.MapClient`; any number of threads may use one client at once, and
calls that wait together travel together.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.store.client import TIMEOUT_S, CompareResult, MapClient, MapPage, MapValue, scan_range
from rsm_spark.store.core.operation import StreamLimits
from rsm_spark.store.kv.messages import SCAN_LIMIT_MAX, KeyValue

__all__ = ["BlockingMapClient"]

Result = TypeVar("Result")


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rsm-map-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class BlockingMapClient:
    """See the module, and `MapClient` for each call. Made by `connect`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, MapClient]]) -> None:
        self._thread = _LoopThread()
        try:
            self._client = self._thread.run(make())
        except BaseException:
            self._thread.close()
            raise
        self._is_closed = False

    @classmethod
    def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        replica: str | None = None,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        limits: StreamLimits | None = None,
    ) -> Self:
        """Return a client; see `MapClient.connect`."""
        return cls(
            lambda: MapClient.connect(
                log, metadata_uri, replica=replica, rsm_root=rsm_root, timeout_s=timeout_s, limits=limits
            )
        )

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Give up what is still waiting, and disconnect."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.run(self._client.close())
            self._thread.close()

    @property
    def address(self) -> str:
        """Address of the replica in use; "" while not connected."""
        return self._client.address

    def put(self, key: bytes, value: bytes, *, timeout_s: float | None = None) -> int:
        """Write a key; return the revision that wrote it."""
        return self._thread.run(self._client.put(key, value, timeout_s=timeout_s))

    def put_many(self, items: Iterable[tuple[bytes, bytes]], *, timeout_s: float | None = None) -> list[int]:
        """Write keys in this order, pipelined; return the revision of each."""
        return self._thread.run(self._client.put_many(list(items), timeout_s=timeout_s))

    def delete(self, key: bytes, *, timeout_s: float | None = None) -> int | None:
        """Remove a key; return the revision that removed it, or None if there was no such key."""
        return self._thread.run(self._client.delete(key, timeout_s=timeout_s))

    def compare_and_set(
        self, key: bytes, *, expected: bytes | int | None, value: bytes | None, timeout_s: float | None = None
    ) -> CompareResult:
        """Write a key only if it is as expected: its value, its mod revision, or None for absent."""
        return self._thread.run(self._client.compare_and_set(key, expected=expected, value=value, timeout_s=timeout_s))

    def get(self, key: bytes, *, timeout_s: float | None = None) -> MapValue | None:
        """Return a key's value, or None if there is no such key."""
        return self._thread.run(self._client.get(key, timeout_s=timeout_s))

    def get_many(self, keys: Iterable[bytes], *, timeout_s: float | None = None) -> list[MapValue | None]:
        """Return the values of many keys, in the order asked."""
        return self._thread.run(self._client.get_many(list(keys), timeout_s=timeout_s))

    def scan_page(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int = SCAN_LIMIT_MAX,
        timeout_s: float | None = None,
    ) -> MapPage:
        """Return rows with start <= key < end, all as of one revision."""
        return self._thread.run(self._client.scan_page(start, end, limit=limit, timeout_s=timeout_s))

    def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[KeyValue]:
        """Iterate over rows in order of their keys; see `MapClient.scan`."""
        at, behind = scan_range(prefix, start, end)
        left = limit
        while at is not None and left != 0:
            page = self.scan_page(at, behind, limit=SCAN_LIMIT_MAX if left is None else left, timeout_s=timeout_s)
            yield from page.rows
            at = page.next_start
            left = None if left is None else left - len(page.rows)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
