"""The small HTTP server: real sockets, pages made for the case."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.errors import LedgerError, UsageError
from ledger.http.probe_server import ProbeServer
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute, probe_routes
from ledger.logs import AUDIT_LOGGER
from ledger.rights.callers import Callers
from ledger.rights.principal import Role
from ledger.rights.table import ROLES_OF, Right
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of


def _ok() -> ProbePage:
    return ProbePage(200, b"ok\n")


PAGES = probe_routes(health=_ok, readiness=_ok, metrics=_ok, status=_ok)


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
        server = ProbeServer(PAGES, callers=callers)
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
    assert _served(b"HEAD /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n") == ("HTTP/1.1 404 Not Found", b"")


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


def test_who_connects_asks_nothing_and_goes_gets_no_answer_and_leaves_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # As checks of ports do, every few seconds.
    assert _served(b"") == ("", b"")
    assert caplog.records == []


def test_an_answer_is_these_bytes() -> None:
    async def run() -> bytes:
        server = ProbeServer(PAGES)
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
        server = ProbeServer(PAGES, allowed_hosts=("probes.example",))
        await server.start()
        try:
            return await _ask(server.address, f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        finally:
            await server.stop()

    assert asyncio.run(run())[0].split(" ")[1] == status


def test_who_comes_after_many_that_say_nothing_is_answered() -> None:
    async def run() -> None:
        server = ProbeServer(PAGES)
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


def _routes(noted: list[ProbeRequest]) -> dict[str, ProbeRoute]:
    async def change(request: ProbeRequest) -> ProbePage:
        noted.append(request)
        return ProbePage(200, b"changed\n")

    async def stand(_request: ProbeRequest) -> ProbePage:
        await asyncio.Event().wait()
        return ProbePage(200, b"never\n")

    def fail(_request: ProbeRequest) -> ProbePage:
        raise ValueError("a secret of the process")

    def complain(_request: ProbeRequest) -> ProbePage:
        raise LedgerError("ZooKeeper is away")

    return {
        **PAGES,
        "PUT /gc": ProbeRoute(change, Right.GOVERN, is_change=True),
        "GET /stands": ProbeRoute(stand, Right.STATUS, is_slow=True),
        "GET /fails": ProbeRoute(fail, Right.STATUS),
        "GET /complains": ProbeRoute(complain, Right.STATUS),
    }


def _asked(requests: list[bytes], callers: Callers | None = None) -> tuple[list[tuple[str, bytes]], list[ProbeRequest]]:
    noted: list[ProbeRequest] = []

    async def run() -> list[tuple[str, bytes]]:
        server = ProbeServer(_routes(noted), callers=callers)
        await server.start()
        try:
            return [await _ask(server.address, request) for request in requests]
        finally:
            await server.stop()

    return asyncio.run(run()), noted


def _put(body: bytes, token: str = "") -> bytes:
    said = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"PUT /gc?a=1&b HTTP/1.1\r\nHost: localhost\r\n{said}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_change_is_for_operators_and_a_line_of_the_audit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callers = Callers(principals(tmp_path))
    requests = [_put(b'{"x": 1}', token_of(role.value)) for role in Role]
    answers, noted = _asked(requests, callers)
    for role, (head, _) in zip(Role, answers, strict=True):
        assert head.split()[1] == ("200" if role is Role.OPERATOR else "403"), role
    assert [(one.body, one.query, one.principal.role) for one in noted] == [
        (b'{"x": 1}', {"a": "1", "b": ""}, Role.OPERATOR)
    ]
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    assert sum("PUT /gc on HTTP: done" in line for line in lines) == 1
    assert sum("PUT /gc on HTTP: refused (no-right)" in line for line in lines) == len(Role) - 1


def test_a_port_that_demands_nothing_lets_nobody_change_anything() -> None:
    answers, noted = _asked([_put(b"")])
    assert answers[0][0].split()[1] == "403"
    assert noted == []


def test_a_long_body_is_refused_before_it_is_held() -> None:
    head = b"PUT /gc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    answers, noted = _asked([head + b"x" * 20_000])
    assert answers[0][0].split()[1] == "400"
    assert noted == []


def test_pages_that_cannot_be_made_say_so_and_give_nothing_away() -> None:
    answers, _ = _asked(
        [f"GET /{page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for page in ("fails", "complains")]
    )
    assert answers[0][0].split()[1] == "500"
    assert b"secret" not in answers[0][1]
    assert answers[1] == ("HTTP/1.1 503 Service Unavailable", b"ZooKeeper is away\n")


def test_who_asks_for_health_is_answered_beside_many_slow_pages_and_slow_readers() -> None:
    async def run() -> None:
        server = ProbeServer(_routes([]))
        await server.start()
        host, _, port = server.address.rpartition(":")
        others = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
        for number, (_, writer) in enumerate(others):
            page = b"stands" if number % 2 else b"status"
            writer.write(b"GET /" + page + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"[: None if number % 3 else -2])
        assert (await _ask(server.address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))[1] == b"ok\n"
        for _, writer in others:
            writer.transport.abort()
        await server.stop()

    asyncio.run(run())
