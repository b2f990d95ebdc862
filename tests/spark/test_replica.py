"""The real thing at every joint: a replica leads a real log; Spark, Delta and the lake agree with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.state.snapshot import snapshot_log
from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession
from rsm_spark.core.records import pack
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import Delete, Put, encode
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.local import LocalSnapshots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.loop_thread import LoopThread

SESSION = b"s" * 16


class Leader:
    """One replica of a map, driven from a test's thread."""

    def __init__(self, loop: LoopThread, client: LedgerClient, log: str, folder: Path, lake: str | None = None) -> None:
        self._loop = loop
        self._sequence = 0
        self._settings = ReplicaSettings(roll_bytes=20_000, checkpoint_records=100, snapshot_s=0)
        self.machine = MapMachine()

        async def make() -> Replica:
            replica = Replica(
                self.machine,
                log=log,
                replica_id=folder.name,
                client=client,
                snapshots=LocalSnapshots(folder),
                lake=None if lake is None else LakeSnapshots(lake_place(lake, log)),
                settings=self._settings,
            )
            await replica.start()
            return replica

        self.replica = loop.run(make())

    def submit(self, *commands: Put | Delete) -> None:
        requests = []
        for command in commands:
            self._sequence += 1
            requests.append(Command(SESSION, self._sequence, self._sequence - 1, encode(command)))
        self._ask(requests)

    def open(self) -> None:
        self._ask([OpenSession(SESSION)])

    def _ask(self, requests: list[Command] | list[OpenSession]) -> None:
        async def ask() -> Sequence[Answer]:
            async with asyncio.timeout(60):
                while True:
                    answers = await self.replica.submit(requests)
                    if answers[0].status != AnswerStatus.NOT_LEADER:
                        return answers
                    await asyncio.sleep(0.05)

        assert all(answer.status == AnswerStatus.OK for answer in self._loop.run(ask()))

    def rows(self) -> dict[bytes, tuple[bytes, int]]:
        async def state() -> dict[bytes, tuple[bytes, int]]:
            found = {}
            for row in self.machine.rows():
                assert row.table == "map"
                found[row.key[3:] if row.key[1] == 0xC4 else row.key] = (row.row, row.revision)
            return found

        return self._loop.run(state())

    def stop(self) -> None:
        self._loop.run(self.replica.stop())


def test_spark_delta_and_the_lake_agree_with_the_leader(
    spark: SparkSession,
    cluster: DevCluster,
    loop: LoopThread,
    client: LedgerClient,
    unique_name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = {"metadataUri": cluster.metadata_uri}
    leader = Leader(loop, client, unique_name, tmp_path / "a")
    leader.open()
    for begin in range(0, 400, 20):
        leader.submit(*[Put(b"key-%d" % (i % 70), b"value-%d" % i) for i in range(begin, begin + 20)])
    leader.submit(*[Delete(b"key-%d" % i) for i in range(5)])
    rows, revision, digest = leader.rows(), leader.replica.revision, leader.replica.digest

    settings = MaterializeSettings(
        log=unique_name,
        place=str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        source=source,
        available_now=True,
        records_per_batch_max=150,
    )
    summary = Materializer(spark, settings, report=lambda _progress: None).run()
    assert summary.position.revision == revision
    found = DeltaTable(settings.place).to_pyarrow_table().to_pylist()
    columns = ("value", "create_revision", "version", "mod_revision")
    assert {row["key"]: (pack([row[column] for column in columns]), row["_revision"]) for row in found} == rows

    made = snapshot_log(spark, unique_name, str(tmp_path / "lake"), source=source)
    assert (made.manifest.revision, made.manifest.digest) == (revision, f"{digest:032x}")
    assert made.checkpoint_revision is not None, "the leader's own checkpoint was compared"

    leader.submit(Put(b"later", b"x"))
    leader.stop()
    with caplog.at_level(logging.INFO, "rsm_spark.runtime.boot"):
        other = Leader(loop, client, unique_name, tmp_path / "b", lake=str(tmp_path / "lake"))
    assert "booted from a snapshot: lake" in caplog.text
    other._sequence = leader._sequence
    other.submit(Put(b"last", b"y"))
    assert set(other.rows()) == {*rows, b"later", b"last"}
    other.stop()
