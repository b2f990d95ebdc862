"""The demonstration's act of proof and past, on a small log: the prover is a process of its own, as in the demo."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_demo.lake_act import LakeAct
from rsm_demo.stack import LOG, Stack
from tests.spark.conftest import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.loop_thread import LoopThread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_500)]


def account(where: str, flights: int) -> bytes:
    return json.dumps([where, flights, 0, 0]).encode()


def test_the_act_proves_the_log_and_answers_for_its_past(
    spark: SparkSession, cluster: DevCluster, loop: LoopThread, client: LedgerClient, tmp_path: Path
) -> None:
    log = WrittenLog(LOG, cluster, loop, client)
    log.put({b"N1": account("JFK", 1), b"N2": account("LGA", 1)})
    half = log.revision
    log.put({b"N1": account("SFO", 5), b"N3": account("EWR", 2)})
    stack = Stack(tmp_path, metadata_uri=cluster.metadata_uri)
    stack.log_dir.mkdir(parents=True)
    settings = MaterializeSettings(
        log=LOG,
        place=str(stack.table),
        checkpoint=str(tmp_path / "checkpoint"),
        source={"metadataUri": cluster.metadata_uri},
        available_now=True,
    )
    Materializer(spark, settings, report=lambda _progress: None).run()
    told: list[str] = []
    outcome: Any = asyncio.run(LakeAct(stack, told.append).run(2 * half))
    assert outcome.ok, outcome
    assert outcome.proved_entries == len(log.entries)
    assert outcome.proved_commits >= 1
    assert (outcome.rows_then, outcome.rows_now) == (2, 3)
    assert (outcome.flights_then, outcome.flights_now) == (2, 8)
    assert told[-1] == "N1 was then at JFK after 1 flights, and is now at SFO after 5 flights"
    assert any("proved: 3 entries, 5 records" in line for line in told)
