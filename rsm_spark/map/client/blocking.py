"""The map's client for programs without an event loop.

    from rsm_spark.map.client.blocking import BlockingMapClient

    with BlockingMapClient.connect(log="orders") as orders:
        orders.put(b"order/1", b"new")
        print(orders.get(b"order/1"))
        for row in orders.scan(prefix=b"order/"):
            print(row.key, row.value)

Same calls, same errors as `rsm_spark.map.client.client.MapClient`; any number of threads may use one client at once,
and calls that wait together travel together.

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self

from rsm_spark.client.replica_connection import ReadFrom
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import Freshness
from rsm_spark.core.operation import StreamLimits
from rsm_spark.map import messages as m
from rsm_spark.map.client.barriers import BarrierRound
from rsm_spark.map.client.blocking_base import BlockingMapBase
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.locks import HeldLock, LockHolder
from rsm_spark.map.client.results import (
    CompareResult,
    IncrementResult,
    LeaseState,
    MapPage,
    MapValue,
    RemovedKeys,
    TransactionResult,
)
from rsm_spark.map.client.watch import PROGRESS_MS, ChangeKind, MapChange
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport

__all__ = ["BlockingMapClient"]


class BlockingMapClient(BlockingMapBase):
    """`MapClient` for code that blocks."""

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
        codec: PayloadCodec | None = None,
        transport: Transport | None = None,
    ) -> Self:
        """Return a client of the map that lives in the log of this name. See `MapClient.connect`."""
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
                codec=codec,
                transport=transport,
            )
        )

    @property
    def address(self) -> str:
        """Address of the replica in use; "" while not connected."""
        return self.asynchronous.address

    def put(self, key: bytes, value: bytes, *, ttl_ms: int = 0, lease: int = 0, timeout_s: float | None = None) -> int:
        """Write a key; return the revision that wrote it. See `MapClient.put`."""
        return self.thread.run(self.asynchronous.put(key, value, ttl_ms=ttl_ms, lease=lease, timeout_s=timeout_s))

    def put_many(self, items: Iterable[tuple[bytes, bytes]], *, timeout_s: float | None = None) -> list[int]:
        """Write keys in this order, pipelined; return the revision of each. Each is a command of its own.

        See `MapClient.put_many`.
        """
        return self.thread.run(self.asynchronous.put_many(list(items), timeout_s=timeout_s))

    def delete(self, key: bytes, *, timeout_s: float | None = None) -> int | None:
        """Remove a key; return the revision that removed it, or None if there was no such key."""
        return self.thread.run(self.asynchronous.delete(key, timeout_s=timeout_s))

    def delete_range(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        timeout_s: float | None = None,
    ) -> RemovedKeys:
        """Remove all keys of a range at once. See `MapClient.delete_range`."""
        return self.thread.run(self.asynchronous.delete_range(prefix=prefix, start=start, end=end, timeout_s=timeout_s))

    def compare_and_set(
        self, key: bytes, *, expected: bytes | int | None, value: bytes | None, timeout_s: float | None = None
    ) -> CompareResult:
        """Write a key only if it is as expected. See `MapClient.compare_and_set`."""
        return self.thread.run(
            self.asynchronous.compare_and_set(key, expected=expected, value=value, timeout_s=timeout_s)
        )

    def increment(self, key: bytes, amount: int = 1, *, timeout_s: float | None = None) -> IncrementResult:
        """Add to the integer that a key holds as decimal digits; a key that does not exist counts as 0.

        See `MapClient.increment`.
        """
        return self.thread.run(self.asynchronous.increment(key, amount, timeout_s=timeout_s))

    def transact(
        self,
        compares: Sequence[m.Compare] = (),
        then: Sequence[m.Operation] = (),
        orelse: Sequence[m.Operation] = (),
        *,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        """If all comparisons hold, do the operations of `then`, else those of `orelse`: all of them or none.

        See `MapClient.transact`.
        """
        return self.thread.run(self.asynchronous.transact(compares, then, orelse, timeout_s=timeout_s))

    def grant_lease(self, ttl_ms: int, *, timeout_s: float | None = None) -> int:
        """Begin a lease; return its number, for `put(..., lease=...)`. See `MapClient.grant_lease`."""
        return self.thread.run(self.asynchronous.grant_lease(ttl_ms, timeout_s=timeout_s))

    def keep_lease(self, lease: int, *, timeout_s: float | None = None) -> bool:
        """Give a lease its full time again; False if it has ended."""
        return self.thread.run(self.asynchronous.keep_lease(lease, timeout_s=timeout_s))

    def revoke_lease(self, lease: int, *, timeout_s: float | None = None) -> int | None:
        """End a lease now; return how many keys went with it, or None if it had ended before.

        See `MapClient.revoke_lease`.
        """
        return self.thread.run(self.asynchronous.revoke_lease(lease, timeout_s=timeout_s))

    def lease(self, lease: int, *, timeout_s: float | None = None, read: Freshness | None = None) -> LeaseState | None:
        """Return a lease, or None if it has ended."""
        return self.thread.run(self.asynchronous.lease(lease, timeout_s=timeout_s, read=read))

    def leases(self, *, timeout_s: float | None = None, read: Freshness | None = None) -> list[LeaseState]:
        """Return all leases, ascending by number."""
        return self.thread.run(self.asynchronous.leases(timeout_s=timeout_s, read=read))

    def expiry(
        self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> m.ExpiryShown | None:
        """Return how long a key lives (`ttl_ms` 0: until it is deleted), or None if there is no such key."""
        return self.thread.run(self.asynchronous.expiry(key, timeout_s=timeout_s, read=read))

    @contextlib.contextmanager
    def holding_lease(self, ttl_ms: int, *, by_own_clock: bool = False) -> Iterator[int]:
        """Hold a lease for a while: it is kept in the background and revoked at the end.

        See `MapClient.holding_lease`. What it raises while the block runs is told at the end of the block.
        """
        with self.thread.enter(self.asynchronous.holding_lease(ttl_ms, by_own_clock=by_own_clock)) as entered:
            yield entered

    @contextlib.contextmanager
    def holding_lock(self, name: bytes, ttl_ms: int, *, value: bytes = b"") -> Iterator[HeldLock]:
        """Wait for a lock, and hold it while the block runs. Who came first has it first.

        See `MapClient.holding_lock`. What it raises while the block runs is told at the end of the block.
        """
        with self.thread.enter(self.asynchronous.holding_lock(name, ttl_ms, value=value)) as entered:
            yield entered

    def lock_holder(self, name: bytes) -> LockHolder | None:
        """Return who holds a lock now; None = nobody."""
        return self.thread.run(self.asynchronous.lock_holder(name))

    def watch_lock_holder(self, name: bytes) -> Iterator[LockHolder | None]:
        """Iterate over the holders of a lock: who it is now, then each other one as it comes; None = nobody.

        See `MapClient.watch_lock_holder`.
        """
        return self.thread.iterate(self.asynchronous.watch_lock_holder(name))

    @contextlib.contextmanager
    def barrier(self, name: bytes, parties: int, ttl_ms: int) -> Iterator[BarrierRound]:
        """Wait until so many parties are here; run the block; wait until all of them have ended theirs.

        See `MapClient.barrier`. What it raises while the block runs is told at the end of the block.
        """
        with self.thread.enter(self.asynchronous.barrier(name, parties, ttl_ms)) as entered:
            yield entered

    def get(self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None) -> MapValue | None:
        """Return a key's value, or None if there is no such key."""
        return self.thread.run(self.asynchronous.get(key, timeout_s=timeout_s, read=read))

    def get_many(
        self, keys: Iterable[bytes], *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> list[MapValue | None]:
        """Return the values of many keys, in the order asked; each is read on its own, other writes may come between.

        See `MapClient.get_many`.
        """
        return self.thread.run(self.asynchronous.get_many(list(keys), timeout_s=timeout_s, read=read))

    def scan_page(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int = m.SCAN_LIMIT_MAX,
        keys_only: bool = False,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> MapPage:
        """Return rows with start <= key < end, all as of one revision: as many as fit a page, at most `limit`.

        See `MapClient.scan_page`.
        """
        return self.thread.run(
            self.asynchronous.scan_page(start, end, limit=limit, keys_only=keys_only, timeout_s=timeout_s, read=read)
        )

    def count(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> int:
        """Return how many keys a range has; it is counted where the keys are. See `MapClient.count`."""
        return self.thread.run(
            self.asynchronous.count(prefix=prefix, start=start, end=end, timeout_s=timeout_s, read=read)
        )

    def processed(self, consumer: str, revision: int) -> None:
        """Let go of what a consumer has processed: changes up to a revision, which may be trimmed then.

        See `MapClient.processed`.
        """
        self.thread.run(self.asynchronous.processed(consumer, revision))

    def watch(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        kinds: Collection[ChangeKind] = (),
        old_values: bool = False,
        from_revision: int | None = None,
        progress_ms: int = PROGRESS_MS,
        patience_s: float | None = None,
        consumer: str = "",
    ) -> Iterator[MapChange]:
        """Return the changes of a range of keys, for ever. See `MapClient.watch`."""
        return self.thread.iterate(
            self.asynchronous.watch(
                prefix=prefix,
                start=start,
                end=end,
                kinds=kinds,
                old_values=old_values,
                from_revision=from_revision,
                progress_ms=progress_ms,
                patience_s=patience_s,
                consumer=consumer,
            )
        )
