"""Whatever a server sends: a response, or an error that says so."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.client import AsyncBrokerClient
from broker.client.errors import BrokerUnavailableError
from ledger.tls import TlsSettings
from rsm_spark.client import http_connections
from rsm_spark.client.http_connections import HttpConnectionPool, Response
from rsm_spark.client.http_wire import BadResponseError, parse_origin
from tests.unit.ledger.bookie.test_tls import Authority


def _exchange(answer: bytes) -> Response:
    """Return what comes of a server that sends these bytes and closes."""

    async def run() -> Response:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = HttpConnectionPool()
        try:
            origin = parse_origin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with asyncio.timeout(60):
                return await pool.request(origin, "GET", "/", {}, None)
        finally:
            pool.close()
            server.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
        (
            b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: x\r\n\r\n",
            b"hello",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    ],
)
def test_a_response_is_read_however_its_length_is_told(answer: bytes, body: bytes) -> None:
    assert _exchange(answer).body == body


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-3\r\nhel\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 21 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"0" * 40_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_response_or_too_large_a_one_is_told(answer: bytes) -> None:
    with pytest.raises(BadResponseError):
        _exchange(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhe",
    ],
)
def test_a_response_that_breaks_off_is_no_response(answer: bytes) -> None:
    with pytest.raises((EOFError, OSError)):
        _exchange(answer)


@pytest.mark.parametrize("framing", ["content-length: 1000", "transfer-encoding: chunked", "connection: close"])
def test_a_body_is_read_up_to_its_bound_and_no_further(framing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n" if "chunked" in framing else b"x" * 1000
    answer = f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + body
    monkeypatch.setattr(http_connections, "BODY_BYTES_MAX", 1000)
    assert _exchange(answer).body == b"x" * 1000
    monkeypatch.setattr(http_connections, "BODY_BYTES_MAX", 999)
    with pytest.raises(BadResponseError, match="more than 999 bytes"):
        _exchange(answer)


@pytest.mark.parametrize("size", [http_connections.HEAD_BYTES_MAX, http_connections.HEAD_BYTES_MAX + 1])
def test_a_head_is_read_up_to_its_bound_and_no_further(size: int) -> None:
    begin, end = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: ", b"\r\n\r\n"
    answer = begin + b"y" * (size - len(begin) - len(end)) + end
    if size <= http_connections.HEAD_BYTES_MAX:
        assert _exchange(answer).body == b""
        return
    with pytest.raises(BadResponseError, match="longer than"):
        _exchange(answer)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_answer_is_a_response_or_an_error_that_says_so(text: bytes) -> None:
    try:
        response = _exchange(b"HTTP/1.1 200 OK\r\n" + text)
    except (BadResponseError, EOFError, OSError):
        return
    assert response.head.status == 200


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: Close\r\n\r\nok", 2),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 2),
        # What follows the response would be taken for the answer to the next request.
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", 2),
    ],
)
@pytest.mark.asyncio
async def test_a_connection_is_used_again_only_behind_a_response_that_allows_it(
    answer: bytes, connections: int
) -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
        except (EOFError, OSError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = HttpConnectionPool()
    try:
        origin = parse_origin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with asyncio.timeout(60):
            answers = [await pool.request(origin, "GET", "/", {}, None) for _ in range(2)]
        assert [one.body for one in answers] == [b"ok", b"ok"]
        assert opened == connections
    finally:
        pool.close()
        server.close()


@pytest.mark.asyncio
async def test_https_trusts_whom_it_is_told_to_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed["cert"], signed["key"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"role":"leader"}')
        except (EOFError, OSError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with await AsyncBrokerClient.connect([url], tls=TlsSettings(ca=authority.ca)) as client:
        assert (await client.status()).role == "leader"
    for timeout_s in (0.5, 2, 8, 32):  # It tries until then: the first that is long enough for one attempt will do.
        async with await AsyncBrokerClient.connect([url], timeout_s=timeout_s) as client:
            with pytest.raises(BrokerUnavailableError) as told:
                await client.status()
        if "certificate" in str(told.value).lower():
            break
    assert "certificate" in str(told.value).lower()
    server.close()
