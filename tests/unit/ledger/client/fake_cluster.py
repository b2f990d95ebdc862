"""Bookies that do what a test tells them, registered in a simulated metadata store that loses replies when told to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.quorum import write_set
from ledger.errors import MetadataUnavailableError
from ledger.testing import Simulation
from ledger.wire import paths, v3
from ledger.wire.codes import Status
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import (
    AddRequest,
    AddResponse,
    ForceRequest,
    ForceResponse,
    InfoRequest,
    InfoResponse,
    Request,
    Response,
    WriteLacRequest,
    WriteLacResponse,
)
from ledger.zookeeper.ledgers import LedgerStore
from tests.unit.ledger.entry_header import entry_header

__all__ = ["FakeBookie", "FakeCluster", "LossyStore", "check_copies", "run"]

SEED = 1
SETTINGS = ClientSettings(
    protocol="v3", request_timeout_s=2.0, quorum_timeout_s=8.0, in_flight_bytes_max=1000, ensemble_change_after_s=1.0
)


class LossyStore(LedgerStore):
    """Loses the reply of the next writes: True was applied, False was not.

    `gate`, if set, holds writes back; while it `is_away`, nobody learns who is writable.
    """

    def __init__(self, store: Any) -> None:
        super().__init__(store, "/ledgers")
        self.losses: list[bool] = []
        self.gate: asyncio.Event | None = None
        self.before_write: Callable[[], Awaitable[None]] | None = None
        self.is_away = False
        self.reads_fail = False

    async def read(self, *arguments: Any, **options: Any) -> Any:
        if self.reads_fail:
            raise MetadataUnavailableError("no reply to get")
        return await super().read(*arguments, **options)

    async def writable_bookies(self, **options: Any) -> list[str]:
        if self.is_away:
            raise MetadataUnavailableError("no reply to children")
        return await super().writable_bookies(**options)

    async def write(self, *arguments: Any) -> int:
        if self.before_write is not None:
            before, self.before_write = self.before_write, None
            await before()
        if self.gate is not None:
            await self.gate.wait()
        if not self.losses:
            return await super().write(*arguments)
        if self.losses.pop(0):
            await super().write(*arguments)
        raise MetadataUnavailableError("no reply to write")


class FakeBookie:
    """Stores entries in memory.

    Attributes:
        status: What it answers to adds; None: nothing.
        hold: It keeps answers to adds back until `release`.
        entries: (ledger, entry) -> the sealed body as first received.
        received: (ledger, entry, body) of every add, stored or not, in order.

    """

    def __init__(self, name: str) -> None:
        self.bookie_id = f"{name}:3181"
        self.status: Status | None = Status.EOK
        self.hold = False
        self.free_bytes = 1 << 30
        self.entries: dict[tuple[int, int], bytes] = {}
        self.received: list[tuple[int, int, bytes]] = []
        self.write_flags: list[int] = []
        self.requests: list[Request] = []
        self.held: list[tuple[_Session, bytes]] = []

    def answer(self, request: Request) -> Response | None:
        """Return the answer to one request."""
        self.requests.append(request)
        if isinstance(request, AddRequest):
            body = bytes(request.body)
            header = entry_header(body)
            assert (header.ledger_id, header.entry_id) == (request.ledger_id, request.entry_id)
            self.received.append((request.ledger_id, request.entry_id, body))
            self.write_flags.append(request.write_flags)
            if self.status == Status.EOK:
                kept = self.entries.setdefault((request.ledger_id, request.entry_id), body)
                assert kept == body, "sent again with other bytes"
            if self.status is None:
                return None
            return AddResponse(request.txn_id, self.status, request.ledger_id, request.entry_id)
        if isinstance(request, InfoRequest):
            return InfoResponse(request.txn_id, Status.EOK, 1 << 40, self.free_bytes)
        if isinstance(request, WriteLacRequest):
            return WriteLacResponse(request.txn_id, Status.EOK, request.ledger_id)
        if isinstance(request, ForceRequest):
            return ForceResponse(request.txn_id, self.status, request.ledger_id) if self.status is not None else None
        return None

    def release(self) -> None:
        """Send the answers that were held back."""
        self.hold = False
        for session, data in self.held:
            session.send(data)
        self.held.clear()


class _Session(asyncio.BufferedProtocol):
    def __init__(self, bookie: FakeBookie) -> None:
        self._bookie = bookie
        self._frames = FrameBuffer()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        for request in map(v3.decode_request, self._frames.take(nbytes)):
            response = self._bookie.answer(request)
            if response is None:
                continue
            data = v3.encode_response(response)
            if self._bookie.hold and isinstance(response, AddResponse):
                self._bookie.held.append((self, data))
            else:
                self.send(data)

    def send(self, data: bytes) -> None:
        self._transport.write(data)


class FakeCluster:
    """What a scenario plays with.

    Attributes:
        client: The client under test.
        store: Its metadata.
        other: The same metadata, read by somebody else.

    """

    def __init__(self, simulation: Simulation, names: list[str]) -> None:
        self.simulation = simulation
        self.bookies = {name: FakeBookie(name) for name in names}
        self.client: LedgerClient
        self.store: LossyStore
        self.other: LedgerStore

    def __getitem__(self, bookie_id: str) -> FakeBookie:
        """Return a bookie by its id or name."""
        return self.bookies[bookie_id.partition(":")[0]]

    async def segments(self, ledger_id: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return the ledger's segments as the store holds them."""
        metadata, _ = await self.other.read(ledger_id, sync=True)
        return [(segment.first_entry_id, segment.bookies) for segment in metadata.segments]

    def kill(self, bookie_id: str) -> None:
        """End a bookie's process: connections are refused."""
        self.simulation.host(bookie_id.partition(":")[0]).kill()

    def start(self, bookie_id: str) -> None:
        """Start a bookie's process (again)."""
        bookie = self[bookie_id]
        self.simulation.host(bookie_id.partition(":")[0]).start(lambda _: _serve(bookie))

    async def deregister(self, bookie_id: str) -> None:
        """Take a bookie out of those that are writable."""
        await self.other.store.delete(paths.available_path("/ledgers", bookie_id))
        await asyncio.sleep(1)  # until all metadata servers have heard of it

    async def register(self, bookie_id: str) -> None:
        """Make a bookie writable."""
        await self.other.store.create(paths.available_path("/ledgers", bookie_id))
        await asyncio.sleep(1)


async def check_copies(cluster: FakeCluster, writer: WriteHandle, entry_ids: Sequence[int]) -> None:
    """Check that all replicas that the metadata name for these entries hold them."""
    metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
    await asyncio.sleep(1)
    for entry_id in entry_ids:
        ensemble = metadata.ensemble_at(entry_id)
        for position in write_set(entry_id, metadata.quorum):
            assert (writer.ledger_id, entry_id) in cluster[ensemble[position]].entries, (entry_id, ensemble)


async def _serve(bookie: FakeBookie) -> None:
    await asyncio.get_running_loop().create_server(lambda: _Session(bookie), "0.0.0.0", 3181)
    await asyncio.sleep(36_000)


def run(
    scenario: Callable[[FakeCluster], Awaitable[None]],
    *,
    bookie_count: int = 4,
    settings: ClientSettings = SETTINGS,
    seed: int = SEED,
    **changes: Any,
) -> None:
    """Run a scenario against bookies "b0", "b1", …; `changes` are changes of the settings."""
    simulation = Simulation(seed)
    cluster = FakeCluster(simulation, [f"b{number}" for number in range(bookie_count)])
    settings = msgspec.structs.replace(settings, **changes)

    async def program() -> None:
        cluster.other = LedgerStore(await simulation.metadata.connect(), "/ledgers")
        await cluster.other.ensure_layout("instance")
        for bookie in cluster.bookies.values():
            cluster.start(bookie.bookie_id)
            await cluster.register(bookie.bookie_id)
        await asyncio.sleep(1)
        cluster.store = LossyStore(await simulation.metadata.connect())
        rng = random.Random(seed)
        cluster.client = LedgerClient(
            cluster.store, ConnectionPool(cluster.store.bookie_address, rng, settings), rng, wall_ms=lambda: 0
        )
        await scenario(cluster)
        await cluster.client.close()

    async def main() -> None:
        await simulation.host("client").spawn(program())

    simulation.run(main())
