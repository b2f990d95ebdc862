"""Readers around silent, damaged and replaced bookies; waits that are shared and cancelled; recoveries cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ledger.bookie.batch_reads import BatchReads
from ledger.client.pool import ConnectionPool
from ledger.client.read_handle import ReadHandle
from ledger.core.entry import Entry
from ledger.errors import DigestError, NoSuchEntryError, NoSuchLedgerError, UsageError
from tests.unit.ledger.client.read_world import World, check, run

both = pytest.mark.parametrize("protocol", ["v2", "v3"])


@both
@pytest.mark.parametrize("ensemble", [(3, 3, 2), (3, 2, 2), (1, 1, 1)])
def test_long_scans_come_in_order_in_batches_of_bounded_size(protocol: str, ensemble: tuple[int, int, int]) -> None:
    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(1000, size=100, ensemble=ensemble))
        found: list[Entry] = []
        batches = [batch async for batch in reader.entries(3, 998)]
        for batch in batches:
            found += batch
        check(found, 3, 998)
        assert max(map(len, batches)) <= 500
        check(await reader.read(0, 999), 0, 999)

    run(scenario, protocol=protocol, read_batch_bytes=20_000)


@both
def test_a_stopped_bookie_does_not_stall_reads_and_is_then_asked_last(protocol: str) -> None:
    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(300))
        await reader.read(0, 299)
        world.cluster.bookies[0].pause()
        began = world.now()
        check(await reader.read(0, 299), 0, 299)
        assert world.now() - began < 1.5
        began = world.now()
        for _ in range(5):
            check(await reader.read(0, 299), 0, 299)
        assert world.now() - began < 0.4
        world.cluster.bookies[0].resume()

    run(scenario, protocol=protocol)


@both
def test_a_dead_bookie_does_not_stall_reads(protocol: str) -> None:
    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(300, ensemble=(3, 2, 2)))
        world.cluster.bookies[1].kill()
        check(await reader.read(0, 299), 0, 299)

    run(scenario, protocol=protocol)


@both
def test_damaged_entries_come_from_another_replica_and_are_counted(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged: set[str] = set()

    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(300))
        _damage(monkeypatch, reader, damaged)
        bookies = reader.metadata.segments[0].bookies
        damaged.add(bookies[0])
        check(await reader.read(0, 299), 0, 299)
        assert list(reader.digest_failures) == [bookies[0]]
        damaged.update(bookies)
        with pytest.raises(DigestError, match="entry 7 of ledger"):
            await reader.read(7, 7)

    run(scenario, protocol=protocol)


def _damage(patch: pytest.MonkeyPatch, reader: ReadHandle, damaged: set[str]) -> None:
    """Flip a bit in whatever these bookies send to the reader."""
    source = reader._source
    take = source._take_answers

    def take_damaged(core: Any, bookie_id: str, responses: Any, now: float) -> Any:
        if bookie_id in damaged:
            responses = [(token, _rot(response)) for token, response in responses]
        return take(core, bookie_id, responses, now)

    patch.setattr(source, "_take_answers", take_damaged)


def _rot(response: Any) -> Any:
    if hasattr(response, "bodies"):
        return msgspec.structs.replace(response, bodies=tuple(_flip(body) for body in response.bodies))
    return msgspec.structs.replace(response, body=_flip(response.body))


def _flip(body: bytes) -> bytes:
    raw = bytearray(body)
    raw[-1] ^= 1
    return bytes(raw)


@both
def test_a_bookie_that_does_not_know_batch_reads_is_read_entry_by_entry(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BookKeeper's bookies before 4.17 close the connection."""

    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(300))
        ask = ConnectionPool.ask
        refused: list[str] = []

        def refuse(self: ConnectionPool, bookie_id: str, request: Any, operation: Any) -> None:
            if type(request).__name__ == "BatchReadRequest":
                asker, token = operation
                refused.append(bookie_id)
                asker.on_unanswered(bookie_id, [token], "it closed the connection")
            else:
                ask(self, bookie_id, request, operation)

        monkeypatch.setattr(ConnectionPool, "ask", refuse)
        for _ in range(3):
            check(await reader.read(0, 299), 0, 299)
        assert len(refused) <= 3  # each replica was tried once, not for every read

    run(scenario, protocol=protocol)


@pytest.mark.parametrize("strange", [(), (1,), (0, 1, 2)])
def test_bookies_that_read_no_stripes_are_read_entry_by_entry_where_nobody_else_has_them(
    strange: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """BookKeeper's answer with the neighbours that they have, and say no stride."""

    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(900, size=100, ensemble=(3, 2, 2)))
        stores = [world.cluster.servers[f"b{number}"].store for number in strange]
        read, asked, without = BatchReads.read, list[int](), list[int]()

        def read_neighbours(self: BatchReads, connection: Any, ledger: Any, request: Any, answer: Any) -> None:
            asked.append(request.stride)
            if any(store is self.store for store in stores):
                without.append(request.entry_id)
                request = msgspec.structs.replace(request, stride=1)
            read(self, connection, ledger, request, answer)

        monkeypatch.setattr(BatchReads, "read", read_neighbours)
        for _ in range(3):
            check(await reader.read(0, 899), 0, 899)
            found = [block async for blocks in reader.blocks(5, 888) for block in blocks]
            assert [int(payload) for block in found for payload in block.payloads] == list(range(5, 889))
        assert set(asked) == {3}
        assert bool(without) == bool(strange)
        assert not reader.digest_failures
        if len(strange) == 3:
            assert len(asked) < 20, "they are not asked again and again"

    run(scenario, protocol="v2", read_batch_bytes=20_000)


def test_what_lies_beyond_the_end_or_the_lac_is_a_clear_error() -> None:
    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(3))
        with pytest.raises(NoSuchEntryError, match="its last entry is 2"):
            await reader.read(0, 3)
        with pytest.raises(UsageError, match="empty"):
            await reader.read(2, 1)
        writer = await world.other.create()
        await writer.append(b"0")
        live = await world.client.open_no_recovery(writer.ledger_id)
        with pytest.raises(UsageError, match="read_unconfirmed"):
            [batch async for batch in live.entries(0, 0)]
        check(await live.read_unconfirmed(0, 0), 0, 0)

    run(scenario)


def test_a_reader_without_a_metadata_store_reads_and_says_why_it_cannot_refresh() -> None:
    async def scenario(world: World) -> None:
        opened = await world.client.open(await world.closed(30))
        reader = ReadHandle(opened.ledger_id, opened.metadata, None, world.client._pool)
        check(await reader.read(0, 29), 0, 29)
        with pytest.raises(UsageError, match="without a metadata store"):
            await reader.refresh()
        with pytest.raises(NoSuchEntryError):
            await reader.read_unconfirmed(29, 30)

    run(scenario)


@both
def test_a_reader_follows_entries_to_bookies_that_it_has_never_heard_of(protocol: str) -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
        await writer.append_many([b"%d" % entry_id for entry_id in range(10)])
        reader = await world.client.open_no_recovery(writer.ledger_id)
        old = reader.metadata.segments[0].bookies
        for number, host in enumerate(world.cluster.bookies):
            if f"{host.name}:3181" in old:
                world.cluster.bookies[number].kill()
                await writer.append_many([b"%d" % (writer.last_add_pushed + 1 + i) for i in range(10)])
        assert not set(old) & set(writer.metadata.segments[-1].bookies)
        for host in world.cluster.bookies:
            if f"{host.name}:3181" in old[:1]:
                host.start()
        last = writer.last_add_confirmed
        check(await reader.read_unconfirmed(last - 5, last), last - 5, last)
        assert reader.metadata.segments[-1].first_entry_id > 0
        assert (await reader.read_lac()).last_add_confirmed == last - 10  # what the last burst knew

    run(scenario, bookie_count=4, protocol=protocol)


def test_read_lac_goes_to_the_new_ensemble_when_nobody_of_the_old_one_answers() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
        await writer.append(b"0")
        reader = await world.client.open_no_recovery(writer.ledger_id)
        old = reader.metadata.segments[0].bookies
        for host in world.cluster.bookies:
            if f"{host.name}:3181" in old:
                host.kill()
                await writer.append_many([b"x"] * 3)
        await writer.write_lac()
        assert (await reader.read_lac()).last_add_confirmed == writer.last_add_confirmed

    run(scenario, bookie_count=4)


def test_a_deleted_ledger_is_named_when_its_entries_are_gone() -> None:
    async def scenario(world: World) -> None:
        ledger_id = await world.closed(3)
        reader = await world.client.open_no_recovery(ledger_id)
        await world.other.delete(ledger_id)
        for host in world.cluster.bookies:
            host.kill()
        with pytest.raises(NoSuchLedgerError):
            await reader.read(0, 2)

    run(scenario)


def test_several_tasks_wait_for_one_lac_and_all_hear_of_it() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 2)
        reader = await world.client.open_no_recovery(writer.ledger_id)
        known = (await reader.read_lac()).last_add_confirmed
        waits = [asyncio.create_task(reader.wait_lac(known, 30.0)) for _ in range(5)]
        await asyncio.sleep(0.2)
        waits[1].cancel()
        await writer.append_many([b"x"] * 5)
        await writer.append(b"x")
        began = world.now()
        for number in (0, 2, 3, 4):
            assert (await waits[number]).last_add_confirmed > known
        assert world.now() - began < 1.0
        assert (await reader.wait_lac(known, 1.0)).last_add_confirmed > known

    run(scenario)


def test_closing_a_handle_ends_its_waits() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create()
        await writer.append(b"x")
        reader = await world.client.open_no_recovery(writer.ledger_id)
        wait = asyncio.create_task(reader.wait_lac(0, 1000.0))
        await asyncio.sleep(0.1)
        await reader.close()
        began = world.now()
        await wait
        assert world.now() - began < 0.1

    run(scenario)


@both
def test_reads_cancelled_at_any_moment_leave_a_reader_that_reads(protocol: str) -> None:
    async def scenario(world: World) -> None:
        reader = await world.client.open(await world.closed(200))
        for step in range(40):
            task = asyncio.create_task(reader.read(0, 199))
            await asyncio.sleep(0.0003 * step)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async for batch in reader.entries(0, 199):
            assert batch
            break
        check(await reader.read(0, 199), 0, 199)

    run(scenario, protocol=protocol)
