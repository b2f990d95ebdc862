"""A replica that does not lead passes a client's stream on to the leader, for a client that cannot reach it.

1. A relay has two halves, the client's stream and one to the leader, and both end when one of them does. So what the
   client may conclude from its stream's end is the same as without a relay: what has no answer may have been executed,
   and is sent again under the same number of the same session.
2. Messages pass as they are, in their order, each once. Nothing is executed, answered or sent again here.
3. The leader half goes to who led, as far as known, when the relay began, and never elsewhere. At its end a replica
   executes or says that it does not lead: it passes nothing on. So no message goes in a circle.
4. A relay holds a message each way at most: who takes none gets none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from rsm_spark.errors import ConnectionLostError, OverloadedError

RELAYS_MAX: Final = 256
"""Streams that one replica passes on at once, or takes from others as the leader; one owner has half at most."""
RELAYED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of messages that a replica holds for its relays at once; one owner has half at most."""


class LeaderPlace(NamedTuple):
    """Addresses of another replica, which leads as far as known.

    Attributes:
        address: "host:port".
        framed: The same of its framed port; "" = none.

    """

    address: str
    framed: str


class RelayEnd(Protocol):
    """One half of a relay."""

    async def read(self) -> bytes | None:
        """Return the next message; None = none follows, and the end is a good one.

        Raises:
            ConnectionLostError: It has ended otherwise.

        """
        ...

    async def write(self, text: bytes) -> None:
        """Pass a message on; waits while the other end takes none.

        Raises:
            ConnectionLostError: The half has ended.

        """
        ...

    async def end(self) -> None:
        """Say that nothing follows."""
        ...

    def cut(self) -> None:
        """Break the half off."""
        ...


class RelayRoom:
    """Room for the relays of one replica, and whose they are.

    Args:
        relays_max: At once.
        bytes_max: Held for them.

    Attributes:
        open_count: Relays at present.
        relay_count: Relays since the process began.

    """

    def __init__(self, relays_max: int = RELAYS_MAX, bytes_max: int = RELAYED_BYTES_MAX) -> None:
        self.open_count = self.relay_count = 0
        self._relays_max = relays_max
        self._bytes_max = bytes_max
        self._held_bytes = 0
        self._count_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    @contextmanager
    def relay_of(self, owner: str) -> Iterator[None]:
        """Have a place for a relay of this owner.

        Raises:
            OverloadedError: There is none.

        """
        if self.open_count >= self._relays_max or 2 * self._count_of[owner] >= self._relays_max:
            raise OverloadedError(
                f"{self.open_count} streams are passed on here already, {self._count_of[owner]} of them for this "
                f"caller: {self._relays_max} are allowed, half of them for one caller"
            )
        self.open_count += 1
        self.relay_count += 1
        self._count_of[owner] += 1
        try:
            yield
        finally:
            self.open_count -= 1
            _take(self._count_of, owner, 1)

    @contextmanager
    def bytes_of(self, owner: str, size: int) -> Iterator[None]:
        """Hold a message for this owner.

        Raises:
            OverloadedError: Too much is held already.

        """
        own = self._bytes_of[owner]
        if self._held_bytes + size > self._bytes_max or (own and 2 * (own + size) > self._bytes_max):
            raise OverloadedError(
                f"{self._held_bytes:,} bytes are being passed on here already, {own:,} of them for this caller: "
                f"{self._bytes_max:,} are allowed, half of them for one caller"
            )
        self._held_bytes += size
        self._bytes_of[owner] += size
        try:
            yield
        finally:
            self._held_bytes -= size
            _take(self._bytes_of, owner, size)


def _take(counts: Counter[str], owner: str, amount: int) -> None:
    counts[owner] -= amount
    if not counts[owner]:
        del counts[owner]


class Relay:
    """One client's stream to the leader, by way of this replica.

    Args:
        client: Its half.
        leader: The other one.
        room: For what is held.
        owner: Whose it is.

    """

    def __init__(self, client: RelayEnd, leader: RelayEnd, room: RelayRoom, owner: str) -> None:
        self._client = client
        self._leader = leader
        self._room = room
        self._owner = owner
        self._fault: Exception | None = None
        self._sending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Pass messages on until one half ends.

        Raises:
            ConnectionLostError: A half has ended otherwise than it should.
            OverloadedError: Too much is held for relays.

        """
        sending = self._sending = asyncio.get_running_loop().create_task(self._send(), name="rsm-relay")
        try:
            while (text := await self._leader.read()) is not None:
                with self._room.bytes_of(self._owner, len(text)):
                    await self._client.write(text)
        except ConnectionLostError as error:
            raise self._fault or error from error
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            self._leader.cut()

    def drain(self) -> None:
        """Take nothing more from the client; the relay ends when all that was taken is answered."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        try:
            while (text := await self._client.read()) is not None:
                with self._room.bytes_of(self._owner, len(text)):
                    await self._leader.write(text)
        except (ConnectionLostError, OverloadedError) as error:
            self._fault = error
            self._leader.cut()
            return
        except asyncio.CancelledError:
            await self._leader.end()
            raise
        await self._leader.end()
