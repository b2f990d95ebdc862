"""Probes and metrics of a replica: real sockets, statuses made for the case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.errors import UsageError
from ledger.rights.principal import Role as RoleOfCaller
from ledger.rights.table import ROLES_OF, Right
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.runtime.memory import MemoryGauge
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.runtime.telemetry import ReplicaTelemetry
from rsm_spark.server.probes import ProbePage, ProbeServer, health, readiness
from rsm_spark.transport.security import Security
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of

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


class Stand:
    """What telemetry needs of a replica."""

    def __init__(self, status: ReplicaStatus) -> None:
        self._status = status
        self.entry: Callable[[bytes], None] = lambda _payload: None
        self.memory = SimpleNamespace(gauge=MemoryGauge(512))

    def status(self) -> ReplicaStatus:
        return self._status

    def on_entry(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        self.entry = listener
        return lambda: None


def _samples(stand: Stand, telemetry: ReplicaTelemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(telemetry.text().decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


async def _ask(address: str, request: bytes) -> tuple[str, bytes]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    if not request.endswith(b"\r\n\r\n"):
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode().split("\r\n")[0], body


def _served(request: bytes, security: Security | None = None) -> tuple[str, bytes]:
    async def run() -> tuple[str, bytes]:
        pages = dict.fromkeys(("/healthz", "/readyz", "/status", "/metrics"), lambda: ProbePage(200, b"ok\n"))
        server = ProbeServer(pages, security=security or Security())
        await server.start()
        try:
            return await _ask(server.address, request)
        finally:
            await server.stop()

    return asyncio.run(run())


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


def test_a_page_is_answered_and_the_connection_closed() -> None:
    assert _served(b"GET /healthz?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n") == ("HTTP/1.1 200 OK", b"ok\n")


def test_a_head_request_is_answered_without_a_body() -> None:
    assert _served(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == ("HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        (b"GET /nothing HTTP/1.0\r\n\r\n", "404"),
        (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", "400"),
        (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", "400"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", "400"),
        (b"GET /healthz HTTP/1.1\r\n", "400"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
    ],
)
def test_anything_but_a_small_get_of_a_page_is_refused(request_bytes: bytes, status: str) -> None:
    assert _served(request_bytes)[0].split(" ")[1] == status


def test_an_answer_is_these_bytes() -> None:
    async def run() -> bytes:
        server = ProbeServer({"/healthz": lambda: ProbePage(200, b"ok\n")}, security=Security())
        await server.start()
        try:
            host, _, port = server.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return answer
        finally:
            await server.stop()

    assert asyncio.run(run()) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\nConnection: close\r\n"
        b"Cache-Control: no-store\r\n\r\nok\n"
    )


def test_with_a_token_only_callers_who_know_it_are_answered(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    security = Security(token_file=str(token))
    assert _served(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", security)[0] == "HTTP/1.1 401 Unauthorized"
    wrong = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdeF\r\n\r\n"
    assert _served(wrong, security)[0] == "HTTP/1.1 401 Unauthorized"
    right = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nauthorization:  Bearer 0123456789abcdef\r\n\r\n"
    assert _served(right, security)[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:80", "200"), ("[::1]", "200"), ("probes.example", "200"), ("evil.example", "421"),
     ("localhost\r\nHost: evil.example", "400"), ("", "421"), ("a@localhost", "421")],
)  # fmt: skip
def test_a_page_that_lets_its_name_point_to_loopback_reads_nothing(host: str, status: str) -> None:
    async def run() -> tuple[str, bytes]:
        pages = {"/status": lambda: ProbePage(200, b"ok\n")}
        server = ProbeServer(pages, security=Security(), allowed_hosts=("probes.example",))
        await server.start()
        try:
            return await _ask(server.address, f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        finally:
            await server.stop()

    assert asyncio.run(run())[0].split(" ")[1] == status


def test_who_comes_after_many_that_say_nothing_is_answered() -> None:
    async def run() -> None:
        server = ProbeServer({"/healthz": lambda: ProbePage(200, b"ok\n")}, security=Security())
        await server.start()
        host, _, port = server.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        assert (await _ask(server.address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))[1] == b"ok\n"
        await server.stop()
        for _, writer in silent:
            writer.close()

    asyncio.run(run())


def test_beyond_loopback_a_certificate_and_a_token_are_needed() -> None:
    async def run() -> None:
        await ProbeServer({}, bind="0.0.0.0", security=Security()).start()

    with pytest.raises(UsageError, match="--tls-cert"):
        asyncio.run(run())


def test_metrics_show_the_status() -> None:
    stand = Stand(STATUS)
    samples = _samples(stand, ReplicaTelemetry(stand, clock_s=lambda: 65.0))  # type: ignore[arg-type]
    assert samples["rsm_revision", ()] == 70
    assert samples["rsm_known_revision", ()] == 71
    assert samples["rsm_lag_seconds", ()] == 1.5
    assert samples["rsm_leader_epoch", ()] == 4
    assert samples["rsm_alarms", ()] == 1
    assert samples["rsm_snapshot_age_seconds", ()] == 60
    assert 0 < samples["rsm_memory_used_bytes", ()]
    assert samples["rsm_memory_limit_bytes", ()] == 512 << 20
    assert samples["rsm_verified_revision", (("place", "lake"),)] == 50
    assert samples["rsm_role", (("role", "follower"),)] == 1
    assert samples["rsm_role", (("role", "leader"),)] == 0
    assert ("rsm_trimmable_ledgers", ()) not in samples


def test_metrics_of_a_leader_show_what_it_may_trim() -> None:
    stand = Stand(_with(role=ReplicaRole.LEADER, trim=TrimPlan((3, 4), alarm="nothing is trimmed")))
    samples = _samples(stand, ReplicaTelemetry(stand))  # type: ignore[arg-type]
    assert samples["rsm_trimmable_ledgers", ()] == 2
    assert samples["rsm_trim_overdue", ()] == 1


def test_metrics_count_entries_and_the_sizes_of_batches() -> None:
    stand = Stand(STATUS)
    telemetry = ReplicaTelemetry(stand)  # type: ignore[arg-type]
    payloads = [_envelope(count) for count in (0, 1, 3, 100_000)]
    for payload in payloads:
        stand.entry(payload)
    samples = _samples(stand, telemetry)
    assert samples["rsm_entries_total", ()] == 4
    assert samples["rsm_records_total", ()] == 100_004
    assert samples["rsm_entry_bytes_total", ()] == sum(map(len, payloads))
    assert samples["rsm_batch_records_bucket", (("le", "0.0"),)] == 1
    assert samples["rsm_batch_records_bucket", (("le", "1.0"),)] == 2
    assert samples["rsm_batch_records_bucket", (("le", "3.0"),)] == 3
    assert samples["rsm_batch_records_bucket", (("le", "32767.0"),)] == 3
    assert samples["rsm_batch_records_bucket", (("le", "+Inf"),)] == 4


def test_with_principals_each_page_is_for_those_who_have_its_right(tmp_path: Path) -> None:
    security = Security(principals=principals(tmp_path))
    for role in RoleOfCaller:
        for page in ("healthz", "readyz", "status", "metrics", "none"):
            head = f"GET /{page} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of(role.value)}\r\n\r\n"
            is_denied = page == "metrics" and role not in ROLES_OF[Right.CLUSTER_READ]
            expected = "404" if page == "none" else "403" if is_denied else "200"
            assert _served(head.encode(), security)[0].split()[1] == expected, (role, page)
    assert _served(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n", security)[0].split()[1] == "401"
