"""The real service under requests made at random: no error of its own, and a state that holds together afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.api.settings import HttpSettings
from broker.server.service import BrokerService
from broker.server.settings import BrokerSettings
from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from tests.unit.broker.api.thread_served import OPERATIONS, serving_in_a_thread

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_the_real_service_answers_anything_and_its_state_holds_together(
    cluster: DevCluster, unique_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.unit.broker.api.fuzzed import fuzz

    @asynccontextmanager
    async def served() -> AsyncIterator[str]:
        replica = ReplicaSettings(ensemble_size=3, write_quorum=3, ack_quorum=2, snapshot_s=0)
        settings = BrokerSettings(
            log=unique_name, replica_id="a", data_dir=tmp_path, replica=replica, http=HttpSettings()
        )
        client = await LedgerClient.connect(cluster.metadata_uri, session_timeout_ms=20_000)
        try:
            async with BrokerService(client, settings) as broker:
                async with asyncio.timeout(60):
                    while broker.replica.role is not ReplicaRole.LEADER:
                        await asyncio.sleep(0.02)
                yield f"http://{broker.http_address}"
                broker.machine.validate()
                assert broker.replica.role is ReplicaRole.LEADER
        finally:
            await client.close()

    with caplog.at_level(logging.ERROR), serving_in_a_thread(served) as url:
        for operation in OPERATIONS:
            fuzz(operation, url, 10)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("broker")] == []
