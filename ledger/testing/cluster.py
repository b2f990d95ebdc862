"""A cluster of real bookies and real clients on simulated hosts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial

from ledger.bookie import place
from ledger.bookie.births import key_finder
from ledger.bookie.collector import Collector
from ledger.bookie.disk_age import DiskAge
from ledger.bookie.drain_order import DrainOrder
from ledger.bookie.identity import claim_disks, newest_ledger_id
from ledger.bookie.server import BookieServer
from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.decoding import json_decoder
from ledger.errors import CookieMismatchError, NoNodeError
from ledger.ports import ANY_VERSION
from ledger.replication.self_repair import SelfRepair
from ledger.replication.settings import ReplicationSettings
from ledger.storage.index import Index
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.journal import JournalSettings
from ledger.storage.landmarks import Age
from ledger.storage.limbo import LEDGER_ID_MAX
from ledger.storage.settings import Executors, StorageSettings
from ledger.testing.disk import SimDisk
from ledger.testing.disk_faults import INDEX, DiskFaults
from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import BookieRegistration

BOOKIE_PORT = 3181
_ROOT = "/ledgers"
_OPERATOR_S = 5.0
_INSTANCE_ID = "00000000-0000-4000-8000-000000000000"
SIM_STORE = StorageSettings(
    JournalSettings("/journal/current", file_bytes=64 << 10, file_count=2, cache_bytes_max=16 << 10),
    "/ledgers/current",
    free_bytes_min=1 << 20,
)
"""Small files, so that much happens in a short run."""
SIM_CLIENT = ClientSettings(
    connect_timeout_s=2.0, request_timeout_s=2.0, quorum_timeout_s=6.0, long_poll_s=1.0, keeps_rule=False
)

ServerPatch = Callable[[BookieServer], None]


class SimCluster:
    """Bookies "b0", "b1", … and clients anywhere.

    Args:
        simulation: The world.
        bookie_count: How many bookies.
        session_timeout_ms: Of bookies and clients.
        patch_server: Called with every server before it listens: plants a bug, for tests that want it found.
        collect_s: How often bookies look for deleted ledgers; never, if None.
        self_repair: How bookies repair what they lost; they do not, if None.
        store: Shape of their storage.
        takes_any_ledger: They do not ask the metadata for ledgers that they do not know.
        hears_drains: Bookies obey orders to drain them.
        has_names: Bookies have ids of their own, which go with their disks (`swap_disks`).

    Attributes:
        bookies: Hosts of the bookies, off until `start`.
        servers: Those that serve now, by host name.
        root: Of everything in the metadata store.

    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        bookie_count: int = 3,
        session_timeout_ms: int = 4_000,
        patch_server: ServerPatch | None = None,
        collect_s: float | None = None,
        self_repair: ReplicationSettings | None = None,
        store: StorageSettings = SIM_STORE,
        takes_any_ledger: bool = False,
        hears_drains: bool = False,
        has_names: bool = False,
    ) -> None:
        self.bookies = [simulation.host(f"b{number}", self._run_bookie) for number in range(bookie_count)]
        self.servers: dict[str, BookieServer] = {}
        self.root = _ROOT
        for host in self.bookies:
            host.on_exit.append(self._on_exit)
        self._simulation = simulation
        self._rng = simulation.random("operator")
        self._session_timeout_ms = session_timeout_ms
        self._patch_server = patch_server
        self._collect_s = collect_s
        self._self_repair = self_repair
        self._store = store
        self._takes_any_ledger = takes_any_ledger
        self._hears_drains = hears_drains
        self._has_names = has_names
        self._names = {host.disk: f"shelf-{number}" for number, host in enumerate(self.bookies)}
        self._client_count = 0

    def start(self) -> None:
        for host in self.bookies:
            host.start()

    async def connect(self, host: SimHost, settings: ClientSettings = SIM_CLIENT) -> LedgerClient:
        """Make a client in the process whose code this is, which runs on `host`."""
        self._client_count += 1
        rng = self._simulation.random(f"client {self._client_count}")
        store = await self._simulation.metadata.connect(session_timeout_ms=self._session_timeout_ms)
        ledgers = LedgerStore(store, _ROOT)
        pool = ConnectionPool(ledgers.bookie_address, rng, settings, lease_clock=host.monotonic)
        return LedgerClient(ledgers, pool, rng, settings, wall_ms=host.clock_ms)

    async def wait_until_writable(self, client: LedgerClient) -> None:
        """Wait until all bookies are registered, whichever metadata server is asked."""
        replicas = self._simulation.metadata.replicas
        while True:
            try:
                is_whole = len(await client.ledgers.writable_bookies()) == len(self.bookies)
                if is_whole and not any(replica.pending for replica in replicas):
                    return
            except Exception:  # noqa: BLE001, S110  there is no layout yet
                pass
            await asyncio.sleep(0.1)

    def bookie_id(self, host: SimHost) -> str:
        """Return the id of the bookie whose disk a host has."""
        return self._names[host.disk] if self._has_names else f"{host.name}:{BOOKIE_PORT}"

    def swap_disks(self, one: SimHost, other: SimHost) -> None:
        """Carry the disks of two hosts that are off to each other: the bookies change addresses."""
        assert self._has_names
        assert not one.is_up
        assert not other.is_up
        one.disk, other.disk = other.disk, one.disk

    def take_cookie(self, host: SimHost) -> None:
        """Take away the cookie of a bookie whose disk is empty, as an operator does who knows that it is lost.

        A copy of an empty disk on which a start was cut short counts: its directories do not all have the cookie.
        """
        metadata = self._simulation.metadata
        path = paths.cookie_path(_ROOT, self.bookie_id(host))
        folders = [self._store.journal.folder, *self._store.ledger_dirs]
        if path in metadata.leader.nodes and not all(host.disk.exists(f"{folder}/VERSION") for folder in folders):
            metadata.commit(metadata.leader.delete(path, ANY_VERSION))

    def disk_faults(self, host: SimHost, rng: random.Random) -> DiskFaults:
        """Return what may happen to the disk of a bookie."""
        path = paths.former_bookie_path(_ROOT, self.bookie_id(host))

        def registered_age() -> int:
            node = self._simulation.metadata.leader.nodes.get(path)
            return json_decoder(Age).decode(node.value).count if node is not None and node.value else 0

        return DiskFaults(host, rng, self._store.ledger_dir, registered_age)

    def _on_exit(self, host: SimHost) -> None:
        self.servers.pop(host.name, None)
        if isinstance(host.exits[-1], CookieMismatchError):
            self._simulation.after(self._rng.uniform(0.0, _OPERATOR_S), self.take_cookie, host)

    async def _run_bookie(self, host: SimHost) -> None:
        """Do what `ledger.bookie.app` does, in its order, on what the host offers."""
        rng = self._simulation.random(f"{host.name} start {len(host.exits)}")
        store = await self._simulation.metadata.connect(session_timeout_ms=self._session_timeout_ms)
        ledgers = LedgerStore(store, _ROOT)
        bookie_id = self.bookie_id(host)
        holder = f"{bookie_id} on {host.name}" if self._has_names else ""
        age = await self._claim_disks(host, ledgers, bookie_id, holder)
        executors = Executors(host.executor(), host.executor(), host.executor(worker_count=2))
        registration = BookieRegistration(store, _ROOT, bookie_id, host=host.name, port=BOOKIE_PORT, holder=holder)
        moves: list[asyncio.Task[None]] = []

        def on_read_only(is_read_only: bool) -> None:
            moves.append(asyncio.get_running_loop().create_task(registration.set_read_only(is_read_only)))

        server = await BookieServer.open(
            host.disk,
            executors,
            self._store,
            partial(_open_index, host.disk),
            nonce=lambda: rng.getrandbits(32),
            on_read_only=on_read_only,
            find_key=None if self._takes_any_ledger else key_finder(ledgers),
            clock=host.monotonic,
        )
        if server.store.limbo.ledger_id_max == LEDGER_ID_MAX:
            await server.store.bound_limbo(await newest_ledger_id(ledgers))
        if self._patch_server is not None:
            self._patch_server(server)
        if self._has_names:
            await place.wait_for_address(ledgers, bookie_id, (host.name, BOOKIE_PORT))
        await server.listen("0.0.0.0", BOOKIE_PORT)
        if self._hears_drains:
            drain = DrainOrder(ledgers, bookie_id)
            await drain.obey(server.store)
            moves.append(asyncio.get_running_loop().create_task(drain.keep(server.store)))
        if not self._has_names:
            for path in (paths.available_path(_ROOT, bookie_id), paths.read_only_path(_ROOT, bookie_id)):
                with contextlib.suppress(NoNodeError):
                    await store.delete(path)
        await registration.register()
        self.servers[host.name] = server
        if self._collect_s is not None:
            collector = Collector(
                server.store,
                ledgers,
                submit=executors.readers.submit,
                now_ms=host.clock_ms,
            )
            moves.append(asyncio.get_running_loop().create_task(collector.run(self._collect_s)))
        if self._self_repair is not None:
            pool = ConnectionPool(ledgers.bookie_address, rng, SIM_CLIENT)
            client = LedgerClient(ledgers, pool, rng, SIM_CLIENT, wall_ms=host.clock_ms)
            repair = SelfRepair(server.store, client, pool, bookie_id, self._self_repair)
            moves.append(asyncio.get_running_loop().create_task(repair.run()))
        keep = age.keep(
            server.store.landmarks, executors.readers, lambda: server.store.journal.batch_count, server.store.fail
        )
        moves.append(asyncio.get_running_loop().create_task(keep))
        raise await server.failed

    async def _claim_disks(self, host: SimHost, ledgers: LedgerStore, bookie_id: str, holder: str) -> DiskAge:
        if self._has_names:
            await place.take_own_id(ledgers, bookie_id, holder)
            await place.check_address(ledgers, bookie_id, (host.name, BOOKIE_PORT))
        instance_id = await ledgers.ensure_layout(_INSTANCE_ID)
        folders = [self._store.journal.folder, *self._store.ledger_dirs]
        journal_root, *ledger_roots = (folder.removesuffix("/current") for folder in folders)
        cookie = Cookie(bookie_id, journal_root, tuple(ledger_roots), instance_id)
        age = DiskAge(ledgers.store, _ROOT, bookie_id, f"{host.name} start {len(host.exits)}")
        await claim_disks(host.disk, ledgers, cookie, folders, age, limbo_folder=self._store.ledger_dir)
        await age.begin(host.disk, self._store.ledger_dir)
        return age


def _open_index(disk: SimDisk, *, reset: bool) -> Index:
    index: MemoryIndex | None = None if reset else disk.kept.get(INDEX)
    if index is None:
        index = disk.kept[INDEX] = MemoryIndex()
    index.check()
    return index
