"""The commands of docs/backup.md, run as they stand there, on a log that is served."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.backed_up_log import rows_of
from tests.integration.store_processes import StoreProcess

_TEXT = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()


@pytest.mark.asyncio
async def test_the_page_of_backups_does_what_it_says(start_cluster, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cluster: DevCluster = start_cluster(bookie_count=2)
    (tmp_path / "live").mkdir()
    (tmp_path / "again").mkdir()
    replica = StoreProcess(cluster.metadata_uri, "orders", tmp_path / "live", "a", "--snapshot-s", "1")
    try:
        async with await MapClient.connect("orders", cluster.metadata_uri) as client:
            for number in range(60):
                await client.put(b"k%d" % number, b"v%d" % number)
        for block in re.findall(r"```sh\n(.*?)```", _TEXT, re.DOTALL):
            for line in block.strip().splitlines():
                if not line.startswith("rsm store run"):
                    _run(line, cluster, tmp_path)
        served = StoreProcess(cluster.metadata_uri, "orders-again", tmp_path / "again", "a")
        try:
            expected = await rows_of("orders", cluster.metadata_uri)
            assert await rows_of("orders-again", cluster.metadata_uri) == expected
            assert len(expected) == 60
        finally:
            served.stop()
    finally:
        replica.stop()


def _run(command: str, cluster: DevCluster, folder: Path) -> None:
    command = command.replace("/backups", str(folder / "backups")).replace("/var/lib/rsm", str(folder))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RSM_METADATA_URI": cluster.metadata_uri}
    done = subprocess.run(
        ["bash", "-euc", command], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
