"""What the bookie answers, line by line as BookKeeper's own bookies do (facts: section 5)."""

from __future__ import annotations

import asyncio
import struct

import pytest

from ledger.wire import packets as p
from ledger.wire import v3
from ledger.wire.codes import FenceState, Status
from ledger.wire.entry import seal_lac, unseal
from tests.unit.ledger.bookie.bookie_bench import DIGEST, KEY, OK, Bench, add, fence, read

OTHER_KEY = b"k" * 20


def bookie(scenario):
    """Run an async test on a fresh bookie: `scenario(bench, client)`."""

    def test() -> None:
        async def run() -> None:
            bench = Bench()
            client = await bench.start()
            await scenario(bench, client)
            for ledger in bench.server.store.ledgers.values():
                ledger.validate()

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


async def status(client, request) -> Status:
    return (await client.ask_one(request)).status


@bookie
async def test_an_entry_added_can_be_read(bench, client) -> None:
    assert await status(client, add(1, 0, lac=-1)) == OK
    found = await client.ask_one(read(1, 0))
    assert unseal(found.body, DIGEST, ledger_id=1, entry_id=0).payload == bytes(40)


@bookie
async def test_an_unknown_ledger_is_told_from_an_unknown_entry(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert await status(client, read(2, 0)) == Status.ENOLEDGER
    assert await status(client, read(1, 1)) == Status.ENOENTRY


@bookie
async def test_a_read_of_the_last_entry_answers_with_the_highest_and_keeps_the_id_asked_for(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 5, lac=0), add(1, 3, lac=-1))
    found = await client.ask_one(read(1, -1))
    assert (found.status, found.entry_id, found.max_lac) == (OK, -1, 0)
    assert unseal(found.body, DIGEST, ledger_id=1, entry_id=5).entry_id == 5


@bookie
async def test_another_master_key_changes_nothing(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert await status(client, add(1, 1, key=OTHER_KEY)) == Status.EUA
    assert await status(client, fence(1, key=OTHER_KEY)) == Status.EUA
    assert await status(client, p.ReadRequest(0, 1, -1, None, is_fencing=True)) == Status.EUA
    assert await status(client, add(1, 1)) == OK
    assert await status(client, read(1, 2)) == Status.ENOENTRY


@bookie
async def test_a_fenced_ledger_takes_recovery_adds_and_explicit_lacs_only(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert await status(client, fence(1)) == OK
    assert await status(client, add(1, 1)) == Status.EFENCED
    assert await status(client, add(1, 1, is_recovery=True)) == OK
    assert await status(client, read(1, 1)) == OK
    assert await status(client, p.WriteLacRequest(0, 1, 0, KEY, seal_lac(1, 0, DIGEST))) == OK


@bookie
async def test_a_ledger_fenced_before_it_was_seen_stays_fenced(bench, client) -> None:
    assert await status(client, fence(9)) == Status.ENOENTRY
    assert await status(client, add(9, 0)) == Status.EFENCED
    assert await status(client, read(9, 0)) == Status.ENOENTRY
    client = await bench.start()
    assert await status(client, add(9, 0)) == Status.EFENCED


@bookie
async def test_a_fence_is_answered_only_when_it_is_durable(bench, client) -> None:
    """Also the second fence, which finds the ledger fenced: nobody may hear of it before the first is synced."""
    await client.ask(add(1, 0))
    other = type(client)(bench)
    syncs = bench.disk.sync_count
    client.send(fence(1, txn=5))
    other.send(fence(1, txn=6))
    assert not other.wire.responses[0:], "told before the sync"
    await bench.until(lambda: bool(other.wire.responses))
    assert bench.disk.sync_count > syncs


@bookie
async def test_an_entry_whose_own_ids_differ_from_the_request_is_refused(bench, client) -> None:
    request = add(1, 0)
    wrong = p.AddRequest(7, 1, 1, KEY, request.body)
    assert await status(client, wrong) == Status.EBADREQ
    short = p.AddRequest(8, 1, 0, KEY, request.body[:20])
    assert await status(client, short) == Status.EBADREQ
    assert await status(client, read(1, 0)) == Status.ENOLEDGER


@bookie
async def test_adding_again_what_is_held_is_acknowledged_after_a_sync_of_its_own(bench, client) -> None:
    await client.ask_one(add(1, 0))
    syncs = bench.disk.sync_count
    assert await status(client, add(1, 0)) == OK
    assert bench.disk.sync_count > syncs


@bookie
async def test_read_lac_knows_the_explicit_one_and_the_last_entry(bench, client) -> None:
    assert await status(client, p.ReadLacRequest(0, 1)) == Status.ENOENTRY
    await client.ask(add(1, 0), add(1, 1, lac=0))
    body = seal_lac(1, 1, DIGEST)
    assert await status(client, p.WriteLacRequest(0, 1, 1, KEY, body)) == OK
    lower = seal_lac(1, 0, DIGEST)
    assert await status(client, p.WriteLacRequest(0, 1, 0, KEY, lower)) == OK
    for _ in range(2):
        found = await client.ask_one(p.ReadLacRequest(0, 1))
        assert (found.status, found.lac_body) == (OK, body)
        assert unseal(found.last_entry_body, DIGEST, ledger_id=1, entry_id=1).entry_id == 1
        client = await bench.start()


@bookie
async def test_an_explicit_lac_of_another_ledger_or_key_is_refused(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert await status(client, p.WriteLacRequest(0, 1, 0, KEY, seal_lac(2, 0, DIGEST))) == Status.EBADREQ
    assert await status(client, p.WriteLacRequest(0, 1, 0, OTHER_KEY, seal_lac(1, 0, DIGEST))) == Status.EUA


@bookie
async def test_the_rest_of_the_operations(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 1), add(1, 7))
    assert await status(client, p.ForceRequest(0, 1)) == OK
    auth = await client.ask_one(p.AuthRequest(0, "any", b""))
    assert (auth.status, auth.plugin, auth.payload) == (OK, "AuthDisabledPlugin", b"")
    info = await client.ask_one(p.InfoRequest(0, 3))
    assert info.total_bytes > info.free_bytes > 0
    listed = await client.ask_one(p.ListRequest(0, 1))
    assert struct.unpack_from(">ii", listed.availability) == (0, 2)
    assert listed.availability[64:] == struct.pack(">qqiiqqii", 0, 0, 2, 0, 7, 7, 1, 0)
    assert await status(client, p.StartTlsRequest(0)) == Status.EBADREQ


def poll(previous: int, timeout_ms: int = 60_000, txn: int = 0) -> p.ReadRequest:
    return p.ReadRequest(txn, 1, -1, None, is_piggyback=True, previous_lac=previous, timeout_ms=timeout_ms)


@bookie
async def test_a_long_poll_is_answered_when_the_lac_moves(bench, client) -> None:
    await client.ask_one(add(1, 0))
    client.send(poll(-1, txn=77))
    await bench.settle()
    assert len(client.wire.responses) == 1, "answered too early"
    other = type(client)(bench)
    await other.ask_one(add(1, 1, lac=0))
    await bench.until(lambda: len(client.wire.responses) == 2)
    found = client.wire.responses[1]
    assert (found.txn_id, found.status, found.entry_id, found.max_lac) == (77, OK, 0, 0)
    assert bench.server._handlers.polls.count == 0


@bookie
async def test_a_long_poll_is_answered_at_once_if_the_lac_has_moved(bench, client) -> None:
    await client.ask(add(1, 0), add(1, 1, lac=0))
    found = await client.ask_one(poll(-1))
    assert (found.entry_id, found.max_lac) == (0, 0)


@bookie
async def test_a_long_poll_that_runs_out_says_ok_without_an_entry(bench, client) -> None:
    await client.ask_one(add(1, 0))
    client.send(poll(-1, timeout_ms=5))
    async with asyncio.timeout(60):
        while len(client.wire.responses) < 2:
            await asyncio.sleep(0.001)
    found = client.wire.responses[1]
    assert (found.status, found.entry_id, found.body) == (OK, -1, None)


@bookie
async def test_a_fence_wakes_long_polls(bench, client) -> None:
    await client.ask_one(add(1, 0))
    client.send(poll(-1))
    await type(client)(bench).ask_one(fence(1))
    await bench.until(lambda: len(client.wire.responses) == 2)
    assert client.wire.responses[1].body is None


@bookie
async def test_long_polls_of_a_lost_connection_are_forgotten(bench, client) -> None:
    await client.ask_one(add(1, 0))
    client.send(poll(-1))
    client.connection.connection_lost(None)
    assert bench.server._handlers.polls.count == 0
    assert bench.server.store.ledgers[1].waiters == []


@pytest.mark.parametrize("count", [1, 700])
def test_entries_come_back_from_segments_after_rolls_and_restarts(count: int) -> None:
    async def run() -> None:
        bench = Bench(journal={"file_bytes": 1 << 14})
        client = await bench.start()
        for start in range(0, count, 50):
            ids = range(start, min(count, start + 50))
            answers = await client.ask(*[add(n % 3, n, txn=n) for n in ids])
            assert {answer.status for answer in answers} == {OK}
        for _ in range(2):
            found = await client.ask(*[read(n % 3, n, txn=n) for n in range(count)])
            assert [bytes(x.body) for x in found] == [add(n % 3, n).body for n in range(count)]
            client = await bench.start()

    asyncio.run(run())


def check_fence(ledger_id: int, key: bytes = KEY, lease_ms: int = 0) -> p.FenceCheckRequest:
    return p.FenceCheckRequest(0, ledger_id, key, lease_ms)


@bookie
async def test_fences_that_wait_leave_room_for_those_of_other_ledgers(bench, client) -> None:
    await client.ask(add(1, 0), add(2, 0), check_fence(1, lease_ms=250), check_fence(2, lease_ms=250))
    client.send(*[fence(1)] * 10_001)
    recoverer = type(client)(bench)
    recoverer.send(fence(2))
    assert recoverer.wire.responses == []
    assert bench.server.counts().waited_fences == 10_002


@bookie
async def test_a_fence_is_taken_at_once_and_told_when_the_promise_is_over(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert (await client.ask_one(check_fence(1, lease_ms=10_000))).lease_ms == 250
    recoverer = type(client)(bench)
    recoverer.send(fence(1))
    await bench.settle()
    checked = await client.ask_one(check_fence(1, lease_ms=100))
    assert (checked.state, checked.lease_ms) == (FenceState.FENCED, 0)
    assert (await client.ask_one(add(1, 1))).status == Status.EFENCED
    assert recoverer.wire.responses == []
    bench.now_s += 0.25
    async with asyncio.timeout(60):
        while not recoverer.wire.responses:
            await asyncio.sleep(0.01)
    assert recoverer.wire.responses[0].status == Status.EOK
    assert bench.server.counts().waited_fences == bench.server.counts().promises == 1


@bookie
async def test_whoever_has_not_the_key_keeps_no_fence_waiting(bench, client) -> None:
    await client.ask_one(add(1, 0))
    refused = await client.ask_one(check_fence(1, OTHER_KEY, lease_ms=250))
    assert (refused.status, refused.lease_ms) == (Status.EUA, 0)
    assert (await client.ask_one(check_fence(2, lease_ms=250))).lease_ms == 0
    assert (await client.ask_one(fence(1))).status == Status.EOK
    assert bench.server.counts().waited_fences == 0


@bookie
async def test_a_fence_is_told_from_when_it_is_taken_before_it_is_durable(bench, client) -> None:
    await client.ask_one(add(1, 0))
    assert (await client.ask_one(check_fence(1))).state is FenceState.OPEN
    syncs = bench.disk.sync_count
    recoverer = type(client)(bench)
    recoverer.send(fence(1))
    assert not bench.server.store.ledgers[1].is_fence_durable
    client.send(check_fence(1))
    assert client.wire.responses[-1].state is FenceState.FENCED
    assert (recoverer.wire.responses, bench.disk.sync_count) == ([], syncs)
    await bench.until(lambda: bool(recoverer.wire.responses))
    client = await bench.start()
    assert (await client.ask_one(check_fence(1))).state is FenceState.FENCED


@bookie
async def test_a_fence_check_needs_the_key_and_a_ledger_and_reads_no_disk(bench, client) -> None:
    await client.ask_one(add(1, 0))
    refused = await client.ask_one(check_fence(1, OTHER_KEY))
    assert (refused.status, refused.state) == (Status.EUA, FenceState.UNKNOWN)
    unknown = await client.ask_one(check_fence(2))
    assert (unknown.status, unknown.state) == (Status.ENOLEDGER, FenceState.UNKNOWN)
    assert 2 not in bench.server.store.ledgers
    bench.server.store.ledgers[1].is_deleted = True
    assert (await client.ask_one(check_fence(1))).state is FenceState.UNKNOWN


def test_a_bookie_of_before_answers_a_fence_check_as_a_plain_question_for_the_lac() -> None:
    """Its protobuf skips the field: what it sees is the same request without it."""
    asked = v3._request_message(check_fence(1))
    asked.readLacRequest.ClearField("fenceCheckKey")
    assert v3.decode_request(asked.SerializeToString()) == p.ReadLacRequest(0, 1)
    answer = v3.encode_response(p.ReadLacResponse(0, OK, 1))[4:]
    assert isinstance(v3.decode_response(answer), p.ReadLacResponse)
