"""Workers on Spark's executors, with real brokers and bookies; each pool is a driver of its own."""

from __future__ import annotations

import json
from pathlib import Path

from broker.client import BrokerClient, NewTask
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.pool_processes import TASKS, Runs, pool


def test_a_pool_on_spark_runs_what_waits_and_ends_when_nothing_is_left(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    runs = tmp_path / "runs"
    runs.mkdir()
    with brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (broker,):
        with BrokerClient.connect([broker.url], tenant="acme") as client:
            payload = json.dumps({"folder": str(runs), "ms": 10})
            ids = client.submit_many(NewTask("work", payload) for _ in range(50)).task_ids
            sql = client.submit("spark_sql", json.dumps({"sql": "SELECT id, 'x' FROM range(3)", "limit": 2}))
            bad = client.submit("spark_sql", json.dumps({"sql": "SELECT nothing FROM nowhere"}), max_attempts=1)
            options = (*found, "--py-files", str(TASKS), "--tasks", "pool_tasks", "--max", "2", "--threads", "2")
            with pool(tmp_path, "local[3]", *options, "--sql-threads", "1", "--until-idle", "1") as process:
                assert process.wait_ended() == 0, process.errors()
                summary = process.lines[-1]
            assert summary["ok"] is True
            assert (summary["lost"], summary["cancelled"]) == (0, 0)
            assert summary["ended"] == len(ids)
            assert Runs(runs).ended == dict.fromkeys(ids, 1)
            rows = json.loads(client.result(sql))
            assert (rows["rows"], rows["is_cut"]) == ([[0, "x"], [1, "x"]], True)
            error = client.get(bad).error
            assert "TABLE_OR_VIEW_NOT_FOUND" in error
            assert "Traceback" not in error
            assert "\tat " not in error
            assert {one.status for one in client.workers()} <= {"dead"}
