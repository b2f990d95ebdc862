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
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.grpc.security import Security
from rsm_spark.store.client import (
    TIMEOUT_S,
    Compare,
    CompareResult,
    IncrementResult,
    LeaseState,
    MapChange,
    MapClient,
    MapPage,
    MapValue,
    RemovedKeys,
    TransactionResult,
)
from rsm_spark.store.client_link import ReadFrom
from rsm_spark.store.core.operation import StreamLimits
from rsm_spark.store.kv.commands import Operation
from rsm_spark.store.kv.limits import SCAN_LIMIT_MAX
from rsm_spark.store.kv.queries import ExpiryShown, KeyValue
from rsm_spark.store.loop_thread import LoopThread

__all__ = ["BlockingMapClient"]


class BlockingMapClient:
    """See the module, and `MapClient` for each call. Made by `connect`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, MapClient]]) -> None:
        self._thread = LoopThread()
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
        read_from: ReadFrom = "leader",
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        limits: StreamLimits | None = None,
        security: Security | None = None,
    ) -> Self:
        """Return a client; see `MapClient.connect`."""
        return cls(
            lambda: MapClient.connect(
                log,
                metadata_uri,
                replica=replica,
                read_from=read_from,
                rsm_root=rsm_root,
                timeout_s=timeout_s,
                limits=limits,
                security=security,
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

    # ---- writes

    def put(self, key: bytes, value: bytes, *, ttl_ms: int = 0, lease: int = 0, timeout_s: float | None = None) -> int:
        """Write a key, for good, for a time or as long as a lease; return the revision that wrote it."""
        return self._thread.run(self._client.put(key, value, ttl_ms=ttl_ms, lease=lease, timeout_s=timeout_s))

    def put_many(self, items: Iterable[tuple[bytes, bytes]], *, timeout_s: float | None = None) -> list[int]:
        """Write keys in this order, pipelined; return the revision of each."""
        return self._thread.run(self._client.put_many(list(items), timeout_s=timeout_s))

    def delete(self, key: bytes, *, timeout_s: float | None = None) -> int | None:
        """Remove a key; return the revision that removed it, or None if there was no such key."""
        return self._thread.run(self._client.delete(key, timeout_s=timeout_s))

    def delete_range(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        timeout_s: float | None = None,
    ) -> RemovedKeys:
        """Remove all keys of a range at once; see `MapClient.delete_range`."""
        return self._thread.run(self._client.delete_range(prefix=prefix, start=start, end=end, timeout_s=timeout_s))

    def compare_and_set(
        self, key: bytes, *, expected: bytes | int | None, value: bytes | None, timeout_s: float | None = None
    ) -> CompareResult:
        """Write a key only if it is as expected: its value, its mod revision, or None for absent."""
        return self._thread.run(self._client.compare_and_set(key, expected=expected, value=value, timeout_s=timeout_s))

    def increment(self, key: bytes, amount: int = 1, *, timeout_s: float | None = None) -> IncrementResult:
        """Add to the integer that a key holds as decimal digits."""
        return self._thread.run(self._client.increment(key, amount, timeout_s=timeout_s))

    def transact(
        self,
        compares: Sequence[Compare] = (),
        then: Sequence[Operation] = (),
        orelse: Sequence[Operation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        """If all comparisons hold, do the operations of `then`, else those of `orelse`: all of them or none."""
        return self._thread.run(self._client.transact(compares, then, orelse, timeout_s=timeout_s))

    # ---- leases

    def grant_lease(self, ttl_ms: int, *, timeout_s: float | None = None) -> int:
        """Begin a lease; return its number."""
        return self._thread.run(self._client.grant_lease(ttl_ms, timeout_s=timeout_s))

    def keep_lease(self, lease: int, *, timeout_s: float | None = None) -> bool:
        """Give a lease its full time again; False if it has ended."""
        return self._thread.run(self._client.keep_lease(lease, timeout_s=timeout_s))

    def revoke_lease(self, lease: int, *, timeout_s: float | None = None) -> int | None:
        """End a lease now; return how many keys went with it, or None if it had ended before."""
        return self._thread.run(self._client.revoke_lease(lease, timeout_s=timeout_s))

    def lease(self, lease: int, *, timeout_s: float | None = None, read: Freshness | None = None) -> LeaseState | None:
        """Return a lease, or None if it has ended."""
        return self._thread.run(self._client.lease(lease, timeout_s=timeout_s, read=read))

    def leases(self, *, timeout_s: float | None = None, read: Freshness | None = None) -> list[LeaseState]:
        """Return all leases, ascending by number."""
        return self._thread.run(self._client.leases(timeout_s=timeout_s, read=read))

    @contextlib.contextmanager
    def holding_lease(self, ttl_ms: int) -> Iterator[int]:
        """Hold a lease for a while: it is kept in the background and revoked at the end.

        That it ended all the same (`LeaseLostError`) is told at the end: nothing can interrupt the thread before.
        """
        ready: asyncio.Future[int]
        done: asyncio.Event
        ready, done, held = self._thread.run(self._hold(ttl_ms))
        try:
            yield self._thread.run(_result(ready, held))
        finally:
            self._thread.loop.call_soon_threadsafe(done.set)
            self._thread.run(_finished(held))

    async def _hold(self, ttl_ms: int) -> tuple[asyncio.Future[int], asyncio.Event, asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[int] = loop.create_future()
        done = asyncio.Event()

        async def _holding() -> None:
            async with self._client.holding_lease(ttl_ms) as lease:
                ready.set_result(lease)
                await done.wait()

        return ready, done, loop.create_task(_holding())

    def expiry(
        self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> ExpiryShown | None:
        """Return how long a key lives (`ttl_ms` 0: until it is deleted), or None if there is no such key."""
        return self._thread.run(self._client.expiry(key, timeout_s=timeout_s, read=read))

    # ---- reads

    def get(self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None) -> MapValue | None:
        """Return a key's value, or None if there is no such key."""
        return self._thread.run(self._client.get(key, timeout_s=timeout_s, read=read))

    def get_many(
        self, keys: Iterable[bytes], *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> list[MapValue | None]:
        """Return the values of many keys, in the order asked."""
        return self._thread.run(self._client.get_many(list(keys), timeout_s=timeout_s, read=read))

    def scan_page(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int = SCAN_LIMIT_MAX,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> MapPage:
        """Return rows with start <= key < end, all as of one revision."""
        return self._thread.run(self._client.scan_page(start, end, limit=limit, timeout_s=timeout_s, read=read))

    def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> Iterator[KeyValue]:
        """Iterate over rows in order of their keys, all as of one revision; see `MapClient.scan`."""
        pages = self._client.scan_pages(
            prefix=prefix, start=start, end=end, limit=limit, timeout_s=timeout_s, read=read
        )
        for page in self._thread.iterate(pages):
            yield from page.rows

    def watch(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        from_revision: int | None = None,
        patience_s: float | None = None,
    ) -> Iterator[MapChange]:
        """Iterate over the changes of a range of keys, for ever; see `MapClient.watch`."""
        watch = self._client.watch(
            prefix=prefix, start=start, end=end, from_revision=from_revision, patience_s=patience_s
        )
        return self._thread.iterate(watch)


async def _result(ready: asyncio.Future[int], held: asyncio.Task[None]) -> int:
    """Return what was made ready, or raise why it was not."""
    either: list[asyncio.Future[Any]] = [ready, held]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        held.result()
    return ready.result()


async def _finished(held: asyncio.Task[None]) -> None:
    await asyncio.wait([held])
    held.result()
