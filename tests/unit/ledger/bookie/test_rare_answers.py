"""Answers that clients seldom see, in both protocols: read-only, long polls that are odd, lists, deleted ledgers."""

from __future__ import annotations

import asyncio
import struct

import pytest

from ledger.bookie.server import ServerSettings
from ledger.wire import packets as p
from ledger.wire.codes import PRIORITY_RECOVERY, Status
from ledger.wire.entry import seal_lac
from tests.unit.ledger.bookie.bookie_bench import DIGEST, KEY, OK, Bench, Client, add, fence, read


def in_both(scenario):
    """Run `scenario(bench, client)` with a client of v2 and one of v3, each on a fresh bookie."""

    @pytest.mark.parametrize("version", [2, 3])
    def test(version: int) -> None:
        async def run() -> None:
            bench = Bench()
            await bench.start()
            await scenario(bench, Client(bench, version))

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


def in_v3(scenario):
    def test() -> None:
        async def run() -> None:
            bench = Bench()
            await scenario(bench, await bench.start())

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


async def status(client, request) -> Status:
    return (await client.ask_one(request)).status


@in_both
async def test_a_read_only_bookie_takes_urgent_adds_and_fences_and_serves_reads(bench, client) -> None:
    await client.ask(add(1, 0), add(2, 0))
    bench.server.store.is_read_only = True
    assert await status(client, add(1, 1)) == Status.EREADONLY
    assert await status(client, add(3, 0)) == Status.EREADONLY
    assert await status(client, add(1, 1, priority=PRIORITY_RECOVERY)) == OK
    assert await status(client, add(1, 2, is_recovery=True, priority=PRIORITY_RECOVERY)) == OK
    assert await status(client, fence(2)) == OK
    assert await status(client, read(1, 1)) == OK
    bench.server.store.is_read_only = False
    assert await status(client, add(2, 1)) == Status.EFENCED
    assert await status(client, add(1, 3)) == OK


@in_both
async def test_urgent_adds_of_a_read_only_bookie_are_refused_when_the_journal_is_full(bench, client) -> None:
    store = bench.server.store
    store.is_read_only = True
    store.claim = lambda _byte_count, *, is_privileged=False: None  # noqa: ARG005
    assert await status(client, add(1, 0, priority=PRIORITY_RECOVERY)) == Status.EREADONLY


def test_a_bookie_that_is_told_so_stays_read_only() -> None:
    async def run() -> None:
        bench = Bench(server=ServerSettings(is_read_only=True, space_check_s=0.001))
        client = await bench.start()
        await bench.server.listen("127.0.0.1", 0)
        await asyncio.sleep(0.02)
        assert await status(client, add(1, 0)) == Status.EREADONLY
        await bench.server.close()

    asyncio.run(run())


@in_both
async def test_a_ledger_deleted_while_fenced_refuses_writes_after_a_restart_too(bench, client) -> None:
    await client.ask_one(add(1, 0))
    await client.ask_one(fence(1))
    assert await bench.server.store.deletions.delete([1], 5) == [1]
    for _ in range(2):
        for request in (add(1, 1), add(1, 1, is_recovery=True)):
            assert await status(client, request) == Status.EFENCED
        assert await status(client, read(1, 0)) == Status.ENOLEDGER
        await bench.start()
        client = Client(bench, client.version)


@in_both
async def test_equal_adds_in_one_batch_are_each_answered(bench, client) -> None:
    answers = await client.ask(*[add(1, 0, txn=n) for n in range(5)])
    assert [(x.entry_id, x.status) for x in answers] == [(0, OK)] * 5


@in_both
async def test_entries_that_come_in_any_order_are_all_taken(bench, client) -> None:
    ids = [7, 3, 9, 0, 8, 1, 2, 6, 5, 4]
    answers = await client.ask(*[add(1, n, txn=n) for n in ids])
    assert {x.status for x in answers} == {OK}
    await bench.start()
    client = Client(bench, 3)
    for n in ids:
        assert bytes((await client.ask_one(read(1, n))).body) == add(1, n).body


@in_both
async def test_a_mixed_stream_takes_effect_in_order(bench, client) -> None:
    requests = [add(1, 0, txn=1), read(1, 0, txn=2), add(1, 1, txn=3), read(1, 1, txn=4), fence(1, txn=5, entry_id=1)]
    client.send(*requests, add(1, 2, txn=6), read(1, 2, txn=7))
    await bench.until(lambda: len(client.wire.responses) == 7)
    found = {(type(x), x.entry_id, x.status) for x in client.wire.responses}
    assert (p.AddResponse, 2, Status.EFENCED) in found
    assert (p.ReadResponse, 2, Status.ENOENTRY) in found
    assert sum(x.status == OK for x in client.wire.responses) == 5


def poll(previous: int, *, entry_id: int = -1, ledger_id: int = 1, piggyback: bool = True, **more) -> p.ReadRequest:
    more = {"timeout_ms": 5} | more
    return p.ReadRequest(9, ledger_id, entry_id, None, is_piggyback=piggyback, previous_lac=previous, **more)


@in_v3
async def test_a_long_poll_without_the_entry_is_answered_without_it(bench, client) -> None:
    """Entry 1 is on other bookies of a striped ledger."""
    await client.ask(add(1, 0), add(1, 2, lac=1))
    found = await client.ask_one(poll(0))
    assert (found.status, found.entry_id, found.body, found.max_lac) == (OK, -1, None, 1)


@in_v3
async def test_a_long_poll_for_an_entry_by_id_is_refused(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert await status(client, poll(0, entry_id=0)) == Status.EBADREQ


@in_v3
async def test_a_long_poll_of_an_unknown_or_deleted_ledger_is_answered_at_once(bench, client) -> None:
    assert await status(client, poll(0, ledger_id=5, timeout_ms=60_000)) == Status.ENOLEDGER
    await client.ask_one(add(1, 0))
    bench.server.store.ledgers[1].is_deleted = True
    assert await status(client, poll(0, timeout_ms=60_000)) == Status.ENOLEDGER


@in_v3
async def test_a_read_that_waits_for_the_lac_without_piggyback_gets_its_entry(bench, client) -> None:
    await client.ask_one(add(1, 0))
    client.send(poll(-1, entry_id=0, piggyback=False, timeout_ms=60_000))
    await bench.settle()
    assert len(client.wire.responses) == 1, "answered too early"
    await type(client)(bench).ask_one(add(1, 1, lac=0))
    await bench.until(lambda: len(client.wire.responses) == 2)
    assert bytes(client.wire.responses[1].body) == add(1, 0).body


@in_v3
async def test_a_long_poll_without_a_timeout_does_not_wait(bench, client) -> None:
    await client.ask_one(add(1, 0))
    found = await client.ask_one(poll(0, timeout_ms=None))
    assert (found.status, found.entry_id, found.body) == (OK, -1, None)


@in_v3
async def test_an_explicit_lac_wakes_long_polls_and_counts_as_lac(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 1))
    client.send(poll(0, timeout_ms=60_000))
    other = type(client)(bench)
    assert await status(other, p.WriteLacRequest(0, 1, 1, KEY, seal_lac(1, 1, DIGEST))) == OK
    await bench.until(lambda: len(client.wire.responses) == 3)
    assert (client.wire.responses[2].entry_id, client.wire.responses[2].max_lac) == (1, 1)
    assert (await other.ask_one(read(1, 0))).max_lac == 1


@in_v3
async def test_an_explicit_lac_brings_a_ledger_into_being(bench, client) -> None:
    body = seal_lac(8, 3, DIGEST)
    assert await status(client, p.WriteLacRequest(0, 8, 3, KEY, body)) == OK
    assert await status(client, add(8, 0, key=b"k" * 20)) == Status.EUA
    found = await client.ask_one(p.ReadLacRequest(0, 8))
    assert (found.status, found.lac_body, found.last_entry_body) == (OK, body, None)


@in_v3
async def test_lists_name_striped_entries_in_groups(bench, client) -> None:
    await client.ask(*[add(1, n) for n in range(0, 30, 3)], add(1, 100), add(1, 101))
    for _ in range(2):
        listed = (await client.ask_one(p.ListRequest(0, 1))).availability
        assert struct.unpack_from(">ii", listed) == (0, 2)
        assert listed[64:] == struct.pack(">qqiiqqii", 0, 27, 1, 3, 100, 100, 2, 0)
        client = await bench.start()
    assert await status(client, p.ListRequest(0, 2)) == Status.ENOLEDGER


@in_v3
async def test_who_asks_for_disk_space_gets_what_it_asked_for(bench, client) -> None:
    answers = await client.ask(*[p.InfoRequest(n, n) for n in range(4)])
    assert [(x.total_bytes is None, x.free_bytes is None) for x in answers] == [
        (True, True), (False, True), (True, False), (False, False),
    ]  # fmt: skip
