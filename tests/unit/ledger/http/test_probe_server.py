"""The small HTTP server: real sockets, pages made for the case."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.http.probe_server import ProbePage, ProbeServer
from ledger.rights.callers import Callers
from ledger.rights.principal import Role
from ledger.rights.table import ROLES_OF, Right
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of


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


def _served(request: bytes, callers: Callers | None = None) -> tuple[str, bytes]:
    async def run() -> tuple[str, bytes]:
        pages = dict.fromkeys(("/healthz", "/readyz", "/status", "/metrics"), lambda: ProbePage(200, b"ok\n"))
        server = ProbeServer(pages, callers=callers)
        await server.start()
        try:
            return await _ask(server.address, request)
        finally:
            await server.stop()

    return asyncio.run(run())


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
        server = ProbeServer({"/healthz": lambda: ProbePage(200, b"ok\n")})
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
    callers = Callers(token_file=str(token))
    assert _served(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", callers)[0] == "HTTP/1.1 401 Unauthorized"
    wrong = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdeF\r\n\r\n"
    assert _served(wrong, callers)[0] == "HTTP/1.1 401 Unauthorized"
    right = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nauthorization:  Bearer 0123456789abcdef\r\n\r\n"
    assert _served(right, callers)[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:80", "200"), ("[::1]", "200"), ("probes.example", "200"), ("evil.example", "421"),
     ("localhost\r\nHost: evil.example", "400"), ("", "421"), ("a@localhost", "421")],
)  # fmt: skip
def test_a_page_that_lets_its_name_point_to_loopback_reads_nothing(host: str, status: str) -> None:
    async def run() -> tuple[str, bytes]:
        pages = {"/status": lambda: ProbePage(200, b"ok\n")}
        server = ProbeServer(pages, allowed_hosts=("probes.example",))
        await server.start()
        try:
            return await _ask(server.address, f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        finally:
            await server.stop()

    assert asyncio.run(run())[0].split(" ")[1] == status


def test_who_comes_after_many_that_say_nothing_is_answered() -> None:
    async def run() -> None:
        server = ProbeServer({"/healthz": lambda: ProbePage(200, b"ok\n")})
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
        await ProbeServer({}, bind="0.0.0.0").start()

    with pytest.raises(UsageError, match="--tls-cert"):
        asyncio.run(run())


def test_with_principals_each_page_is_for_those_who_have_its_right(tmp_path: Path) -> None:
    callers = Callers(principals(tmp_path))
    for role in Role:
        for page in ("healthz", "readyz", "status", "metrics", "none"):
            head = f"GET /{page} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of(role.value)}\r\n\r\n"
            is_denied = page == "metrics" and role not in ROLES_OF[Right.CLUSTER_READ]
            expected = "404" if page == "none" else "403" if is_denied else "200"
            assert _served(head.encode(), callers)[0].split()[1] == expected, (role, page)
    assert _served(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n", callers)[0].split()[1] == "401"
