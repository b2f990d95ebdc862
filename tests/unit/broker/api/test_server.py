"""Where a server listens and for whom, its pages, and how it leaves."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.api.server import HttpServer
from broker.api.settings import HttpSettings
from broker.api.web import static_files
from broker.machine.commands import SubmitTasks
from broker.machine.replies import TasksSubmitted
from ledger.errors import UsageError
from ledger.open_files import FILES_KEPT
from tests.unit.broker.api.stand import SECRETS, Caller, StandIn, asking, serving, write_tokens
from tests.unit.ledger.bookie.test_tls import Authority


def _refused(**settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        HttpServer(StandIn(), HttpSettings(**settings))
    return str(caught.value)


# ---- where


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_a_certificate_and_tokens_are_needed(bind: str) -> None:
    said = _refused(bind=bind, advertise="broker.example")
    assert "--http-tls-cert" in said
    assert "--tokens-file" in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bind": "0.0.0.0"}, "--http-advertise"),
        ({"advertise": "http://a:1"}, "HOST:PORT"),
        ({"tls_key": "key.pem"}, "no certificate"),
        ({"tls_cert": "/nowhere/cert.pem"}, "/nowhere/cert.pem"),
        ({"tokens_file": "/nowhere/tokens.toml"}, "does not exist"),
        ({"port": 70_000}, "70000"),
        ({"bind": "no.such.host.invalid"}, "no.such.host.invalid"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(settings: dict[str, Any], says: str) -> None:
    assert says in _refused(**settings)


def test_a_port_that_is_taken_is_told() -> None:
    async def run() -> None:
        async with serving() as (server, _):
            said = _refused(port=int(server.address.rpartition(":")[2]))
            assert "in use" in said
            assert "--http-port 0" in said

    asyncio.run(run())


def test_the_address_is_known_before_the_server_runs_and_asked_for_when_it_is_told() -> None:
    server = HttpServer(StandIn(), HttpSettings(advertise="broker.example"))
    host, _, port = server.address.rpartition(":")
    assert (host, server.url) == ("broker.example", f"http://broker.example:{port}")
    asyncio.run(server.stop())
    other = HttpServer(StandIn(), HttpSettings(advertise="broker.example:443"))
    assert other.address == "broker.example:443"
    asyncio.run(other.stop())


def test_a_server_listens_on_the_newer_loopback_too() -> None:
    async def run() -> None:
        async with asking(bind="::1") as (caller, _):
            assert caller.host.startswith("[::1]:")
            assert (await caller.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_connections_never_use_up_the_files_of_the_process(caplog: pytest.LogCaptureFixture) -> None:
    from ledger.http.api_server import _connections_max

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with caplog.at_level(logging.INFO):
        assert _connections_max(10) == 10
        assert _connections_max(10**9) == (hard - FILES_KEPT) // 2
    assert "ulimit" in caplog.text


# ---- TLS


def test_with_a_certificate_everything_is_encrypted_and_a_plain_request_is_not_answered(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    tokens_file = write_tokens(tmp_path / "tokens.toml")

    async def run() -> None:
        async with serving(tls_cert=signed["cert"], tls_key=signed["key"], tokens_file=tokens_file) as (server, _):
            assert server.url.startswith("https://127.0.0.1:")
            trusting = ssl.create_default_context(cafile=authority.ca)
            caller = await Caller.of(server, ssl=trusting)
            assert (await caller.ask("GET", "/api/v1/slots", token="acme")).status == 200
            own = {"Origin": server.url}
            assert (await caller.ask("GET", "/api/v1/slots", token="acme", headers=own)).status == 200
            caller.close()
            plain = await Caller.of(server)
            plain.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await plain.closed()
            plain.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await Caller.of(server, ssl=ssl.create_default_context())
            old = ssl.create_default_context(cafile=authority.ca)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            again = await Caller.of(server, ssl=old)
            assert (await again.ask("GET", "/healthz")).status == 200
            again.close()

    asyncio.run(run())


def test_tls_to_a_plain_port_is_refused() -> None:
    async def run() -> None:
        async with serving() as (server, _):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await Caller.of(server, ssl=ssl.create_default_context())
            caller = await Caller.of(server)
            assert (await caller.ask("GET", "/healthz")).status == 200
            caller.close()

    asyncio.run(run())


# ---- pages


def test_the_dashboard_is_served_with_its_own_strict_headers() -> None:
    async def run() -> None:
        async with asking() as (caller, _):
            for path, file in static_files().items():
                answer = await caller.ask("GET", path)
                assert (answer.status, answer.body) == (200, file.content)
                assert answer.headers["content-type"] == file.content_type
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert answer.headers["cache-control"] == "no-cache"
                again = await caller.ask("GET", path, headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
                assert (again.status, again.body, again.headers["etag"]) == (304, b"", answer.headers["etag"])
            assert (await caller.ask("GET", "/static/nothing.js")).status == 404
            assert (await caller.ask("POST", "/", {})).status == 405

    asyncio.run(run())


def test_a_head_request_has_the_head_of_a_get() -> None:
    async def run() -> None:
        async with asking() as (caller, _):
            got = await caller.ask("GET", "/api/v1/slots")
            head = await caller.ask("HEAD", "/api/v1/slots")
            assert (head.status, head.body) == (200, b"")
            assert {**head.headers, "date": ""} == {**got.headers, "date": ""}

    asyncio.run(run())


def test_metrics_count_requests_by_route_and_not_by_what_clients_make_up() -> None:
    async def run() -> None:
        async with asking() as (caller, _):
            for number in range(3):
                await caller.ask("GET", f"/api/v1/tasks/{number}")
                await caller.ask("GET", f"/made-up-{number}")
            text = (await caller.ask("GET", "/metrics")).body.decode()
            families = text_string_to_metric_families(text)
            found = {tuple(one.labels.values()): one.value for family in families for one in family.samples
                     if one.name == "broker_http_requests_total"}  # fmt: skip
            assert found == {("GET", "/api/v1/tasks/{task_id}", "404"): 3.0, ("", "", "404"): 3.0}

    asyncio.run(run())


def test_a_broken_tokens_file_is_seen_in_the_metrics(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "tokens.toml"
        async with asking(tokens_file=write_tokens(path)) as (caller, _):
            assert b"broker_http_tokens_broken 0.0" in (await caller.ask("GET", "/metrics", token="admin")).body
            path.write_text("[[")
            async with asyncio.timeout(60):
                while b"broker_http_tokens_broken 1.0" not in (await caller.ask("GET", "/metrics", token="admin")).body:
                    await asyncio.sleep(0.05)

    asyncio.run(run())


# ---- leaving


def test_a_request_that_runs_is_answered_when_the_server_stops_and_no_other_is_taken() -> None:
    async def run() -> None:
        broker = StandIn()
        go = asyncio.Event()

        async def slow(command: Any, *, timeout_s: float = 30) -> TasksSubmitted:  # noqa: ARG001
            broker.commands.append(command)
            await go.wait()
            return TasksSubmitted(1, 1)

        broker.execute = slow  # type: ignore[method-assign, assignment]
        async with serving(broker) as (server, _):
            caller, idle = await Caller.of(server), await Caller.of(server)
            asked = asyncio.create_task(caller.ask("POST", "/api/v1/tasks", {"type": "a"}))
            while not broker.commands:
                await asyncio.sleep(0)
            stopping = asyncio.create_task(server.stop())
            assert await idle.closed()
            with pytest.raises(OSError):
                await Caller.of(server)
            assert not stopping.done()
            go.set()
            answer = await asked
            assert (answer.status, answer.headers["connection"]) == (201, "close")
            await stopping
            caller.close()

    asyncio.run(run())


def test_a_request_that_takes_too_long_does_not_hold_the_server_up() -> None:
    async def run() -> None:
        broker = StandIn()

        async def never(command: Any, *, timeout_s: float = 30) -> TasksSubmitted:  # noqa: ARG001
            broker.commands.append(command)
            await asyncio.Event().wait()
            raise AssertionError

        broker.execute = never  # type: ignore[method-assign, assignment]
        async with serving(broker, drain_s=1.0) as (server, _):
            caller = await Caller.of(server)
            asked = asyncio.create_task(caller.ask("POST", "/api/v1/tasks", {"type": "a"}))
            while not broker.commands:
                await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await server.stop()
            with pytest.raises((EOFError, ConnectionError, AssertionError)):
                assert (await asked).status < 300
            caller.close()

    asyncio.run(run())


def test_a_port_is_free_again_once_the_server_has_stopped() -> None:
    async def run() -> None:
        async with serving() as (server, _):
            port = int(server.address.rpartition(":")[2])
        async with asking(port=port) as (caller, _):
            assert (await caller.ask("GET", "/healthz")).status == 200

    asyncio.run(run())


def test_a_server_that_never_ran_leaves_its_port() -> None:
    server = HttpServer(StandIn(), HttpSettings())
    port = int(server.address.rpartition(":")[2])
    asyncio.run(server.stop())
    asyncio.run(HttpServer(StandIn(), HttpSettings(port=port)).stop())


def test_nobody_is_told_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with asking(tokens_file=write_tokens(tmp_path / "tokens.toml")) as (caller, broker):
            broker.answers[SubmitTasks] = lambda _: 1 / 0
            answer = await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, token="acme")
            assert answer.status == 500
            assert SECRETS["acme"] not in answer.body.decode() + caplog.text
            assert "ZeroDivisionError" in caplog.text

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
