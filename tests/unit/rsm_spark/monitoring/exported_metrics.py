"""Every metric that a process of ours exports, with its labels, from the code that writes the pages.

The counts are real; what they are counts of is a stand-in with just the fields that the pages read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from broker.api.telemetry import HttpTelemetry
from broker.machine.machine import BrokerMachine
from broker.server.telemetry import BrokerTelemetry
from broker.worker.pages import WorkerPages
from broker.worker.run_counts import RunCounts
from connectors.source.telemetry import StreamTelemetry
from ledger.audit_lines import Refusals
from ledger.bookie.disk_facts import DiskFacts, FolderFacts
from ledger.bookie.pages import BookiePages
from ledger.bookie.server import ServerCounts
from ledger.http.routes import ProbePage, ProbeRoute
from ledger.ports import SessionState
from ledger.replication.auditor import AuditorCounts
from ledger.replication.pages import RecoveryPages
from ledger.replication.worker import WorkerCounts
from ledger.storage.compactor import CompactorCounts
from ledger.storage.journal_counts import JournalCounts
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.gateway.pages import GatewayPages
from rsm_spark.node.core.supervision import ChildPhase
from rsm_spark.node.pages import NodePages
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.runtime.telemetry import ReplicaTelemetry
from tests.unit.rsm_spark.server.test_probes import STATUS, Stand

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+$")
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
_PROGRESS = {
    "id": "q", "name": "totals", "batchId": 1, "durationMs": {"addBatch": 5, "triggerExecution": 9},
    "sources": [{"numInputRows": 3, "latestOffset":
        {"behindRecords": 4, "behindBytes": 5, "behindMs": 6000, "losses": []}}],
}  # fmt: skip


def exported_labels() -> dict[str, dict[str, frozenset[str]]]:
    """Return labels by name of the sample, by kind of process, as each process tells them itself."""
    return {kind: _labels_of(page) for kind, page in exported_pages().items()}


def exported_pages() -> dict[str, str]:
    """Return the page of each kind of process."""
    ends = {"a.pem": 9e9}
    with (
        patch("ledger.http.metrics.certificate_ends", lambda: ends),
        patch("rsm_spark.runtime.telemetry.certificate_ends", lambda: ends),
    ):
        return {kind: page.decode() for kind, page in asyncio.run(_pages()).items()}


def _labels_of(page: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        sample = _SAMPLE.match(line)
        assert sample is not None, line
        labels = frozenset(_LABEL.findall(sample["labels"] or ""))
        assert found.setdefault(sample["name"], labels) == labels, f"samples of {sample['name']} differ in labels"
    return found


async def _pages() -> dict[str, bytes]:
    bookie = BookiePages(_ledgers(), _any(look=lambda *_: _any(is_ready=True)), _refusals())
    bookie.bookie = _bookie()
    return {
        "bookie": await _page(bookie.routes()),
        "auto-recovery": await _page(RecoveryPages(_ledgers(), _recovery(), _refusals()).routes()),
        "store": await _store(),
        "broker": await _broker(),
        "gateway": await _gateway(),
        "worker": await _page(_worker().routes()),
        "node": await _page(_node().routes()),
        "Spark": _spark(),
    }


def _any(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


async def _page(routes: dict[str, ProbeRoute]) -> bytes:
    found = routes["GET /metrics"].answer(_any())
    page = found if isinstance(found, ProbePage) else await found
    assert isinstance(page, ProbePage)
    return page.body


def _refusals() -> Refusals:
    refusals = Refusals()
    refusals.by_reason["no-right"] += 1
    return refusals


def _ledgers() -> Any:
    return _any(store=_any(session_state=SessionState.CONNECTED), root="/ledgers")


def _recovery() -> Any:
    auditor = AuditorCounts(is_leading=True, audited_ms=1)
    return _any(auditor_counts=auditor, worker_counts=WorkerCounts(), look_now=bool)


def _bookie() -> Any:
    journal = _any(counts=JournalCounts(), waiting_count=0, pending_bytes=0, generations=(), failure=None)
    store = _any(
        is_read_only=False, journal=journal, limbo=_any(reasons=()), damages=_any(found=list), ledgers={},
        compactor=_any(counts=CompactorCounts()),
    )  # fmt: skip
    counts = ServerCounts(**dict.fromkeys(ServerCounts.__struct_fields__, 0))

    async def look() -> DiskFacts:
        return DiskFacts(FolderFacts("j", 2, 1), (FolderFacts("l", 2, 1),), 1, 1, 1, 1)

    return _any(
        server=_any(store=store, counts=lambda: counts, refusals=_refusals()),
        health=lambda: _any(is_registered=True), collector=_any(collected_count=0), facts=_any(look=look),
        recovery=_recovery(),
    )  # fmt: skip


def _replica() -> Any:
    trim = TrimPlan((3,), alarm="nothing is trimmed")
    return Stand(msgspec.structs.replace(STATUS, role=ReplicaRole.LEADER, trim=trim))


async def _store() -> bytes:
    return await ReplicaTelemetry(_replica(), folder="/").text()


async def _broker() -> bytes:
    replica = _replica()
    replica.revision = 0
    counts = _any(dispatched=0, undelivered=0, reports=0)
    streams = _any(stream_count=0, messages=0, refused_count=0)
    told = await BrokerTelemetry(replica, BrokerMachine(), counts, streams, "/").text()
    seats = _any(taken=0, cut_count=0, refused_count=0)
    route = _any(method="GET", path="/", counts={200: 1}, seconds=0.1)
    shared = _any(seats=seats, streams=_any(held=0), tokens=None)
    edge = _any(shared=shared, table=_any(routes=[route]), refused={}, unexpected=0)
    return told + HttpTelemetry(edge).text()


async def _gateway() -> bytes:
    pages = GatewayPages(_ledgers())
    pages.routes = [_any(method="GET", path="/", counts={200: 1})]
    pages.methods = [_any(name="Append", counts={"OK": 1})]
    held = _any(count=0, opened=0, lost=0, appended=0, waiting_bytes=0)
    return (await pages.metrics(_any(state=_any(held=held, streams=_any(held=0), seats=_any(taken=0))))).body


def _worker() -> WorkerPages:
    counts = RunCounts()
    counts.begun["t"] = counts.running["t"] = counts.ended["t", "finished"] = 1
    worker = _any(counts=counts, is_connected=True, is_draining=False, running=1)
    return WorkerPages(worker, _any(threads=1), _refusals())


def _node() -> NodePages:
    child = _any(name="p", phase=ChildPhase.READY, restarts=0, faults={74: 1})
    node = _any(supervision=_any(children={"p": child}), kind_of=lambda _: "bookie")
    return NodePages("n", node, _refusals())


def _spark() -> bytes:
    streams = StreamTelemetry()
    streams.begin("q", "totals", time.time())
    streams.note(_PROGRESS, time.time())
    registry = CollectorRegistry()
    registry.register(streams)
    return generate_latest(registry)


def all_labels(pages: dict[str, dict[str, frozenset[str]]]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each name with its labels, those that Prometheus adds too."""
    added = frozenset({"job", "instance"})
    yield "up", added
    for page in pages.values():
        for name, labels in page.items():
            yield name, labels | added
