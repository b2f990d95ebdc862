"""Strangers who fence or begin ledgers that are not theirs, on bookies of a real cluster with a writer beside."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ledger import LedgerClient
from ledger.wire import v2
from ledger.wire.codes import Status
from ledger.wire.digests import master_key
from ledger.wire.packets import AddRequest, ReadRequest
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.bookie_process import Bookie, Client, add

FOREIGN = master_key(b"foreign")
ID_COUNT = 20_000
_ROLLS, _REFUSALS = 20, 10_000
QUORUM: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


async def _fence_ahead(address: str, first_id: int, fenced: dict[int, None], work: Work) -> None:
    """Fence ids one after the other, as fast as the bookie answers; note what it took. A unit is an answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frames = [v2.encode_request(ReadRequest(0, first_id + n, -1, FOREIGN, is_fencing=True)) for n in range(ID_COUNT)]

    async def send() -> None:
        for start in range(0, ID_COUNT, 100):
            writer.write(b"".join(frames[start : start + 100]))
            await writer.drain()

    sending = asyncio.get_running_loop().create_task(send())
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(4), "big")
            response: Any = v2.decode_response(await reader.readexactly(length))
            if response.status != Status.EUA:
                fenced[response.ledger_id] = None
            work.add()
    finally:
        sending.cancel()
        writer.close()


def test_20000_ledgers_to_come_are_not_fenced_and_a_writer_beside_begins_new_ones(cluster) -> None:
    async def scenario() -> None:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:

            async def roll() -> None:
                """Do what a log does at its roll: a new ledger, its first entry, its end."""
                writer = await client.create(password=b"mine", **QUORUM)
                await writer.append(b"first")
                await writer.close()

            pids = [cluster.pids()[bookie.name] for bookie in cluster.state.bookies]
            work, victim = Work(), Victim(roll, servers=pids)
            quiet = await victim.run(_ROLLS)
            writer = await client.create(**QUORUM)
            await writer.append(b"x")
            fenced: dict[int, None] = {}
            tasks = [
                asyncio.get_running_loop().create_task(_fence_ahead(bookie.address, writer.ledger_id + 1, fenced, work))
                for bookie in cluster.state.bookies
                for _ in range(4)
            ]
            attacked = await victim.run(_ROLLS, beside=work, units=_REFUSALS)
            memory_mib = list(map(resident_mib, pids))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await writer.append(b"y")
            await writer.close()
            attacked.assert_goes_on_like(quiet, units_per_call=500)
            assert not fenced
            assert max(memory_mib) < 500

    asyncio.run(scenario())


def test_a_strangers_first_add_needs_the_password_that_the_metadata_hold(cluster) -> None:
    async def scenario() -> None:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            writer = await client.create(password=b"mine", **QUORUM)
            port = cluster.state.bookies[0].port
            stranger = await Client.connect(port)
            real = add(writer.ledger_id, 0)
            for key, is_recovery in ((FOREIGN, False), (FOREIGN, True), (master_key(b""), False)):
                request = AddRequest(0, writer.ledger_id, 0, key, real.body, is_recovery=is_recovery)
                assert [x.status for x in await stranger.ask(request)] == [Status.EUA]
            fence = ReadRequest(0, writer.ledger_id, -1, FOREIGN, is_fencing=True)
            assert [x.status for x in await stranger.ask(fence)] == [Status.EUA]
            assert await writer.append(b"first") == 0
            # Who copies a lost bookie's entries knows the password, and the metadata do not name the target yet.
            single = await client.create(password=b"copied", ensemble_size=1, write_quorum=1, ack_quorum=1)
            metadata, _ = await client.ledgers.read(single.ledger_id)
            others = [x for x in cluster.state.bookies if x.address not in metadata.segments[0].bookies]
            copier = await Client.connect(others[0].port)
            body = add(single.ledger_id, 0).body
            request = AddRequest(0, single.ledger_id, 0, master_key(b"copied"), body, is_recovery=True)
            assert [x.status for x in await copier.ask(request)] == [Status.EOK]
            for one in (writer, single):
                await one.close()
            for caller in (stranger, copier):
                caller.writer.close()

    asyncio.run(scenario())


def test_while_zookeeper_is_away_known_ledgers_go_on_and_unknown_ones_are_put_off(
    start_cluster, tmp_path, unique_name
) -> None:
    cluster = start_cluster(bookie_count=0)
    bookie = Bookie(cluster.zookeeper, tmp_path / "bookie", root=f"/{unique_name}", options=())
    bookie.start()

    async def scenario() -> None:
        async with await LedgerClient.connect(bookie.uri) as client:
            quorum: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
            writer, fresh = await client.create(**quorum), await client.create(**quorum)
            await writer.append(b"first")
            cluster.pause_zookeeper()
            try:
                stranger = await Client.connect(bookie.port)
                for ledger_id in (fresh.ledger_id, 10_000):
                    fence = ReadRequest(0, ledger_id, -1, master_key(b""), is_fencing=True)
                    for request in (add(ledger_id, 0), fence):
                        (answer,) = await stranger.ask(request)
                        assert answer.status == Status.ETOOMANYREQUESTS
                (await Victim(lambda: writer.append(b"more")).run(100)).assert_answered()
            finally:
                cluster.resume_zookeeper()
            first = fresh.append(b"first")  # The writer tries again by itself until it is let in.
            assert await first == 0
            stranger.writer.close()
            with contextlib.suppress(Exception):
                await writer.close()
                await fresh.close()

    try:
        asyncio.run(scenario())
    finally:
        bookie.kill()


@pytest.mark.slow
def test_any_ledger_is_what_the_option_says(zookeeper, tmp_path, unique_name) -> None:
    bookie = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    bookie.start()

    async def scenario() -> None:
        client = await Client.connect(bookie.port)
        assert [x.status for x in await client.ask(add(5, 0))] == [Status.EOK]
        client.writer.close()

    try:
        asyncio.run(scenario())
    finally:
        bookie.kill()
