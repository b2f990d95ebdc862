"""A replica as operators meet it: probes, metrics, logs, configuration, an orderly end; real processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio


def _fetch(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def _until_ready(address: str) -> str:
    async with asyncio.timeout(60):
        while True:
            status, text = await asyncio.to_thread(_fetch, address, "/readyz")
            if status == 200:
                return text
            assert status == 503, text
            await asyncio.sleep(0.1)


async def test_a_configured_replica_answers_probes_and_logs_json(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    conf = tmp_path / "store.toml"
    conf.write_text('http_port = 0\nlog_format = "json"\nlog_level = "info"\n')
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        store = replicas.start("a", "--conf", str(conf))
        address = store.ready["http_address"]
        assert await _until_ready(address) == "ready: leads\n"
        async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
            revision = await client.put(b"a", b"1")
        assert _fetch(address, "/healthz") == (200, "ok\n")
        assert _fetch(address, "/nothing")[0] == 404
        families = {one.name: one for one in text_string_to_metric_families(_fetch(address, "/metrics")[1])}
        assert families["rsm_revision"].samples[0].value >= revision
        assert families["rsm_leader_epoch"].samples[0].value == 1
        assert families["rsm_records"].samples[0].value >= 3
        assert "process_resident_memory_bytes" in families
        status = json.loads(_fetch(address, "/status")[1])
        assert (status["replica_id"], status["role"], status["failure"]) == ("a", "leader", "")
        assert store.stop() == 0
        replicas.gone("a")
        lines = [json.loads(line) for line in (tmp_path / "a.log").read_text().splitlines()]
        assert any(line["message"] == "role changed to leader" and line["log"] == unique_name for line in lines)


async def test_a_follower_that_hears_nothing_is_healthy_and_not_ready(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        leader = replicas.start("a")
        await replicas.leader()
        follower = replicas.start("b", "--follow-only", "--http-port", "0", "--ready-lag-s", "2")
        address = follower.ready["http_address"]
        assert (await _until_ready(address)).startswith("ready: follows")
        leader.kill()
        replicas.gone("a")
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(_fetch, address, "/readyz"))[0] == 200:
                await asyncio.sleep(0.2)
        assert _fetch(address, "/healthz") == (200, "ok\n")


def _doctor(metadata_uri: str, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    command = [sys.executable, "-m", "rsm_spark", "doctor", "--json", "--metadata-uri", metadata_uri, *options]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {one["what"]: one for one in findings}


async def test_the_doctor_tells_a_cluster_that_is_well_from_one_that_nobody_leads_or_is_to(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster()
    uri = cluster.metadata_uri
    with stores(uri, "orders", tmp_path) as replicas:
        for name in "ab":
            replicas.start(name)
        await replicas.leader()
        code, found = await asyncio.to_thread(_doctor, uri)
        assert code == 0, found
        assert found["bookies"]["seen"] == "3 writable"
        assert found["log orders"]["verdict"] == "good"
        for name in "ab":
            replicas.gone(name).kill()
        code, found = await asyncio.to_thread(_doctor, uri)
        assert code == 1
        assert found["log orders"]["seen"] == "has no leader"
        async with asyncio.timeout(60):  # Until the sessions of both have ended.
            while True:
                code, found = await asyncio.to_thread(_doctor, uri, "--forget", "orders")
                if code == 0:
                    break
                assert "is served, stop them first" in found["cluster"]["seen"]
        assert found["log orders"]["verdict"] == "note"
        code, found = await asyncio.to_thread(_doctor, uri)
        assert (code, found["log orders"]["verdict"]) == (0, "note")
        replicas.start("a")
        await replicas.leader()
        code, found = await asyncio.to_thread(_doctor, uri, "--forget", "orders")
        assert "is served, stop them first" in found["cluster"]["seen"]
        assert replicas.gone("a").stop() == 0
        code, found = await asyncio.to_thread(_doctor, uri)
        assert (code, found["log orders"]["seen"]) == (1, "has no leader"), "it was led again meanwhile"
        code, found = await asyncio.to_thread(_doctor, uri, "--forget", "no-such-log")
        assert "there is no node" in found["cluster"]["seen"]
    cluster.stop()


async def test_the_doctor_says_that_nobody_answers() -> None:
    code, found = await asyncio.to_thread(_doctor, "zk+hierarchical://127.0.0.1:1/ledgers")
    assert code == 1
    assert found["ZooKeeper"]["verdict"] == "bad"
