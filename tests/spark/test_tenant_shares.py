"""Tenants' weights hold inside Spark: of the work that statements do, judged by the order in which they ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.client import BrokerClient, NewTask
from broker.machine.policies import TenantPolicy
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.pool_processes import pool

_THREADS = 4
_JUDGED = 160
_SQL = "SELECT sum(hash(id, id % 7)) FROM range(0, 1500000, 1, 4)"


def _ended(clients: Sequence[BrokerClient]) -> list[tuple[int, int, str]]:
    """Return (logged ms, id, tenant) of the statements that have ended, in order."""
    return sorted(
        (one.ended_ms, one.task_id, one.tenant) for client in clients for one in client.tasks(status="finished")
    )


@pytest.mark.timeout(1200)
def test_tenants_of_weights_3_and_1_have_work_done_3_to_1_and_changed_weights_hold_at_once(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with ExitStack() as stack:
        (broker,) = stack.enter_context(brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")))
        big, small = (stack.enter_context(BrokerClient.connect([broker.url], tenant=name)) for name in ("big", "small"))
        big.set_tenant("big", TenantPolicy(weight=3))
        payload = json.dumps({"sql": _SQL})
        for client in (big, small):
            client.submit_many(NewTask("spark_sql", payload) for _ in range(_JUDGED))
        process = stack.enter_context(
            pool(tmp_path, "local[2]", *found, "--min", "0", "--max", "0", "--sql-threads", str(_THREADS))
        )
        process.until(lambda: len(_ended((big, small))) >= _JUDGED, timeout_s=800)
        shares = Counter(tenant for _, _, tenant in _ended((big, small))[:_JUDGED])
        assert 2.7 <= shares["big"] / shares["small"] <= 3.3, shares

        small.set_tenant("small", TenantPolicy(weight=9))
        changed = len(_ended((big, small))) + _THREADS  # Those that ran already are not judged.
        process.until(lambda: len(_ended((big, small))) >= changed + 40, timeout_s=300)
        later = Counter(tenant for _, _, tenant in _ended((big, small))[changed : changed + 40])
        assert later["small"] >= 2 * later["big"], later
        process.kill()
