"""Fixtures that start the real thing: ZooKeeper and bookies as processes, once a test process."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from ledger.dev import DevCluster
from ledger.dev.process import is_alive

_counter = itertools.count(1)

_LONGEST = (
    "sim/test_ledger_sim.py",
    "e2e/test_demo.py",
    "sim/test_replica_sim.py",
    "spark/test_kill_points.py",
    "spark/test_worker_pool.py",
    "spark/test_materialize.py",
    "spark/test_stream.py",
    "sim/test_map_sim.py",
    "sim/test_broker_sim.py",
    "integration/test_broker_torture.py",
)
"""Files that take longest, in this order: what begins last should not end last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(places)))


@pytest.fixture(scope="module", autouse=True)
def _earlier_modules_cost_nothing() -> None:
    """Take what earlier modules left out of the garbage collector's sight: simulations collect after every few runs."""
    gc.collect()
    gc.freeze()


class _Clusters:
    """Clusters that end together, also when a test failed; none may leave a process behind, nor its journals."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._started: list[DevCluster] = []

    def start(self, *, bookie_count: int = 3, zookeeper_address: str | None = None) -> DevCluster:
        data_dir = self._folders.mktemp("cluster")
        cluster = DevCluster(data_dir, bookie_count=bookie_count, zookeeper_address=zookeeper_address)
        cluster.start()
        self._started.append(cluster)
        return cluster

    def stop(self) -> None:
        for cluster in reversed(self._started):
            processes = [server.process for server in cluster.state.owned() if server.process is not None]
            cluster.stop()
            assert not [process.pid for process in processes if is_alive(process)]
            for journal in cluster.data_dir.glob("bookie-*/journal"):
                shutil.rmtree(journal)  # A third of a GiB each: a run of all tests would fill a disk.


@pytest.fixture(scope="session")
def _shared_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Clusters]:
    clusters = _Clusters(tmp_path_factory)
    yield clusters
    clusters.stop()


@pytest.fixture
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DevCluster]]:
    """Start further clusters, for tests that break one beyond repair: `start_cluster(bookie_count=4)`.

    They end with the test.
    """
    clusters = _Clusters(tmp_path_factory)
    yield clusters.start
    clusters.stop()


@pytest.fixture(scope="session")
def zookeeper(_shared_clusters: _Clusters) -> str:
    """Address (host:port) of a real ZooKeeper, empty at first, shared by the tests of this process."""
    return _shared_clusters.start(bookie_count=0).zookeeper


@pytest.fixture(scope="session")
def cluster(_shared_clusters: _Clusters) -> DevCluster:
    """Return a real ZooKeeper with three real bookies. A test that stops one starts it again (see `whole_cluster`)."""
    return _shared_clusters.start(bookie_count=3)


@pytest.fixture
def whole_cluster(cluster: DevCluster) -> Iterator[DevCluster]:
    """Lend the shared cluster to a test that kills or pauses servers; it is made whole again afterwards."""
    yield cluster
    names = cluster.pids()
    if cluster.state.zookeeper.name not in names:
        cluster.start_zookeeper()
    cluster.resume_zookeeper()
    for number, bookie in enumerate(cluster.state.bookies):
        if bookie.name not in names:
            cluster.start_bookie(number)
        cluster.resume_bookie(number)


@pytest.fixture
def unique_name() -> str:
    """Name of nothing else in this session: for logs and znodes in a shared cluster."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return f"test-{worker}-{next(_counter)}"


@pytest.fixture
def unique_root(unique_name: str) -> str:
    """Path of a znode that is nobody else's."""
    return f"/{unique_name}"
