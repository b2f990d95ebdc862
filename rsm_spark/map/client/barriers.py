"""Barriers of the map's client: so many parties begin together, and go on together when all are done.

Each party writes a key of its own under the barrier's name, with a lease. Whoever sees enough of them writes the key of
the round, which names its parties, by a transaction that compares all of their keys: so a round begins only if all were
there at one moment. It ends when the keys of all its parties are gone. A party that dies loses its lease: before the
round another one takes its place, afterwards nobody waits for it. Who comes while a round lasts is in the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from rsm_spark.errors import InvalidCommandError, MissingLogError
from rsm_spark.map import messages as m
from rsm_spark.map.client.locks import MapLocks

PARTIES_MAX = m.COMPARES_MAX - 1
_NUMBER_BYTES = 16
_PARTY, _ROUND = b"party/", b"round"


class BarrierRound(NamedTuple):
    """One time that a barrier has let parties through.

    Attributes:
        name: Of the barrier.
        token: Rises from round to round; the same for all parties of one.
        place: Of this party among them, from 0 on: who came first is first.
        lease: Of this party; further keys may be put with it.

    """

    name: bytes
    token: int
    place: int
    lease: int


class _Look(NamedTuple):
    """Keys under a barrier's name, at one revision.

    Attributes:
        revision: Of the map.
        waiting: Keys of parties and the revisions that wrote them.
        token: Of the round that lasts; 0 = there is none.
        members: Its parties' keys, in the order of coming.

    """

    revision: int
    waiting: dict[bytes, int]
    token: int
    members: list[bytes]


class MapBarriers(MapLocks):
    """Calls on barriers; see the module. The keys of a barrier begin with its name and "/"."""

    @contextlib.asynccontextmanager
    async def barrier(self, name: bytes, parties: int, ttl_ms: int) -> AsyncIterator[BarrierRound]:
        """Wait until so many parties are here; run the block; wait until all of them have ended theirs.

            async with client.barrier(b"barriers/load", 3, 10_000) as round:
                await load(part=round.place)

        A block that raises does not wait for the others, and they do not wait for it.

        Args:
            name: Of the barrier; not empty.
            parties: Number that begin together, the same for all; at most 255.
            ttl_ms: A party that was silent for so long is gone.

        Raises:
            LeaseLostError: This party was silent for too long; the task inside is cancelled first.
            InvalidCommandError: Name or number are none.

        """
        prefix = _prefix(name)
        if not 0 < parties <= PARTIES_MAX:
            raise InvalidCommandError(f"a barrier has 1 to {PARTIES_MAX} parties, not {parties}")
        async with self.holding_lease(ttl_ms, by_own_clock=True) as lease:
            own = prefix + _PARTY + b"%0*x" % (_NUMBER_BYTES, lease)
            await self.put(own, b"", lease=lease)
            found = await self._enter(prefix, own, parties)
            yield BarrierRound(name, found.token, found.members.index(own), lease)
        await self._leave(prefix, found.token)

    async def _enter(self, prefix: bytes, own: bytes, parties: int) -> _Look:
        """Wait for a round of which this party is one."""
        while True:
            look = await self._look_at(prefix)
            if own in look.members:
                return look
            if look.token:
                if not await self._end_round(prefix, look):
                    await self._wait_change(prefix, look.revision)
                continue
            first = sorted(look.waiting, key=lambda key: look.waiting[key])[:parties]
            if len(first) < parties or own not in first:
                await self._wait_change(prefix, look.revision)
                continue
            await self.transact(
                [
                    m.Compare(prefix + _ROUND, "revision", "=", 0),
                    *(m.Compare(key, "revision", "=", look.waiting[key]) for key in first),
                ],
                then=[m.Put(prefix + _ROUND, b"".join(key[-_NUMBER_BYTES:] for key in first))],
            )

    async def _leave(self, prefix: bytes, token: int) -> None:
        """Wait until all parties of a round have gone."""
        while True:
            look = await self._look_at(prefix)
            if look.token != token or await self._end_round(prefix, look):
                return
            await self._wait_change(prefix, look.revision)

    async def _end_round(self, prefix: bytes, look: _Look) -> bool:
        """Remove the key of a round whose parties have all gone; return whether they have."""
        if any(key in look.waiting for key in look.members):
            return False
        # A party's key never comes back: its lease has ended, or was revoked.
        await self.transact([m.Compare(prefix + _ROUND, "revision", "=", look.token)], then=[m.Delete(prefix + _ROUND)])
        return True

    async def _look_at(self, prefix: bytes) -> _Look:
        waiting: dict[bytes, int] = {}
        token, revision, members = 0, 0, list[bytes]()
        async for page in self.scan_pages(prefix=prefix):
            revision = page.revision
            for row in page.rows:
                if row.key.startswith(prefix + _PARTY):
                    waiting[row.key] = row.revision
                elif row.key == prefix + _ROUND:
                    token = row.revision
                    places = range(0, len(row.value), _NUMBER_BYTES)
                    members = [prefix + _PARTY + row.value[at : at + _NUMBER_BYTES] for at in places]
        return _Look(revision, waiting, token, members)

    async def _wait_change(self, prefix: bytes, revision: int) -> None:
        with contextlib.suppress(MissingLogError):  # The log was trimmed meanwhile: look again.
            async for _ in self.watch(prefix=prefix, from_revision=revision + 1):
                break


def _prefix(name: bytes) -> bytes:
    longest = m.KEY_BYTES_MAX - 1 - len(_PARTY) - _NUMBER_BYTES
    if not 0 < len(name) <= longest:
        raise InvalidCommandError(f"the name of a barrier has 1 to {longest} bytes")
    return name + b"/"
