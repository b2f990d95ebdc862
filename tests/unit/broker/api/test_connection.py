"""What a hostile or broken client sends: an error, the connection closed where it must be, the server alive."""

# Longer than 400 lines: each is one way to be hostile, to the same server.

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.api.server import HttpServer
from ledger.http.connection import AHEAD_MAX, HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX
from tests.unit.broker.api.stand import Answer, Caller, StandIn, serving, task


def _run(scenario: Callable[[HttpServer, StandIn], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with serving(**settings) as (server, broker):
            await scenario(server, broker)
            async with asyncio.timeout(60):
                caller = await Caller.of(server)
                assert (await caller.ask("GET", "/healthz")).status == 200, "the server lives"
                caller.close()

    asyncio.run(run())


def _head(method: str = "POST", path: str = "/api/v1/tasks", *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1")


async def _send(server: HttpServer, *pieces: bytes) -> tuple[Caller, Answer]:
    caller = await Caller.of(server)
    for piece in pieces:
        caller.writer.write(piece)
        await asyncio.sleep(0)
    return caller, await caller.answer()


_JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", 400),
        (b"\x00\x00\x00\x00\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"NONSENSE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA b: c\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\nC: d\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: 5", "Content-Length: 6"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: -5"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: +5"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: 1e3"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: " + "9" * 40), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: gzip, chunked, gzip"), 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + b"zz\r\n", 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + b"-1\r\n", 400),
        (_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n", 400),
        (_head("POST", "/api/v1/tasks", _JSON, f"Content-Length: {10 * 2**30}"), 413),
        (_head("GET", "/" + "a" * (TARGET_BYTES_MAX + 1)), 414),
        (_head("GET", "/healthz", *["A: b"] * (HEADERS_MAX + 1)), 431),
        (_head("GET", "/healthz", "A: " + "b" * HEAD_BYTES_MAX), 431),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * (2 * HEAD_BYTES_MAX), 431),
        (b"A" * (2 * HEAD_BYTES_MAX), 400),
        (b"GET /" + b"a" * (2 * HEAD_BYTES_MAX), 414),
    ],
)
def test_what_is_no_request_or_too_much_of_one_is_answered_with_a_problem(sent: bytes, status: int) -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        caller, answer = await _send(server, sent)
        assert (answer.status, answer.json["status"]) == (status, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert broker.commands == []
        caller.close()

    _run(scenario)


def test_every_cut_of_a_request_leaves_nothing_behind() -> None:
    whole = _head("POST", "/api/v1/tasks", _JSON, "Content-Length: 15") + b'{"type":"mail"}'

    async def scenario(server: HttpServer, broker: StandIn) -> None:
        for end in range(len(whole)):
            caller = await Caller.of(server)
            caller.writer.write(whole[:end])
            caller.close()
        assert broker.commands == []
        async with asyncio.timeout(60):
            while server.connection_count:
                await asyncio.sleep(0.005)

    _run(scenario)


def test_a_request_may_come_byte_by_byte_and_in_chunks() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        body = b'{"type":"mail"}'
        chunks = b"".join(b"1;ext=x\r\n%c\r\n" % byte for byte in body) + b"0\r\nTrailer: x\r\n\r\n"
        for sent in (
            _head("POST", "/api/v1/tasks", _JSON, "Content-Length: 15") + body,
            _head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + chunks,
        ):
            caller = await Caller.of(server)
            caller.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in sent:
                caller.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await caller.answer()).status == 201
            caller.close()
        assert len(broker.commands) == 2

    _run(scenario)


def test_a_body_without_end_is_refused_and_not_kept() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        caller.writer.write(_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answered = asyncio.create_task(caller.answer())
        for _ in range(1_000):
            if answered.done():
                break
            caller.writer.write(chunk)
            await asyncio.sleep(0.001)
        assert (await answered).status == 413
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
        caller.close()

    _run(scenario)


def test_trailers_without_end_are_not_kept() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        body = b'f\r\n{"type":"mail"}\r\n0\r\nTrailer: '
        caller.writer.write(_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + body)
        answered = asyncio.create_task(caller.answer())
        for _ in range(1_000):
            if answered.done():
                break
            caller.writer.write(b"x" * 65_536)
            await asyncio.sleep(0.001)
        assert (await answered).status == 413
        assert await caller.closed()

    _run(scenario)


def test_a_body_as_large_as_allowed_is_read_and_one_byte_more_is_not() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        for size, status in ((100_000, 201), (100_001, 413)):
            body = b'{"type":"mail"' + b" " * (size - 15) + b"}"
            caller = await Caller.of(server)
            assert (await caller.ask("POST", "/api/v1/tasks", body)).status == status
            caller.close()
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
            head = _head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked")
            caller, answer = await _send(server, head, chunked)
            assert answer.status == status
            caller.close()
        assert len(broker.commands) == 2

    _run(scenario, body_bytes_max=100_000)


def test_a_long_body_has_the_time_that_it_takes_at_the_pace_that_is_asked_for() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        body = b'{"type":"mail"' + b" " * 50_000 + b"}"
        caller = await Caller.of(server)
        caller.writer.write(_head("POST", "/api/v1/tasks", _JSON, f"Content-Length: {len(body)}") + body[:-1])
        await asyncio.sleep(0.5)
        caller.writer.write(body[-1:])
        assert (await caller.answer()).status == 201
        caller.close()
        caller, answer = await _send(server, _head("POST", "/api/v1/tasks", _JSON, "Content-Length: 50000") + b"{")
        assert (answer.status, answer.json["reason"]) == (408, "too-slow"), "who has sent little has little time"
        caller.close()

    _run(scenario, read_body_s=0.05, read_body_bytes_per_s=1_000)


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HTTP/1.1\r\nHost: loc", b"G", _head("POST", "/api/v1/tasks", _JSON, "Content-Length: 5") + b"{"],
)
def test_a_client_that_takes_its_time_is_answered_and_left(sent: bytes) -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        caller, answer = await _send(server, sent)
        assert (answer.status, answer.json["reason"]) == (408, "too-slow")
        assert await caller.closed()
        assert broker.commands == []

    _run(scenario, read_head_s=0.05, read_body_s=0.05)


@pytest.mark.parametrize("is_used", [False, True])
def test_a_connection_that_asks_nothing_is_closed_after_a_while(is_used: bool) -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        if is_used:
            assert (await caller.ask("GET", "/healthz")).status == 200
        assert await caller.closed()

    _run(scenario, idle_s=0.05)


def test_a_client_that_takes_no_answers_is_left_after_a_while() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        broker.tasks[5] = task(5, payload=bytes(1_000_000))
        caller = await Caller.of(server)
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        caller.writer.write(_head("GET", "/api/v1/tasks/5/payload") * 20)
        async with asyncio.timeout(60):
            while not server.connection_count:
                await asyncio.sleep(0.005)
            while server.connection_count:
                await asyncio.sleep(0.005)
        caller.close()

    _run(scenario, idle_s=0.1, write_s=0.1)


def test_bodies_that_come_at_once_are_bounded_together() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        callers = [await Caller.of(server) for _ in range(4)]
        for caller in callers:
            caller.writer.write(_head("POST", "/api/v1/tasks", _JSON, "Content-Length: 300001") + b" " * 300_000)
        answers = [asyncio.create_task(caller.answer()) for caller in callers]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert {one.result().json["reason"] for one in done} == {"overloaded"}
        for caller in callers:
            caller.close()
        await asyncio.gather(*answers, return_exceptions=True)
        async with asyncio.timeout(60):
            while server.edge.shared.bodies.held:
                await asyncio.sleep(0.005)

    _run(scenario, bodies_bytes_max=1_000_000, address_part=1.0)


def test_a_long_poll_is_not_taken_for_idle() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        broker.tasks[5] = task(5)
        caller = await Caller.of(server)
        answer = await caller.ask("GET", "/api/v1/tasks/5?wait_s=2.2")
        assert answer.status == 200
        caller.close()

    _run(scenario, idle_s=0.05, read_head_s=0.05, read_body_s=0.05)


def test_connections_beyond_the_bound_are_turned_away_and_others_go_on() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        callers = [await Caller.of(server) for _ in range(20)]
        for caller in callers:
            assert (await caller.ask("GET", "/api/v1/slots")).status == 200
        late = await Caller.of(server)
        answer = await late.answer()
        assert (answer.status, answer.json["reason"]) == (503, "too-many-connections")
        assert await late.closed()
        assert (await callers[0].ask("GET", "/healthz")).status == 200
        for caller in callers:
            caller.close()
        async with asyncio.timeout(60):
            while server.connection_count:
                await asyncio.sleep(0.005)

    _run(scenario, connections_max=20, address_part=1.0)


def test_requests_that_do_not_wait_for_answers_are_answered_in_order() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        caller.writer.write(b"".join(_head("GET", f"/api/v1/tasks/{number}") for number in range(1, 200)))
        for number in range(1, 200):
            answer = await caller.answer()
            assert answer.status == 404
            assert f"task {number}:" in answer.json["detail"]
        caller.close()

    _run(scenario)


def test_what_waits_is_counted_and_nothing_more_is_read() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        broker.tasks[5] = task(5)
        caller = await Caller.of(server)
        caller.writer.write(_head("GET", "/api/v1/tasks/5?wait_s=20"))
        while not broker.waiting:
            await asyncio.sleep(0)
        connection: Any
        (connection,) = server._server.server_state.connections
        for _ in range(20):
            caller.writer.write(_head("GET", "/healthz") * 500)
            await asyncio.sleep(0.002)
            assert len(connection.pipeline) <= AHEAD_MAX
            assert len(connection._held) <= 262_144
        broker.end(5)
        for _ in range(1 + 10_000):
            assert (await caller.answer()).status == 200
        caller.close()

    _run(scenario)


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(b"\x00\x00\r\n\r\n", id="rubbish"),
        pytest.param(_head("GET", "/" + "a" * (TARGET_BYTES_MAX + 1)), id="too long"),
        pytest.param(_head("POST", "/api/v1/tasks", _JSON, "Transfer-Encoding: chunked") + b"zz\r\n", id="half read"),
    ],
)
def test_a_refusal_stands_behind_the_answers_of_what_came_before(behind: bytes) -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        broker.tasks[5] = task(5)
        caller = await Caller.of(server)
        caller.writer.write(_head("GET", "/api/v1/tasks/5?wait_s=20") + _head("GET", "/healthz") + behind)
        while not broker.waiting:
            await asyncio.sleep(0)
        broker.end(5)
        first = await caller.answer()
        assert (first.status, first.json["task_id"]) == (200, 5)
        assert (await caller.answer()).body == b"ok\n"
        assert (await caller.answer()).status in {400, 414}
        assert await caller.closed()

    _run(scenario)


def test_a_client_that_leaves_ends_what_runs_for_it_though_more_waits_behind() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        caller.writer.write(_head("GET", "/api/v1/events") + _head("GET", "/healthz"))
        await caller.reader.readuntil(b"heartbeat")
        assert server.edge.shared.streams.held == 1
        caller.writer.transport.abort()
        async with asyncio.timeout(60):
            while server.edge.shared.streams.held:
                await asyncio.sleep(0.01)

    _run(scenario, heartbeat_s=0.05)


def test_what_waits_too_long_for_others_is_not_called_slow() -> None:
    async def scenario(server: HttpServer, broker: StandIn) -> None:
        broker.tasks[5] = task(5)
        caller = await Caller.of(server)
        half = _head("POST", "/api/v1/tasks", _JSON, "Content-Length: 15") + b'{"type":'
        caller.writer.write(_head("GET", "/api/v1/tasks/5?wait_s=0.5") + half)
        assert (await caller.answer()).status == 200
        caller.writer.write(b'"mail"}')
        assert (await caller.answer()).status == 201
        caller.close()

    _run(scenario, read_head_s=0.2, read_body_s=0.2)


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_an_upgrade_is_not_made(upgrade: str) -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        lines = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {upgrade}", "HTTP2-Settings: AAMAAABk")
        caller, answer = await _send(server, _head("GET", "/healthz", *lines))
        assert answer.status == 200
        caller.close()

    _run(scenario)


def test_a_body_is_asked_for_only_when_it_will_be_read() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        expect = "Expect: 100-continue"
        caller = await Caller.of(server)
        caller.writer.write(_head("POST", "/api/v1/tasks", _JSON, expect, "Content-Length: 15"))
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.writer.write(b'{"type":"mail"}')
        assert (await caller.answer()).status == 201
        caller.close()
        caller, answer = await _send(server, _head("POST", "/api/v1/tasks", _JSON, expect, "Content-Length: 99999999"))
        assert answer.status == 413
        caller.close()

    _run(scenario)


def test_answers_leave_at_once() -> None:
    # Majordodo: Nagle's algorithm and delayed acknowledgements cost each request 45 ms.
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller = await Caller.of(server)
        await caller.ask("GET", "/healthz")
        (connection,) = server._server.server_state.connections
        served = connection.transport.get_extra_info("socket")
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        caller.close()

    _run(scenario)


def test_the_old_protocol_is_answered_and_closed() -> None:
    async def scenario(server: HttpServer, _stand_in: StandIn) -> None:
        caller, answer = await _send(server, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert answer.status == 200
        assert await caller.closed()

    _run(scenario)
