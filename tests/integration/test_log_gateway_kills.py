"""Fifty gateways killed, one after the other, under producers and tails over HTTP or gRPC: each record is in once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from ledger.dev import DevCluster
from rsm_spark.gateway_client.client import LogGatewayClient
from rsm_spark.gateway_client.producer import AppendedPlace
from rsm_spark.logs import Logs
from tests.integration.gateway_rpc_client import GatewayRpcClient
from tests.integration.gateways import GatewayProcess

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

_KILLS = int(os.environ.get("RSM_GATEWAY_KILLS", "50"))
_RECORDS_BETWEEN = 40


AnyClient = LogGatewayClient | GatewayRpcClient


class _Appender:
    """A producer through a client of gateways, and what it was told."""

    def __init__(self, client: AnyClient, log: str, name: str) -> None:
        self.name = name
        self.producer = client.producer(log, name)
        self.places: list[AppendedPlace] = []
        self._rng = random.Random(name)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            count = self._rng.choice((1, 5))
            numbers = range(len(self.places), len(self.places) + count)
            texts = [b"%s %d" % (self.name.encode(), number) for number in numbers]
            self.places += await self.producer.append_many(texts, keys=[self.name.encode()] * count)


async def _connect(door: str, gateways: list[GatewayProcess]) -> AnyClient:
    if door == "grpc":
        return GatewayRpcClient([one.grpc_address for one in gateways])
    return await LogGatewayClient.connect([one.url for one in gateways], timeout_s=600)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def _tail(client: AnyClient, log: str, found: list[bytes]) -> None:
    async with contextlib.aclosing(client.tail(log, "begin")) as tail:  # type: ignore[type-var]
        async for record in tail:
            found.append(record.payload)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_each_record_is_in_the_log_once_over_fifty_kills_of_three_gateways(
    cluster: DevCluster, unique_name: str, door: str, partitions: int | None
) -> None:
    uri, rng = cluster.metadata_uri, random.Random(17)
    gateways = [await GatewayProcess.start(uri, 0, "--grpc-port", "0") for _ in range(3)]
    client = await _connect(door, gateways)
    tasks: list[asyncio.Task[None]] = []
    try:
        await client.create(unique_name, partitions=partitions)
        appenders, stop, tailed = (
            [_Appender(client, unique_name, f"p{n}") for n in range(6)],
            asyncio.Event(),
            list[bytes](),
        )
        tasks = [asyncio.create_task(one.run(stop)) for one in appenders]
        tasks.append(asyncio.create_task(_tail(client, unique_name, tailed)))
        for _ in range(_KILLS // (1 if partitions is None else 5)):
            before = sum(len(one.places) for one in appenders)
            while sum(len(one.places) for one in appenders) < before + _RECORDS_BETWEEN:
                await asyncio.sleep(0.05)
                for task in tasks:
                    if task.done():
                        task.result()
            place = rng.randrange(3)
            await gateways[place].kill()
            killed = gateways[place]
            ports = _port(killed.url), "--grpc-port", str(_port(killed.grpc_address))
            gateways[place] = await GatewayProcess.start(uri, *ports)
        stop.set()
        await asyncio.gather(*tasks[:-1])
        found = await _in_the_log(uri, unique_name, partitions)
        for one in appenders:
            mine = [row for row in found if row[0].startswith(one.name.encode() + b" ")]
            assert mine == [(b"%s %d" % (one.name.encode(), n), place) for n, place in enumerate(one.places)]
        while len(tailed) < len(found):
            await asyncio.sleep(0.05)
            assert not tasks[-1].done(), tasks[-1].result()
        assert sorted(tailed) == sorted(payload for payload, _ in found)
        print(f"{len(found)} records, each once")
        if isinstance(client, GatewayRpcClient):
            print(f"{client.resent_count} calls sent again, {client.sent_on_count} sent on")
            assert client.resent_count > 0 or _KILLS < 10
        if partitions is None:
            assert tailed == [payload for payload, _ in found]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        for gateway_process in gateways:
            await gateway_process.kill()


async def _in_the_log(uri: str, log: str, partitions: int | None) -> list[tuple[bytes, AppendedPlace]]:
    """Return payloads and places, read from the bookies themselves."""
    async with await Logs.connect(uri) as logs:
        if partitions is None:
            async with await logs.reader(log, follow=False) as reader:
                return [(record.payload, AppendedPlace(record.position)) async for record in reader]
        async with await logs.partitioned_reader(log, follow=False) as parts:
            return [(row.payload, AppendedPlace(row.position, row.partition)) async for row in parts]
