"""Disks that rot, refuse to sync, or are full: unknown is never called absent, and nothing false is acknowledged."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.testing import SimDisk
from ledger.wire import packets as p
from ledger.wire.codes import FenceState, Status
from ledger.wire.frames import FRAME_BYTES_MAX
from ledger.wire.v3 import encode_request
from tests.sets import examples
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, add, fence, read


def journal_file(bench: Bench) -> str:
    (name,) = [name for name in bench.disk.files() if name.endswith(".j")]
    return name


async def started(**more) -> tuple[Bench, Any]:
    bench = Bench(**more)
    return bench, await bench.start()


def test_rot_in_a_synced_batch_is_limbo_and_every_held_ledger_counts_as_fenced() -> None:
    async def run() -> None:
        bench, client = await started()
        await client.ask_one(add(1, 0))
        await client.ask_one(add(1, 1))
        await client.ask_one(fence(2))
        bench.disk.rot(journal_file(bench), byte_offset=150)  # in the first batch
        for _ in range(2):  # The state outlives further restarts.
            client = await bench.start()
            assert bench.server.store.limbo.reasons
            assert (await client.ask_one(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE
            assert (await client.ask_one(read(1, 1))).status == OK
            assert (await client.ask_one(read(77, 0))).status == Status.EUNKNOWNLEDGERSTATE
            assert (await client.ask_one(add(77, 0))).status == Status.EUNKNOWNLEDGERSTATE
            assert (await client.ask_one(add(1, 2))).status in (Status.EFENCED, Status.EUA)
            for ledger_id in (1, 77):  # The fence may be what was lost.
                told = await client.ask_one(p.FenceCheckRequest(0, ledger_id, KEY))
                assert told.state is FenceState.UNKNOWN

    asyncio.run(run())


def test_a_loss_is_remembered_wherever_the_power_goes_in_the_replay_that_finds_it() -> None:
    """The segment must not be on the disk before its losses: it would look converted before the damage."""

    async def run(cut_after: int) -> bool:
        bench, client = await started()
        for entry_id in range(3):
            await client.ask_one(add(1, entry_id))
        bench.disk.rot(journal_file(bench), byte_offset=150)
        bench.disk.operations_left = cut_after
        is_cut = await bench.start() is None
        bench.disk.operations_left = None
        bench.disk.lose_power()
        client = await bench.start()
        assert bench.server.store.limbo.reasons, f"forgotten after {cut_after} operations"
        assert (await client.ask_one(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE
        return is_cut

    cuts = 0
    while asyncio.run(run(cuts)):
        cuts += 1
    assert cuts > 20


def test_ledgers_younger_than_the_loss_are_served_as_usual() -> None:
    async def run() -> None:
        bench, client = await started()
        await client.ask_one(add(1, 0))
        await client.ask_one(add(1, 1))
        bench.disk.rot(journal_file(bench), byte_offset=150)
        client = await bench.start()
        await bench.server.store.bound_limbo(10)
        assert (await client.ask_one(read(11, 0))).status == Status.ENOLEDGER
        assert (await client.ask_one(add(11, 0))).status == OK
        assert (await client.ask_one(read(11, 1))).status == Status.ENOENTRY
        assert (await client.ask_one(add(10, 0, is_recovery=True))).status == OK
        assert (await client.ask_one(add(10, 1))).status == Status.EFENCED

    asyncio.run(run())


def test_rot_in_the_last_batch_is_found_once_the_journal_was_idle() -> None:
    async def run() -> None:
        bench, client = await started()
        await client.ask_one(add(1, 0))
        syncs = bench.disk.sync_count
        async with asyncio.timeout(60):
            while bench.disk.sync_count == syncs:
                await asyncio.sleep(0.001)
        bench.disk.rot(journal_file(bench), byte_offset=150)
        client = await bench.start()
        assert (await client.ask_one(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE

    asyncio.run(run())


def test_rot_in_a_segment_is_an_error_of_the_read_and_not_an_absence() -> None:
    async def run() -> None:
        bench, client = await started()
        await client.ask_one(add(1, 0))
        client = await bench.start()
        (segment,) = [name for name in bench.disk.files() if name.endswith(".seg")]
        bench.disk.rot(segment, byte_offset=bench.disk.files()[segment].index(bytes(40)))
        assert (await client.ask_one(read(1, 0))).status == Status.EIO
        client = await bench.start()  # The index in memory is rebuilt from the segments: the damage is seen.
        assert (await client.ask_one(read(1, 0))).status == Status.EUNKNOWNLEDGERSTATE

    asyncio.run(run())


def test_a_failed_sync_stops_the_bookie_for_good_and_acknowledges_nothing() -> None:
    async def run() -> None:
        bench, client = await started()
        await client.ask_one(add(1, 0))
        bench.disk.sync_error_rate = 1.0
        client.send(add(1, 1), fence(2, txn=9))
        await bench.until(bench.server.failed.done)
        assert isinstance(bench.server.failed.result(), OSError)
        assert len(client.wire.responses) == 1
        assert client.wire.closed
        bench.disk.make_healthy()
        client = await bench.start()
        bench.disk.lose_power()  # What replay kept was written anew: the lying cache is not what holds it.
        client = await bench.start()
        assert (await client.ask_one(read(1, 0))).status == OK

    asyncio.run(run())


def test_what_replay_shows_after_a_failed_sync_survives_a_power_cut() -> None:
    """After EIO the kernel's cache shows bytes that are not on the disk; replay must write them again."""

    async def run(seed: int) -> None:
        bench = Bench(SimDisk(random.Random(seed)))
        client = await bench.start()
        await client.ask_one(add(1, 0))
        bench.disk.sync_error_rate = 1.0
        client.send(add(1, 1))
        await bench.until(bench.server.failed.done)
        bench.disk.make_healthy()
        client = await bench.start()
        shown = (await client.ask_one(read(1, 1))).status
        bench.disk.lose_power()
        client = await bench.start()
        assert (await client.ask_one(read(1, 1))).status == shown
        assert (await client.ask_one(read(1, 0))).status == OK

    for seed in range(20):
        asyncio.run(run(seed))


def test_a_full_disk_takes_fences_and_recovery_adds_but_no_adds_until_there_is_room() -> None:
    async def run() -> None:
        file_bytes = 1 << 16
        disk = SimDisk(random.Random(1), capacity_bytes=file_bytes * 6)
        bench = Bench(disk, journal={"file_bytes": file_bytes, "file_count": 3})
        client = await bench.start()
        entry_id = 0
        while not bench.read_only and entry_id < 2000:
            await client.ask(*[add(1, entry_id + n, txn=n, size=1000) for n in range(10)])
            entry_id += 10
        assert bench.read_only == [True]
        assert (await client.ask_one(add(1, 5000))).status == Status.EREADONLY
        assert (await client.ask_one(add(2, 0, is_recovery=True))).status == OK
        assert (await client.ask_one(fence(1))).status == OK
        held = [n for n in range(entry_id) if (await client.ask_one(read(1, n))).status == OK]
        assert len(held) > 30
        disk.capacity_bytes = 1 << 30
        async with asyncio.timeout(60):
            while bench.server.store.is_read_only:
                await asyncio.sleep(0.002)
                await bench.server.store.check_space()
        assert bench.read_only == [True, False]
        assert (await client.ask_one(add(3, 0))).status == OK
        assert [n for n in held if (await client.ask_one(read(1, n))).status != OK] == []

    asyncio.run(run())


def test_a_bookie_is_read_only_before_its_disk_is_full() -> None:
    async def run() -> None:
        bench, client = await started(free_bytes_min=2 << 30)
        assert bench.read_only == [True]
        assert (await client.ask_one(add(1, 0))).status == Status.EREADONLY
        assert (await client.ask_one(read(1, 0))).status == Status.ENOLEDGER

    asyncio.run(run())


def test_a_client_that_floods_waits_for_conversions_and_loses_nothing() -> None:
    """Back-pressure stops reading the socket; requests keep their order and are all answered."""

    async def run() -> None:
        bench, client = await started(journal={"file_bytes": 1 << 14, "file_count": 2})
        client.send(*[add(1, n, txn=n, size=200) for n in range(3000)])
        client.send(read(1, 2999, txn=5000))
        await bench.until(lambda: len(client.wire.responses) == 3001)
        assert {r.status for r in client.wire.responses} == {OK}
        assert client.wire.is_reading

    asyncio.run(run())


FRAMES = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(lambda body: len(body).to_bytes(4, "big") + body),
    st.binary(max_size=60).map(lambda body: (len(body) + 1).to_bytes(4, "big") + b"\x0a" + body),
    st.integers(0, 2**32 - 1).map(lambda n: n.to_bytes(4, "big") + b"\x0a\x0b"),
)


@given(st.lists(FRAMES, min_size=1, max_size=6), st.data())
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_that_are_no_requests_end_their_connection_only(frames, data) -> None:
    async def run() -> None:
        bench, client = await started()
        good = encode_request(add(3, 0, size=20))
        place = data.draw(st.integers(0, len(good) * 8 - 1))
        flipped = bytearray(good)
        flipped[place // 8] ^= 1 << place % 8
        garbage = type(client)(bench)
        garbage.send_bytes(good + b"".join(frames))
        other = type(client)(bench)
        other.send_bytes(bytes(flipped))
        await bench.settle()
        assert (await client.ask_one(add(1, 0))).status == OK
        assert (await client.ask_one(read(1, 0))).status == OK

    asyncio.run(run())


def test_a_client_of_no_known_protocol_is_told_why_by_the_log_and_closed(caplog) -> None:
    async def run() -> None:
        bench, client = await started()
        client.send_bytes((24).to_bytes(4, "big") + bytes([1, 1, 0, 0]) + bytes(20))
        assert client.wire.closed

    asyncio.run(run())
    assert "neither v3 (0x0a) nor v2 (0x02)" in caplog.text


def test_a_frame_over_the_limit_ends_the_connection() -> None:
    async def run() -> None:
        bench, client = await started()
        client.send_bytes((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert client.wire.closed

    asyncio.run(run())
