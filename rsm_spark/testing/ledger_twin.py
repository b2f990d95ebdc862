"""The client of the ledger twin: the calls of `ledger.client`, on a `LedgerWorld` instead of bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ledger.core.metadata import NO_ENTRY, DigestType, LedgerMetadata, LedgerState
from ledger.core.quorum import QuorumConfig
from ledger.core.read_lease import RATE_RATIO_MAX
from ledger.errors import (
    FencedError,
    LedgerClosedError,
    LedgerError,
    NotEnoughBookiesError,
    QuorumLostError,
    UsageError,
    WrongPasswordError,
)
from ledger.ports import MetadataStore
from rsm_spark.testing.ledger_world import LedgerTwin, LedgerWorld, TwinEntry, TwinLacInfo


class TwinClient:
    """Twin of `ledger.client.client.LedgerClient`, of one process.

    Args:
        world: Shared by all.
        store: The session of this process.
        clock: By which its leases end, seconds; None = the virtual time.

    Attributes:
        is_cut_off: No bookie can be reached.

    """

    def __init__(self, world: LedgerWorld, store: MetadataStore, *, clock: Callable[[], float] | None = None) -> None:
        self.world = world
        self.store = store
        self.clock = asyncio.get_running_loop().time if clock is None else clock
        self.is_cut_off = False

    async def gate(self) -> None:
        """Pass a metadata operation, or fail as the store does."""
        await self.store.sync("/")

    async def create(
        self,
        *,
        ensemble_size: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,  # noqa: ARG002  # as the real one
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ensemble_min: int | None = None,
        rolls: bool = False,  # noqa: ARG002  # a failed add is one, whatever it came from
    ) -> TwinWriter:
        """Create a ledger."""
        world = self.world
        for size in range(ensemble_size, (ensemble_min or ensemble_size) - 1, -1):
            await self.gate()
            if size <= world.bookie_count and world.rng.random() >= world.faults.create_failure:
                twin = world.create(QuorumConfig(size, min(write_quorum, size), ack_quorum), password, custom or {})
                await self.gate()
                return TwinWriter(self, twin)
        raise NotEnoughBookiesError(f"cannot create a ledger on {ensemble_size} bookies")

    async def count_bookies(self) -> int:
        """Return how many bookies there are."""
        await self.gate()
        return self.world.bookie_count

    async def open(self, ledger_id: int, *, password: bytes = b"") -> TwinReader:
        """Fence, recover, close; with another password nothing is changed."""
        await self.gate()
        if self.world.get(ledger_id).metadata.password != password:
            raise WrongPasswordError(f"ledger {ledger_id} has another password", ledger_id=ledger_id)
        await recover(self, self.world.get(ledger_id))
        return TwinReader(self, self.world.get(ledger_id))

    async def open_no_recovery(self, ledger_id: int, *, password: bytes | None = b"") -> TwinReader:  # noqa: ARG002
        """Open without disturbing the writer."""
        await self.gate()
        return TwinReader(self, self.world.get(ledger_id))

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger."""
        await self.gate()
        self.world.delete(ledger_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return what the metadata store knows of a ledger."""
        await self.gate()
        return self.world.get(ledger_id).metadata

    async def list(self) -> list[int]:
        """Return the ids of all ledgers."""
        await self.gate()
        return sorted(self.world.ledgers)

    async def close(self) -> None:
        """End the session."""
        await self.store.close()

    async def ask(self) -> None:
        """Pass one exchange with the bookies, or fail."""
        world = self.world
        await asyncio.sleep(world.latency(world.faults.answer_s))
        if self.is_cut_off:
            await asyncio.sleep(world.rng.uniform(0.2, 1.0))
        if self.is_cut_off or world.rng.random() < world.faults.read_failure:
            raise QuorumLostError("no replica answers")


async def recover(client: TwinClient, twin: LedgerTwin) -> None:
    """Recover a ledger: mark, fence and write back, close; each a step, others may come between."""
    world = client.world
    if twin.is_closed:
        return
    twin.metadata = msgspec.structs.replace(twin.metadata, state=LedgerState.IN_RECOVERY)
    world.recovery_count += 1
    number = world.recovery_count
    world.tell("recover", twin.ledger_id, number)
    await client.ask()
    twin.is_fenced = True
    await world.wait_out(twin)
    await client.ask()
    floor = max(twin.stored, twin.kept)
    end = world.rng.randint(floor, max(floor, len(twin.entries)))
    twin.kept = max(twin.kept, end)
    world.tell("found", twin.ledger_id, number)
    world.tell("fence", twin.ledger_id, end)
    # A recoverer that is not as careful as ours lets its own adds carry a rising LAC.
    twin.header_lac = max(twin.header_lac, end - 2)
    twin.wake()
    await client.ask()
    await client.gate()
    world.tell("finish", twin.ledger_id, number)
    twin.close(end)


class TwinWriter:
    """Twin of `ledger.client.write_handle.WriteHandle`."""

    def __init__(self, client: TwinClient, twin: LedgerTwin) -> None:
        self.ledger_id = twin.ledger_id
        self.metadata = twin.metadata
        self.last_add_confirmed = NO_ENTRY
        self.failure: LedgerError | None = None
        self._client = client
        self._world = client.world
        self._twin = twin
        self._pending: dict[int, asyncio.Future[int]] = {}
        self._acknowledged: set[int] = set()
        self._lease_until = float("-inf")
        # What was asked for with a check: when, and for how many milliseconds.
        self._wishes: dict[asyncio.Future[bool], tuple[float, int]] = {}

    @property
    def last_add_pushed(self) -> int:
        """Id of the last entry appended."""
        return self.last_add_confirmed + len(self._pending)

    def append(self, payload: bytes) -> asyncio.Future[int]:
        """Append one entry."""
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        """Append entries; the future is the id of the last."""
        if not payloads:
            raise UsageError("append_many needs at least one payload")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for payload in payloads:
            future = asyncio.get_running_loop().create_future()
            if self.failure is not None:
                future.set_exception(self.failure)
                continue
            self._push(payload, future)
        return future

    def _push(self, payload: bytes, future: asyncio.Future[int]) -> None:
        twin, world, faults = self._twin, self._world, self._world.faults
        entry_id = self.last_add_pushed + 1
        self._pending[entry_id] = future
        assert len(twin.entries) <= entry_id, "a ledger has one writer, which sends entries in order"
        # One behind an entry that never arrived does not arrive either.
        is_lost = len(twin.entries) < entry_id
        if twin.is_fenced or twin.is_closed or self._client.is_cut_off or is_lost:
            world.later(world.rng.uniform(*faults.answer_s), self._refused)
            return
        length = (twin.entries[entry_id - 1].length if entry_id else 0) + len(payload)
        entry = TwinEntry(entry_id, self.last_add_confirmed, length, payload)
        twin.entries.append(entry)
        # Wherever it has arrived, it shows the LAC in its header.
        if world.rng.random() < 0.5:
            self._show(entry)
        if world.rng.random() < faults.add_failure:
            if world.rng.random() < 0.5:
                world.later(world.latency(faults.store_s), self._store_unanswered, entry)
            world.later(world.rng.uniform(*faults.add_failure_s), self._freeze, QuorumLostError("an add failed"))
            return
        world.later(world.latency(faults.store_s), self._store, entry)

    def _show(self, entry: TwinEntry) -> None:
        if entry.last_add_confirmed > self._twin.header_lac:
            self._twin.header_lac = entry.last_add_confirmed
            self._twin.wake()

    def _store(self, entry: TwinEntry) -> None:
        """Have an ack quorum hold the entry, and say so, unless a fence came before."""
        world = self._world
        if self._store_unanswered(entry):
            world.later(world.latency(world.faults.answer_s), self._acknowledge, entry.entry_id)

    def _store_unanswered(self, entry: TwinEntry) -> bool:
        twin = self._twin
        if twin.is_fenced or twin.is_closed:
            self._freeze(FencedError(f"ledger {self.ledger_id} is fenced", ledger_id=self.ledger_id))
            return False
        # Entries before it that failed for the writer are on the bookies all the same: they came in order.
        twin.stored = max(twin.stored, entry.entry_id + 1)
        self._world.tell("store", self.ledger_id, twin.stored)
        self._show(entry)
        return True

    def _acknowledge(self, entry_id: int) -> None:
        if self.failure is not None:
            return
        if self._client.is_cut_off:
            self._freeze(QuorumLostError("the bookies do not answer"))
            return
        self._acknowledged.add(entry_id)
        while self.last_add_confirmed + 1 in self._acknowledged:
            self.last_add_confirmed += 1
            self._acknowledged.discard(self.last_add_confirmed)
            self._world.tell("acknowledge", self.ledger_id, self.last_add_confirmed)
            future = self._pending.pop(self.last_add_confirmed)
            if not future.done():
                future.set_result(self.last_add_confirmed)

    def _refused(self) -> None:
        if self._client.is_cut_off:
            self._freeze(QuorumLostError("the bookies do not answer"))
        else:
            self._freeze(FencedError(f"ledger {self.ledger_id} is fenced", ledger_id=self.ledger_id))

    def _freeze(self, error: LedgerError) -> None:
        if self.failure is None:
            self.failure = error
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # Its owner may be dead, and will not look.

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes appended and not confirmed."""
        return sum(len(self._twin.entries[entry_id].payload) for entry_id in self._pending)

    async def drain(self) -> None:
        """Wait until what was appended is confirmed."""
        if self._pending:
            await asyncio.wait(list(self._pending.values()))
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Write nothing more."""
        self._freeze(LedgerClosedError(f"ledger {self.ledger_id} is given up", ledger_id=self.ledger_id))

    def check_fence(self, lease_ms: int = 0) -> asyncio.Future[bool]:
        """Ask the bookies whether the ledger is fenced: they look at any moment from now on, or do not answer."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        world = self._world
        if lease_ms:
            self._wishes[future] = (self._client.clock(), lease_ms)
        is_heard = not self._client.is_cut_off and world.rng.random() >= world.faults.read_failure
        world.later(world.latency(world.faults.answer_s), self._look, future, is_heard)
        return future

    def _look(self, future: asyncio.Future[bool], is_heard: bool) -> None:
        """See whether there is a fence; the answer is on its way for a while, too."""
        world = self._world
        is_open = is_heard and not self._twin.is_fenced
        if is_open and future in self._wishes:
            until = world.monotonic() + self._wishes[future][1] / 1000
            self._twin.promised_until = max(self._twin.promised_until, until)
        world.later(world.latency(world.faults.answer_s), self._tell, future, is_open)

    def _tell(self, future: asyncio.Future[bool], is_open: bool) -> None:
        is_told_open = is_open and self.failure is None and not self._client.is_cut_off
        wish = self._wishes.pop(future, None)
        if is_told_open and wish is not None:
            asked_at, lease_ms = wish
            self._lease_until = max(self._lease_until, asked_at + lease_ms / 1000 / RATE_RATIO_MAX)
        if not future.done():
            future.set_result(is_told_open)

    def holds_lease(self) -> bool:
        """Return whether what the bookies promised proves that nobody has recovered the ledger until now."""
        return self.failure is None and self._client.clock() < self._lease_until

    async def write_lac(self) -> None:
        """Tell readers the LAC."""
        last = self.last_add_confirmed
        await self._client.ask()
        if last > self._twin.explicit_lac:
            self._twin.explicit_lac = last
            self._twin.wake()

    async def close(self) -> int:
        """Close with the own LAC; adopt CLOSED; recover like anybody else if somebody has begun to."""
        self._freeze(LedgerClosedError(f"ledger {self.ledger_id} is being closed", ledger_id=self.ledger_id))
        await self._client.gate()
        twin = self._world.get(self.ledger_id)
        if twin.metadata.state is LedgerState.IN_RECOVERY:
            await recover(self._client, twin)
        elif not twin.is_closed:
            self._world.tell("close", self.ledger_id, self.last_add_confirmed)
            twin.close(self.last_add_confirmed + 1)
        await self._client.gate()
        self.metadata = twin.metadata
        return self.metadata.last_entry_id


class TwinReader:
    """Twin of `ledger.client.read_handle.ReadHandle`."""

    def __init__(self, client: TwinClient, twin: LedgerTwin) -> None:
        self.ledger_id = twin.ledger_id
        self.metadata = twin.metadata
        self.last_add_confirmed = twin.metadata.last_entry_id if twin.is_closed else NO_ENTRY
        self._client = client
        self._twin = twin

    @property
    def is_closed(self) -> bool:
        """True if the end was final when the metadata were read."""
        return self.metadata.is_closed

    async def read(self, first: int, last: int) -> list[TwinEntry]:
        """Read entries that are confirmed as far as this reader knows."""
        if last > self.last_add_confirmed or first < 0:
            raise UsageError(f"cannot read up to entry {last}: confirmed is up to {self.last_add_confirmed}")
        await self._client.ask()
        twin = self._client.world.get(self.ledger_id)
        return twin.entries[first : last + 1]

    async def read_lac(self) -> TwinLacInfo:
        """Ask how far the ledger is confirmed."""
        if not self.is_closed:
            await self._client.ask()
        return self._lac()

    def _lac(self) -> TwinLacInfo:
        twin = self._twin
        if self.is_closed:
            return TwinLacInfo(self.metadata.last_entry_id, self.metadata.last_entry_id)
        self.last_add_confirmed = max(self.last_add_confirmed, twin.header_lac, twin.explicit_lac)
        return TwinLacInfo(self.last_add_confirmed, twin.explicit_lac)

    async def wait_lac(self, previous: int, timeout_s: float) -> TwinLacInfo:
        """Wait until the LAC is above `previous`, or the time has passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not self.is_closed and max(self._twin.header_lac, self._twin.explicit_lac) <= previous:
            if loop.time() >= deadline:
                break
            waiter = loop.create_future()
            self._twin.waiters.append(waiter)
            timer = loop.call_at(deadline, _resolve, waiter)
            await waiter
            timer.cancel()
            if self._twin.is_closed:
                break
        await self._client.ask()
        return self._lac()

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata again."""
        await self._client.gate()
        self.metadata = self._client.world.get(self.ledger_id).metadata
        if self.is_closed:
            self.last_add_confirmed = self.metadata.last_entry_id
        return self.metadata

    async def close(self) -> None:
        """Let go of the ledger."""


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
