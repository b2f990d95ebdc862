"""SIGTERM ends every kind of server soon, whatever is away, and a service outlives its ZooKeeper's absence."""

from __future__ import annotations

import asyncio
import json
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.dev.ports import choose_port
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import stores

_ROOT = Path(__file__).parents[2]
_READY_S = 60.0
ENDED_S = 60.0
"""Twice what is promised: processors are shared. Without the promise none of them ended within this time."""
_AWAY = ("nothing", "silent zookeeper", "zookeeper", "bookies")
ORDERLY, BY_GUARD = 0, 128 + signal.SIGTERM


class Running:
    """One process and its log."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=log, cwd=_ROOT
            )

    def wait_ready(self) -> dict[str, object]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), f"{self.name} is not ready: {self.log.read_text()}"
        line = self.process.stdout.readline()
        assert line, f"{self.name} ended: {self.log.read_text()}"
        return dict(json.loads(line))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def all_kinds(cluster: DevCluster, folder: Path, log: str) -> Iterator[list[Running]]:
    """One process of every kind that serves, ready; they are killed at the end."""
    uri = ("--metadata-uri", cluster.metadata_uri)
    port = str(choose_port(taken=()))
    bookie = ("ledger.bookie", "run", *uri, "--port", port, "--data-dir", str(folder / "bookie"), "--json")
    replica = (*uri, "--log", log, "--json", "--data-dir")
    running = [
        Running(folder, "bookie", *bookie, "--autorecovery", "--no-fsync"),
        Running(folder, "autorecovery", "rsm_spark", "autorecovery", "run", *uri, "--json"),
    ]
    try:
        for one in running:
            one.wait_ready()
        replicas = [
            Running(folder, name, "rsm_spark.map", "run", *replica, str(folder / name)) for name in ("leads", "follows")
        ]
        running += replicas
        broker = ("rsm_spark", "broker", "run", *uri, "--log", f"{log}-tasks", "--json")
        running.append(Running(folder, "broker", *broker, "--data-dir", str(folder / "broker")))
        for one in running[2:]:
            one.wait_ready()
        worker = ("rsm_spark", "worker", "run", *uri, "--log", f"{log}-tasks", "--json")
        running.append(Running(folder, "worker", *worker, "--tasks", "tests.integration.worker_tasks"))
        running[-1].wait_ready()
        yield running
    finally:
        for one in running:
            one.end()


def _terminate(running: list[Running]) -> None:
    for one in running:
        one.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + ENDED_S
    codes = {}
    for one in running:
        try:
            codes[one.name] = one.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            codes[one.name] = None
    slow = {name for name, code in codes.items() if code not in (ORDERLY, BY_GUARD)}
    assert not slow, [(codes[one.name], one.name, one.log.read_text()[-2000:]) for one in running if one.name in slow]
    for one in running:
        said = one.log.read_text()
        assert "never retrieved" not in said, said
        assert "Traceback" not in said, said


@pytest.mark.parametrize(
    "away",
    [
        *(
            pytest.param(away, marks=pytest.mark.slow)
            for away in ("nothing", "silent zookeeper", "zookeeper", "bookies")
        ),
        "all but it",
    ],
)
def test_every_kind_of_process_ends_soon(
    start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path, away: str
) -> None:
    cluster = start_cluster(bookie_count=2)
    with all_kinds(cluster, tmp_path, unique_name) as running:
        if away == "silent zookeeper":
            cluster.pause_zookeeper()
        if away in ("zookeeper", "all but it"):
            cluster.kill_zookeeper()
        if away in ("bookies", "all but it"):
            for number in range(2):
                cluster.kill_bookie(number)
        if away == "all but it":  # The worker's broker, too.
            (broker,) = (one for one in running if one.name == "broker")
            running.remove(broker)
            broker.end()
        time.sleep(2.5)  # Longer than a replica's session lasts: whatever they try in vain, they try now.
        _terminate(running)


@pytest.mark.slow
def test_a_process_that_starts_while_zookeeper_is_away_ends_soon(
    start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=2)
    uri = ("--metadata-uri", cluster.metadata_uri)
    replica = ("rsm_spark.map", "run", *uri, "--log", unique_name, "--json", "--data-dir", str(tmp_path / "a"))
    bookie = ("ledger.bookie", "run", *uri, "--port", str(choose_port(taken=())), "--data-dir", str(tmp_path / "b"))
    cluster.pause_zookeeper()
    running = [Running(tmp_path, "replica", *replica), Running(tmp_path, "bookie", *bookie)]
    try:
        time.sleep(8)  # They wait for ZooKeeper by now, for 15 s at most.
        assert [one.process.poll() for one in running] == [None, None]
        _terminate(running)
    finally:
        for one in running:
            one.end()
        cluster.resume_zookeeper()


@pytest.mark.asyncio
async def test_a_service_goes_on_and_comes_back_by_itself(
    start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    """ZooKeeper is killed while one replica leads and another one boots: puts and reads go on, the other one comes."""
    cluster = start_cluster(bookie_count=2)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
            before = await client.put(b"n", b"before")
            cluster.kill_zookeeper()
            command = ["--metadata-uri", cluster.metadata_uri, "--log", unique_name, "--json"]
            booting = Running(tmp_path, "b", "rsm_spark.map", "run", *command, "--data-dir", str(tmp_path / "b"))
            try:
                for number in range(200):
                    await client.put(b"n", b"%d" % number, timeout_s=60)
                found = await client.get(b"n", timeout_s=60)
                assert found is not None
                assert found.value == b"199"
                await asyncio.sleep(3)
                assert await client.put(b"n", b"later", timeout_s=60) > before + 200
                await asyncio.to_thread(cluster.start_zookeeper)
                await asyncio.to_thread(booting.wait_ready)
                assert await client.put(b"n", b"after", timeout_s=60) > before + 201
            finally:
                booting.end()
