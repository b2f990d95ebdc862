"""A replica whose state differs, with everything real around it: bookies, ZooKeeper, gRPC, files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.dev import DevCluster
from rsm_spark import ReplicaRole, ReplicaSettings, ServiceClient, StoreService, StoreSettings, serve
from rsm_spark.core.machine import RowChange
from rsm_spark.errors import StateDivergedError
from rsm_spark.server.replica_server import QUARANTINE_FOLDER, SNAPSHOTS_FOLDER
from rsm_spark.snapshots.checks import MANIFEST_NAME
from rsm_spark.snapshots.manifest import SnapshotManifest, decode_manifest
from rsm_spark.testing.counter_map import CounterMap, command, unpack


class WrongCounters(CounterMap):
    """Makes one more of what is added to "wrong"."""

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if fields[0] == "wrong":
            fields = (fields[0], fields[1] + 1)
        return super().apply(record_type, fields, revision)


def _settings(log: str, folder: Path, replica_id: str) -> StoreSettings:
    return StoreSettings(
        log=log,
        replica_id=replica_id,
        data_dir=folder / replica_id,
        replica=ReplicaSettings(campaign=replica_id == "a", checkpoint_records=10),
    )


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def _evidence(folder: Path) -> list[SnapshotManifest]:
    files = sorted((folder / QUARANTINE_FOLDER).glob(f"*/{MANIFEST_NAME}"))
    return [decode_manifest(file.read_bytes(), place=str(file)) for file in files]


async def _diverge(metadata_uri: str, log: str, leader: StoreService, folder: Path) -> None:
    """Let the wrong replica follow until it has stopped."""
    async with (
        serve(WrongCounters(), _settings(log, folder, "b"), metadata_uri) as wrong,
        await ServiceClient.connect(log, metadata_uri) as client,
    ):
        await client.execute_many([command("add", "right", 1)] * 30)
        await _until(lambda: wrong.replica.revision >= leader.replica.revision)
        await client.execute_many([command("add", "wrong", 1)] * 30)
        with pytest.raises(StateDivergedError, match="Its state is wrong"):
            async with asyncio.timeout(60):
                await wrong.wait_stopped()
        assert wrong.replica.status().failure.startswith("StateDivergedError")


def test_replica_that_differs_leaves_its_state_in_quarantine_tells_the_leader_and_boots_from_it_never(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        uri = cluster.metadata_uri
        async with serve(CounterMap(), _settings(unique_name, tmp_path, "a"), uri) as leader:
            await _until(lambda: leader.replica.role is ReplicaRole.LEADER)
            await _diverge(uri, unique_name, leader, tmp_path)
            (kept,) = _evidence(tmp_path / "b")
            assert f"checkpoint of revision {kept.revision}" in kept.contradiction
            assert kept.digest in kept.contradiction
            assert sorted(file.table for file in kept.files) == ["_sessions", "counters"]
            driver = leader.replica._driver
            assert driver is not None
            assert driver._composer is not None
            report = driver._composer.contradictions["b"]
            assert (report.revision, report.digest.hex()) == (kept.revision, kept.digest)

            assert not list((tmp_path / "b" / SNAPSHOTS_FOLDER).glob("*/*"))
            async with (
                serve(CounterMap(), _settings(unique_name, tmp_path, "b"), uri) as mended,
                await ServiceClient.connect(unique_name, uri) as client,
            ):
                assert unpack((await client.execute(command("add", "wrong", 1))).payload) == 31
                await _until(lambda: mended.replica.revision == leader.replica.revision)
                assert mended.replica.digest == leader.replica.digest
            assert _evidence(tmp_path / "b") == [kept]
            assert msgspec.json.decode(msgspec.json.encode(leader.replica.status()))["failure"] == ""

    asyncio.run(scenario())
