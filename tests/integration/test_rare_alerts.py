"""Alerts of what is rare: disks that fail, are slow or full, a forged log, a clock that is off, leaders that change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.dev.ports import HOST, choose_port
from ledger.errors import LedgerError
from ledger.wire.codes import Status
from rsm_spark.map import MapClient
from tests.hostile.forger import Attacker
from tests.integration.failing_disk import FailingDisk, failing_disk
from tests.integration.prometheus_process import PROMETHEUS, PrometheusProcess, until
from tests.integration.store_processes import stores
from tests.integration.test_monitoring import WatchedNode
from tests.integration.worker_processes import TASKS, started

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on the path: apt-get install prometheus"),
]
CAUSED_BY_WHAT_IS_RARE = frozenset({
    "RsmJournalStopped", "RsmJournalSlow", "RsmClockOff", "RsmLeaderChanges", "RsmReplicaStopped", "RsmSnapshotOld",
    "RsmTasksWaitLong", "RsmBrokerErrors",
})  # fmt: skip
"""Alerts that fire here because of what they are for."""
_KINDS = {"weak": "bookie", "a": "store", "b": "store", "lone": "store", "broker": "broker"}
_SYNC_S = 0.8
_SMALL_MIB, _BOOKIE_MIB = 16, 160
_SPARE_BYTES = 4 << 20
_LEADERS = 6


class _Site:
    """Processes on a machine, with Prometheus, on a cluster of others.

    A bookie and a replica (`lone`) have a disk of their own each; two replicas (`a` and `b`) share a log.
    """

    def __init__(self, cluster: DevCluster, folder: Path, name: str, weak: FailingDisk, small: FailingDisk) -> None:
        self.cluster, self.folder, self.weak, self.small = cluster, folder, weak, small
        self.shared, self.lone, self.tasks = f"{name}-shared", f"{name}-lone", f"{name}-tasks"
        self.weak_uri = f"zk+hierarchical://{cluster.zookeeper}/{name}"
        ports: list[int] = []
        for _ in range(len(_KINDS) + 3):
            ports.append(choose_port(taken=ports))
        bookie, own, self.third_port, *rest = ports
        self.ports = dict(zip(_KINDS, rest, strict=True))
        quick = "session_timeout_ms = 4000\n"
        files = {
            "weak": f'data_dir = "{weak.folder}/bookie"\nport = {bookie}\njournal_file_mib = 10\nfree_mib_min = 10\n',
            "a": f'data_dir = "{folder}/a"\nreplica_id = "a"\nlog = "{self.shared}"\n{quick}',
            "b": f'data_dir = "{folder}/b"\nreplica_id = "b"\nlog = "{self.shared}"\n{quick}',
            "lone": f'data_dir = "{small.folder}"\nlog = "{self.lone}"\nreplica_id = "a"\nsnapshot_s = 1.0\n{quick}',
            "broker": f'data_dir = "{folder}/broker"\nlog = "{self.tasks}"\nreplica_id = "a"\n{quick}',
        }
        for process, content in files.items():
            (folder / f"{process}.toml").write_text(f"{content}http_port = {self.ports[process]}\n")
        uris = dict.fromkeys(_KINDS, cluster.metadata_uri) | {"weak": self.weak_uri}
        (folder / "node.toml").write_text(
            f'name = "a"\nhttp_port = {own}\n'
            + "".join(
                f'[[process]]\nkind = "{kind}"\nname = "{process}"\n[process.environment]\n'
                f'RSM_METADATA_URI = "{uris[process]}"\n'
                for process, kind in _KINDS.items()
            )
        )
        self.node = WatchedNode(folder, own)
        self.prometheus = PrometheusProcess(folder, {**self.ports, "node": own, "third": self.third_port})

    def pid(self, process: str) -> int:
        pid = int(self.node.processes()[process]["pid"])
        assert pid, f"{process} does not run"
        return pid

    def ask(self, process: str, path: str, body: object = None) -> dict[str, object]:
        """Return what a process answers over HTTP; with a body, to a POST."""
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://{HOST}:{self.ports[process]}{path}", sent, headers)  # noqa: S310 - our own
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - our own
            return dict(json.load(answer))

    def put(self, log: str) -> None:
        async def put() -> None:
            async with await MapClient.connect(log, self.cluster.metadata_uri) as store:
                await store.put(b"k", b"v" * 1000)

        asyncio.run(put())

    def close(self) -> None:
        self.prometheus.close()
        self.node.close()


@pytest.fixture
def site(cluster: DevCluster, tmp_path: Path, unique_name: str) -> Iterator[_Site]:
    with ExitStack() as mounted:
        try:
            weak = mounted.enter_context(failing_disk(tmp_path / "weak", _BOOKIE_MIB))
            small = mounted.enter_context(failing_disk(tmp_path / "small", _SMALL_MIB))
        except OSError as error:
            pytest.skip(f"cannot mount a file system of its own: {error}")
        made = _Site(cluster, tmp_path, unique_name, weak, small)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.slow
def test_alerts_of_what_is_rare_fire_by_what_they_are_for(site: _Site, tmp_path: Path) -> None:
    prometheus = site.prometheus
    serving, log = {'up{job=~"rsm-.+"} == 1': len(_KINDS) + 1, 'rsm_role{role="leader"} == 1': 3}, tmp_path / "node.log"
    for expression, count in serving.items():
        until(lambda expr=expression, count=count: len(prometheus.rows(expr)) == count, f"not {count}, see {log}")
    worker = ("--log", site.tasks, "--metadata-uri", site.cluster.metadata_uri, "--tasks", TASKS, "--threads", "1")
    with started(tmp_path, "w1", *worker):
        assert not prometheus.alerts() & CAUSED_BY_WHAT_IS_RARE
        for number in range(2):  # The first one keeps the only thread; the second waits from here on.
            payload = {"type": "hang", "payload": str(tmp_path / f"task-{number}")}
            site.ask("broker", "/api/v1/tasks", payload)
        _a_disk_without_room_for_snapshots(site)
        _a_bookie_whose_disk_is_slow_and_then_fails(site)
        _a_broker_without_memory(site)
        with stores(site.cluster.metadata_uri, site.shared, tmp_path) as others:
            others.start("c", "--http-port", str(site.third_port), command=("tests.integration.shifted_clock", "run"))
            prometheus.until_fire("RsmClockOff", why="a replica whose clock is an hour ahead")
        _leaders_that_change(site)
        prometheus.until_fire("RsmTasksWaitLong", why="a task that waits while another one keeps the only worker")
        prometheus.until_fire("RsmSnapshotOld", why="a replica whose disk has no room for snapshots")
    _a_log_that_is_forged(site)
    assert prometheus.fired >= CAUSED_BY_WHAT_IS_RARE


def _a_disk_without_room_for_snapshots(site: _Site) -> None:
    site.put(site.lone)
    until(lambda: site.prometheus.rows("rsm_snapshot_age_seconds"), "no snapshot is taken")
    site.small.fill()
    until(lambda: _put_and_is_behind(site), "a full disk takes a snapshot")


def _put_and_is_behind(site: _Site) -> bool:
    site.put(site.lone)
    return "RsmReplicaAlarm" in site.prometheus.alerts()


def _a_bookie_whose_disk_is_slow_and_then_fails(site: _Site) -> None:
    prometheus = site.prometheus

    async def append() -> None:
        async with await LedgerClient.connect(site.weak_uri) as client:
            handle = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
            while "RsmJournalSlow" not in await asyncio.to_thread(prometheus.alerts):
                with site.weak.frozen():
                    adding = handle.append(b"x")
                    await asyncio.sleep(_SYNC_S)
                await adding
            assert "RsmJournalStopped" not in prometheus.fired
            site.weak.fail()
            with contextlib.suppress(LedgerError):
                await handle.append(b"y")

    asyncio.run(append())
    prometheus.until_fire("RsmJournalStopped", why="a bookie whose disk answers every write with an error")
    site.node.hear(lambda line: line.startswith("weak ended with exit code 74;"))


def _a_broker_without_memory(site: _Site) -> None:
    """Send what needs more memory than the process may have until it is counted."""
    pid = site.pid("broker")
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    tasks = [{"type": f"unheard-of-{number}", "payload": "x" * 100} for number in range(5_000)]

    def has_alert() -> bool:
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.prlimit(pid, resource.RLIMIT_AS, (size + _SPARE_BYTES, before[1]))
        try:
            with contextlib.suppress(urllib.error.HTTPError):
                site.ask("broker", "/api/v1/tasks/batch", {"tasks": tasks})
        finally:
            resource.prlimit(pid, resource.RLIMIT_AS, before)
        return "RsmBrokerErrors" in site.prometheus.alerts()

    until(has_alert, "a broker that gets no memory for a request raises no alert")
    assert "MemoryError" in (site.folder / "node.log").read_text()


def _leaders_that_change(site: _Site) -> None:
    prometheus, epoch = site.prometheus, f'max(rsm_leader_epoch{{log="{site.shared}"}})'
    assert "RsmLeaderChanges" not in prometheus.fired
    first = float(prometheus.rows(epoch)[0]["value"][1])

    def has_changed_enough() -> bool:
        roles = {replica: site.ask(replica, "/status")["role"] for replica in ("a", "b")}
        for replica, role in roles.items():  # Both serve: the other one takes over.
            if role == "leader":
                os.kill(site.pid(replica), signal.SIGKILL)
        return bool(prometheus.rows(f"{epoch} > {first + _LEADERS}"))

    until(has_changed_enough, "leaders that are killed are not followed by others")
    prometheus.until_fire("RsmLeaderChanges", why="leaders that are killed one after the other")


def _a_log_that_is_forged(site: _Site) -> None:
    assert "RsmReplicaStopped" not in site.prometheus.fired
    attacker, node = Attacker(site.cluster, site.lone), site.node.process
    replica = site.pid("lone")
    node.send_signal(signal.SIGSTOP)  # It starts none again meanwhile.
    try:
        os.kill(replica, signal.SIGKILL)
        assert set(asyncio.run(attacker.add(b"\xee" * 80))) == {Status.EOK}
    finally:
        node.send_signal(signal.SIGCONT)
    site.prometheus.until_fire("RsmReplicaStopped", why="an entry that is not the log's own")
    site.node.hear(lambda line: line.startswith("lone ended with exit code 1;"))
    assert "CorruptLogError" in (site.folder / "node.log").read_text()
