"""The client of gateways on real bookies: exactly once, pages, tails that go on, tokens, and its blocking twin."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.errors import UsageError
from ledger.tls import TlsSettings
from rsm_spark.core.plain_log import LogEndedError, RecordTooLargeError
from rsm_spark.errors import AccessDeniedError, NoSuchLogError
from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient
from rsm_spark.gateway_client.client import LogGatewayClient, TailedRecord
from rsm_spark.gateway_client.errors import GatewayRefusedError, GatewayUnavailableError
from rsm_spark.logs import Logs
from tests.integration.gateways import GatewayProcess, gateway
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]


async def _take(client: LogGatewayClient, log: str, count: int, **options: str) -> list[TailedRecord]:
    found: list[TailedRecord] = []
    async with contextlib.aclosing(client.tail(log, **options)) as tail:  # type: ignore[type-var]
        async for record in tail:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_records_are_appended_and_read_and_errors_are_the_librarys(cluster: DevCluster, unique_name: str) -> None:
    uri = cluster.metadata_uri
    async with gateway(uri) as one, await LogGatewayClient.connect([one.url]) as client:
        with pytest.raises(NoSuchLogError):
            await client.page(unique_name)
        with pytest.raises(NoSuchLogError):
            await client.producer(unique_name).append(b"x")
        await client.create(unique_name, retention_s=3600)
        producer = client.producer(unique_name, "till-7")
        places = await producer.append_many([b"a", b"b", b"c"], keys=[b"k", None, b"\xff"])
        with pytest.raises(RecordTooLargeError):
            await producer.append(b"x" * 4_200_000)
        await producer.append(b"d")
        page = await client.page(unique_name, limit=3)
        assert [(row.key, row.payload) for row in page.records] == [(b"k", b"a"), (None, b"b"), (b"\xff", b"c")]
        assert [row.position for row in page.records] == [place.position for place in places]
        assert [row.payload for row in (await client.page(unique_name, page.next)).records] == [b"d"]
        seen = await _take(client, unique_name, 2, start="begin")
        assert [row.payload for row in await _take(client, unique_name, 2, behind=seen[-1].place)] == [b"c", b"d"]
        assert unique_name in await client.logs(unique_name)
        assert (await client.info(unique_name))["is_open"]
        await client.truncate(unique_name, places[1].position)
        assert [row.payload for row in (await client.page(unique_name)).records] == [b"c", b"d"]
        async with await Logs.connect(uri) as logs, await logs.open_writer(unique_name) as writer:
            with pytest.raises(GatewayRefusedError, match="written-by-a-program"):
                await producer.append(b"e")
            await writer.mark_end()
        with pytest.raises(LogEndedError):
            await producer.append(b"e")
        assert [row.payload async for row in client.tail(unique_name, "begin")] == [b"c", b"d"]
        await client.delete(unique_name)
        with pytest.raises(NoSuchLogError):
            await client.info(unique_name)
    async with await LogGatewayClient.connect([one.url], timeout_s=1) as client:
        with pytest.raises(GatewayUnavailableError):
            await client.logs()


async def test_a_partitioned_log_grows_under_its_producer_and_its_tail(cluster: DevCluster, unique_name: str) -> None:
    async with gateway(cluster.metadata_uri) as one, await LogGatewayClient.connect([one.url]) as client:
        await client.create(unique_name, partitions=2)
        producer, keys = client.producer(unique_name), [b"k%d" % number for number in range(8)]
        await producer.append_many([key + b" a" for key in keys], keys=keys)
        await client.grow(unique_name, 5)
        places = await producer.append_many([key + b" b" for key in keys], keys=keys)
        assert {place.partition for place in places} - {0, 1}
        seen = await _take(client, unique_name, 5, start="begin")
        seen += await _take(client, unique_name, 11, behind=seen[-1].place)
        for key in keys:
            assert [row.payload[-1:] for row in seen if row.key == key] == [b"a", b"b"]


async def test_producer_and_tail_go_on_when_gateways_are_killed(cluster: DevCluster, unique_name: str) -> None:
    gateways = [await GatewayProcess.start(cluster.metadata_uri) for _ in range(2)]
    try:
        async with await LogGatewayClient.connect([one.url for one in gateways]) as client:
            await client.create(unique_name)
            tail = asyncio.create_task(_take(client, unique_name, 60, start="begin"))
            producer = client.producer(unique_name)
            for number in range(60):
                await producer.append(b"%d" % number)
                if number == 20:
                    await gateways[0].kill()
                    gateways[0] = await GatewayProcess.start(
                        cluster.metadata_uri, int(gateways[0].url.rpartition(":")[2])
                    )
                if number == 40:
                    await gateways[1].kill()
            assert [row.payload for row in await tail] == [b"%d" % number for number in range(60)]
    finally:
        for one in gateways:
            await one.kill()


async def test_a_token_is_shown_over_tls_alone_and_refusals_are_told(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    files = authority.sign("gateway")
    secret = tmp_path / "token"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    tokens = tmp_path / "principals.toml"
    hashed = hashlib.sha256(b"s" * 40).hexdigest()
    head = '[[principal]]\nname = "ann"\nrole = "client"\naccess = "write"\n'
    tokens.write_text(f'{head}logs = ["{unique_name}"]\ntokens = ["{hashed}"]\n')
    tokens.chmod(0o600)
    http = {"tls_cert": files["cert"], "tls_key": files["key"], "principals": str(tokens)}
    async with gateway(cluster.metadata_uri, http=http) as one:
        async with await Logs.connect(cluster.metadata_uri) as logs:
            await logs.create(unique_name)
        tls = TlsSettings(ca=authority.ca)
        async with await LogGatewayClient.connect([one.url], token_file=secret, tls=tls) as client:
            assert await client.logs() == [unique_name]
            await client.producer(unique_name).append(b"a")
            with pytest.raises(AccessDeniedError):
                await client.page("another")
        async with await LogGatewayClient.connect([one.url], token="wrong" * 8, tls=tls) as client:
            with pytest.raises(AccessDeniedError):
                await client.logs()
    with pytest.raises(UsageError, match="plain text"):
        await LogGatewayClient.connect(["http://192.0.2.1:8090"], token="x" * 20)
    with pytest.raises(UsageError, match="TLS"):
        await LogGatewayClient.connect(["http://127.0.0.1:8090"], tls=tls)


async def test_the_blocking_twin_does_the_same(cluster: DevCluster, unique_name: str) -> None:
    def work(url: str) -> list[bytes]:
        with BlockingLogGatewayClient.connect([url]) as client:
            client.create(unique_name)
            producer = client.producer(unique_name)
            producer.append_many([b"a", b"b"])
            producer.append(b"c")
            tail = client.tail(unique_name, "begin")
            return [next(tail).payload for _ in range(3)]

    async with gateway(cluster.metadata_uri) as one:
        assert await asyncio.to_thread(work, one.url) == [b"a", b"b", b"c"]


async def test_the_programs_of_the_page_run(cluster: DevCluster, unique_name: str) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "logs-http.md").read_text(), re.DOTALL)
    assert len(programs) == 2
    async with gateway(cluster.metadata_uri) as one:
        for program in programs:
            text = program.replace("http://127.0.0.1:8090", one.url).replace("visits", unique_name)
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", text, cwd=ROOT)
            assert await process.wait() == 0, program
