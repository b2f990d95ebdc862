"""Reading a log across its ledgers: where each ends, which leave, which are lost; on the twin of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from ledger.core.metadata import LedgerState
from ledger.core.quorum import QuorumConfig
from ledger.testing.metadata_session import SimMetadataSession
from ledger.testing.simulation import Simulation
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, chain_path, encode_chain
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.errors import CorruptLogError, MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerTwin, LedgerWorld, TwinEntry

LOG = "orders"
LOG_ID = "ab" * 16
QUORUM = QuorumConfig(2, 2, 2)


class Store:
    """A metadata session that counts what is asked of it."""

    def __init__(self, session: SimMetadataSession) -> None:
        self._session = session
        self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def get(self, path: str, **kwargs: Any) -> Any:
        found = await self._session.get(path, **kwargs)
        self.read_bytes += len(found.value)
        return found


class Log:
    """A log that a test writes by hand."""

    def __init__(self, world: LedgerWorld, session: SimMetadataSession) -> None:
        self.world = world
        self.store = Store(session)
        self.chain = LogChain(LOG_ID, leader_epoch=1)
        self.revision = 0
        self.client = TwinClient(world, self.store)  # type: ignore[arg-type]

    def ledger(self, entry_count: int, *, is_closed: bool = True) -> LedgerTwin:
        """Add a ledger of entries with one record each to the chain."""
        twin = self.world.create(QUORUM, b"", {})
        first = self.revision + 1
        for _ in range(entry_count):
            self.append(twin)
        if is_closed:
            twin.close(entry_count)
        end = ClosedEnd(entry_count - 1, self.revision, 0, 0, "") if is_closed else None
        self.chain = msgspec.structs.replace(
            self.chain, ledgers=(*self.chain.ledgers, ChainLedger(twin.ledger_id, 0, 1, first, end))
        )
        if self.chain.first_ledger_id < 0:
            self.chain = msgspec.structs.replace(self.chain, first_ledger_id=twin.ledger_id)
        return twin

    def append(self, twin: LedgerTwin) -> None:
        """Store an entry of one record, which confirms all before it."""
        envelope = Envelope(bytes.fromhex(LOG_ID), 1, self.revision + 1, self.revision, 0, 1, bytes(32))
        payload = encode_envelope(envelope, b"\x90")
        count = len(twin.entries)
        twin.entries.append(TwinEntry(count, count - 1, len(payload), payload))
        twin.stored = count + 1
        twin.header_lac = count
        self.revision += 1

    def drop(self, count: int, *, is_deleted: bool) -> None:
        """Take ledgers out of the chain."""
        for ledger in self.chain.ledgers[:count]:
            if is_deleted:
                del self.world.ledgers[ledger.ledger_id]
        self.chain = msgspec.structs.replace(self.chain, ledgers=self.chain.ledgers[count:])

    async def publish(self) -> None:
        """Write the chain."""
        path = chain_path(LOG)
        version = await self.store.exists(path)
        if version is None:
            await self.store.create(path, encode_chain(self.chain), parents=True)
        else:
            await self.store.set(path, encode_chain(self.chain), version)

    def reader(self, **kwargs: Any) -> LogReader:
        return LogReader(self.client, ChainStore(self.store, LOG), poll_s=0.5, **kwargs)  # type: ignore[arg-type]


async def _read(reader: LogReader, count: int) -> list[int]:
    """Read until nothing comes for a while, or there are enough; return the revisions."""
    found: list[int] = []
    idle = 0
    while len(found) < count and idle < 3:
        entries = await reader.read()
        found += [entry.envelope.last_revision for entry in entries]
        idle = 0 if entries else idle + 1
        if not entries:
            await reader.wait(1.0)
    return found


def run(scenario: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(3)
    world = LedgerWorld(simulation.random("ledgers"))

    async def program() -> None:
        await scenario(Log(world, await simulation.metadata.connect()))

    simulation.run(program(), limit_s=600)


def test_entries_come_in_order_across_ledgers_and_empty_ones_are_passed_over() -> None:
    async def scenario(log: Log) -> None:
        for count in (3, 0, 0, 2, 0, 1):
            log.ledger(count)
        await log.publish()
        reader = log.reader()
        assert await _read(reader, 6) == [1, 2, 3, 4, 5, 6]
        assert reader.is_at_end

    run(scenario)


def test_a_successor_in_the_chain_is_no_end_only_the_ledgers_own_metadata_are() -> None:
    """herddb: an offset carried over a roll skips what the longer ledger had more."""

    async def scenario(log: Log) -> None:
        twin = log.ledger(3, is_closed=False)
        await log.publish()
        reader = log.reader()
        assert await _read(reader, 2) == [1, 2]  # The third is not known to be confirmed.
        # The chain shows a successor; the ledger's own end is not known here, and lies further on.
        log.append(twin)
        open_metadata = twin.metadata
        twin.close(4)
        closed_metadata, twin.metadata = twin.metadata, open_metadata
        log.ledger(2)
        await log.publish()
        assert await _read(reader, 1) == [3]
        assert await _read(reader, 1) == []
        twin.metadata = closed_metadata
        assert await _read(reader, 3) == [4, 5, 6]

    run(scenario)


def test_entries_that_a_recovery_cut_off_are_never_returned() -> None:
    async def scenario(log: Log) -> None:
        twin = log.ledger(3, is_closed=False)
        await log.publish()
        reader = log.reader()
        assert await _read(reader, 2) == [1, 2]
        twin.close(2)
        assert twin.metadata.state is LedgerState.CLOSED
        assert await _read(reader, 1) == []
        assert reader.is_at_end

    run(scenario)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_ledger_that_has_left_the_chain_needs_a_snapshot_even_if_it_can_still_be_read(is_deleted: bool) -> None:
    async def scenario(log: Log) -> None:
        for count in (10, 10, 3):
            log.ledger(count)
        await log.publish()
        reader = log.reader(entries_max=4)
        assert await _read(reader, 4) == [1, 2, 3, 4]
        log.drop(2, is_deleted=is_deleted)
        await log.publish()
        await asyncio.sleep(1)
        with pytest.raises(MissingLogError, match="revisions 5 to 20 have left the log") as caught:
            await _read(reader, 10)
        assert (caught.value.first_revision, caught.value.last_revision) == (5, 20)

    run(scenario)


def test_a_ledger_that_is_deleted_while_its_next_part_is_read_is_not_the_end() -> None:
    async def scenario(log: Log) -> None:
        for count in (10, 3):
            log.ledger(count)
        await log.publish()
        reader = log.reader(entries_max=4)
        assert await _read(reader, 4) == [1, 2, 3, 4]
        log.drop(1, is_deleted=True)
        await log.publish()  # The reader's watch may not have fired yet.
        with pytest.raises(MissingLogError):
            await _read(reader, 10)

    run(scenario)


def test_a_chained_ledger_that_does_not_exist_is_damage_and_is_named() -> None:
    async def scenario(log: Log) -> None:
        for count in (2, 3):
            log.ledger(count)
        lost = log.chain.ledgers[1].ledger_id
        del log.world.ledgers[lost]
        await log.publish()
        reader = log.reader()
        assert await _read(reader, 2) == [1, 2]
        with pytest.raises(CorruptLogError, match=f"names ledger {lost}, which does not exist"):
            await _read(reader, 1)

    run(scenario)


def test_a_log_whose_beginning_was_trimmed_is_not_read_from_empty() -> None:
    async def scenario(log: Log) -> None:
        for count in (2, 3):
            log.ledger(count)
        log.drop(1, is_deleted=True)
        await log.publish()
        with pytest.raises(MissingLogError, match="revisions 1 to 2 have left the log"):
            await log.reader().read()

    run(scenario)


def test_two_thousand_ledgers_are_read_in_order_and_the_chain_is_fetched_only_when_it_changes() -> None:
    async def scenario(log: Log) -> None:
        for index in range(2_000):
            log.ledger(index % 3)
        await log.publish()
        size = len(encode_chain(log.chain))
        reader = log.reader()
        found = await _read(reader, log.revision)
        assert found == list(range(1, log.revision + 1))
        assert log.store.read_bytes == size
        for _ in range(20):
            await reader.wait(1.0)
            await reader.read()
        assert log.store.read_bytes == size
        log.ledger(1)
        await log.publish()
        assert await _read(reader, 1) == [log.revision]

    run(scenario)
