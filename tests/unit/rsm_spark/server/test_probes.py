"""Probes and metrics of a replica: real sockets, statuses made for the case."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.runtime.memory import MemoryGauge
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.runtime.telemetry import ReplicaTelemetry
from rsm_spark.server.probes import health, readiness

STATUS = ReplicaStatus(
    log="orders",
    log_id="00" * 16,
    replica_id="a",
    incarnation="11" * 16,
    role=ReplicaRole.FOLLOWER,
    phase="follow",
    leader="b",
    leader_address="",
    leader_epoch=4,
    revision=70,
    digest="",
    prefix_hash="",
    position=None,
    row_count=9,
    session_count=2,
    logged_ms=1_000,
    lag_ms=1_500,
    queued=3,
    snapshot_revision=60,
    snapshot_ms=5_000,
    known_revision=71,
    verified={"lake": 50},
    alarms=("the clock is wrong",),
    failure="",
)


def _with(**changes: Any) -> ReplicaStatus:
    return msgspec.structs.replace(STATUS, **changes)


def _envelope(record_count: int) -> bytes:
    return encode_envelope(Envelope(bytes(16), 1, 1, 0, 0, record_count, bytes(32)), b"body")


_LOG = (("log", "orders"),)
_DISK = b"rsm_data_disk_free_bytes{"


class Stand:
    """What telemetry needs of a replica."""

    def __init__(self, status: ReplicaStatus) -> None:
        self._status = status
        self.entry: Callable[[bytes], None] = lambda _payload: None
        self.memory = SimpleNamespace(gauge=MemoryGauge(512))
        self.relays = SimpleNamespace(open_count=0, relay_count=0)

    def status(self) -> ReplicaStatus:
        return self._status

    def on_entry(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        self.entry = listener
        return lambda: None


def _samples(stand: Stand, telemetry: ReplicaTelemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(asyncio.run(telemetry.text()).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def test_a_replica_that_works_is_healthy_whatever_its_role() -> None:
    assert [health(_with(role=role)).status for role in ReplicaRole] == [200, 200, 200]


def test_a_replica_that_stopped_by_itself_is_not_healthy_and_says_why() -> None:
    page = health(_with(failure="StateDivergedError: digest"))
    assert page.status == 503
    assert b"StateDivergedError" in page.body


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"role": ReplicaRole.LEADER, "lag_ms": 0}, 200),
        ({"role": ReplicaRole.CANDIDATE}, 503),
        ({"lag_ms": 1_500}, 200),
        ({"lag_ms": 10_001}, 503),
        ({"logged_ms": 0, "lag_ms": 0}, 503),
        ({"role": ReplicaRole.LEADER, "lag_ms": 0, "metadata_session": "suspended"}, 200),
        ({"role": ReplicaRole.LEADER, "lag_ms": 0, "metadata_session": "lost"}, 503),
        ({"lag_ms": 1_500, "metadata_session": "lost"}, 503),
        ({"role": ReplicaRole.LEADER, "failure": "CorruptLogError: x"}, 503),
    ],
)
def test_readiness_asks_whether_clients_are_served_well_here(changes: dict[str, Any], status: int) -> None:
    assert readiness(_with(**changes), lag_ms_max=10_000).status == status


def test_a_replica_that_has_read_nothing_says_so() -> None:
    """Its lag would be the time since 1970."""
    page = readiness(_with(logged_ms=0, lag_ms=1_795_795_050_000), lag_ms_max=10_000)
    assert (page.status, page.body) == (503, b"not ready: it has read nothing of the log yet\n")


def test_metrics_show_the_status() -> None:
    stand = Stand(STATUS)
    samples = _samples(stand, ReplicaTelemetry(stand, clock_s=lambda: 65.0))  # type: ignore[arg-type]
    assert samples["rsm_revision", _LOG] == 70
    assert samples["rsm_known_revision", _LOG] == 71
    assert samples["rsm_lag_seconds", _LOG] == 1.5
    assert samples["rsm_leader_epoch", _LOG] == 4
    assert samples["rsm_alarms", _LOG] == 1
    assert samples["rsm_snapshot_age_seconds", _LOG] == 60
    assert 0 < samples["rsm_memory_used_bytes", ()]
    assert samples["rsm_memory_limit_bytes", ()] == 512 << 20
    assert samples["rsm_verified_revision", (*_LOG, ("place", "lake"))] == 50
    assert samples["rsm_role", (*_LOG, ("role", "follower"))] == 1
    assert samples["rsm_role", (*_LOG, ("role", "leader"))] == 0
    assert ("rsm_trimmable_ledgers", _LOG) not in samples


def test_metrics_of_a_leader_show_what_it_may_trim() -> None:
    stand = Stand(_with(role=ReplicaRole.LEADER, trim=TrimPlan((3, 4), alarm="nothing is trimmed")))
    samples = _samples(stand, ReplicaTelemetry(stand))  # type: ignore[arg-type]
    assert samples["rsm_trimmable_ledgers", _LOG] == 2
    assert samples["rsm_trim_overdue", _LOG] == 1


def test_metrics_count_entries_and_the_sizes_of_batches() -> None:
    stand = Stand(STATUS)
    telemetry = ReplicaTelemetry(stand)  # type: ignore[arg-type]
    payloads = [_envelope(count) for count in (0, 1, 3, 100_000)]
    for payload in payloads:
        stand.entry(payload)
    samples = _samples(stand, telemetry)
    assert samples["rsm_entries_total", _LOG] == 4
    assert samples["rsm_records_total", _LOG] == 100_004
    assert samples["rsm_entry_bytes_total", _LOG] == sum(map(len, payloads))
    assert samples["rsm_batch_records_bucket", (("le", "0.0"), *_LOG)] == 1
    assert samples["rsm_batch_records_bucket", (("le", "1.0"), *_LOG)] == 2
    assert samples["rsm_batch_records_bucket", (("le", "3.0"), *_LOG)] == 3
    assert samples["rsm_batch_records_bucket", (("le", "32767.0"), *_LOG)] == 3
    assert samples["rsm_batch_records_bucket", (("le", "+Inf"), *_LOG)] == 4


def test_a_disk_that_stands_still_holds_up_no_scrape_and_one_thread_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, real, begun = threading.Event(), os.statvfs, []

    def slow(folder: str) -> os.statvfs_result:
        begun.append(threading.current_thread())
        answers.wait(60)
        return real(folder)

    async def scrapes() -> list[bytes]:
        telemetry = ReplicaTelemetry(Stand(STATUS), folder=str(tmp_path))  # type: ignore[arg-type]
        whole = [await telemetry.text()]
        monkeypatch.setattr(os, "statvfs", slow)
        try:
            whole += [await telemetry.text() for _ in range(2)]
            assert len(begun) == 1
            assert begun[0] is not threading.current_thread()
        finally:
            answers.set()
        whole.append(await telemetry.text())  # Nothing is left that stands still.
        monkeypatch.setattr(os, "statvfs", _fail)
        while _DISK in whole[-1]:
            whole.append(await telemetry.text())
        return whole

    monkeypatch.setattr("rsm_spark.runtime.telemetry._DISK_WAIT_S_MAX", 0.05)
    found = asyncio.run(scrapes())
    assert all(_DISK in one for one in found[:4])
    assert b"rsm_revision" in found[-1]


def _fail(folder: str) -> os.statvfs_result:
    raise FileNotFoundError(folder)
