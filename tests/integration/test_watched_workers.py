"""HTTP of a worker: a real process, a real broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from broker.machine.commands import TaskSpec
from ledger.dev import DevCluster
from tests.integration.broker_hands import broker_settings, leading, submit
from tests.integration.test_watched_bookies import ask, metrics
from tests.integration.test_worker_processes import ended
from tests.integration.worker_processes import TASKS, started

pytestmark = pytest.mark.asyncio


async def test_a_worker_tells_what_it_has_run_and_that_it_has_lost_its_broker(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--threads", "3", "--http-port", "0")
        with started(tmp_path, "w", *options) as worker:
            address = (await worker.wait_ready())["http_address"]
            file = str(tmp_path / "file").encode()
            for task_id in await submit(broker, *(TaskSpec("note", file) for _ in range(5))):
                await ended(broker, task_id)
            found = await asyncio.to_thread(metrics, address)
            assert (found["rsm_worker_connected"], found["rsm_worker_threads"]) == (1, 3)
            assert found["rsm_worker_begun_tasks_total"] == found["rsm_worker_ended_tasks_total"] == 5
            assert found["rsm_worker_running_tasks"] == found["rsm_worker_held_tasks"] == 0
            assert await asyncio.to_thread(ask, address, "/readyz") == (200, "ready\n")
            said = json.loads((await asyncio.to_thread(ask, address, "/status"))[1])
            assert said["ended"] == [{"type": "note", "status": "finished", "count": 5}]
            await broker.stop()
            async with asyncio.timeout(60):
                while (await asyncio.to_thread(ask, address, "/readyz"))[0] != 503:
                    await asyncio.sleep(0.1)
            assert await asyncio.to_thread(ask, address, "/healthz") == (200, "ok\n")
