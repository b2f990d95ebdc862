"""Leases of the map's client: keys that go when their owner does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rsm_spark.core.freshness import Freshness
from rsm_spark.errors import RsmError
from rsm_spark.map import messages as m
from rsm_spark.map.client.calls import MapCalls, checked_key
from rsm_spark.map.client.results import LeaseLostError, LeaseState

_KEEPS_PER_TTL = 3


class MapLeases(MapCalls):
    """Calls on leases, and on how long keys live."""

    async def grant_lease(self, ttl_ms: int, *, timeout_s: float | None = None) -> int:
        """Begin a lease; return its number, for `put(..., lease=...)`.

        Args:
            ttl_ms: It ends, and its keys go, when nobody has kept it for so long.
            timeout_s: Time limit.

        """
        reply, _ = await self._command(m.GrantLease(ttl_ms), timeout_s)
        assert isinstance(reply, m.Granted)
        return reply.lease

    async def keep_lease(self, lease: int, *, timeout_s: float | None = None) -> bool:
        """Give a lease its full time again; False if it has ended."""
        reply, _ = await self._command(m.KeepLease(lease), timeout_s)
        return isinstance(reply, m.Kept)

    async def revoke_lease(self, lease: int, *, timeout_s: float | None = None) -> int | None:
        """End a lease now; return how many keys went with it, or None if it had ended before.

        Of more than 5,000 keys some go right behind the others.
        """
        reply, _ = await self._command(m.RevokeLease(lease), timeout_s)
        return reply.count if isinstance(reply, m.Removed) else None

    async def lease(
        self, lease: int, *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> LeaseState | None:
        """Return a lease, or None if it has ended."""
        result, _ = await self._query(m.ShowLease(lease), timeout_s, read)
        return _state(result) if isinstance(result, m.LeaseShown) else None

    async def leases(self, *, timeout_s: float | None = None, read: Freshness | None = None) -> list[LeaseState]:
        """Return all leases, ascending by number."""
        page_size = 1_000
        found: list[LeaseState] = []
        while True:
            after = found[-1].lease if found else 0
            result, _ = await self._query(m.ListLeases(after, page_size), timeout_s, read)
            assert isinstance(result, m.Leases)
            found += map(_state, result.leases)
            if len(result.leases) < page_size:
                return found

    async def expiry(
        self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> m.ExpiryShown | None:
        """Return how long a key lives (`ttl_ms` 0: until it is deleted), or None if there is no such key."""
        result, _ = await self._query(m.ShowExpiry(checked_key(key)), timeout_s, read)
        return result if isinstance(result, m.ExpiryShown) else None

    @contextlib.asynccontextmanager
    async def holding_lease(self, ttl_ms: int, *, by_own_clock: bool = False) -> AsyncIterator[int]:
        """Hold a lease for a while: it is kept in the background and revoked at the end.

            async with client.holding_lease(10_000) as lease:
                await client.put(b"workers/7", b"10.0.0.7", lease=lease)
                await work()

        Args:
            ttl_ms: Its full time.
            by_own_clock: Take it for lost too when no keep-alive was answered for its time: others may see it ended,
                and nobody can say. Otherwise it is held on while there is no leader, since a new one gives it its full
                time again.

        Raises:
            LeaseLostError: It ended although it was held: this process was cut off, or paused, for longer than
                its time. The task inside is cancelled first.

        """
        loop = asyncio.get_running_loop()
        alive_until_s = loop.time() + ttl_ms / 1000
        lease = await self.grant_lease(ttl_ms)
        owner = asyncio.current_task()
        lost = False

        async def _keep() -> None:
            nonlocal lost, alive_until_s
            while True:
                pause_s = ttl_ms / 1000 / _KEEPS_PER_TTL
                if by_own_clock:
                    pause_s = min(pause_s, max(0.0, alive_until_s - loop.time()))
                await asyncio.sleep(pause_s)
                sent_s = loop.time()
                left_s = max(0.0, alive_until_s - sent_s) if by_own_clock else ttl_ms / 1000
                try:
                    kept = bool(left_s) and await self.keep_lease(lease, timeout_s=left_s)
                except RsmError:
                    continue  # No leader, for now: a new one gives the full time again.
                if kept:
                    alive_until_s = sent_s + ttl_ms / 1000
                else:
                    lost = True
                    if owner is not None:
                        owner.cancel()
                    return

        keeper = loop.create_task(_keep())
        try:
            yield lease
        except asyncio.CancelledError:
            if lost and owner is not None and owner.uncancel() == 0:
                raise self._lost(lease, ttl_ms) from None
            raise
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
            revoked: int | None = 0
            if not lost:
                with contextlib.suppress(RsmError):
                    revoked = await self.revoke_lease(lease, timeout_s=ttl_ms / 1000)
        if lost or revoked is None:
            raise self._lost(lease, ttl_ms)

    def _lost(self, lease: int, ttl_ms: int) -> LeaseLostError:
        return LeaseLostError(
            f"log {self._log}: lease {lease} has ended although it was held: no keep-alive was answered for {ttl_ms} "
            "ms. Its keys are gone, or will be; begin anew, with a longer time if this process pauses"
        )


def _state(shown: m.LeaseShown) -> LeaseState:
    return LeaseState(shown.lease, shown.ttl_ms, shown.since_ms, shown.key_count)
