"""Health checks and reflection, as gRPC's own tools ask for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from rsm_spark.transport.security import Security
from rsm_spark.transport.standard_services import HealthService
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble
from tests.unit.rsm_spark.transport.rights_stand import all_services, principals, token_of


@pytest.mark.asyncio
async def test_a_check_without_a_token_says_whether_the_condition_holds_now(tmp_path: Path) -> None:
    async with all_services(Security(principals=principals(tmp_path)), ReplicaDouble(Group())) as server:
        leads = [False]
        server.health.conditions["leader"] = lambda: leads[0]
        async with grpc.aio.insecure_channel(server.address) as channel:
            check = HealthStub(channel).Check
            assert (await check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
            assert (await check(HealthCheckRequest(service="leader"))).status == HealthCheckResponse.NOT_SERVING
            leads[0] = True
            assert (await check(HealthCheckRequest(service="leader"))).status == HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="ask for one of '', 'leader'") as refused:
                await check(HealthCheckRequest(service="x" * 1000))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            assert server.guard.refused_calls == 0


@pytest.mark.asyncio
async def test_a_watch_needs_a_token_and_is_told_each_change(tmp_path: Path) -> None:
    async with all_services(Security(principals=principals(tmp_path)), ReplicaDouble(Group())) as server:
        ready = [True]
        server.health.conditions[""] = lambda: ready[0]
        async with grpc.aio.insecure_channel(server.address) as channel:
            watch = HealthStub(channel).Watch
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await watch(HealthCheckRequest()).read()
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

            token = (("authorization", f"Bearer {token_of('operator')}"),)
            listed = await HealthStub(channel).List(HealthListRequest(), metadata=token)
            assert {name: one.status for name, one in listed.statuses.items()} == {"": HealthCheckResponse.SERVING}
            told = watch(HealthCheckRequest(), metadata=token)
            assert (await told.read()).status == HealthCheckResponse.SERVING
            ready[0] = False
            assert (await told.read()).status == HealthCheckResponse.NOT_SERVING
            ready[0] = True
            assert (await told.read()).status == HealthCheckResponse.SERVING
            told.cancel()


@pytest.mark.asyncio
async def test_a_watcher_that_does_not_read_holds_up_nobody_else() -> None:
    service = HealthService()
    holds = [True]
    service.conditions["leader"] = lambda: holds[0]
    got: asyncio.Queue[int] = asyncio.Queue()
    never = asyncio.Event()

    class Stuck:
        async def write(self, _response: Any) -> None:
            await never.wait()

    class Reading:
        async def write(self, response: Any) -> None:
            got.put_nowait(response.status)

    watch: Any = service.handlers()["Watch"]
    tasks = [
        asyncio.create_task(watch.unary_stream(HealthCheckRequest(service="leader"), context))
        for context in (Stuck(), Reading())
    ]
    try:
        service.look()
        assert await got.get() == HealthCheckResponse.SERVING
        holds[0] = False
        service.look()
        assert await got.get() == HealthCheckResponse.NOT_SERVING
        service.look()
        holds[0] = True
        service.look()
        assert await got.get() == HealthCheckResponse.SERVING
        assert got.empty()
    finally:
        for task in tasks:
            task.cancel()


@pytest.mark.asyncio
async def test_reflection_names_every_service_and_its_messages() -> None:
    async with all_services(Security(), ReplicaDouble(Group())) as server:

        def ask() -> tuple[list[str], list[str]]:
            with grpc.insecure_channel(server.address) as channel:
                found = ProtoReflectionDescriptorDatabase(channel)
                services = sorted(found.get_services())
                pool = DescriptorPool(found)
                return services, [method.name for method in pool.FindServiceByName("rsm.store.v1.Replica").methods]

        services, methods = await asyncio.to_thread(ask)
        assert services == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "rsm.beat.v1.Beats",
            "rsm.broker.v1.Workers",
            "rsm.peer.v1.Peer",
            "rsm.relay.v1.Relay",
            "rsm.store.v1.Replica",
            "rsm.watch.v1.Watches",
        ]
        assert sorted(methods) == ["Call", "Exchange", "Status"]
