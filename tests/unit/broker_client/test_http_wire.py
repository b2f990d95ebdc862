"""Whatever a server sends: a response, or an error that says so."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.client import AsyncBrokerClient
from broker.client.errors import BadAnswerError, BrokerUnavailableError
from broker.client.http_connections import ConnectionPool, Response
from broker.client.http_wire import parse_head, parse_origin
from ledger.tls import TlsSettings
from tests.unit.bookie.test_tls import Authority


def _exchange(answer: bytes) -> Response:
    """Return what comes of a server that sends these bytes and closes."""

    async def run() -> Response:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = ConnectionPool()
        try:
            origin = parse_origin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with asyncio.timeout(20):
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
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-3\r\nhel\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_response_or_too_large_a_one_is_told(answer: bytes) -> None:
    with pytest.raises(BadAnswerError):
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


@given(st.binary(max_size=200).map(lambda text: b"HTTP/1.1 200 OK\r\n" + text))
def test_any_head_is_read_or_refused(text: bytes) -> None:
    try:
        head = parse_head(text)
        _ = head.content_length
    except BadAnswerError:
        return
    assert head.status == 200


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
    async with await AsyncBrokerClient.connect([url], timeout_s=0.5) as client:
        with pytest.raises(BrokerUnavailableError, match="(?i)certificate"):
            await client.status()
    server.close()
