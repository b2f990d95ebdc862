"""The two clients, ours and Apache BookKeeper's, with the same verbs; every entry N holds `payload_of(N)`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, Protocol

from ledger import DigestType, LedgerClient
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError
from tests.compat.java_client import JavaClient, payload_of

__all__ = [
    "PASSWORD",
    "SIDES",
    "Fate",
    "JavaSide",
    "OurSide",
    "Quorum",
    "Seen",
    "Side",
    "SideName",
    "WireProtocol",
    "Writing",
    "open_side",
]

SideName = Literal["ours", "java"]
WireProtocol = Literal["v2", "v3"]
SIDES: tuple[SideName, ...] = ("ours", "java")
Quorum = tuple[int, int, int]
"""(ensemble, write quorum, ack quorum)."""

PASSWORD = "pw"
_STOP_S_MAX = 60
_JAVA_DIGESTS = {"HMAC": "MAC"}


class Seen(NamedTuple):
    """What a reader found: how many entries, how many of them wrong, and what it believes of the ledger."""

    count: int  # type: ignore[assignment]  # A tuple counts too.
    bad: int
    last: int
    is_closed: bool
    length: int


class Fate(NamedTuple):
    """What became of a writer: its highest acknowledged entry, and the class of error that stopped it, if any."""

    acked: int
    failure: str | None


class Writing(Protocol):
    """A ledger being written."""

    ledger_id: int

    async def append(self, count: int, size: int = 100) -> Fate:
        """Append this many entries and wait for the fate of all of them."""
        ...

    async def race(self, *, in_flight: int = 50, size: int = 100) -> None:
        """Begin to append without end."""
        ...

    async def acked(self) -> int:
        """Return the highest entry acknowledged so far."""
        ...

    async def race_end(self, *, stop: bool) -> Fate:
        """Wait until the race has ended by an error, or by our wish."""
        ...

    async def close(self) -> None:
        """Close the ledger."""
        ...


class Side(Protocol):
    """One client of one cluster, speaking one protocol."""

    async def create(self, quorum: Quorum, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD) -> Writing:
        """Create a ledger."""
        ...

    async def read(
        self, ledger_id: int, *, how: str = "plain", recover: bool = False, password: str = PASSWORD, digest: DigestType
    ) -> Seen:
        """Read a ledger up to its LAC."""
        ...

    async def recover(self, ledger_id: int, password: str = PASSWORD) -> Seen:
        """Fence, recover and close a ledger."""
        ...

    async def tail(self, ledger_id: int, count: int, password: str = PASSWORD) -> Seen:
        """Follow a ledger by long polls until this many entries were seen."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger."""
        ...

    async def ledgers(self) -> Sequence[int]:
        """List the ledgers."""
        ...

    async def ensembles(self, ledger_id: int) -> dict[int, list[str]]:
        """Return a ledger's ensembles by their first entry, as the metadata have them."""
        ...


class _OurWriting:
    def __init__(self, handle: WriteHandle) -> None:
        self.handle = handle
        self.ledger_id = handle.ledger_id
        self._racing: asyncio.Task[None] | None = None
        self._stop = False
        self._failure: str | None = None

    async def append(self, count: int, size: int = 100) -> Fate:
        first = self.handle.last_add_pushed + 1
        try:
            await self.handle.append_many([payload_of(first + i, size) for i in range(count)])
        except LedgerError as error:
            self._failure = type(error).__name__
        return Fate(self.handle.last_add_confirmed, self._failure)

    async def race(self, *, in_flight: int = 50, size: int = 100) -> None:
        self._racing = asyncio.create_task(self._race(in_flight, size))

    async def _race(self, in_flight: int, size: int) -> None:
        pending: list[asyncio.Future[int]] = []
        entry = self.handle.last_add_pushed + 1
        count = max(1, in_flight // 2)
        try:
            while not self._stop:
                pending.append(self.handle.append_many([payload_of(entry + i, size) for i in range(count)]))
                entry += count
                if len(pending) == 2:
                    await pending.pop(0)
            await asyncio.gather(*pending)
        except LedgerError as error:
            self._failure = type(error).__name__
            await asyncio.gather(*pending, return_exceptions=True)

    async def acked(self) -> int:
        return self.handle.last_add_confirmed

    async def race_end(self, *, stop: bool) -> Fate:
        assert self._racing is not None
        self._stop = stop
        async with asyncio.timeout(_STOP_S_MAX):
            await self._racing
        return Fate(self.handle.last_add_confirmed, self._failure)

    async def close(self) -> None:
        await self.handle.close()


class OurSide:
    """Our client."""

    def __init__(self, client: LedgerClient) -> None:
        self.client = client

    async def create(self, quorum: Quorum, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD) -> Writing:
        ensemble, write, ack = quorum
        return _OurWriting(
            await self.client.create(
                ensemble_size=ensemble,
                write_quorum=write,
                ack_quorum=ack,
                digest_type=digest,
                password=password.encode(),
            )
        )

    async def read(
        self, ledger_id: int, *, how: str = "plain", recover: bool = False, password: str = PASSWORD, digest: DigestType
    ) -> Seen:
        opener = self.client.open if recover else self.client.open_no_recovery
        reader = await opener(ledger_id, password=password.encode())
        if not reader.is_closed:
            await reader.read_lac()
        last = reader.last_add_confirmed
        entries = await reader.read(0, last) if last >= 0 else []
        bad = sum(
            entry.entry_id != i or bytes(entry.payload) != payload_of(i, len(entry.payload))
            for i, entry in enumerate(entries)
        )
        return Seen(len(entries), bad, last, reader.is_closed, reader.metadata.length)

    async def recover(self, ledger_id: int, password: str = PASSWORD) -> Seen:
        reader = await self.client.open(ledger_id, password=password.encode())
        return Seen(0, 0, reader.metadata.last_entry_id, reader.is_closed, reader.metadata.length)

    async def tail(self, ledger_id: int, count: int, password: str = PASSWORD) -> Seen:
        reader = await self.client.open_no_recovery(ledger_id, password=password.encode())
        seen = bad = 0
        async for entries in reader.tail():
            for entry in entries:
                bad += entry.entry_id != seen or bytes(entry.payload) != payload_of(seen, len(entry.payload))
                seen += 1
            if seen >= count:
                break
        return Seen(seen, bad, reader.last_add_confirmed, reader.is_closed, 0)

    async def delete(self, ledger_id: int) -> None:
        await self.client.delete(ledger_id)

    async def ledgers(self) -> Sequence[int]:
        return await self.client.list()

    async def ensembles(self, ledger_id: int) -> dict[int, list[str]]:
        metadata = await self.client.metadata(ledger_id, sync=True)
        return {segment.first_entry_id: list(segment.bookies) for segment in metadata.segments}


class _JavaWriting:
    def __init__(self, side: JavaSide, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._side = side

    async def append(self, count: int, size: int = 100) -> Fate:
        return _fate(await self._side.ask("append", ledger=self.ledger_id, n=count, size=size))

    async def race(self, *, in_flight: int = 50, size: int = 100) -> None:
        await self._side.ask("race", ledger=self.ledger_id, in_flight=in_flight, size=size)

    async def acked(self) -> int:
        return int((await self._side.ask("race_progress", ledger=self.ledger_id))["acked"])  # type: ignore[call-overload]

    async def race_end(self, *, stop: bool) -> Fate:
        return _fate(await self._side.ask("race_end", ledger=self.ledger_id, stop=stop, timeout_s=_STOP_S_MAX))

    async def close(self) -> None:
        await self._side.ask("close", ledger=self.ledger_id)


class JavaSide:
    """Apache BookKeeper's client."""

    def __init__(self, java: JavaClient, uri: str, protocol: WireProtocol) -> None:
        self._java = java
        self._common = {"uri": uri, "v2": protocol == "v2"}

    async def ask(self, command: str, **options: object) -> dict[str, object]:
        """Run any command of the driver on this side's cluster and protocol."""
        return await self._java.ask(command, **self._common, **options)

    async def create(self, quorum: Quorum, digest: DigestType = DigestType.CRC32C, password: str = PASSWORD) -> Writing:
        ensemble, write, ack = quorum
        name = _JAVA_DIGESTS.get(digest.name, digest.name)
        created = await self.ask(
            "create", ensemble=ensemble, write_quorum=write, ack_quorum=ack, digest=name, password=password
        )
        return _JavaWriting(self, int(str(created["ledger"])))

    async def read(
        self, ledger_id: int, *, how: str = "plain", recover: bool = False, password: str = PASSWORD, digest: DigestType
    ) -> Seen:
        name = _JAVA_DIGESTS.get(digest.name, digest.name)
        return _seen(await self.ask("read", ledger=ledger_id, how=how, recover=recover, password=password, digest=name))

    async def recover(self, ledger_id: int, password: str = PASSWORD) -> Seen:
        return _seen(await self.ask("recover", ledger=ledger_id, password=password))

    async def tail(self, ledger_id: int, count: int, password: str = PASSWORD) -> Seen:
        return _seen(await self.ask("tail", ledger=ledger_id, n=count, password=password))

    async def delete(self, ledger_id: int) -> None:
        await self.ask("delete", ledger=ledger_id)

    async def ledgers(self) -> Sequence[int]:
        return list((await self.ask("list"))["ledgers"])  # type: ignore[call-overload, no-any-return]

    async def ensembles(self, ledger_id: int) -> dict[int, list[str]]:
        found = (await self.ask("metadata", ledger=ledger_id))["ensembles"]
        return {int(first): bookies for first, bookies in found.items()}  # type: ignore[attr-defined]


def _seen(answer: dict[str, object]) -> Seen:
    numbers = [int(str(answer.get(name, 0))) for name in ("count", "bad", "lac", "length")]
    return Seen(numbers[0], numbers[1], numbers[2], bool(answer["closed"]), numbers[3])


def _fate(answer: dict[str, object]) -> Fate:
    failure = answer["failed"]
    return Fate(int(str(answer["acked"])), None if failure is None else str(failure))


@asynccontextmanager
async def open_side(name: SideName, java: JavaClient, uri: str, protocol: WireProtocol) -> AsyncIterator[Side]:
    """Open one of the two clients; ours ends with the block, Java's is kept by its virtual machine."""
    if name == "java":
        yield JavaSide(java, uri, protocol)
        return
    async with await LedgerClient.connect(uri, settings=ClientSettings(protocol=protocol)) as client:
        yield OurSide(client)
