"""The process of a gateway: `rsm log serve` ends in `run_gateway`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.errors import UsageError
from ledger.process_guard import ProcessGuard
from ledger.tls import is_loopback
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.gateway.service import LogGateway
from rsm_spark.gateway.settings import GatewaySettings
from rsm_spark.runtime.settings import ReplicaSettings

_STOP_S = 15.0


class GatewayNotice(msgspec.Struct, frozen=True):
    """The line by which a gateway says that it serves."""

    ready: bool
    url: str
    address: str
    pid: int
    grpc_address: str = ""


def run_gateway(
    metadata_uri: str | None,
    settings: GatewaySettings,
    replica: ReplicaSettings,
    on_ready: Callable[[GatewayNotice], None],
    *,
    session_timeout_ms: int,
    stall_s: float,
) -> None:
    """Run a gateway until SIGTERM or SIGINT, on the quickest event loop that is installed.

    Args:
        metadata_uri: Where the cluster is.
        settings: See `GatewaySettings`.
        replica: Of the logs.
        on_ready: Told when it serves.
        session_timeout_ms: ZooKeeper gives a silent gateway up after this time: then others take its logs over.
        stall_s: How long the event loop may stand still; 0 = for ever.

    Raises:
        LedgerError: It cannot start: what is wrong and what would help.

    """
    work = _run(metadata_uri, settings, replica, on_ready, session_timeout_ms, stall_s)
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _run(
    metadata_uri: str | None,
    settings: GatewaySettings,
    replica: ReplicaSettings,
    on_ready: Callable[[GatewayNotice], None],
    session_timeout_ms: int,
    stall_s: float,
) -> None:
    uri = MetadataUri.of(metadata_uri)
    _check_key(replica, uri.hosts)

    async def serve(guard: ProcessGuard) -> None:
        client = await LedgerClient.connect(
            metadata_uri, session_timeout_ms=session_timeout_ms, settings=ClientSettings.from_environment()
        )
        try:
            async with LogGateway(client, settings, replica) as gateway:
                guard.ready()
                url, address, grpc = gateway.url, gateway.address, gateway.grpc_address
                on_ready(GatewayNotice(ready=True, url=url, address=address, pid=os.getpid(), grpc_address=grpc))
                await guard.stopped.wait()
        finally:
            await client.close()

    with ProcessGuard("log gateway", stall_s=stall_s, stop_s=_STOP_S) as guard:
        await serve(guard)


def _check_key(replica: ReplicaSettings, hosts: Sequence[str]) -> None:
    """Refuse logs without a key where others than this machine reach the metadata store."""
    beyond = [host for host in hosts if not is_loopback(host.rpartition(":")[0].strip("[]"))]
    if beyond and replica.log_keys is None and not replica.allow_unsigned:
        raise UsageError(
            f"whoever reaches {beyond[0]} can forge logs without a key: give every gateway the same key file, "
            "--log-key FILE (rsm log key new makes one); or say --unsigned"
        )
