"""`rsm bench ycsb` on a real store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.bench.workloads import key_of
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

_CALL = "import sys; from rsm_spark.bench.cli import app; app(sys.argv[1:], prog_name='rsm bench')"


def _ycsb(metadata_uri: str, log: str, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    done = subprocess.run(
        [sys.executable, "-c", _CALL, "ycsb", "--log", log, "--metadata-uri", metadata_uri, "--json", *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


async def test_ycsb_loads_runs_and_reports_on_a_real_store(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a")
        sizes = ("--records", "300", "--operations", "600", "--threads", "8")
        code, (loaded, ran), progress = await asyncio.to_thread(_ycsb, uri, log, "--workload", "a", *sizes)
        assert code == 0
        assert (loaded["phase"], loaded["operations"]["insert"]["count"]) == ("load", 300)
        assert (ran["phase"], ran["workload"], ran["missing"]) == ("run", "a", 0)
        assert ran["operations"]["read"]["count"] + ran["operations"]["update"]["count"] == 600
        assert ran["operations"]["read"]["p99_ms"] >= ran["operations"]["read"]["p50_ms"] > 0
        assert "600 of 600 operations" in progress
        async with await MapClient.connect(log, uri) as client:
            assert len((await client.get(key_of(299))).value) == 1_000
        code, told, _ = await asyncio.to_thread(_ycsb, uri, log, "--workload", "d", *sizes, "--phase", "run")
        (ran,) = told
        assert (code, ran["missing"], ran["records"]) == (0, 0, 300)
        assert ran["operations"]["insert"]["count"] > 0


async def test_a_run_without_its_records_says_so(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        arguments = ("--workload", "c", "--records", "10", "--operations", "20", "--phase", "run")
        code, (ran,), _ = await asyncio.to_thread(_ycsb, cluster.metadata_uri, unique_name, *arguments)
        assert (code, ran["missing"]) == (1, 20)
