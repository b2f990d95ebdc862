"""Whoever writes the metadata store names brokers: a token goes to none that is not encrypted, but on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.client.calls import BrokerCalls, Request
from broker.client.client import AsyncBrokerClient
from broker.client.directory import FoundBrokers
from ledger.errors import UsageError
from ledger.tls import TlsSettings, client_context
from rsm_spark.log.member import Member, decode_member, encode_member
from tests.hostile.victim import Victim
from tests.unit.broker.api.stand import SECRETS, serving, write_tokens
from tests.unit.ledger.bookie.test_tls import Authority

BEYOND = "192.0.2.1:8080"  # An address of documentation: nobody has it.


class Poisoned:
    """A directory in which the impostor stands first."""

    def __init__(self, *members: Member) -> None:
        self._members = members

    async def leader(self) -> Any:
        return None

    async def members(self) -> list[Member]:
        return [read for one in self._members if (read := decode_member(encode_member(one))) is not None]


@asynccontextmanager
async def impostor() -> AsyncIterator[tuple[str, list[bytes]]]:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


@pytest.mark.asyncio
@pytest.mark.parametrize("said", [False, None], ids=["says http", "says nothing"])
async def test_a_client_with_tls_follows_no_plain_entry_and_its_token_is_not_heard(
    tmp_path: Path, *, said: bool | None
) -> None:
    authority = Authority(tmp_path, "ca")
    cert = authority.sign("broker")
    tokens = write_tokens(tmp_path / "tokens.toml")
    headers = {"Authorization": f"Bearer {SECRETS['admin']}"}
    context = client_context(TlsSettings(ca=authority.ca))
    async with impostor() as (address, heard), serving(
        tls_cert=cert["cert"], tls_key=cert["key"], tokens_file=tokens
    ) as (server, _):  # fmt: skip
        honest = Member("b", "1" * 32, "", http=server.address, http_is_tls=True)
        poisoned = Poisoned(Member("a", "0" * 32, "", http=address, http_is_tls=said), honest)
        calls = BrokerCalls(FoundBrokers(poisoned, is_tls=True), headers, tls=context)  # type: ignore[arg-type]
        victim = Victim(lambda: calls.response(Request("GET", "/api/v1/workers"), timeout_s=60))
        (await victim.run(20)).assert_answered()
        assert not any(SECRETS["admin"].encode() in text or b"GET" in text for text in heard)
        calls.close()


@pytest.mark.asyncio
async def test_a_token_goes_to_no_plain_entry_beyond_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    connect = asyncio.open_connection

    async def spy(host: str, port: int, **options: Any) -> Any:
        asked.append(f"{host}:{port}")
        return await connect(host, port, **options)

    monkeypatch.setattr(asyncio, "open_connection", spy)
    async with serving(tokens_file=write_tokens(tmp_path / "tokens.toml")) as (server, _):
        for said in (False, None):
            poisoned = Poisoned(
                Member("a", "0" * 32, "", http=BEYOND, http_is_tls=said),
                Member("b", "1" * 32, "", http=server.address, http_is_tls=False),
            )
            headers = {"Authorization": f"Bearer {SECRETS['admin']}"}
            calls = BrokerCalls(FoundBrokers(poisoned), headers)  # type: ignore[arg-type]
            answer = await calls.response(Request("GET", "/api/v1/workers"), timeout_s=60)
            assert answer.head.status == 200
            calls.close()
        alone = BrokerCalls(FoundBrokers(Poisoned(Member("a", "0" * 32, "", http=BEYOND))), headers)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="token would travel in plain text"):
            await alone.response(Request("GET", "/api/v1/workers"), timeout_s=1)
        alone.close()
    assert asked
    assert BEYOND not in asked


@pytest.mark.asyncio
async def test_urls_that_are_named_are_held_to_the_same(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="plain text"):
        await AsyncBrokerClient.connect([f"http://{BEYOND}"], token="secret-of-somebody")
    authority = Authority(tmp_path, "ca")
    with pytest.raises(UsageError, match="is to use TLS"):
        await AsyncBrokerClient.connect(["http://127.0.0.1:1"], tls=TlsSettings(ca=authority.ca))
    for urls in ([f"http://{BEYOND}"], [f"https://{BEYOND}"], ["http://127.0.0.1:1"]):
        client = await AsyncBrokerClient.connect(urls, token="" if urls[0] == f"http://{BEYOND}" else "secret")
        await client.close()


def test_entries_of_processes_of_before_are_read() -> None:
    old = msgspec.json.encode({"replica_id": "a", "incarnation": "0" * 32, "address": "h:1", "http": "h:2"})
    member = decode_member(old)
    assert member is not None
    assert (member.is_tls, member.http_is_tls) == (None, None)
