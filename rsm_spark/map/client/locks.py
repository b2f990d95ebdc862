"""Locks and elections of the map's client, made of leases, revisions and watches.

Everybody who wants a lock writes a key of its own under the lock's name, with a lease. Whose key is the oldest holds
the lock. Each other one waits for the key right before its own to go, so one waiter wakes up when a holder leaves. A
holder that dies or is cut off loses its lease, and its key with it.

A holder that is cut off stops by its own clock, before its lease can have ended. But no lock of this kind keeps a
holder that was paused from going on for a moment after somebody else has the lock. So each holder has a `token`, which
is higher than those of all holders before. Hand it to whatever the lock protects, and have that refuse lower ones.

An election is the same: the holder leads, and its `value` says where it is. `lock_holder` and `watch_lock_holder` tell
others.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from rsm_spark.errors import InvalidCommandError, MissingLogError
from rsm_spark.map.client.leases import MapLeases
from rsm_spark.map.client.reads import MapReads
from rsm_spark.map.client.watch import MapWatches
from rsm_spark.map.client.writes import MapWrites
from rsm_spark.map.limits import KEY_BYTES_MAX

_NUMBER_BYTES = 16


class HeldLock(NamedTuple):
    """A lock that this client holds.

    Attributes:
        name: Of the lock.
        token: Rises from holder to holder: a fencing token.
        lease: With which the lock goes; further keys may be put with it.

    """

    name: bytes
    token: int
    lease: int


class LockHolder(NamedTuple):
    """Holder of a lock.

    Attributes:
        value: What it says of itself.
        token: See `HeldLock`.

    """

    value: bytes
    token: int


class MapLocks(MapReads, MapWrites, MapLeases, MapWatches):
    """Calls on locks; see the module. The keys of a lock begin with its name and "/"."""

    @contextlib.asynccontextmanager
    async def holding_lock(self, name: bytes, ttl_ms: int, *, value: bytes = b"") -> AsyncIterator[HeldLock]:
        """Wait for a lock, and hold it while the block runs. Who came first has it first.

            async with client.holding_lock(b"locks/nightly", 10_000) as lock:
                await work(fence=lock.token)

        Args:
            name: Of the lock; not empty.
            ttl_ms: The lock goes to the next one when this client was silent for so long.
            value: Told to others by `lock_holder`.

        Raises:
            LeaseLostError: The lock was lost while it was waited for or held; the task inside is cancelled first.
            InvalidCommandError: The name is none.

        """
        prefix = _prefix(name)
        async with self.holding_lease(ttl_ms, by_own_clock=True) as lease:
            own = prefix + b"%0*x" % (_NUMBER_BYTES, lease)
            token = await self.put(own, value, lease=lease)
            await self._wait_turn(prefix, token)
            yield HeldLock(name, token, lease)

    async def lock_holder(self, name: bytes) -> LockHolder | None:
        """Return who holds a lock now; None = nobody."""
        holder, _ = await self._first_of(_prefix(name))
        return holder

    async def watch_lock_holder(self, name: bytes) -> AsyncIterator[LockHolder | None]:
        """Iterate over the holders of a lock: who it is now, then each other one as it comes; None = nobody.

        Holders who follow each other quickly may be passed over, but never the last one.
        """
        prefix = _prefix(name)
        known: LockHolder | None = None
        is_first = True
        while True:
            holder, revision = await self._first_of(prefix)
            if is_first or holder != known:
                is_first, known = False, holder
                yield holder
            with contextlib.suppress(MissingLogError):  # The log was trimmed meanwhile: look again.
                async for _ in self.watch(prefix=prefix, from_revision=revision + 1):
                    break

    async def _first_of(self, prefix: bytes) -> tuple[LockHolder | None, int]:
        """Return the oldest key of a lock, and the revision of the map that shows it."""
        holder: LockHolder | None = None
        revision = 0
        async for page in self.scan_pages(prefix=prefix):
            revision = page.revision
            for row in page.rows:
                if holder is None or row.revision < holder.token:
                    holder = LockHolder(row.value, row.revision)
        return holder, revision

    async def _wait_turn(self, prefix: bytes, token: int) -> None:
        """Wait until no key of the lock is older than this revision."""
        while True:
            before: tuple[int, bytes] | None = None
            revision = 0
            async for page in self.scan_pages(prefix=prefix, keys_only=True):
                revision = page.revision
                older = [(row.revision, row.key) for row in page.rows if row.revision < token]
                before = max([*older, *([before] if before else [])], default=None)
            if before is None:
                return
            key = before[1]
            with contextlib.suppress(MissingLogError):
                async for change in self.watch(start=key, end=key + b"\0", from_revision=revision + 1):
                    if change.value is None:
                        break


def _prefix(name: bytes) -> bytes:
    if not name or len(name) + 1 + _NUMBER_BYTES > KEY_BYTES_MAX:
        raise InvalidCommandError(f"the name of a lock has 1 to {KEY_BYTES_MAX - 1 - _NUMBER_BYTES} bytes")
    return name + b"/"
