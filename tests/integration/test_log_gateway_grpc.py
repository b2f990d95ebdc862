"""Gateways of logs over gRPC on real bookies: the same logs as over HTTP, by the same rules."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from ledger.dev import DevCluster
from rsm_spark.gateway import logs_pb2 as pb
from rsm_spark.logs import partition_of
from tests.integration.gateway_calls import GatewayRpc, refusal
from tests.integration.gateways import GatewayProcess, asking, batch, gateway

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.asyncio


async def test_what_is_appended_over_grpc_is_read_and_tailed_and_the_same_over_http(
    cluster: DevCluster, unique_name: str
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    async with gateway(uri, grpc_port=0) as one, GatewayRpc(one.grpc_address) as rpc, asking(one.url) as http:
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await rpc.append(log, "p", 1, "a")
        assert refusal(missing.value) == ("NOT_FOUND", "no-such-log")
        await rpc.call("Create", log=log, retention_s=3600)
        first = list((await rpc.append(log, "p", 1, "a", "b", "c")).appended.positions)
        assert list((await rpc.append(log, "p", 2, "b", "c")).appended.positions) == first[1:]
        over_http = await http.post(f"/v1/logs/{log}/records", json=batch("p", 3, "c", "d"))
        assert over_http.json()["positions"][0] == first[2], "one producer, whichever way it comes"
        with pytest.raises(grpc.aio.AioRpcError) as gap:
            await rpc.append(log, "p", 9, "z")
        assert refusal(gap.value) == ("FAILED_PRECONDITION", "sequence-gap")
        assert dict(gap.value.trailing_metadata() or ())["rsm-expected"] == "5"
        (page,) = [piece async for piece in rpc.call("Read", log=log, limit=2)]
        assert [record.payload for record in page.records] == [b"a", b"b"]
        assert await rpc.texts(log, start=page.next) == ["c", "d"]
        seen: list[bytes] = []
        async for piece in rpc.call("Tail", log=log, start=page.records[0].next):
            seen += [record.payload for record in piece.records]
            if len(seen) == 3:
                await rpc.append(log, "p", 5, "e")
            if len(seen) == 4:
                break
        assert seen == [b"b", b"c", b"d", b"e"]
        assert log in (await rpc.call("List", prefix=log)).logs
        described = await rpc.call("Describe", log=log)
        assert (described.is_open, described.partition_count) == (True, 0)
        assert described.plain_logs[0].retention_ms == 3_600_000
        await rpc.call("Truncate", log=log, position=first[1])
        assert await rpc.texts(log) == ["c", "d", "e"]
        mark = {
            "log": log,
            "writer": "w",
            "checkpoint": "c",
            "run": "r",
            "kind": pb.WriteBatchRequest.WHOLE,
            "batch": 1,
        }
        for status in (pb.WriteBatchAnswer.APPLIED, pb.WriteBatchAnswer.DONE):
            answer = await rpc.call("WriteBatch", records=[pb.NewRecord(payload=b"row")], **mark)
            assert answer.status == status
        metrics = (await http.get("/metrics")).text
        assert 'rsm_gateway_rpcs_total{method="Append",code="OK"}' in metrics
        await rpc.call("Delete", log=log)
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await rpc.call("Describe", log=log)
        assert refusal(gone.value) == ("NOT_FOUND", "no-such-log")


async def test_a_record_larger_than_a_message_of_records_comes_whole(cluster: DevCluster, unique_name: str) -> None:
    async with gateway(cluster.metadata_uri, grpc_port=0) as one, GatewayRpc(one.grpc_address) as rpc:
        await rpc.call("Create", log=unique_name)
        texts = ["x" * 3_000_000, "y" * 100_000, "z" * 200_000]
        for sequence, text in enumerate(texts, 1):
            await rpc.append(unique_name, "p", sequence, text)
        assert await rpc.texts(unique_name) == texts


async def test_a_partitioned_log_is_appended_to_grows_and_is_tailed_from_any_place(
    cluster: DevCluster, unique_name: str
) -> None:
    log, key = unique_name, b"order-17"
    async with gateway(cluster.metadata_uri, grpc_port=0) as one, GatewayRpc(one.grpc_address) as rpc:
        await rpc.call("Create", log=log, partitions=2)

        async def send(sequence: int, count: int, *texts: str) -> Any:
            records = [pb.NewRecord(payload=text.encode(), key=key) for text in texts]
            asked = {"log": log, "producer": "p", "sequence": sequence, "records": records, "partitions": count}
            return await rpc.call("Append", **asked)

        first = list((await send(1, 2, "a", "b")).appended.positions)
        await rpc.call("Grow", log=log, partitions=3)
        changed = await send(2, 2, "b", "c")
        assert changed.WhichOneof("outcome") == "partitions_changed"
        assert (changed.partitions_changed.partitions, list(changed.partitions_changed.positions)) == (3, first[1:])
        sequence = 3 if partition_of(key, 3) == partition_of(key, 2) else 1
        assert (await send(sequence, 3, "c")).WhichOneof("outcome") == "appended"
        seen: list[pb.LogRecord] = []
        async with asyncio.timeout(60):
            async for piece in rpc.call("Tail", log=log, start="begin"):
                seen += piece.records
                if len(seen) == 3:
                    break
        assert [record.payload for record in seen] == [b"a", b"b", b"c"]
        assert seen[0].partition == partition_of(key, 2)
        assert await rpc.texts(log, start=seen[0].next) == ["b", "c"]
        assert (await rpc.call("Describe", log=log)).partition_count == 3


async def test_a_gateway_names_the_one_that_writes_and_takes_over_when_that_is_killed(
    cluster: DevCluster, unique_name: str
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    killed = await GatewayProcess.start(uri, 0, "--grpc-port", "0")
    try:
        async with gateway(uri, grpc_port=0) as other, GatewayRpc(other.grpc_address) as there:
            async with GatewayRpc(killed.grpc_address) as here:
                await here.call("Create", log=log)
                first = list((await here.append(log, "p", 1, "a")).appended.positions)
                with pytest.raises(grpc.aio.AioRpcError) as elsewhere:
                    await there.append(log, "p", 2, "b")
                assert refusal(elsewhere.value) == ("FAILED_PRECONDITION", "written-elsewhere")
                assert dict(elsewhere.value.trailing_metadata() or ())["rsm-grpc-writer"] == killed.grpc_address
                await killed.kill()
            async with asyncio.timeout(60):
                again = await _appended(there, log)
            assert again.appended.positions[0] == first[0]
            assert await there.texts(log) == ["a", "b"]
    finally:
        await killed.kill()


async def _appended(rpc: GatewayRpc, log: str) -> Any:
    """Send the same until it is taken."""
    while True:
        try:
            return await rpc.append(log, "p", 1, "a", "b")
        except grpc.aio.AioRpcError as error:
            if refusal(error)[1] not in {"written-elsewhere", "not-now"}:
                raise
            await asyncio.sleep(0.1)


async def test_the_programs_of_the_document_run(cluster: DevCluster, unique_name: str) -> None:
    text = (ROOT / "docs" / "logs-grpc.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    async with gateway(cluster.metadata_uri, grpc_port=0) as one:
        program = program.replace("127.0.0.1:8091", one.grpc_address).replace('"visits"', f'"{unique_name}"')
        command = [sys.executable, "-c", program]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        shown, _ = await process.communicate()
        assert process.returncode == 0
    assert shown.decode().splitlines() == ["b'tea'", "b'milk'"]


async def test_health_and_reflection_are_there_for_grpcs_own_tools(cluster: DevCluster) -> None:
    async with gateway(cluster.metadata_uri, grpc_port=0) as one, GatewayRpc(one.grpc_address) as rpc:
        check = rpc.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for service in ("", "rsm.logs.v1.Logs"):
            answer = await check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflect = rpc.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        asked = reflect(iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="rsm.logs.v1.Logs")]))
        async for found in asked:
            assert found.file_descriptor_response.file_descriptor_proto
            break
        asked.cancel()
