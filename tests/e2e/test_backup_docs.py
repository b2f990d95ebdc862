"""The commands of docs/backup.md, run as they stand there, on a log that is served."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.chain import chain_path
from rsm_spark.map.client.client import MapClient
from tests.integration.backed_up_log import rows_of
from tests.integration.s3_server import Bucket
from tests.integration.store_processes import StoreProcess

_TEXT, _LOST = (Path(__file__).parents[2] / "docs" / "backup.md").read_text().split("## The metadata were lost")


@pytest.mark.asyncio
async def test_the_page_of_backups_does_what_it_says(
    start_cluster: Callable[..., DevCluster], bucket: Bucket, tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=2)
    (tmp_path / "live").mkdir()
    (tmp_path / "again").mkdir()
    replica = StoreProcess(cluster.metadata_uri, "orders", tmp_path / "live", "a", "--snapshot-s", "1")
    try:
        async with await MapClient.connect("orders", cluster.metadata_uri) as client:
            for number in range(60):
                await client.put(b"k%d" % number, b"v%d" % number)
        options = str(bucket.options_file(tmp_path))
        for line in _commands(_TEXT):
            _run(line.replace("s3://bucket", bucket.uri).replace("/etc/rsm/store.json", options), cluster, tmp_path)
        assert any(name.startswith("backups/orders/") for name in bucket.objects())
        expected = await rows_of("orders", cluster.metadata_uri)
        assert len(expected) == 60
        for made in ("again", "test"):
            served = StoreProcess(cluster.metadata_uri, f"orders-{made}", tmp_path / made, "a")
            try:
                assert await rows_of(f"orders-{made}", cluster.metadata_uri) == expected
            finally:
                served.stop()
    finally:
        replica.stop()
    async with await LedgerClient.connect(cluster.metadata_uri) as client:
        await client.store.delete(chain_path("orders"))
    look, begin = _commands(_LOST)
    assert "What is lost" in _run(look, cluster, tmp_path, code=1)
    _run(begin, cluster, tmp_path)
    (tmp_path / "new").mkdir(exist_ok=True)
    served = StoreProcess(cluster.metadata_uri, "orders", tmp_path / "new", "a")
    try:
        assert await rows_of("orders", cluster.metadata_uri) == expected
    finally:
        served.stop()


def _commands(text: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.strip().splitlines()]
    return [line for line in lines if not line.startswith("rsm store run")]


def _run(command: str, cluster: DevCluster, folder: Path, *, code: int = 0) -> str:
    if "s3://" not in command:
        command = command.replace("/backups", str(folder / "backups"))
    command = command.replace("/var/lib/rsm", str(folder))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RSM_METADATA_URI": cluster.metadata_uri}
    done = subprocess.run(
        ["bash", "-euc", command], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout
