"""Rules and dashboards on a real machine, watched by a real Prometheus: each panel shows something, alerts fire."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, start_http_server

from connectors.source.telemetry import StreamTelemetry
from ledger.dev.ports import HOST, choose_port
from rsm_spark.map import MapClient
from rsm_spark.monitoring.command import FOLDER
from tests.integration.test_node import NodeProcessOf

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
RULES = FOLDER / "prometheus" / "rsm-rules.yml"
_LIMIT_S = 180
_KINDS = ("bookie", "store", "broker", "gateway", "worker")
_PROGRESS = {
    "id": "q", "name": "totals", "batchId": 1, "durationMs": {"addBatch": 5, "triggerExecution": 9},
    "sources": [{"numInputRows": 3, "latestOffset": json.dumps(
        {"behindRecords": 4, "behindBytes": 5, "behindMs": 6000, "losses": []})}],
}  # fmt: skip
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on the path: apt-get install prometheus"),
]
# Nothing of these happens on a machine that works: told by refusals, certificates, and verified snapshots.
_EMPTY_HERE = (
    "rsm_refusals_total", "rsm_certificate_end_timestamp_seconds", "rsm_verified_revision",
    "rsm_snapshot_age_seconds", "rsm_worker_running_tasks", "rsm_worker_ended_tasks_total",
    "rsm_stream_behind", "rsm_stream_lost_records",
)  # fmt: skip


def expressions() -> Iterator[tuple[str, str]]:
    """Yield (title of the panel, expression) of all dashboards."""
    for path in sorted(FOLDER.glob("grafana/*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


class _Site:
    """A machine with one process of each kind, Spark's figures, and Prometheus that scrapes them every second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.streams = StreamTelemetry()
        self.streams.begin("q", "totals", time.time())
        self.streams.note(_PROGRESS, time.time())
        registry = CollectorRegistry()
        registry.register(self.streams)
        self._server, _ = start_http_server(0, addr=HOST, registry=registry)
        self.node = NodeProcessOf.__new__(NodeProcessOf)
        self._configure()

    def _configure(self) -> None:
        ports: list[int] = []
        for _ in range(9):
            ports.append(choose_port(taken=ports))
        zookeeper, bookie, own, *rest = ports
        self.ports = dict(zip(_KINDS, rest, strict=False))
        self.port = rest[-1]
        folder = self.folder
        self.uri = f"zk+hierarchical://{HOST}:{zookeeper}/ledgers"
        http = {kind: f"http_port = {port}\n" for kind, port in self.ports.items()}
        log = 'bookies = "1/1/1"\nsingle_copy = true\nreplica_id = "a"\n'
        (folder / "zookeeper.toml").write_text(f'data_dir = "{folder}/zookeeper"\nport = {zookeeper}\nheap_mib = 96\n')
        (folder / "bookie.toml").write_text(f'data_dir = "{folder}/bookie"\nport = {bookie}\n{http["bookie"]}')
        (folder / "store.toml").write_text(f'data_dir = "{folder}/store"\nlog = "orders"\n{log}{http["store"]}')
        (folder / "broker.toml").write_text(f'data_dir = "{folder}/broker"\n{log}{http["broker"]}')
        (folder / "gateway.toml").write_text(http["gateway"])
        (folder / "worker.toml").write_text(f'types = "shout=1"\n{http["worker"]}')
        (folder / "node.toml").write_text(
            f'name = "a"\nhttp_port = {own}\n[environment]\nRSM_METADATA_URI = "{self.uri}"\n'
            '[[process]]\nkind = "zookeeper"\n' + "".join(f'[[process]]\nkind = "{kind}"\n' for kind in _KINDS)
        )
        jobs = {**self.ports, "node": own, "spark": self._server.server_port}
        scrapes = [
            {"job_name": f"rsm-{name}", "static_configs": [{"targets": [f"{HOST}:{port}"]}]}
            for name, port in jobs.items()
        ]
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["for"] = "1s"
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scrapes}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.node = _Node(folder, own)
        with (folder / "prometheus.log").open("wb") as said:
            self.prometheus = subprocess.Popen(
                [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={HOST}:{self.port}"], stdout=said, stderr=said,
            )  # fmt: skip

    def ask(self, path: str, **values: str) -> Any:
        url = f"http://{HOST}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
            return json.load(answer)["data"]

    def rows(self, expression: str) -> list[Any]:
        return self.ask("query", query=expression)["result"]

    def alerts(self) -> set[str]:
        return {one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}

    def close(self) -> None:
        for process in (self.prometheus, self.node.process):
            process.terminate()
        for process in (self.prometheus, self.node.process):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        self._server.shutdown()
        self._server.server_close()


class _Node(NodeProcessOf):
    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://{HOST}:{port}"
        import queue

        self.lines, self.said = queue.Queue(), []
        self.start()


def _until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    last: object = None
    while True:
        try:
            if condition():
                return
        except OSError as error:  # It does not listen yet.
            last = error
        assert time.monotonic() < deadline, f"after {_LIMIT_S} s: {what} ({last})"
        time.sleep(0.5)


async def _put(uri: str) -> None:
    async with await MapClient.connect("orders", uri) as store:
        for number in range(20):
            await store.put(f"k{number}".encode(), b"v")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[_Site]:
    made = _Site(tmp_path)
    try:
        yield made
    finally:
        made.close()


def _has_result(site: _Site, expression: str) -> bool:
    asked = expression.replace("$__rate_interval", "30s").replace("$log", ".*").replace("[1h]", "[30s]")
    return bool(site.rows(asked))


def test_every_panel_shows_a_real_machine_and_alerts_fire_by_what_they_are_for(site: _Site) -> None:
    wanted = len(_KINDS) + 2
    _until(lambda: len(site.rows('up{job=~"rsm-.+"} == 1')) == wanted, f"not all answer, see {site.folder}/node.log")
    asyncio.run(_put(site.uri))
    for title, expression in expressions():
        if any(name in expression for name in _EMPTY_HERE):
            _has_result(site, expression)  # It is understood.
            continue
        _until(lambda expression=expression: _has_result(site, expression), f"{title} is empty: {expression}")
    wrong = {"RsmProcessDown", "RsmNoLeader", "RsmTasksNobodyServes", "RsmMetadataSessionLost"}
    # Not at once: with `for` of a second, one scrape that a busy machine has not answered in time raises one.
    _until(lambda: not site.alerts() & wrong, "alerts of what is not the matter fire")

    told = urllib.request.Request(
        f"http://{HOST}:{site.ports['broker']}/api/v1/tasks",
        json.dumps({"type": "unheard-of"}).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(told, timeout=60).close()  # noqa: S310 - our own
    _until(lambda: "RsmTasksNobodyServes" in site.alerts(), "a task that nobody serves raises no alert")

    pids = {name: one["pid"] for name, one in site.node.processes().items()}
    subprocess.run(["kill", "-STOP", str(pids["bookie"])], check=True)  # Its adds are answered by nobody.
    try:
        _until(lambda: "RsmProcessDown" in site.alerts(), "a bookie that stands still raises no alert")
    finally:
        subprocess.run(["kill", "-CONT", str(pids["bookie"])], check=False)
    site.streams.end("q", has_failed=True)
    _until(lambda: "RsmStreamFailed" in site.alerts(), "a stream that failed raises no alert")


def test_prometheus_takes_rules_and_configuration(tmp_path: Path) -> None:
    checked = subprocess.run(
        [PROMTOOL, "check", "config", str(FOLDER / "prometheus" / "prometheus.yml")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Alert -> a series that causes it, its values a minute apart, and when it must fire.
_CASES = {
    "RsmBookieLost": ("rsm_lost_bookies", "1+0x30", "20m"),
    "RsmCopiesLacking": ("rsm_under_replicated_ledgers", "4+0x60", "50m"),
    "RsmNobodyAudits": ("rsm_auditor", "0+0x30", "20m"),
    "RsmBookieInLimbo": ("rsm_bookie_limbo", "1+0x60", "50m"),
    "RsmNoLeader": ('rsm_role{log="orders",role="leader"}', "0+0x30", "20m"),
    "RsmFollowerBehind": ('rsm_lag_seconds{log="orders"}', "60+0x30", "20m"),
    "RsmConsumerOverrun": ('rsm_lapsed_consumers_total{log="orders"}', "0 0 0 0 1+0x30", "20m"),
    "RsmClockOff": ("rsm_clock_timestamp_seconds", "30+60x60", "50m"),
    "RsmCertificateEnds": ('rsm_certificate_end_timestamp_seconds{file="a.pem"}', "90000+0x60", "50m"),
    "RsmCertificateEndsSoon": ('rsm_certificate_end_timestamp_seconds{file="a.pem"}', "900000+0x120", "100m"),
    "RsmTasksNobodyServes": ('rsm_broker_unserved_tasks{log="broker"}', "2+0x30", "20m"),
    "RsmStreamLost": ('rsm_stream_lost_records{query="q"}', "3+0x30", "20m"),
}


def test_rules_fire_by_what_they_are_for(tmp_path: Path) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for name, (series, values, at) in _CASES.items()
    ]
    shutil.copy(RULES, tmp_path / "rules.yml")
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}))
    command = [PROMTOOL, "test", "rules", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr
