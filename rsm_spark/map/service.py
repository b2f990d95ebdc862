"""The map served: what `rsm store run` runs, and what a program embeds."""

from __future__ import annotations

from pathlib import Path

from ledger.client.client import LedgerClient
from ledger.errors import UsageError
from rsm_spark.log.discovery import Discovery
from rsm_spark.map.etcd_settings import EtcdSettings
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.scopes import MapScopes
from rsm_spark.server.replica_server import StoreService, StoreSettings, advertised_address
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.transport.connections import PORTS


class MapService(StoreService):
    """A replica of the map with its servers; made by `map_service`.

    Args:
        client: See `StoreService`.
        settings: See `StoreService`.
        lake: See `StoreService`.
        etcd: Port for etcd's clients.

    Attributes:
        etcd: What serves them; None = there is no such port.
        etcd_json: "host:port" of its JSON gateway; "" = there is none.

    Raises:
        RsmError: A port is taken, or not on loopback.
        UsageError: There is a port for JSON, and none for etcd's clients.

    """

    def __init__(
        self, client: LedgerClient, settings: StoreSettings, lake: SnapshotStore | None, etcd: EtcdSettings
    ) -> None:
        machine = MapMachine()
        scopes = MapScopes(machine.keys_of_lease)
        if etcd.port is None and etcd.json_port is not None:
            raise UsageError("--etcd-json-port goes with --etcd-port: give both, --etcd-port 0 finds a free port")
        ports = PORTS + sum(port is not None for port in (etcd.port, etcd.json_port))
        super().__init__(client, settings, lake=lake, machine=machine, keys=scopes, ports=ports)
        self.etcd = None
        self.etcd_json = ""
        if etcd.port is None:
            return
        from rsm_spark.map.etcd.backend import EtcdBackend  # noqa: PLC0415 - its messages only where it is served
        from rsm_spark.map.etcd.server import EtcdServer  # noqa: PLC0415

        discovery = Discovery(client.store, settings.log, settings.replica.rsm_root)
        backend = EtcdBackend(
            self.replica,
            machine,
            self.feed,
            discovery,
            settings.log,
            settings.security,
            self.past,
            self.server.near,
        )
        self.etcd = EtcdServer(
            backend,
            scopes,
            bind=etcd.bind or settings.bind,
            port=etcd.port,
            security=settings.security,
            connections_max=settings.connections_max,
            ports=ports,
            folder=Path(settings.data_dir),
            json_port=etcd.json_port,
        )
        self.etcd.port.guard.on_refused = self.server.guard.on_refused
        host = settings.advertise.partition(":")[0] if not settings.advertise.startswith("[") else ""
        self.replica.etcd = advertised_address(etcd.advertise or host, self.etcd.address)
        gateway = self.etcd.gateway
        if gateway is not None:
            gateway.guard.on_refused = self.server.guard.on_refused
            name = host if not etcd.advertise or etcd.advertise.startswith("[") else etcd.advertise.partition(":")[0]
            self.etcd_json = advertised_address(name, gateway.address)

    async def start(self) -> None:
        """Load the state, follow the log, serve; see `StoreService.start`."""
        await super().start()
        if self.etcd is not None:
            await self.etcd.start()

    async def stop(self) -> None:
        """Leave in an orderly way; see `StoreService.stop`."""
        try:
            await super().stop()  # Which ends the watches, too.
        finally:
            if self.etcd is not None:
                await self.etcd.stop()


def map_service(
    client: LedgerClient,
    settings: StoreSettings,
    lake: SnapshotStore | None = None,
    *,
    etcd: EtcdSettings | None = None,
) -> MapService:
    """Return a replica of the map and its server, not started yet.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: Log, replica id, folder, address and the rest.
        lake: Snapshots to boot from when there is no local one.
        etcd: Port for etcd's clients; None = there is none.

    Raises:
        RsmError: A port is taken, or not on loopback.

    """
    return MapService(client, settings, lake, etcd or EtcdSettings())
