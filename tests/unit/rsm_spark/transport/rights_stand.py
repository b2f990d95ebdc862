"""A server of every gRPC service, and principals of every role that call it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio

from broker.server.worker_service import WorkerService
from rsm_spark.core.beats import BeatAnswer
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.map.scopes import MapScopes
from rsm_spark.runtime.peers import LogIndex
from rsm_spark.transport.beat_service import BeatService
from rsm_spark.transport.peer_service import PeerService
from rsm_spark.transport.relay_service import RelayService
from rsm_spark.transport.security import RpcChannel, Security, open_channel
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.watch_service import WatchService

LOG = "orders"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
SCOPES = {
    "replica": "",
    "worker": "",
    "client": 'access = "write"\n',
    "tenant": 'tenant = "acme"\n',
    "operator": "",
    "auditor": "",
}


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def token_of(name: str) -> str:
    return f"{name}-of-the-cluster"


def entry(name: str, role: str = "", more: str = "") -> str:
    role = role or name
    scope = more or SCOPES[role]
    return f'[[principal]]\nname = "{name}"\nrole = "{role}"\ntokens = ["{sha256(token_of(name))}"]\n{scope}\n'


def principals(folder: Path, *more: str) -> str:
    path = folder / "principals.toml"
    path.write_text("".join([*map(entry, SCOPES), *more]))
    path.chmod(0o600)
    return str(path)


def shown_by(folder: Path, name: str, **more: Any) -> Security:
    """What a caller of this name needs."""
    path = folder / f"{name}.token"
    path.write_text(token_of(name))
    return Security(token_file=str(path), **more)


class Keyed:
    """The keys of leases, for `MapScopes`."""

    def __init__(self) -> None:
        self.leases: dict[int, list[bytes]] = {}

    def keys_of(self, lease: int) -> list[bytes]:
        return self.leases.get(lease, [])


@asynccontextmanager
async def all_services(security: Security, backend: Any, **options: Any) -> AsyncIterator[ReplicaServer]:
    server = ReplicaServer(LOG, security=security, keys=MapScopes(Keyed().keys_of), **options)
    snapshots: Any = SimpleNamespace(manifests=list, damaged=list, protected_manifests=list)
    PeerService(
        LOG,
        "a",
        snapshots,
        report=lambda _: asyncio.sleep(0, []),
        read_index=lambda: asyncio.sleep(0, LogIndex(AnswerStatus.NOT_LEADER, 0)),
    ).add_to(server)
    BeatService(LOG, "0" * 32, 0.05, lambda _: BeatAnswer.UNKNOWN).add_to(server)
    RelayService(LOG, server, lambda: None, lambda: False, Security()).add()
    feed: Any = SimpleNamespace(revision=0)
    WatchService(LOG, MAP_DESCRIPTION, feed).add_to(server)
    registry: Any = SimpleNamespace(leads=False)
    view: Any = SimpleNamespace(leader_epoch=0, leader_address=None)
    WorkerService(registry, view, lambda _: asyncio.sleep(0), lambda _, _code: False, ping_s=1.0).add_to(server)
    await server.start(backend, lambda: b"{}")
    try:
        yield server
    finally:
        await server.stop(0)


async def code_of(channel: RpcChannel, method: str, *, request: bytes = b"") -> tuple[grpc.StatusCode, str]:
    """Call a method, whatever its kind, with one message; return how it ended."""
    call = channel.unary_stream(method)(request, timeout=60)
    try:
        async for _ in call:
            if method == HEALTH_WATCH:  # It has no end of its own.
                call.cancel()
                return grpc.StatusCode.OK, ""
    except grpc.aio.AioRpcError:
        pass
    return await call.code(), await call.details() or ""


@asynccontextmanager
async def opened(address: str, security: Security) -> AsyncIterator[RpcChannel]:
    channel = open_channel(address, security)
    try:
        yield channel
    finally:
        await channel.close()


def methods_of(*modules: Any) -> list[str]:
    """All methods that generated code describes."""
    found: list[str] = []
    for module in modules:
        services: Mapping[str, Any] = module.DESCRIPTOR.services_by_name
        found += [f"/{one.full_name}/{method.name}" for one in services.values() for method in one.methods]
    return sorted(found)
