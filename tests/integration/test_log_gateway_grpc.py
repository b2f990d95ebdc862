"""Gateways of logs over gRPC on real bookies: the same logs as over HTTP, by the same rules."""

from __future__ import annotations

import asyncio
import hashlib
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
from rsm_spark.logs import Logs, partition_of
from tests.integration.gateway_calls import GatewayRpc, refusal
from tests.integration.gateways import GatewayProcess, asking, batch, gateway
from tests.unit.ledger.bookie.test_tls import Authority

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


async def _refused(asked: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    return refusal(caught.value)[0]


def _principal(name: str, log: str, how: str) -> str:
    return f'[[principal]]\nname = "{name}"\nrole = "client"\naccess = "write"\nlogs = ["{log}"]\n{how}\n'


def _write_principals(file: Path, *entries: str) -> None:
    new = file.with_suffix(".new")
    new.write_text("".join(entries))
    new.chmod(0o600)
    new.rename(file)


def _credentials(authority: Authority, signed: dict[str, Any] | None = None) -> grpc.ChannelCredentials:
    files = [] if signed is None else [Path(signed[name]).read_bytes() for name in ("key", "cert")]
    return grpc.ssl_channel_credentials(Path(authority.ca).read_bytes(), *files)


async def test_a_token_opens_the_port_over_tls_alone_until_it_is_taken_away(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    signed, principals = authority.sign("gateway"), tmp_path / "principals.toml"
    tokens = {name: name * 10 for name in ("anna", "otto")}
    hashes = {name: f'tokens = ["{hashlib.sha256(token.encode()).hexdigest()}"]' for name, token in tokens.items()}
    entries = {
        name: _principal(name, f"{unique_name}{end}", hashes[name]) for name, end in (("anna", ""), ("otto", "2"))
    }
    _write_principals(principals, *entries.values())
    trusted = _credentials(authority)
    http = {"tls_cert": signed["cert"], "tls_key": signed["key"], "principals": str(principals)}
    async with (
        await Logs.connect(cluster.metadata_uri) as logs,
        gateway(cluster.metadata_uri, http=http, grpc_port=0) as one,
        GatewayRpc(one.grpc_address, tokens["anna"], trusted) as anna,
        GatewayRpc(one.grpc_address, tokens["otto"], trusted) as otto,
    ):
        for log in (unique_name, f"{unique_name}2"):
            await logs.create(log)
        await anna.append(unique_name, "p", 1, "a")
        assert await anna.texts(unique_name) == ["a"]
        assert list((await anna.call("List")).logs) == [unique_name]
        assert await _refused(anna.append(f"{unique_name}2", "p", 1, "a")) == "PERMISSION_DENIED"
        unknown = (("", trusted), ("x" * 40, trusted))
        unserved = ((tokens["anna"], None), (tokens["anna"], _credentials(stranger)))
        for code, callers in (("UNAUTHENTICATED", unknown), ("UNAVAILABLE", unserved)):
            for caller in callers:
                async with GatewayRpc(one.grpc_address, *caller) as rpc:
                    assert await _refused(rpc.append(unique_name, "p", 2, "forged")) == code
        tail = anna.call("Tail", log=unique_name, start="begin")
        async for piece in tail:
            if piece.records:
                break
        _write_principals(principals, entries["otto"])
        await otto.append(f"{unique_name}2", "o", 1, "o")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in tail:
                pass
        assert refusal(ended.value)[0] != "DEADLINE_EXCEEDED", "it was ended by the gateway"
        assert await _refused(anna.append(unique_name, "p", 2, "late")) == "UNAUTHENTICATED"
        await otto.append(f"{unique_name}2", "o", 2, "o")
        async with await logs.reader(unique_name, follow=False) as reader:
            assert [record.payload async for record in reader] == [b"a"]


async def test_a_certificate_is_as_good_as_a_token_and_without_one_nobody_is_served(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    authority, principals = Authority(tmp_path, "authority"), tmp_path / "principals.toml"
    signed = authority.sign("gateway")
    known, unknown = (authority.sign(name, host=f"DNS:{name}.example.org") for name in ("till", "cellar"))
    _write_principals(principals, _principal("till", unique_name, 'certificates = ["till.example.org"]'))
    http = {"tls_cert": signed["cert"], "tls_key": signed["key"], "tls_client_ca": authority.ca}
    async with (
        await Logs.connect(cluster.metadata_uri) as logs,
        gateway(cluster.metadata_uri, http=http | {"principals": str(principals)}, grpc_port=0) as one,
        GatewayRpc(one.grpc_address, "", _credentials(authority, known)) as till,
    ):
        await logs.create(unique_name)
        await till.append(unique_name, "p", 1, "a")
        for code, who in (("UNAUTHENTICATED", unknown), ("UNAVAILABLE", None)):
            async with GatewayRpc(one.grpc_address, "", _credentials(authority, who)) as rpc:
                assert await _refused(rpc.append(unique_name, "p", 2, "forged")) == code
        assert await till.texts(unique_name) == ["a"]
