"""The map served: what `rsm store run` runs, and what a program embeds."""

from __future__ import annotations

from ledger.client.client import LedgerClient
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.scopes import MapScopes
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.snapshots.manifest import SnapshotStore


def map_service(client: LedgerClient, settings: StoreSettings, lake: SnapshotStore | None = None) -> StoreService:
    """Return a replica of the map and its server, not started yet.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: Log, replica id, folder, address and the rest.
        lake: Snapshots to boot from when there is no local one.

    Raises:
        RsmError: The port is taken, or not on loopback.

    """
    machine = MapMachine()
    return StoreService(client, settings, lake=lake, machine=machine, keys=MapScopes(machine.keys_of_lease))
