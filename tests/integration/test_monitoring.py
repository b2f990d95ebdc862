"""Rules and dashboards on a real machine, watched by a real Prometheus: each panel shows something, alerts fire.

Alerts of bookies that are lost or damaged: `test_alerts.py`; of what is rare: `test_rare_alerts.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from connectors.source.telemetry import StreamTelemetry
from ledger.dev.ports import HOST, choose_port
from rsm_spark.deploy.certificates import new_authority, sign
from rsm_spark.map import MapClient
from rsm_spark.monitoring.command import FOLDER
from tests.integration.prometheus_process import PROMETHEUS, PROMTOOL, PrometheusProcess, until
from tests.integration.test_node import NodeProcessOf
from tests.unit.broker.api.stand import SECRETS, write_tokens

_KINDS = ("bookie", "store", "broker", "gateway", "worker", "lesser")
_DISK_MIB = 400
_KEEP_FREE_MIB = 60
_TRIMS = "retention_s = 1.0\nroll_s = 4.0\ntrim_s = 1.0\nsnapshot_s = 3.0\nconsumer_hold_s = 1.0\n"


def _progress(behind_ms: int, lost: int = 0) -> dict[str, object]:
    losses = [{"log": "orders", "from": 1, "to": lost, "count": lost}] if lost else []
    behind = {"behindRecords": 4, "behindBytes": 5, "behindMs": behind_ms, "losses": losses}
    return {
        "id": "q", "name": "totals", "batchId": 1, "durationMs": {"addBatch": 5, "triggerExecution": 9},
        "sources": [{"numInputRows": 3, "latestOffset": json.dumps(behind)}],
    }  # fmt: skip


pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on the path: apt-get install prometheus"),
]
# Nothing of these happens on a machine that works: told by refusals, certificates, and verified snapshots.
_EMPTY_HERE = (
    "rsm_refusals_total", "rsm_certificate_end_timestamp_seconds", "rsm_verified_revision",
    "rsm_snapshot_age_seconds", "rsm_worker_running_tasks", "rsm_worker_ended_tasks_total",
    "rsm_stream_behind", "rsm_stream_lost_records",
)  # fmt: skip
CAUSED_ON_A_MACHINE = frozenset({
    "RsmProcessDown", "RsmMetadataSessionLost", "RsmNobodyAudits", "RsmBookieTakesNoAdds", "RsmDiskNearlyFull",
    "RsmDiskFullSoon", "RsmCertificateEndsSoon", "RsmCertificateEnds", "RsmProcessRestarts", "RsmFilesNearlyOut",
    "RsmNoLeader", "RsmWritesStand", "RsmFollowerBehind", "RsmReplicaAlarm", "RsmTrimOverdue", "RsmConsumerOverrun",
    "RsmMemoryNearlyFull", "RsmTasksNobodyServes", "RsmTokensBroken", "RsmWorkerUnconnected", "RsmStreamFailed",
    "RsmStreamBehind", "RsmStreamLost",
})  # fmt: skip
"""Alerts that fire here because of what they are for."""


def expressions() -> Iterator[tuple[str, str]]:
    """Yield (title of the panel, expression) of all dashboards."""
    for path in sorted(FOLDER.glob("grafana/*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


class _Site:
    """A machine with one process of each kind, Spark's figures, and Prometheus that scrapes them every second.

    The bookie has a small disk of its own; one more replica has little memory, and nobody to verify its snapshots.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.streams = StreamTelemetry()
        self.streams.begin("q", "totals", time.time())
        self.streams.note(_progress(6000), time.time())
        registry = CollectorRegistry()
        registry.register(self.streams)
        self._server, _ = start_http_server(0, addr=HOST, registry=registry)
        ports: list[int] = []
        for _ in range(9):
            ports.append(choose_port(taken=ports))
        zookeeper, bookie, own, *rest = ports
        self.ports = dict(zip(_KINDS, rest, strict=True))
        self.uri = f"zk+hierarchical://{HOST}:{zookeeper}/ledgers"
        self._configure(zookeeper, bookie, own)
        self.node = WatchedNode(folder, own)
        jobs = {**self.ports, "node": own, "spark": self._server.server_port}
        token = {"broker": SECRETS["admin"]}
        self.prometheus = PrometheusProcess(folder, jobs, tls=("gateway",), tokens=token)

    def _configure(self, zookeeper: int, bookie: int, own: int) -> None:
        folder = self.folder
        http = {kind: f"http_port = {port}\n" for kind, port in self.ports.items()}
        write_tokens(folder / "tokens.toml")
        now = datetime.fromtimestamp(time.time(), UTC)
        pair = sign(new_authority(now), "a", [HOST], now, 1)
        (folder / "a.pem").write_bytes(pair.cert)
        (folder / "a.key").touch(0o600)
        (folder / "a.key").write_bytes(pair.key)
        tls = f'http_tls_cert = "{folder}/a.pem"\nhttp_tls_key = "{folder}/a.key"\n'
        log = 'bookies = "1/1/1"\nsingle_copy = true\nreplica_id = "a"\n'
        files = {
            "zookeeper": f'data_dir = "{folder}/zookeeper"\nport = {zookeeper}\nheap_mib = 96\n',
            "bookie": f'data_dir = "{folder}/disk/bookie"\nport = {bookie}\n{http["bookie"]}'
            f"free_mib_min = {_KEEP_FREE_MIB}\njournal_file_mib = 10\nno_fsync = true\n",
            "store": f'data_dir = "{folder}/store"\nlog = "orders"\n{log}{_TRIMS}{http["store"]}',
            "broker": f'data_dir = "{folder}/broker"\n{log}{http["broker"]}tokens_file = "{folder}/tokens.toml"\n',
            "gateway": f"{http['gateway']}{tls}",
            "worker": f'types = "shout=1"\n{http["worker"]}',
            "lesser": f'data_dir = "{folder}/lesser"\nlog = "lesser"\n{log}{_TRIMS}memory_limit_mib = 100\n'
            f"{http['lesser']}",
        }
        for name, content in files.items():
            (folder / f"{name}.toml").write_text(content)
        (folder / "node.toml").write_text(
            f'name = "a"\nhttp_port = {own}\n[environment]\nRSM_METADATA_URI = "{self.uri}"\n'
            '[[process]]\nkind = "zookeeper"\n'
            + "".join(f'[[process]]\nkind = "{kind}"\n' for kind in _KINDS[:-1])
            + '[[process]]\nkind = "store"\nname = "lesser"\n'
        )

    def pid(self, process: str) -> int:
        """Return the process's id."""
        return int(self.node.processes()[process]["pid"])

    @contextmanager
    def frozen(self, process: str) -> Iterator[None]:
        """Have a process stand still."""
        pid = self.pid(process)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def rsm(self, *words: str) -> None:
        """Run a command of an operator, which succeeds."""
        command = [sys.executable, "-m", "rsm_spark", *words, "--metadata-uri", self.uri]
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert told.returncode == 0, told.stdout + told.stderr

    def close(self) -> None:
        self.prometheus.close()
        self.node.process.terminate()
        try:
            self.node.process.wait(60)
        except subprocess.TimeoutExpired:
            self.node.process.kill()
            self.node.process.wait()
        self._server.shutdown()
        self._server.server_close()


class WatchedNode(NodeProcessOf):
    """`rsm node run` on files that somebody else has written."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://{HOST}:{port}"
        import queue

        self.lines, self.said = queue.Queue(), []
        self.start()


async def _put(uri: str, count: int = 20) -> None:
    async with await MapClient.connect("orders", uri) as store:
        for number in range(count):
            await store.put(f"k{number}".encode(), b"v")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[_Site]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "none", str(disk)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        made = _Site(tmp_path)
        try:
            yield made
        finally:
            made.close()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _has_result(site: _Site, expression: str) -> bool:
    asked = expression.replace("$__rate_interval", "30s").replace("$log", ".*").replace("[1h]", "[30s]")
    return bool(site.prometheus.rows(asked))


def test_every_panel_shows_a_real_machine_and_alerts_fire_by_what_they_are_for(site: _Site) -> None:
    wanted, prometheus = len(_KINDS) + 2, site.prometheus
    all_up = 'up{job=~"rsm-.+"} == 1'
    until(lambda: len(prometheus.rows(all_up)) == wanted, f"not all answer, see {site.folder}/node.log")
    asyncio.run(_put(site.uri))
    for title, expression in expressions():
        if any(name in expression for name in _EMPTY_HERE):
            _has_result(site, expression)  # It is understood.
            continue
        until(lambda expression=expression: _has_result(site, expression), f"{title} is empty: {expression}")
    # Not at once: with `for` of a second, one scrape that a busy machine has not answered in time raises one.
    prometheus.until_quiet("RsmProcessDown", "RsmNoLeader", "RsmTasksNobodyServes", "RsmMetadataSessionLost")
    prometheus.until_quiet("RsmNobodyAudits", "RsmWorkerUnconnected", "RsmBookieTakesNoAdds", "RsmWritesStand")

    prometheus.until_fire("RsmCertificateEnds", "RsmCertificateEndsSoon", why="a certificate of one day")
    prometheus.until_fire("RsmMemoryNearlyFull", why="a replica with little memory")
    _what_is_asked_or_configured_wrongly(site)
    _what_happens_to_a_log(site)
    _what_ends_or_stands_still(site)
    _a_disk_that_fills(site)
    assert prometheus.fired >= CAUSED_ON_A_MACHINE


def _what_is_asked_or_configured_wrongly(site: _Site) -> None:
    prometheus = site.prometheus
    told = urllib.request.Request(
        f"http://{HOST}:{site.ports['broker']}/api/v1/tasks",
        json.dumps({"type": "unheard-of"}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {SECRETS['admin']}"},
    )
    urllib.request.urlopen(told, timeout=60).close()  # noqa: S310 - our own
    prometheus.until_fire("RsmTasksNobodyServes", why="a task that nobody serves")

    tokens = site.folder / "tokens.toml"
    content = tokens.read_text()
    tokens.write_text("[[token")
    prometheus.until_fire("RsmTokensBroken", why="a file of tokens that is none")
    tokens.write_text(content)
    prometheus.until_quiet("RsmTokensBroken")

    gateway = site.pid("gateway")
    open_count = len(list(Path(f"/proc/{gateway}/fd").iterdir()))
    before = resource.prlimit(gateway, resource.RLIMIT_NOFILE)
    resource.prlimit(gateway, resource.RLIMIT_NOFILE, (open_count + 3, before[1]))
    prometheus.until_fire("RsmFilesNearlyOut", why="a limit of open files that is nearly reached")
    resource.prlimit(gateway, resource.RLIMIT_NOFILE, before)


def _what_happens_to_a_log(site: _Site) -> None:
    prometheus = site.prometheus
    prometheus.until_fire("RsmTrimOverdue", "RsmReplicaAlarm", why="a log whose snapshots nobody verifies")
    site.rsm("log", "consumers", "add", "orders", "nightly", "--revision", "1")

    def is_overrun() -> bool:
        asyncio.run(_put(site.uri))
        site.rsm("log", "trim", "orders", "--accept-unverified")
        return "RsmConsumerOverrun" in prometheus.alerts()

    until(is_overrun, "a consumer that did not read what was trimmed raises no alert")
    site.streams.note(_progress(400_000, lost=7), time.time())
    prometheus.until_fire("RsmStreamBehind", "RsmStreamLost", why="a stream that is behind and has lost records")
    site.streams.end("q", has_failed=True)
    prometheus.until_fire("RsmStreamFailed", why="a stream that failed")


def _what_ends_or_stands_still(site: _Site) -> None:
    prometheus = site.prometheus
    restarts = 0

    def restarts_are_noticed() -> bool:
        nonlocal restarts
        worker = site.node.processes()["worker"]
        if worker["state"] == "ready" and worker["restarts"] >= restarts:
            os.kill(worker["pid"], signal.SIGKILL)
            restarts = worker["restarts"] + 1
        return "RsmProcessRestarts" in prometheus.alerts()

    until(restarts_are_noticed, "a process that is killed again and again raises no alert")

    with site.frozen("zookeeper"):
        prometheus.until_fire(
            "RsmMetadataSessionLost", "RsmNobodyAudits", "RsmNoLeader", "RsmWorkerUnconnected",
            why="a ZooKeeper that stands still",
        )  # fmt: skip
    prometheus.until_quiet("RsmMetadataSessionLost", "RsmNobodyAudits", "RsmNoLeader", "RsmWritesStand")

    with site.frozen("bookie"):  # Its adds are answered by nobody.
        putting = subprocess.Popen(
            [sys.executable, "-m", "rsm_spark", "map", "put", "k", "v", "--log", "orders", "--metadata-uri", site.uri],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            prometheus.until_fire("RsmProcessDown", "RsmWritesStand", why="a bookie that stands still, and a put")
            prometheus.until_fire("RsmFollowerBehind", why="a replica that has given up to lead")
        finally:
            putting.kill()
            putting.wait()
    prometheus.until_quiet("RsmProcessDown", "RsmNoLeader")


def _a_disk_that_fills(site: _Site) -> None:
    filler = site.folder / "disk" / "filler"
    with filler.open("wb") as file:
        while os.statvfs(filler).f_bavail * os.statvfs(filler).f_frsize > 20 << 20:
            file.write(bytes(1 << 20))
            file.flush()
    site.prometheus.until_fire(
        "RsmDiskNearlyFull", "RsmDiskFullSoon", "RsmBookieTakesNoAdds", why="a bookie whose disk is full"
    )
    filler.unlink()
    site.prometheus.until_quiet("RsmBookieTakesNoAdds")


def test_prometheus_takes_rules_and_configuration() -> None:
    assert PROMTOOL is not None
    checked = subprocess.run(
        [PROMTOOL, "check", "config", str(FOLDER / "prometheus" / "prometheus.yml")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
