"""What the clients of the ledger simulation do until the calm: write, recover, follow, delete.

A client's host is named for its work: w0 writes, r0 recovers ledgers that somebody may be writing, t0 tails them,
d0 deletes old ones. Each is killed, paused and cut off like the bookies, and starts anew.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

from ledger.client.adv_handle import AdvWriteHandle
from ledger.client.client import LedgerClient
from ledger.client.deferred_handle import DeferredWriteHandle
from ledger.client.read_handle import ReadHandle
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.entry import Entry
from ledger.core.metadata import DigestType
from ledger.errors import LedgerError
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SimCluster
from tests.sim.ledger_history import History, LedgerHistory

__all__ = ["CLIENTS", "Work"]

CLIENTS = ("w0", "w1", "r0", "r1", "t0", "d0")
_QUORUMS = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 3, 3), (2, 2, 1), (4, 3, 2), (5, 3, 2), (4, 2, 2))
_PASSWORDS = (b"", b"", b"secret")
_NEWEST = 4
"""Ledgers that are tailed and recovered while they are written; older ones may be deleted."""


class Work:
    """What all clients of one run share.

    Attributes:
        is_over: Set when the calm begins: everybody finishes what is begun.

    """

    def __init__(
        self,
        simulation: Simulation,
        cluster: SimCluster,
        history: History,
        *,
        settings: ClientSettings,
        is_damage_due: bool,
    ) -> None:
        self.is_over = False
        self._simulation = simulation
        self._cluster = cluster
        self._history = history
        self._settings = settings
        count = len(cluster.bookies)
        # One copy of what is acknowledged may be lost with a disk: then there must be another.
        copies_min = 1 + is_damage_due
        # Whoever asks for no digest asks for no protection of what a bookie reads back from a journal file.
        self._digests = [digest for digest in DigestType if digest is not DigestType.DUMMY or not is_damage_due]
        self._quorums = [quorum for quorum in _QUORUMS if quorum[0] <= count and quorum[2] >= copies_min]

    async def run(self, host: SimHost) -> None:
        """Do what the host's name says until the calm."""
        work = {"w": self._write, "r": self._recover, "t": self._tail, "d": self._delete}[host.name[0]]
        rng = self._simulation.random(f"work of {host.name} {len(host.exits)}")
        client: LedgerClient | None = None
        while not self.is_over:
            try:
                client = client or await self._cluster.connect(host, self._settings)
                await work(client, rng, host.name)
            except LedgerError as error:
                self._history.tell(f"{host.name}: {type(error).__name__}: {error}")
                await asyncio.sleep(rng.uniform(0.05, 0.5))

    # --- writers

    async def _write(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Write one ledger, and close it whatever happens; now and then leave it to others."""
        handle, ledger = await self._create(client, rng, who)
        appends: list[asyncio.Future[int]] = []
        try:
            await self._fill(handle, ledger, rng, who, appends)
        except LedgerError as error:
            self._history.tell(f"{who}: ledger {ledger.ledger_id} is frozen: {error}")
        if rng.random() < 0.1:
            self._history.tell(f"{who} abandons ledger {ledger.ledger_id}")
            handle.abandon()
            return
        await self._close(handle, ledger, rng, who)
        pending = sum(not future.done() for future in appends)
        if pending and handle.metadata.is_closed:
            self._history.fail("no-hang", f"{who} closed ledger {ledger.ledger_id}, {pending} appends still wait")

    async def _create(self, client: LedgerClient, rng: random.Random, who: str) -> tuple[WriteHandle, LedgerHistory]:
        ensemble_size, write_quorum, ack_quorum = rng.choice(self._quorums)
        password = rng.choice(_PASSWORDS)
        options: dict[str, Any] = {
            "ensemble_size": ensemble_size,
            "write_quorum": write_quorum,
            "ack_quorum": ack_quorum,
            "digest_type": rng.choice(self._digests),
            "password": password,
        }
        kind = rng.choice(("plain", "plain", "explicit", "deferred"))
        handle: WriteHandle
        if kind == "explicit":
            wanted_id = rng.getrandbits(62) if rng.random() < 0.1 else None
            handle = await client.create_adv(ledger_id=wanted_id, **options)
        else:
            handle = await client.create(deferred_sync=kind == "deferred", **options)
        return handle, self._history.created(handle.ledger_id, ack_quorum, password, f"{who} ({kind})")

    async def _fill(
        self,
        handle: WriteHandle,
        ledger: LedgerHistory,
        rng: random.Random,
        who: str,
        appends: list[asyncio.Future[int]],
    ) -> None:
        pause_s = rng.choice((0.0, 0.005, 0.05, 0.3, 2.0))
        batch = rng.choice((1, 1, 5))
        for _ in range(rng.choice((3, 20, 80))):
            appends += self._append(handle, ledger, rng, who, rng.randint(1, batch))
            if self.is_over or handle.failure is not None:
                break
            await asyncio.sleep(rng.expovariate(1 / pause_s) if pause_s else 0.0)
            if rng.random() < 0.1:
                await handle.write_lac()
            if isinstance(handle, DeferredWriteHandle) and rng.random() < 0.2:
                self._forced(ledger, await handle.force())

    def _append(
        self, handle: WriteHandle, ledger: LedgerHistory, rng: random.Random, who: str, count: int
    ) -> list[asyncio.Future[int]]:
        first = len(ledger.payloads)
        for entry_id in range(first, first + count):
            size = rng.choice((0, 10, 10, 300, 3000))
            ledger.payloads.append(f"{who} {ledger.ledger_id} {entry_id} ".encode() + rng.randbytes(size))
        if isinstance(handle, AdvWriteHandle):
            ids = rng.sample(range(first, first + count), count)
            futures = [handle.append_at(entry_id, ledger.payloads[entry_id]) for entry_id in ids]
            counts = [1] * count
        else:
            futures, counts = [handle.append_many(ledger.payloads[first:])], [count]
        if not isinstance(handle, DeferredWriteHandle):
            for future, entry_count in zip(futures, counts, strict=True):
                future.add_done_callback(partial(self._on_done, ledger, entry_count))
        return futures

    def _on_done(self, ledger: LedgerHistory, count: int, future: asyncio.Future[int]) -> None:
        if not future.cancelled() and future.exception() is None:
            last = future.result()
            for entry_id in range(last - count + 1, last + 1):
                self._history.acked(ledger, entry_id)

    def _forced(self, ledger: LedgerHistory, last_entry_id: int) -> None:
        """Only what was forced is promised."""
        for entry_id in range(ledger.last_acked + 1, last_entry_id + 1):
            self._history.acked(ledger, entry_id)

    async def _close(self, handle: WriteHandle, ledger: LedgerHistory, rng: random.Random, who: str) -> None:
        for _ in range(30):
            try:
                self._history.closed(ledger, await handle.close(), who)
            except LedgerError as error:
                self._history.tell(f"{who}: ledger {ledger.ledger_id} is not closed: {error}")
                if self.is_over:
                    return
                await asyncio.sleep(rng.uniform(0.1, 0.5))
            else:
                return

    # --- everybody else

    async def _recover(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Recover a ledger that somebody may be writing, and read some of it."""
        await asyncio.sleep(rng.expovariate(0.7))
        ledger = self._pick(rng)
        if ledger is None or self.is_over:
            return
        handle = await client.open(ledger.ledger_id, password=ledger.password)
        end = handle.last_add_confirmed
        self._history.closed(ledger, end, who)
        if end >= 0 and rng.random() < 0.5:
            first = rng.randint(0, end)
            self._check(ledger, first, await handle.read(first, rng.randint(first, end)), who)
        await handle.close()

    def _check(self, ledger: LedgerHistory, first: int, entries: list[Entry], who: str) -> None:
        for expected, entry in enumerate(entries, first):
            if entry.entry_id != expected:
                self._history.fail("no-gap", f"ledger {ledger.ledger_id}: {entry.entry_id} where {expected} was due")
            self._history.read(ledger, entry.entry_id, entry.payload, who)

    async def _tail(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Follow one of the newest ledgers to its end."""
        await asyncio.sleep(rng.expovariate(3.0))
        ledger = self._pick(rng)
        if ledger is None or self.is_over:
            return
        handle = await client.open_no_recovery(ledger.ledger_id, password=ledger.password)
        try:
            async with asyncio.timeout(rng.uniform(0.5, 5.0)):
                await self._follow(handle, ledger, who)
        except TimeoutError:
            await handle.close()

    async def _follow(self, handle: ReadHandle, ledger: LedgerHistory, who: str) -> None:
        expected, seen = 0, -1
        async for batch in handle.tail():
            self._history.exposed(ledger, seen, handle.last_add_confirmed, who)
            seen = handle.last_add_confirmed
            for entry in batch:
                if entry.entry_id != expected:
                    where = f"ledger {ledger.ledger_id}, reader {who}"
                    self._history.fail("no-gap", f"{where}: {entry.entry_id} where {expected} was due")
                expected += 1
                self._history.read(ledger, entry.entry_id, entry.payload, who)
            if self.is_over:
                break
        await handle.close()

    async def _delete(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Delete a ledger that nobody looks at any more; its writer may not be done with it."""
        await asyncio.sleep(rng.expovariate(0.5))
        old = [ledger for ledger in [*self._history.ledgers.values()][:-_NEWEST] if not ledger.is_deleted]
        if old and not self.is_over:
            ledger = rng.choice(old)
            ledger.is_deleted = True
            self._history.tell(f"{who} deletes ledger {ledger.ledger_id}")
            await client.delete(ledger.ledger_id)

    def _pick(self, rng: random.Random) -> LedgerHistory | None:
        newest = [*self._history.ledgers.values()][-_NEWEST:]
        return rng.choice(newest) if newest else None
