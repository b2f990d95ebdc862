"""A simulated cluster with auto-recovery on hosts of its own, and what its tests ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ledger.client.client import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.core.metadata import DigestType, LedgerMetadata
from ledger.replication.app import AutoRecovery
from ledger.replication.core.held_entries import HeldEntries
from ledger.replication.core.repair_plan import missing_entries, named_bookies
from ledger.replication.questions import list_entries
from ledger.replication.settings import ReplicationSettings
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import BOOKIE_PORT, SimCluster
from ledger.zookeeper.ledgers import LedgerStore

_CLIENT = ClientSettings(connect_timeout_s=1.0, request_timeout_s=2.0, reconnect_delay_s_max=0.5)
SETTINGS = ReplicationSettings(
    lost_bookie_delay_s=5, open_ledger_grace_s=10.0, watch_s=2.0, poll_s=1.0, check_s=0.0, retry_s_max=10.0
)


class RecoveryWorld:
    """Bookies, a client, and as many auto-recovery processes as a test starts."""

    def __init__(
        self,
        seed: int,
        *,
        bookie_count: int = 4,
        settings: ReplicationSettings = SETTINGS,
        simulation: Simulation | None = None,
        **more: Any,
    ) -> None:
        self.simulation = simulation or Simulation(seed)
        self.cluster = SimCluster(self.simulation, bookie_count=bookie_count, hears_drains=True, **more)
        self.settings = settings
        self.client_host = self.simulation.host("client")
        self.recoveries: dict[str, AutoRecovery] = {}
        self.client: LedgerClient

    async def start(self) -> None:
        self.cluster.start()
        self.client = await self.on_client(self.cluster.connect(self.client_host))
        await self.on_client(self.cluster.wait_until_writable(self.client))

    async def on_client(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.client_host.spawn(work)

    def bookie(self, bookie_id: str) -> SimHost:
        return self.simulation.hosts[bookie_id.partition(":")[0]]

    def ids(self, *names: str) -> list[str]:
        return [f"{name}:{BOOKIE_PORT}" for name in names]

    def start_recovery(self, name: str = "r0", settings: ReplicationSettings | None = None) -> SimHost:
        async def program(host: SimHost) -> None:
            store = await self.simulation.metadata.connect(session_timeout_ms=4_000)
            rng = self.simulation.random(f"{host.name} {len(host.exits)}")
            owner = f"{host.name}:1.{len(host.exits)}"
            ledgers = LedgerStore(store, "/ledgers")
            recovery = AutoRecovery(ledgers, owner, rng, settings or self.settings, _CLIENT, wall_ms=host.clock_ms)
            self.recoveries[host.name] = recovery
            await recovery.run()

        host = self.simulation.host(name, program)
        host.start()
        return host

    async def write(self, count: int, *, size: int = 100, close: bool = True, **more: Any) -> int:
        """Write a ledger of `count` entries; return its id."""
        options = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "digest_type": DigestType.CRC32C, **more}

        async def work() -> int:
            handle = await self.client.create(**options)
            for entry_id in range(count):
                await handle.append(payload(entry_id, size))
            if close:
                await handle.close()
            return handle.ledger_id

        return await self.on_client(work())

    async def write_and_die(self, count: int, *, unreachable: str) -> int:
        """Have a process that does not reach a bookie write and close a ledger, and end."""
        host = self.simulation.host("mayfly")

        async def work() -> int:
            client = await self.cluster.connect(host)
            handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            self.simulation.network.partition("mayfly", unreachable)
            for entry_id in range(count):
                await handle.append(payload(entry_id))
            await handle.close()
            return handle.ledger_id

        ledger_id: int = await host.spawn(work())
        host.kill()
        self.simulation.network.heal()
        return ledger_id

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return await self.on_client(self.client.metadata(ledger_id, sync=True))

    async def lacking(self, ledger_id: int) -> dict[str, Any]:
        """Return, by bookie, the first entry that it lacks, or why it does not tell."""

        async def work() -> dict[str, Any]:
            metadata = await self.client.metadata(ledger_id, sync=True)
            answers = await list_entries(self.client._pool, ledger_id, named_bookies(metadata))
            found: dict[str, Any] = {}
            for bookie_id, held in answers.items():
                if not isinstance(held, HeldEntries):
                    found[bookie_id] = held
                elif (entry_id := next(missing_entries(metadata, bookie_id, held), None)) is not None:
                    found[bookie_id] = entry_id
            return found

        return await self.on_client(work())

    def spoil(self, bookie_id: str, ledger_id: int, entry_ids: list[int]) -> None:
        """Have a bookie answer reads of entries with bytes that fail the digest."""
        store = self.cluster.servers[bookie_id.partition(":")[0]].store
        find = store.find

        wanted = ledger_id

        def find_or_spoil(ledger_id: int, entry_id: int) -> Any:
            found = find(ledger_id, entry_id)
            if found is None or ledger_id != wanted or entry_id not in entry_ids:
                return found
            body = bytearray(found)  # type: ignore[arg-type]
            body[-1] ^= 1
            return bytes(body)

        store.find = find_or_spoil  # type: ignore[method-assign]

    async def marked(self) -> list[int]:
        return await self.on_client(next(iter(self.recoveries.values())).marks.marked())

    async def wait_until_whole(self, ledger_ids: list[int], limit_s: float) -> float:
        """Wait until no bookie lacks anything of these ledgers; return how long that took."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while True:
            lacking = {ledger_id: found for ledger_id in ledger_ids if (found := await self.lacking(ledger_id))}
            if not lacking:
                return loop.time() - started_s
            assert loop.time() - started_s < limit_s, f"after {limit_s} s: {lacking}"
            await asyncio.sleep(0.5)

    async def read_all(self, ledger_id: int) -> list[bytes]:
        async def work() -> list[bytes]:
            handle = await self.client.open(ledger_id)
            if handle.last_add_confirmed < 0:
                return []
            return [entry.payload for entry in await handle.read(0, handle.last_add_confirmed)]

        return await self.on_client(work())


def payload(entry_id: int, size: int = 100) -> bytes:
    return f"entry {entry_id} ".encode().ljust(size, b".")
