"""Collectors that take a request as slowly as they can, and those that end a connection that waits."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from ledger.telemetry.otlp_collector import OtlpCollector, OtlpCollectorError

_TIMEOUT_S = 0.5
_EVERY_S = 0.01
_OK = b"HTTP/1.1 200 OK\r\n"
_REQUEST = b"x" * 1000
Server = Callable[[socket.socket, threading.Event], None]


@contextmanager
def _serving(serve: Server) -> Iterator[str]:
    """Serve connections, one after the other; `serve` ends when the connection or the test does."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError):
                while not is_over.is_set():
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        serve(connection, is_over)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _read_request(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\r\n\r\n" + _REQUEST):
        found += (part := connection.recv(65536))
        if not part:
            raise ConnectionResetError
    return found


def _dribbling(begin: bytes, endless: bytes) -> Server:
    def serve(connection: socket.socket, is_over: threading.Event) -> None:
        _read_request(connection)
        connection.sendall(begin)
        for byte in itertools.cycle(endless):
            if is_over.wait(_EVERY_S):
                return
            connection.sendall(bytes([byte]))

    return serve


def _reading_slowly(connection: socket.socket, is_over: threading.Event) -> None:
    while connection.recv(1) and not is_over.wait(_EVERY_S):
        pass


_SLOW: dict[str, Server] = {
    "a status": _dribbling(b"", b"H"),
    "a header": _dribbling(_OK + b"X: ", b"x"),
    "headers": _dribbling(_OK, b"X: y\r\n"),
    "the promise of an answer": _dribbling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "content": _dribbling(_OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "content to the end": _dribbling(_OK + b"Connection: close\r\n\r\n", b"x"),
    "chunks": _dribbling(_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


@pytest.mark.parametrize("slow", _SLOW)
def test_an_answer_byte_by_byte_has_no_more_time_than_none(slow: str) -> None:
    with _serving(_SLOW[slow]) as url:
        collector = OtlpCollector(url, {}, _TIMEOUT_S)
        for _ in range(2):
            with pytest.raises(OtlpCollectorError, match="/v1/traces"):
                collector.post("/v1/traces", _REQUEST)


def test_a_request_that_is_read_byte_by_byte_has_no_more_time() -> None:
    with _serving(_reading_slowly) as url, pytest.raises(OtlpCollectorError, match="timed out"):
        OtlpCollector(url, {}, _TIMEOUT_S).post("/v1/traces", bytes(64 << 20))


def test_a_connection_that_the_collector_has_ended_costs_no_request() -> None:
    ended = threading.Semaphore(0)
    seen: list[bytes] = []

    def serve(connection: socket.socket, _: threading.Event) -> None:
        seen.append(_read_request(connection))
        connection.sendall(_OK + b"Content-Length: 2\r\n\r\nok")
        connection.close()
        ended.release()

    with _serving(serve) as url:
        collector = OtlpCollector(url, {"OTEL_EXPORTER_OTLP_HEADERS": "x-scope=a"}, 60.0)
        for _ in range(3):
            assert collector.post("/v1/logs", _REQUEST) == b"ok"
            ended.acquire()
        collector.close()
    assert len(seen) == 3
    assert all(one.startswith(b"POST /v1/logs HTTP/1.1\r\n") and b"x-scope: a\r\n" in one for one in seen)
