"""Pages of a bookie: health, metrics, and BookKeeper's HTTP API of one bookie with its answers.

They are answered from before the start is over: a bookie that replays its journal says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ledger.audit_lines import Refusals
from ledger.bookie.collector import Collector
from ledger.bookie.disk_facts import DiskFactsKeeper
from ledger.bookie.drain_order import DrainOrder
from ledger.bookie.readiness import BookieHealth, ReadinessKeeper
from ledger.bookie.server import BookieServer
from ledger.bookie.telemetry import (
    add_collection_metrics,
    add_disk_metrics,
    add_server_metrics,
)
from ledger.decoding import json_decoder
from ledger.http.metrics import MetricsPage
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute, json_page, probe_routes, text_page
from ledger.readiness import Readiness
from ledger.replication.app import AutoRecovery
from ledger.replication.cluster_pages import ClusterPages
from ledger.replication.telemetry import add_recovery_metrics, add_session_metric
from ledger.rights.table import Right
from ledger.zookeeper.ledgers import LedgerStore

_STARTING: Final = "not ready: it starts, and replays its journal"


class _ReadOnlyBody(msgspec.Struct, rename="camel"):
    read_only: bool = False


class _CollectBody(msgspec.Struct, rename="camel"):
    force_major: bool = True
    force_minor: bool = True


class ServingBookie(msgspec.Struct):
    """Parts of a bookie that has started.

    Attributes:
        bookie_id: Its id.
        server: Its server.
        collector: Collects deleted ledgers.
        facts: About its disks.
        health: Looks how it is.
        recovery: Auto-recovery in its process; None = there is none.
        is_started_read_only: It was told at its start to take no adds.
        drain: The order to drain it, which may be given; None = it hears none.

    """

    bookie_id: str
    server: BookieServer
    collector: Collector
    facts: DiskFactsKeeper
    health: Callable[[], BookieHealth]
    recovery: AutoRecovery | None = None
    is_started_read_only: bool = False
    drain: DrainOrder | None = None


class BookiePages:
    """See the module.

    Args:
        ledgers: Metadata of the cluster.
        readiness: Says whether clients can write.
        refusals: Counts of the HTTP port.

    Attributes:
        bookie: What is shown; None until it serves.

    """

    def __init__(self, ledgers: LedgerStore, readiness: ReadinessKeeper, refusals: Refusals) -> None:
        self.bookie: ServingBookie | None = None
        self._ledgers = ledgers
        self._readiness = readiness
        self._refusals = refusals

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is answered where."""
        prefix = "/api/v1/bookie"

        def read(answer: Callable[[ServingBookie, ProbeRequest], Any], right: Right = Right.STATUS) -> ProbeRoute:
            return ProbeRoute(self._served(answer), right)

        def change(answer: Callable[[ServingBookie, ProbeRequest], Any]) -> ProbeRoute:
            return ProbeRoute(self._served(answer), Right.GOVERN, is_change=True)

        return {
            **probe_routes(
                health=self._health, readiness=self._readiness_page, metrics=self.metrics, status=self._status
            ),
            "GET /heartbeat": ProbeRoute(lambda _: text_page("OK"), Right.STATUS),
            f"GET {prefix}/is_ready": ProbeRoute(lambda _: self._is_ready(), Right.STATUS),
            f"GET {prefix}/info": read(_info),
            f"GET {prefix}/state": read(_state),
            f"GET {prefix}/state/readonly": read(_read_only),
            f"PUT {prefix}/state/readonly": change(_set_read_only),
            f"GET {prefix}/gc": read(_is_collecting),
            f"PUT {prefix}/gc": change(_collect),
            f"GET {prefix}/gc_details": read(_collections),
            f"GET {prefix}/list_disk_file": read(_files, Right.CLUSTER_READ),
            f"PUT {prefix}/expand_storage": change(_refuse_to_expand),
            **ClusterPages(self._ledgers, self._recovery).routes(),
        }

    def _served(self, answer: Callable[[ServingBookie, ProbeRequest], Any]) -> Callable[[ProbeRequest], Any]:
        def page(request: ProbeRequest) -> Any:
            return text_page(_STARTING, 503) if self.bookie is None else answer(self.bookie, request)

        return page

    def _recovery(self) -> AutoRecovery | None:
        return None if self.bookie is None else self.bookie.recovery

    def _readiness_now(self) -> Readiness:
        if self.bookie is None:
            return Readiness(is_ready=False, words=_STARTING)
        return self._readiness.look(self.bookie.health(), time.monotonic())

    def _health(self) -> ProbePage:
        failure = "" if self.bookie is None else self.bookie.health().failure
        return text_page(f"stopped: {failure}", 503) if failure else text_page("ok")

    def _readiness_page(self) -> ProbePage:
        said = self._readiness_now()
        return text_page(said.words, 200 if said.is_ready else 503)

    def _is_ready(self) -> ProbePage:
        said = self._readiness_now()
        return text_page("OK") if said.is_ready else text_page(said.words, 503)

    def _status(self) -> ProbePage:
        said = self._readiness_now()
        bookie = self.bookie
        facts: dict[str, Any] = {"ready": said.is_ready, "words": said.words}
        if bookie is not None:
            store = bookie.server.store
            facts |= {
                "bookie_id": bookie.bookie_id,
                "read_only": store.is_read_only,
                "limbo": list(store.limbo.reasons),
                "metadata_session": self._ledgers.store.session_state,
                "replayed_entries": store.replayed_entry_count,
                "damaged_blocks": len(store.damages.found()),
                "counts": bookie.server.counts(),
                "auto_recovery": bookie.recovery is not None,
                "auditor": bookie.recovery is not None and bookie.recovery.auditor_counts.is_leading,
            }
        return json_page(facts)

    async def metrics(self) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page = MetricsPage()
        bookie = self.bookie
        page.gauge("rsm_bookie_ready", "1 = clients can write to it.", self._readiness_now().is_ready)
        add_session_metric(page, self._ledgers.store.session_state)
        if bookie is not None:
            add_server_metrics(page, bookie.server, is_registered=bookie.health().is_registered)
            add_collection_metrics(page, bookie.collector, bookie.server.store)
            add_disk_metrics(page, await bookie.facts.look())
            if bookie.recovery is not None:
                add_recovery_metrics(page, bookie.recovery)
            page.refusals(bookie.server.refusals, "bookie")
        page.refusals(self._refusals, "http")
        page.process()
        return page.page()


async def _info(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    facts = await bookie.facts.look()
    if facts is None:
        return text_page("the disk does not answer", 503)
    free, total = sum(one.free_bytes for one in facts.ledgers), sum(one.total_bytes for one in facts.ledgers)
    return json_page({"freeSpace": free, "totalSpace": total})


def _state(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    is_failed = bool(bookie.health().failure)
    return json_page(
        {
            "running": not is_failed,
            "readOnly": bookie.server.store.is_read_only,
            "shuttingDown": is_failed,
            # Adds of recoveries are taken by a read-only bookie too.
            "availableForHighPriorityWrites": not is_failed,
        }
    )


def _read_only(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    return json_page({"readOnly": bookie.server.store.is_read_only})


async def _set_read_only(bookie: ServingBookie, request: ProbeRequest) -> ProbePage:
    body, store = _decoded(_ReadOnlyBody, request), bookie.server.store
    if isinstance(body, ProbePage):
        return body
    if bookie.is_started_read_only and not body.read_only:
        return text_page("it was started with --read-only: start it again without", 409)
    if bookie.drain is not None and bookie.drain.is_given and not body.read_only:
        return text_page(f"it is drained: rsm cluster drain {bookie.bookie_id} --undo", 409)
    try:
        await store.hold_read_only(is_held=body.read_only)
    except OSError as error:
        return text_page(f"its free space cannot be told: {error}", 503)
    if store.is_read_only != body.read_only:
        return text_page("it stays read-only: its disks are full", 409)
    return _read_only(bookie, request)


def _is_collecting(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    return json_page({"is_in_force_gc": str(bookie.collector.is_wanted).lower()})


def _collect(bookie: ServingBookie, request: ProbeRequest) -> ProbePage:
    body = _decoded(_CollectBody, request)
    if isinstance(body, ProbePage):
        return body
    bookie.collector.want(minor=body.force_minor, major=body.force_major)
    return json_page(f"Triggered GC on BookieServer: {bookie.bookie_id}")


def _collections(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    counts = bookie.server.store.compactor.counts
    return json_page(
        [
            {
                "forceCompacting": bookie.collector.is_wanted,
                "majorCompacting": counts.is_compacting and counts.major_ms >= counts.minor_ms,
                "minorCompacting": counts.is_compacting and counts.major_ms < counts.minor_ms,
                "lastMajorCompactionTime": counts.major_ms,
                "lastMinorCompactionTime": counts.minor_ms,
                "majorCompactionCounter": counts.major_count,
                "minorCompactionCounter": counts.minor_count,
            }
        ]
    )


def _refuse_to_expand(bookie: ServingBookie, _request: ProbeRequest) -> ProbePage:
    return text_page(
        f"bookie {bookie.bookie_id} keeps the folders that it began with: grow their file systems, or start another "
        "bookie on the new disk",
        501,
    )


async def _files(bookie: ServingBookie, request: ProbeRequest) -> ProbePage:
    """List files: a bookie of ours keeps its index in one place, so that there is no file of it to name."""
    wanted = request.query.get("file_type", "")
    kinds = {"journal": "journal files", "entrylog": "entrylog files", "index": "index files"}
    if wanted and wanted not in kinds:
        return text_page(f"file_type={wanted}: there are {', '.join(kinds)}", 400)
    store = bookie.server.store
    names = {
        "journal": [one.path.rpartition("/")[2] for one in store.journal.generations],
        "entrylog": [store.segments.path(segment_id).rpartition("/")[2] for segment_id in store.segments.segment_ids()],
        "index": [],
    }
    return json_page(
        {title: "".join(f"{name}\t" for name in names[kind]) for kind, title in kinds.items() if wanted in ("", kind)}
    )


def _decoded(kind: type[Any], request: ProbeRequest) -> Any:
    try:
        return json_decoder(kind).decode(request.body or b"{}")
    except msgspec.DecodeError as error:
        return text_page(f"the body is not what is expected here: {error}", 400)
