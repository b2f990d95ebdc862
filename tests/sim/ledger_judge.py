"""The calm after the trouble: everything converges, then every ledger is closed, read and looked up on the bookies.

* `index-is-true`  what a bookie's index says that it holds can be found in its segments
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from ledger.bookie.server import BookieServer
from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.core.metadata import LedgerMetadata
from ledger.core.reader import replicas_of
from ledger.errors import CorruptStorageError, LedgerError, WrongPasswordError
from ledger.storage.read_queue import Lookup
from ledger.storage.tail import JournalPlace
from ledger.testing import Nemesis, SimHost, Simulation
from ledger.testing.cluster import SimCluster
from tests.sim.ledger_history import History, LedgerHistory

__all__ = ["CALM_S_MAX", "Judge"]

CALM_S_MAX = 60.0


class Judge:
    """Judges one run; raises nothing, but tells the history what it finds."""

    def __init__(
        self, simulation: Simulation, cluster: SimCluster, history: History, nemesis: Nemesis, *, is_repaired: bool
    ) -> None:
        self._simulation = simulation
        self._cluster = cluster
        self._history = history
        self._nemesis = nemesis
        self._is_repaired = is_repaired
        self._client: LedgerClient

    async def converge(self, clients: list[SimHost]) -> None:
        """Let all servers come back and clients end, then cut the power once more: what counted was durable."""
        await self._until(self._all_serve, "bookies serve")
        await self._until(lambda: not any(host.is_up for host in clients), "clients end what they began")
        for host in self._cluster.bookies:
            host.kill(power=True)
        await self._until(self._all_serve, "bookies serve after the last power loss")

    async def judge(self) -> None:
        """Close, read and count everything."""
        host = self._simulation.host("judge")
        await self._do(host, self._judge_all(host), "all ledgers are closed and read")
        if self._is_repaired:
            await self._do(host, self._wait_for_repair(), "every ledger is whole again")
        await self._do(host, self._count_all(), "all copies are counted")
        for each in self._simulation.hosts.values():
            for reason in each.exits:
                if isinstance(reason, BaseException) and not isinstance(reason, OSError | LedgerError):
                    self._history.fail("no-crash", f"{each.name}: {reason!r}")

    async def _do(self, host: SimHost, work: Coroutine[Any, Any, None], what: str) -> None:
        task = host.spawn(work)
        await self._until(task.done, what)
        task.result()

    def _all_serve(self) -> bool:
        return len(self._cluster.servers) == len(self._cluster.bookies)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = self._simulation.loop.time() + CALM_S_MAX
        while not holds():
            await asyncio.sleep(0.1)
            if self._simulation.loop.time() > deadline_s:
                down = {host.name: host.exits[-1:] for host in self._cluster.bookies if not host.is_up}
                up = [host.name for host in self._simulation.hosts.values() if host.is_up]
                self._history.fail(
                    "convergence", f"{what}: not within {CALM_S_MAX:.0f} s of calm; down {down}, still up {up}"
                )

    async def _judge_all(self, host: SimHost) -> None:
        self._client = await self._cluster.connect(host)
        for ledger in await self._ledgers():
            handle = await self._open(self._client, ledger)
            self._history.closed(ledger, handle.last_add_confirmed, host.name)
            await self._read(handle, ledger, host.name)
        await self._judge_orphans(self._client)
        missing = [i for i, x in self._history.ledgers.items() if not x.is_deleted and i not in self._history.ends]
        if missing:
            self._history.fail("acked-is-durable", f"ledgers {missing} are not in the metadata")

    async def _ledgers(self) -> list[LedgerHistory]:
        await self._client.store.sync(self._cluster.root)
        known = [self._history.ledgers.get(ledger_id) for ledger_id in await self._client.list()]
        return [ledger for ledger in known if ledger is not None and not ledger.is_deleted]

    async def _wait_for_repair(self) -> None:
        """Wait until every bookie that the metadata name for an entry holds it, and none is in limbo."""
        while True:
            lacking = [f"limbo of {name}" for name, server in self._servers() if server.store.limbo.ledger_id_max >= 0]
            for ledger in await self._ledgers():
                lacking += await self._lacking(ledger)
            if not lacking:
                return
            self._history.tell_once(f"not whole yet: {', '.join(lacking[:3])}")
            await asyncio.sleep(1.0)

    async def _lacking(self, ledger: LedgerHistory) -> list[str]:
        metadata = await self._client.metadata(ledger.ledger_id, sync=True)
        held: dict[str, frozenset[int]] = {}
        for name, server in self._servers():
            if self._cluster.servers.get(name) is not server:
                continue  # It ended while another was asked, by damage that was found; it comes back.
            # Whoever reads finds what cannot be read, and the bookie mends it.
            listed = await self._held(name, server, ledger)
            held[name] = frozenset([i for i in listed if await _copy(server, ledger.ledger_id, i) is not None])
        return [
            f"entry {entry_id} of ledger {ledger.ledger_id} on {bookie_id}"
            for entry_id in range(metadata.last_entry_id + 1)
            for bookie_id in replicas_of(metadata, entry_id)
            if entry_id not in held.get(bookie_id.partition(":")[0], ())
        ]

    async def _held(self, name: str, server: BookieServer, ledger: LedgerHistory) -> list[int]:
        try:
            await server.store.resident.load([ledger.ledger_id])
            return await server.store.list_entries(ledger.ledger_id)
        except (CorruptStorageError, OSError) as error:
            self._history.fail("index-is-true", f"{name} cannot list ledger {ledger.ledger_id}: {error!r}")
            return []

    async def _count_all(self) -> None:
        for ledger in await self._ledgers():
            await self._count_copies(await self._client.metadata(ledger.ledger_id, sync=True), ledger)

    def _servers(self) -> list[tuple[str, BookieServer]]:
        return sorted(self._cluster.servers.items())

    async def _open(self, client: LedgerClient, ledger: LedgerHistory) -> ReadHandle:
        while True:
            try:
                return await client.open(ledger.ledger_id, password=ledger.password)
            except LedgerError as error:
                self._history.tell(f"judge: {error}")
                await asyncio.sleep(0.2)

    async def _judge_orphans(self, client: LedgerClient) -> None:
        """Close what was created by a client that never heard of it: its end is -1."""
        for ledger_id in await client.list():
            if ledger_id not in self._history.ledgers:
                metadata = await client.metadata(ledger_id)
                handle = await self._open(client, LedgerHistory(ledger_id, 0, metadata.password))
                if handle.last_add_confirmed >= 0:
                    self._history.fail("no-invention", f"ledger {ledger_id}, nobody's, has entries")

    async def _read(self, handle: ReadHandle, ledger: LedgerHistory, who: str) -> None:
        end = handle.last_add_confirmed
        try:
            entries = await handle.read(0, end) if end >= 0 else []
        except WrongPasswordError:
            raise
        except LedgerError as error:
            self._history.fail("acked-is-durable", f"ledger {ledger.ledger_id}, closed at {end}: {error!r}")
            return
        if [entry.entry_id for entry in entries] != [*range(end + 1)]:
            self._history.fail("no-gap", f"ledger {ledger.ledger_id}, closed at {end}: {len(entries)} entries")
        for entry in entries:
            self._history.read(ledger, entry.entry_id, entry.payload, who)

    async def _count_copies(self, metadata: LedgerMetadata, ledger: LedgerHistory) -> None:
        """Look into the bookies: an entry of a closed ledger lies on an ack quorum of them, and is one."""
        end = metadata.last_entry_id
        copies: Counter[int] = Counter()
        for name, server in self._servers():
            for entry_id in await self._held(name, server, ledger):
                if entry_id > end:
                    break
                body = await _copy(server, ledger.ledger_id, entry_id)
                if body is None:
                    continue
                copies[entry_id] += 1
                if not body.endswith(ledger.payloads[entry_id]):
                    self._history.fail("same-payload", f"ledger {ledger.ledger_id}: entry {entry_id} on {name}")
        quorum = metadata.quorum
        wanted = quorum.write_quorum if self._is_repaired else quorum.ack_quorum - self._nemesis.is_damage_done
        for entry_id in range(end + 1):
            if copies[entry_id] < wanted:
                self._history.fail(
                    "enough-copies", f"ledger {ledger.ledger_id}: {copies[entry_id]} of {wanted} of entry {entry_id}"
                )


async def _copy(server: BookieServer, ledger_id: int, entry_id: int) -> bytes | None:
    """Return what a bookie holds of an entry; None if it cannot be read there."""
    found = server.store.find(ledger_id, entry_id)
    if found is not None and not isinstance(found, JournalPlace):
        return bytes(found)
    (read,) = await server.store.read_queue.read([Lookup(ledger_id, entry_id, found)])
    return read if isinstance(read, bytes) else None
