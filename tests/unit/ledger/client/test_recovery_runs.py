"""Recoveries by real clients of simulated bookies that are dead, stopped or empty; recoveries that are cut short."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from ledger.core.metadata import NO_ENTRY, LedgerState, Segment
from ledger.errors import QuorumLostError
from tests.unit.ledger.client.read_world import World, check, run


def test_a_recovery_cancelled_at_any_moment_is_finished_by_the_next() -> None:
    async def scenario(world: World) -> None:
        for step in range(30):
            writer = await world.other.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            acked = await writer.append_many([b"x"] * 20)
            task = asyncio.create_task(world.client.open(writer.ledger_id))
            await asyncio.sleep(0.0015 * step)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            reader = await world.other.open(writer.ledger_id)
            assert reader.last_add_confirmed == acked
            assert reader.metadata.state is LedgerState.CLOSED
            assert reader.metadata.length == 20
            assert await writer.close() == acked

    run(scenario)


def test_a_stopped_bookie_does_not_stall_a_recovery() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 500)
        writer.abandon()
        world.cluster.bookies[1].pause()
        began = world.now()
        assert (await world.client.open(writer.ledger_id)).last_add_confirmed == 499
        assert world.now() - began < 2.5
        world.cluster.bookies[1].resume()

    run(scenario)


def test_an_empty_newest_ensemble_ends_the_ledger_with_the_length_of_the_segment_before() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
        await writer.append_many([b"12345"] * 7)
        writer.abandon()
        metadata, version = await world.other.ledgers.read(writer.ledger_id)
        unused = tuple(
            f"b{number}:3181" for number in range(4) if f"b{number}:3181" not in metadata.segments[0].bookies
        )
        segments = (*metadata.segments, Segment(7, cast("tuple[str, str]", unused)))
        await world.other.ledgers.write(writer.ledger_id, msgspec.structs.replace(metadata, segments=segments), version)
        reader = await world.client.open(writer.ledger_id)
        assert (reader.metadata.last_entry_id, reader.metadata.length) == (6, 35)
        assert reader.metadata.segments == segments

    run(scenario, bookie_count=4)


def test_a_recovery_with_two_bookies_gone_says_so_and_leaves_the_ledger_as_it_was() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"x")
        writer.abandon()
        for number in (0, 1):
            world.cluster.bookies[number].kill()
        with pytest.raises(QuorumLostError, match="nothing was cut off"):
            await world.client.open(writer.ledger_id)
        metadata = await world.other.metadata(writer.ledger_id)
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.IN_RECOVERY, NO_ENTRY)
        for number in (0, 1):
            world.cluster.bookies[number].start()
        await asyncio.sleep(5)
        assert (await world.client.open(writer.ledger_id)).last_add_confirmed == 0

    run(scenario)


def test_a_dead_bookie_is_replaced_by_a_spare_during_recovery() -> None:
    async def scenario(world: World) -> None:
        writer = await world.other.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
        await writer.append_many([b"%d" % entry_id for entry_id in range(50)])
        writer.abandon()
        dead = writer.metadata.segments[0].bookies[0]
        next(host for host in world.cluster.bookies if dead.startswith(host.name)).kill()
        reader = await world.client.open(writer.ledger_id)
        assert dead not in reader.metadata.segments[-1].bookies
        assert reader.metadata.length == sum(len(b"%d" % entry_id) for entry_id in range(50))
        check(await reader.read(0, 49), 0, 49)

    run(scenario, bookie_count=5)


def test_a_live_writer_that_changes_its_ensemble_while_it_is_recovered_loses_nothing() -> None:
    """The recovery rests on the metadata that its own compare-and-set gave; the writer adopts its end."""

    async def scenario(world: World) -> None:
        for step in range(12):
            writer = await world.other.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            acked = await writer.append_many([b"x"] * 5)
            victim = next(h for h in world.cluster.bookies if writer.metadata.segments[0].bookies[0].startswith(h.name))
            victim.kill()
            more = asyncio.gather(*[writer.append(b"x") for _ in range(20)], return_exceptions=True)
            await asyncio.sleep(0.0007 * step)
            reader = await world.client.open(writer.ledger_id)
            end = reader.last_add_confirmed
            heard = [entry_id for entry_id in await more if isinstance(entry_id, int)]
            assert max([acked, *heard]) <= end
            assert await writer.close() == end
            assert len(await reader.read(0, end)) == end + 1
            victim.start()
            while len(world.cluster.servers) < len(world.cluster.bookies):
                await asyncio.sleep(0.1)

    run(scenario, bookie_count=5)
