"""Reads and recoveries with real bookies: one that is stopped, ensembles that change, a writer killed under load."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ledger import BlockingLedgerClient, LedgerClient
from ledger.client.settings import ClientSettings
from ledger.dev import DevCluster

_IN_FLIGHT = 2_000
_WRITER = """
import asyncio, sys
from ledger import LedgerClient

async def main(uri, count):
    client = await LedgerClient.connect(uri)
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    acked = await writer.append(b"%1000d" % 0)
    writer.append_many([b"%1000d" % number for number in range(1, count + 1)])
    while writer.last_add_pushed < count:
        await asyncio.sleep(0)
    print(writer.ledger_id, writer.last_add_confirmed, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

protocols = pytest.mark.parametrize("protocol", ["v2", "v3"])


def on_cluster(cluster: DevCluster, protocol: Any, scenario: Callable[..., object], **more: Any) -> None:
    async def run() -> None:
        settings = ClientSettings(protocol=protocol, **more)
        async with asyncio.timeout(60), await LedgerClient.connect(cluster.metadata_uri, settings=settings) as client:
            await scenario(client)  # type: ignore[misc]

    asyncio.run(run())


@protocols
def test_a_stopped_bookie_does_not_stall_reads(whole_cluster: DevCluster, protocol: str) -> None:
    async def scenario(client: LedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        last = await writer.append_many([b"%d" % number for number in range(3_000)])
        await writer.close()
        reader = await client.open_no_recovery(writer.ledger_id)
        await reader.read(0, last)
        whole_cluster.pause_bookie(0)
        for _ in range(3):
            entries = await reader.read(0, last)
            assert [int(entry.payload) for entry in entries] == list(range(3_000))
        whole_cluster.resume_bookie(0)

    # The bookie that is stopped is waited for longer than all of this may take.
    on_cluster(whole_cluster, protocol, scenario, request_timeout_s=120.0)


@pytest.fixture
def four_bookies(start_cluster: Callable[..., DevCluster]) -> DevCluster:
    return start_cluster(bookie_count=4)


@protocols
def test_a_tail_follows_the_writer_to_another_ensemble(four_bookies: DevCluster, protocol: str) -> None:
    cluster = four_bookies

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        reader = await client.open_no_recovery(writer.ledger_id)
        found: list[int] = []

        async def follow() -> None:
            async for batch in reader.tail():
                found.extend(int(entry.payload) for entry in batch)

        following = asyncio.create_task(follow())
        sent = 0
        for number in range(4):
            if number == 1:
                failed = cluster.bookies.index(writer.metadata.segments[0].bookies[0])
                await loop.run_in_executor(None, cluster.kill_bookie, failed)
            for _ in range(40):
                await writer.append_many([b"%d" % (sent + index) for index in range(25)])
                sent += 25
                await asyncio.sleep(0.01)
        for _ in range(1_000):
            if len(writer.metadata.segments) > 1:
                break
            await writer.append_many([b"%d" % (sent + index) for index in range(25)])
            sent += 25
            await asyncio.sleep(0.01)
        assert len(writer.metadata.segments) > 1
        await writer.close()
        await following
        assert found == list(range(sent))
        await loop.run_in_executor(None, cluster.start_bookie, failed)

    on_cluster(cluster, protocol, scenario)


@protocols
def test_a_writer_killed_with_two_thousand_in_flight_is_recovered(cluster: DevCluster, protocol: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, cluster.metadata_uri, str(_IN_FLIGHT)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ledger_id, acked = map(int, process.stdout.readline().split())
        process.send_signal(signal.SIGKILL)

    async def scenario(client: LedgerClient) -> None:
        reader = await client.open(ledger_id)
        end = reader.last_add_confirmed
        assert acked <= end <= _IN_FLIGHT
        entries = await reader.read(0, end)
        assert [int(entry.payload) for entry in entries] == list(range(end + 1))
        assert reader.metadata.length == 1_000 * (end + 1)

    on_cluster(cluster, protocol, scenario)


def test_a_synchronous_scan_comes_in_batches_and_may_be_left(cluster: DevCluster) -> None:
    with BlockingLedgerClient.connect(cluster.metadata_uri) as client:
        writer = client.create()
        for number in range(100):
            writer.append(b"%d" % number)
        writer.close()
        reader = client.open(writer.ledger_id)
        assert [int(entry.payload) for batch in reader.entries(10, 99) for entry in batch] == list(range(10, 100))
        for batch in reader.entries(0, 99):
            assert batch
            break
