"""What killed queries write to: services and logs as processes, and how often each row was written there."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from broker.client.client import AsyncBrokerClient
from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient
from rsm_spark.logs import Logs
from rsm_spark.map import MapClient
from rsm_spark.sql import SqlClient
from tests.integration.broker_processes import brokers
from tests.integration.store_processes import STORE, StoreProcess
from tests.spark.kill_points import COMMANDS, LOG, MAP, PARTITIONS, TABLE, TASKS
from tests.spark.log_gateways import LogGatewayProcess


class Target(NamedTuple):
    """What a query writes to.

    Attributes:
        written: Tells how often each row was written.
        server_pid: Process that takes the rows.
        options: Of the sink, beside those of its kind.

    """

    written: Callable[[], Mapping[bytes, int]]
    server_pid: int
    options: Mapping[str, str] = {}


@contextlib.contextmanager
def _replicas(metadata_uri: str, log: str, folder: Path, count: int, command: Sequence[str]) -> Iterator[int]:
    """Run so many replicas; yield the process id of the first, which leads."""
    running: list[StoreProcess] = []
    try:
        for number in range(count):
            running.append(StoreProcess(metadata_uri, log, folder, f"copied-{number}", command=command))
        yield running[0].process.pid
    finally:
        for replica in running:
            replica.kill()


@contextlib.contextmanager
def _map(metadata_uri: str, log: str, folder: Path, count: int) -> Iterator[Target]:
    with _replicas(metadata_uri, log, folder, count, STORE) as pid:
        yield Target(lambda: asyncio.run(_versions(metadata_uri, log)), pid)


@contextlib.contextmanager
def _broker(metadata_uri: str, log: str, folder: Path, count: int) -> Iterator[Target]:
    options = ("--metadata-uri", metadata_uri, "--log", log)
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(brokers(folder, f"copied-{n}", options=options))[0] for n in range(count)]
        yield Target(lambda: Counter(asyncio.run(_keys(running[-1].url))), running[0].process.pid)


async def _keys(url: str) -> list[bytes]:
    keys: list[bytes] = []
    for number in range(3):
        async with await AsyncBrokerClient.connect([url], tenant=f"tenant-{number}") as client:
            keys += [task.key.encode() async for task in client.tasks()]
    return keys


@contextlib.contextmanager
def _table(metadata_uri: str, log: str, folder: Path, count: int) -> Iterator[Target]:
    """Yield a table without a key: what were written twice would be there twice."""

    async def ask(sql: str) -> Any:
        async with await SqlClient.connect(log, metadata_uri) as client:
            return (await client.query(sql)).rows if sql.startswith("SELECT") else await client.execute(sql)

    with _replicas(metadata_uri, log, folder, count, ("rsm_spark", "sql", "serve")) as pid:
        asyncio.run(ask("CREATE TABLE copied (k TEXT NOT NULL)"))
        yield Target(lambda: {key.encode(): count for key, count in asyncio.run(ask(_COUNTS))}, pid)


_COUNTS = "SELECT k, count(*) FROM copied GROUP BY k"


@contextlib.contextmanager
def _log(metadata_uri: str, log: str, _folder: Path, count: int, partitions: int | None = None) -> Iterator[Target]:
    running: list[LogGatewayProcess] = []
    try:
        for _ in range(count):
            running.append(LogGatewayProcess(metadata_uri))
        with BlockingLogGatewayClient.connect([running[0].url]) as client:
            client.create(log, partitions=partitions)
        gateways = {"gateway": ",".join(one.url for one in running)}
        yield Target(lambda: Counter(asyncio.run(_payloads(metadata_uri, log))), running[0].process.pid, gateways)
    finally:
        for one in running:
            one.kill()


async def _payloads(metadata_uri: str, log: str) -> list[bytes]:
    async with await Logs.connect(metadata_uri) as logs:
        if await logs.is_partitioned(log):
            async with await logs.partitioned_reader(log, follow=False) as parts:
                return [record.payload async for record in parts]
        async with await logs.reader(log, follow=False) as reader:
            return [record.payload async for record in reader]


TARGETS: dict[str, Callable[[str, str, Path, int], contextlib.AbstractContextManager[Target]]] = {
    MAP: _map,
    TASKS: _broker,
    COMMANDS: _map,
    TABLE: _table,
    LOG: _log,
    PARTITIONS: partial(_log, partitions=3),
}


async def _versions(metadata_uri: str, log: str) -> dict[bytes, int]:
    async with await MapClient.connect(log, metadata_uri) as client:
        keys = [row.key async for row in client.scan(keys_only=True)]
        found = await asyncio.gather(*map(client.get, keys))
        return {key: value.version for key, value in zip(keys, found, strict=True) if value is not None}
