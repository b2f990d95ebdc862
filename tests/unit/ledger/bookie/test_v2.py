"""Protocol v2 on the same port: the first packet decides; adds, reads, batch reads, log-ins."""

from __future__ import annotations

import asyncio
import struct

import pytest

from ledger.storage.journal import Journal
from ledger.wire import packets as p
from ledger.wire.codes import Status
from ledger.wire.v2 import encode_request
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, Client, add, fence, read

OTHER_KEY = b"k" * 20


def bookie(scenario):
    """Run an async test on a fresh bookie: `scenario(bench, client)`, the client's protocol being v2."""

    def test() -> None:
        async def run() -> None:
            bench = Bench(journal={"file_bytes": 1 << 18})
            await bench.start()
            await scenario(bench, Client(bench, 2))

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


async def status(client, request) -> Status:
    return (await client.ask_one(request)).status


def batch(ledger_id: int, entry_id: int, count: int = 0, size: int = 1 << 20, **more) -> p.BatchReadRequest:
    return p.BatchReadRequest(77, ledger_id, entry_id, count, size, **more)


@bookie
async def test_v2_and_v3_share_one_port_and_one_store(bench, client) -> None:
    other = Client(bench, 3)
    assert await status(client, add(1, 0)) == OK
    assert await status(other, add(1, 1)) == OK
    assert bytes((await other.ask_one(read(1, 0))).body) == add(1, 0).body
    assert bytes((await client.ask_one(read(1, 1))).body) == add(1, 1).body


@bookie
async def test_a_run_of_adds_is_one_item_of_the_journal_and_one_write(bench, client) -> None:
    items, append = [], Journal.append
    bench.server.store.journal.append = lambda generation, item: (
        items.append(item),  # type: ignore[func-returns-value]
        append(bench.server.store.journal, generation, item),
    )
    answers = await client.ask(*[add(n % 3, n // 3, size=10 * n) for n in range(60)])
    assert [(x.ledger_id, x.entry_id) for x in answers] == [(n % 3, n // 3) for n in range(60)]
    assert len(items) == 1
    for n in range(60):
        assert bytes((await client.ask_one(read(n % 3, n // 3))).body) == add(n % 3, n // 3, size=10 * n).body


@bookie
async def test_entries_of_v2_survive_a_restart(bench, client) -> None:
    await client.ask(*[add(n % 3, n // 3) for n in range(30)])
    await bench.start()
    client = Client(bench, 2)
    assert bytes((await client.ask_one(read(2, 9))).body) == add(2, 9).body
    assert await status(client, add(2, 10, key=OTHER_KEY)) == Status.EUA


@bookie
async def test_a_frame_cut_anywhere_is_taken_when_it_is_whole(bench, client) -> None:
    frames = b"".join(encode_request(x) for x in (add(1, 0), add(1, 1), read(1, 0), batch(1, 0)))
    for cut in range(1, len(frames)):
        client = Client(bench, 2)
        client.send_bytes(frames[:cut])
        client.send_bytes(frames[cut:])
        await bench.until(lambda client=client: len(client.wire.responses) == 4)
        assert {x.status for x in client.wire.responses} == {OK}


@bookie
async def test_the_answers_are_those_of_v3(bench, client) -> None:
    assert await status(client, read(1, 0)) == Status.ENOLEDGER
    assert await status(client, batch(1, 0)) == Status.ENOLEDGER
    assert await status(client, add(1, 0)) == OK
    assert await status(client, read(1, 1)) == Status.ENOENTRY
    assert await status(client, batch(1, 1)) == Status.ENOENTRY
    assert await status(client, add(1, 1, key=OTHER_KEY)) == Status.EUA
    assert await status(client, fence(1, key=OTHER_KEY)) == Status.EUA
    assert await status(client, p.ReadRequest(0, 1, 0, is_fencing=True)) == Status.EUA
    last = await client.ask_one(read(1, -1))
    assert (last.status, last.entry_id, bytes(last.body)) == (OK, -1, add(1, 0).body)
    assert await status(client, fence(1, entry_id=0)) == OK
    assert await status(client, add(1, 1)) == Status.EFENCED
    assert await status(client, add(1, 1, is_recovery=True)) == OK
    assert await status(client, fence(9)) == Status.ENOENTRY
    assert await status(client, add(9, 0)) == Status.EFENCED
    auth = await client.ask_one(p.AuthRequest(0, "any", b""))
    assert (auth.status, auth.plugin, auth.payload) == (OK, "AuthDisabledPlugin", b"")


@bookie
async def test_a_fencing_batch_read_fences(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 1))
    found = await client.ask_one(batch(1, 0, master_key=KEY, is_fencing=True))
    assert [bytes(x) for x in found.bodies] == [add(1, 0).body, add(1, 1).body]
    assert await status(client, add(1, 2)) == Status.EFENCED
    client = await bench.start()
    assert await status(client, add(1, 2)) == Status.EFENCED


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 255])
def test_an_unknown_operation_ends_the_connection_alone(opcode: int) -> None:
    async def run() -> None:
        bench = Bench()
        other = await bench.start()
        client = Client(bench, 2)
        client.send_bytes(struct.pack(">IBBH", 20, 2, opcode, 0) + bytes(16))
        assert client.wire.closed
        assert await status(other, add(1, 0)) == OK

    asyncio.run(run())


async def stored(bench, client, count: int = 20, ledger_id: int = 1, size: int = 100) -> list[bytes]:
    requests = [add(ledger_id, n, size=size) for n in range(count)]
    await client.ask(*requests)
    return [x.body for x in requests]


@bookie
async def test_a_batch_read_answers_as_many_as_are_asked_for_fit_and_are_there(bench, client) -> None:
    bodies = await stored(bench, client)
    size = len(bodies[0])
    cases = [
        (batch(1, 0, 5), bodies[:5]),
        (batch(1, 15), bodies[15:]),
        (batch(1, 3, 0, 36 + 4 * (size + 4)), bodies[3:7]),
        (batch(1, 3, 0, 36 + 4 * (size + 4) - 1), bodies[3:6]),
        (batch(1, 3, 9, 0), bodies[3:4]),
        (batch(1, 3, -9, -1), bodies[3:4]),
        (batch(1, -1, 9), bodies[-1:]),
        (batch(1, 19, 1 << 30, 1 << 62), bodies[-1:]),
    ]
    for _ in range(2):
        for request, expected in cases:
            found = await client.ask_one(request)
            assert (found.status, found.txn_id, found.entry_id) == (OK, 77, request.entry_id)
            assert [bytes(x) for x in found.bodies] == expected
        await bench.start()  # The second time they are read from segments.
        client = Client(bench, 2)


@bookie
async def test_a_batch_read_of_entries_that_are_apart_gives_these_and_says_so(bench, client) -> None:
    bodies = await stored(bench, client)
    size = len(bodies[0])
    cases = [
        (batch(1, 1, 5, stride=3), bodies[1:14:3]),
        (batch(1, 2, stride=3), bodies[2::3]),
        (batch(1, 0, 2, 0, stride=7), bodies[:1]),
        (batch(1, 3, 0, 36 + 4 * (size + 4), stride=2), bodies[3:11:2]),
        (batch(1, 3, 0, 36 + 4 * (size + 4) - 1, stride=2), bodies[3:9:2]),
        (batch(1, 19, 1 << 30, 1 << 62, stride=255), bodies[-1:]),
        (batch(1, 0, -(1 << 31), -(1 << 62), stride=255), bodies[:1]),
        (batch(1, -1, 9, stride=3), bodies[-1:]),
    ]
    for _ in range(2):
        for request, expected in cases:
            found = await client.ask_one(request)
            assert (found.status, found.entry_id, found.stride) == (OK, request.entry_id, request.stride)
            assert [bytes(x) for x in found.bodies] == expected
        await bench.start()  # The second time they are read from segments.
        client = Client(bench, 2)


@bookie
async def test_a_bookie_of_a_striped_ledger_gives_its_own_entries_and_looks_no_further(bench, client) -> None:
    """With ensemble 3 and write quorum 2 it has two of three; entry 9 is lost, and far behind there is one more."""
    own = [n for n in range(30) if n % 3 != 2 and n != 9]
    requests = {n: add(1, n) for n in [*own, 1 << 50]}
    await client.ask(*requests.values())
    for _ in range(2):
        for request, expected in (
            (batch(1, 0, stride=3), [0, 3, 6]),
            (batch(1, 12, stride=3), [12, 15, 18, 21, 24, 27]),
            (batch(1, 1, 4, stride=3), [1, 4, 7, 10]),
            (batch(1, 12, 1 << 30, 1 << 62), [12, 13]),
        ):
            found = await client.ask_one(request)
            assert [bytes(x) for x in found.bodies] == [requests[n].body for n in expected]
        assert await status(client, batch(1, 9, stride=3)) == Status.ENOENTRY
        assert await status(client, batch(1, 2, stride=255)) == Status.ENOENTRY
        await bench.start()
        client = Client(bench, 2)


@bookie
async def test_a_batch_read_ends_where_an_entry_is_missing(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 1), add(1, 3))
    for _ in range(2):
        assert len((await client.ask_one(batch(1, 0))).bodies) == 2
        assert await status(client, batch(1, 2)) == Status.ENOENTRY
        await bench.start()
        client = Client(bench, 2)


def test_batch_reads_go_over_memory_journal_files_and_segments() -> None:
    async def run() -> None:
        bench = Bench(journal={"file_bytes": 1 << 14, "cache_bytes_max": 1 << 12})
        await bench.start()
        client = Client(bench, 2)
        requests = [add(1, n, size=n % 50) for n in range(600)]
        for start in range(0, 600, 20):
            await client.ask(*requests[start : start + 20])
        position, rounds = 0, 0
        while position < 600:
            found = await client.ask_one(batch(1, position, 0, 2_000))
            assert [bytes(x) for x in found.bodies] == [x.body for x in requests[position:][: len(found.bodies)]]
            position, rounds = position + len(found.bodies), rounds + 1
        for first in range(7):
            position = first
            while position < 600:
                found = await client.ask_one(batch(1, position, 0, 2_000, stride=7))
                assert [bytes(x) for x in found.bodies] == [x.body for x in requests[position::7][: len(found.bodies)]]
                position += 7 * len(found.bodies)
        assert rounds > 10

    asyncio.run(run())


@bookie
async def test_reads_that_come_together_are_answered_in_one_write(bench, client) -> None:
    await stored(bench, client)
    writes, writelines = [], client.wire.writelines
    client.wire.writelines = lambda parts: (writes.append(len(parts)), writelines(parts))  # type: ignore[func-returns-value]
    await client.ask(*[read(1, n) for n in range(20)])
    assert writes == [40], "a head and an entry each, not copied together"
