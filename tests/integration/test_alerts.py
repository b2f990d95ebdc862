"""Alerts of bookies that are killed and damaged, watched by a real Prometheus; and all rules with their own times."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from ledger import LedgerClient
from ledger.dev.ports import choose_port
from ledger.errors import LedgerError
from tests.integration.bookie_process import Bookie
from tests.integration.prometheus_process import PROMETHEUS, PROMTOOL, RULES, PrometheusProcess
from tests.integration.test_auto_recovery import auto_recovery
from tests.integration.test_monitoring import CAUSED_ON_A_MACHINE
from tests.integration.test_rare_alerts import CAUSED_BY_WHAT_IS_RARE
from tests.spark.test_silent_stream import CAUSED_BY_A_SINK

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on the path: apt-get install prometheus"),
]
_ENTRIES = 50
_CAUSED_WITH_BOOKIES = frozenset({
    "RsmNobodyAudits", "RsmBookieLost", "RsmCopiesLacking", "RsmCopiesBelowAckQuorum", "RsmEntriesUnreadable",
    "RsmBookieDamaged", "RsmBookieInLimbo",
})  # fmt: skip

Case = tuple[str, dict[str, str]]
"""When the alert must fire, and series, their values a minute apart, that make it true."""

# Caused by real processes, and true here for as long as the rule itself says.
_WITH_ITS_OWN_TIME: dict[str, Case] = {
    "RsmJournalStopped": ("15m", {'rsm_node_faults_total{process="bookie",kind="bookie",code="74"}': "0 0 1+0x30"}),
    "RsmJournalSlow": (
        "30m",
        {
            'rsm_bookie_journal_sync_seconds_bucket{instance="b",le="0.5"}': "0+1x60",
            'rsm_bookie_journal_sync_seconds_bucket{instance="b",le="1"}': "0+100x60",
            'rsm_bookie_journal_sync_seconds_bucket{instance="b",le="+Inf"}': "0+100x60",
        },
    ),
    "RsmClockOff": ("50m", {"rsm_clock_timestamp_seconds": "30+60x60"}),
    "RsmLeaderChanges": ("30m", {'rsm_leader_epoch{log="orders"}': "1+0x20 2+1x20"}),
    "RsmReplicaStopped": ("15m", {'rsm_node_faults_total{process="orders",kind="store",code="1"}': "0 0 1+0x30"}),
    "RsmSnapshotOld": (
        "140m",
        {
            'rsm_snapshot_age_seconds{log="orders"}': "0+60x200",
            'rsm_revision{log="orders"}': "2+0x200",
            'rsm_snapshot_revision{log="orders"}': "1+0x200",
        },
    ),
    "RsmTasksWaitLong": ("80m", {'rsm_broker_oldest_waiting_seconds{log="broker"}': "0+60x100"}),
    "RsmBrokerErrors": ("5m", {"broker_http_unexpected_total": "0 0 0 1+0x10"}),
    "RsmStreamSilent": (
        "30m",
        {
            'rsm_stream_active{query="q"}': "1+0x40",
            'rsm_stream_progress_timestamp_seconds{query="q"}': "60+0x40",
        },
    ),
    "RsmBookieLost": ("20m", {"rsm_lost_bookies": "1+0x30"}),
    "RsmCopiesLacking": ("50m", {"rsm_under_replicated_ledgers": "4+0x60"}),
    "RsmNobodyAudits": ("20m", {"rsm_auditor": "0+0x30"}),
    "RsmBookieInLimbo": ("50m", {"rsm_bookie_limbo": "1+0x60"}),
    "RsmNoLeader": ("20m", {'rsm_role{log="orders",role="leader"}': "0+0x30"}),
    "RsmFollowerBehind": ("20m", {'rsm_lag_seconds{log="orders"}': "60+0x30"}),
    "RsmConsumerOverrun": ("20m", {'rsm_lapsed_consumers_total{log="orders"}': "0 0 0 0 1+0x30"}),
    "RsmCertificateEnds": ("50m", {'rsm_certificate_end_timestamp_seconds{file="a.pem"}': "90000+0x60"}),
    "RsmCertificateEndsSoon": ("100m", {'rsm_certificate_end_timestamp_seconds{file="a.pem"}': "900000+0x120"}),
    "RsmTasksNobodyServes": ("20m", {'rsm_broker_unserved_tasks{log="broker"}': "2+0x30"}),
    "RsmStreamLost": ("20m", {'rsm_stream_lost_records{query="q"}': "3+0x30"}),
}
# What a process says of itself if it is asked while it stops: it seldom is.
_WHILE_IT_STOPS: dict[str, Case] = {
    "RsmJournalStopped": ("5m", {"rsm_bookie_journal_failed": "0 0 1+0x10"}),
    "RsmReplicaStopped": ("5m", {'rsm_failed{log="orders"}': "0 0 1+0x10"}),
}
# Near to what makes an alert fire, and it must not.
_QUIET: dict[str, Case] = {
    "RsmJournalStopped": ("5m", {
        'rsm_node_faults_total{process="bookie",kind="bookie",code="70"}': "0 0 1+0x10",
        'rsm_node_faults_total{process="bookie",kind="bookie",code="74"}': "1+0x10",
    }),
    "RsmReplicaStopped": ("5m", {
        'rsm_node_faults_total{process="worker",kind="worker",code="1"}': "0 0 1+0x10",
        'rsm_node_faults_total{process="orders",kind="store",code="74"}': "0 0 1+0x10",
    }),
    "RsmSnapshotOld": ("140m", {  # Nothing has happened since.
        'rsm_snapshot_age_seconds{log="orders"}': "0+60x200", 'rsm_revision{log="orders"}': "1+0x200",
        'rsm_snapshot_revision{log="orders"}': "1+0x200",
    }),
    "RsmNobodyAudits": ("20m", {
        'rsm_auditor{instance="a"}': "1+0x30", 'rsm_bookie_ready{instance="a"}': "1+0x30",
        'rsm_bookie_ready{instance="b"}': "1+0x30",
    }),
    "RsmLeaderChanges": ("30m", {'rsm_leader_epoch{log="orders"}': "1+0x20 2+0x5 3+0x20"}),
    "RsmStreamSilent": ("30m", {
        'rsm_stream_active{query="q"}': "0+0x40",
        'rsm_stream_progress_timestamp_seconds{query="q"}': "60+0x40",
    }),
}  # fmt: skip


def test_every_alert_is_caused_by_what_it_is_for() -> None:
    known = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert CAUSED_ON_A_MACHINE | CAUSED_BY_WHAT_IS_RARE | CAUSED_BY_A_SINK | _CAUSED_WITH_BOOKIES == known
    assert set(_WITH_ITS_OWN_TIME) <= known


class _Bookies:
    """Three bookies with ledgers on two of them each, and Prometheus that watches them and the auditor to come."""

    def __init__(self, zookeeper: str, folder: Path, root: str) -> None:
        ports: list[int] = []
        for _ in range(4):
            ports.append(choose_port(taken=ports))
        self.recovery_port = ports.pop()
        self.all = [
            Bookie(zookeeper, folder / f"b{number}", root=root, options=("--http-port", str(port)))
            for number, port in enumerate(ports)
        ]
        for bookie in self.all:
            bookie.start()
        self.uri = self.all[0].uri
        names = {f"bookie-{number}": port for number, port in enumerate(ports)}
        self.prometheus = PrometheusProcess(folder, {**names, "autorecovery": self.recovery_port})

    def close(self) -> None:
        self.prometheus.close()
        for bookie in self.all:
            bookie.kill()


@pytest.fixture
def bookies(zookeeper: str, tmp_path: Path, unique_name: str) -> Iterator[_Bookies]:
    made = _Bookies(zookeeper, tmp_path, f"/{unique_name}")
    try:
        yield made
    finally:
        made.close()


async def _write(uri: str) -> list[int]:
    """Write ledgers whose every entry lies on two of three bookies."""
    written = []
    async with await LedgerClient.connect(uri) as client:
        for _ in range(2):
            writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
            await writer.append_many([b"%06d" % number for number in range(_ENTRIES)])
            await writer.close()
            written.append(writer.ledger_id)
    return written


async def _read(uri: str, ledger_ids: list[int]) -> int:
    """Read all that can be read; return how many entries could not."""
    missing = 0
    async with await LedgerClient.connect(uri) as client:
        for ledger_id in ledger_ids:
            reader = await client.open(ledger_id)
            for number in range(_ENTRIES):
                try:
                    (entry,) = await reader.read(number, number)
                    assert entry.payload == b"%06d" % number
                except LedgerError:
                    missing += 1
    return missing


def test_alerts_of_bookies_fire_by_a_kill_and_by_one_bit(bookies: _Bookies, tmp_path: Path) -> None:
    prometheus, (first, second, third) = bookies.prometheus, bookies.all
    prometheus.until_fire("RsmNobodyAudits", why="bookies of which none audits, and no auto-recovery beside them")
    ledger_ids = asyncio.run(_write(bookies.uri))
    options = ["--lost-bookie-delay-s", "1", "--check-s", "2", "--http-port", str(bookies.recovery_port)]
    with auto_recovery(bookies.uri, tmp_path / "recovery.log", *options):
        prometheus.until_quiet("RsmNobodyAudits", "RsmCopiesLacking", "RsmBookieLost")
        third.kill()
        prometheus.until_fire(
            "RsmBookieLost", "RsmCopiesLacking", "RsmCopiesBelowAckQuorum", why="one of three bookies is killed"
        )
        assert "RsmEntriesUnreadable" not in prometheus.alerts()
        second.kill()
        prometheus.until_fire("RsmEntriesUnreadable", why="two of three bookies are killed")
        second.start()
        third.start()
        prometheus.until_quiet("RsmEntriesUnreadable", "RsmCopiesBelowAckQuorum", "RsmBookieLost", "RsmCopiesLacking")
    assert asyncio.run(_read(bookies.uri, ledger_ids)) == 0

    second.kill()
    third.kill()
    _stop(first)
    first.start()  # Its journal is a segment now.
    _stop(first)
    segment = min((first.folder / "ledgers" / "current").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[200] ^= 4
    segment.write_bytes(content)
    first.start()
    assert asyncio.run(_read(bookies.uri, ledger_ids)) > 0
    prometheus.until_fire("RsmBookieDamaged", why="a bit of a segment has turned")
    _stop(first)
    rebuild = [sys.executable, "-m", "ledger.bookie", "rebuild-index", str(first.folder)]
    subprocess.run(rebuild, check=True, capture_output=True, timeout=60)
    assert first.start()["limbo"] is True
    prometheus.until_fire("RsmBookieInLimbo", why="a bookie has lost what lay in a segment")
    assert prometheus.fired >= _CAUSED_WITH_BOOKIES


def _stop(bookie: Bookie) -> None:
    assert bookie.process is not None
    bookie.process.terminate()
    assert bookie.process.wait(60) == 0
    bookie.kill()


def test_rules_fire_by_what_they_are_for_and_not_by_what_is_near_to_it(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    one = [{"labels": "{}", "value": 1}]
    wanted: list[tuple[str, Case, list[dict[str, Any]]]] = []
    for cases, samples in ((_WITH_ITS_OWN_TIME, one), (_WHILE_IT_STOPS, one), (_QUIET, [])):
        wanted += [(name, case, samples) for name, case in cases.items()]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": at,
                    "exp_samples": samples,
                }
            ],
        }
        for name, (at, series), samples in wanted
    ]
    shutil.copy(RULES, tmp_path / "rules.yml")
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}))
    command = [PROMTOOL, "test", "rules", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr
