"""TLS and the token on a replica's port: real certificates, every service and kind of call, what is refused and how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ledger.errors import UsageError
from ledger.rights.table import Right
from ledger.tls import is_loopback
from rsm_spark.errors import AccessDeniedError, ConnectionLostError
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.results import MapValue
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.security import HeldToken, RpcChannel, Security, open_channel
from rsm_spark.transport.server import ReplicaServer
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble

TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105
PEER = "rsm.test.v1.Peer"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("grpc-tls"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("grpc-tls"), "stranger")


@pytest.fixture(scope="module")
def replica_cert(authority: Authority) -> dict[str, str]:
    return authority.sign("replica")


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return str(file)


def of(cert: dict[str, str], **more: Any) -> Security:
    return Security(tls_cert=cert["cert"], tls_key=cert["key"], **more)


async def _list(text: bytes, _context: Any) -> bytes:
    return b"list " + text


async def _download(text: bytes, _context: Any) -> AsyncIterator[bytes]:
    for n in range(3):
        yield text + b" %d" % n


async def _talk(_requests: Any, context: Any) -> None:
    while (text := await context.read()) is not grpc.aio.EOF:
        await context.write(text)


@asynccontextmanager
async def serving(security: Security, **options: Any) -> AsyncIterator[ReplicaServer]:
    """A replica's server with a second service that has a method of every kind."""
    server = ReplicaServer("orders", security=security, **options)
    server.add_service(
        PEER,
        {
            "List": grpc.unary_unary_rpc_method_handler(_list),
            "Download": grpc.unary_stream_rpc_method_handler(_download),
            "Talk": grpc.stream_stream_rpc_method_handler(_talk),
        },
        dict.fromkeys(("List", "Download", "Talk"), Right.STATUS),
    )
    await server.start(ReplicaDouble(Group()), lambda: b"{}")
    try:
        yield server
    finally:
        await server.stop(0)


async def use_everything(channel: RpcChannel) -> None:
    assert await channel.unary_unary(f"/{PEER}/List")(b"x", timeout=60) == b"list x"
    pieces = [piece async for piece in channel.unary_stream(f"/{PEER}/Download")(b"x", timeout=60)]
    assert pieces == [b"x 0", b"x 1", b"x 2"]
    stream = channel.stream_stream(f"/{PEER}/Talk")(timeout=60)
    await stream.write(b"hello")
    assert await stream.read() == b"hello"
    stream.cancel()


async def denied(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code()


@pytest.mark.asyncio
async def test_every_kind_of_call_of_every_service_goes_through_tls_with_the_token(
    authority: Authority, replica_cert: dict[str, str], token_file: str
) -> None:
    caller = Security(tls_ca=authority.ca, token_file=token_file)
    async with serving(of(replica_cert, token_file=token_file)) as server:
        channel = open_channel(server.address, caller)
        await use_everything(channel)
        await channel.close()
        async with ReplicaChannel(server.address, "orders", security=caller) as replica:
            assert await replica.status(10) == b"{}"
        assert server.refused_calls == 0


@pytest.mark.asyncio
async def test_a_token_that_is_held_for_a_caller_is_shown_and_in_no_text(token_file: str) -> None:
    token = Path(token_file).read_bytes().strip()
    caller = Security(held_token=HeldToken(token))
    assert token.decode() not in repr(caller)
    assert caller == Security(held_token=HeldToken(token))
    assert caller != Security(held_token=HeldToken(b"b-token-of-the-tests-0123456789"))
    assert Security.from_environment({"RSM_STORE__HELD_TOKEN": "x"}) == Security()
    async with serving(Security(token_file=token_file)) as server:
        channel = open_channel(server.address, caller)
        await use_everything(channel)
        await channel.close()
    with pytest.raises(UsageError, match="would travel to a.example.org:1 in plain text"):
        open_channel("a.example.org:1", caller)


@pytest.mark.asyncio
@pytest.mark.parametrize("known", ["nothing", "another token"])
async def test_no_call_of_any_kind_is_served_without_the_token(tmp_path: Path, token_file: str, known: str) -> None:
    other = tmp_path / "other"
    other.write_text("b-token-of-the-tests-0123456789")
    caller = Security(token_file=None if known == "nothing" else str(other))
    async with serving(Security(token_file=token_file)) as server:
        channel = open_channel(server.address, caller)
        refused = grpc.StatusCode.UNAUTHENTICATED
        assert await denied(channel.unary_unary(f"/{PEER}/List")(b"x", timeout=60)) is refused
        assert await denied(channel.unary_stream(f"/{PEER}/Download")(b"x", timeout=60).read()) is refused
        # A stream hears it before it has said anything.
        assert await denied(channel.stream_stream(f"/{PEER}/Talk")(timeout=60).read()) is refused
        for method in ("Call", "Status"):
            assert await denied(channel.unary_unary(f"/rsm.store.v1.Replica/{method}")(b"", timeout=60)) is refused
        assert await denied(channel.stream_stream("/rsm.store.v1.Replica/Exchange")(timeout=60).read()) is refused
        await channel.close()
        assert server.refused_calls == 6


@pytest.mark.asyncio
async def test_a_token_that_is_not_text_or_a_prefix_of_the_right_one_is_refused(token_file: str) -> None:
    async with (
        serving(Security(token_file=token_file)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        call: Any = channel.unary_unary(f"/{PEER}/List")
        for text in ("", "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN):
            assert await denied(call(b"x", metadata=(("authorization", text),))) is grpc.StatusCode.UNAUTHENTICATED
        assert await call(b"x", metadata=(("authorization", f"Bearer {TOKEN}"),)) == b"list x"


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", ["authority", "host", "expired", "plain caller", "plain replica"])
async def test_a_caller_speaks_only_with_a_replica_whose_certificate_it_can_verify(
    fault: str, authority: Authority, stranger: Authority, replica_cert: dict[str, str]
) -> None:
    served = {
        "authority": lambda: of(stranger.sign("replica")),
        "host": lambda: of(authority.sign("elsewhere", host="DNS:elsewhere.example")),
        "expired": lambda: of(authority.sign("expired", days="-1")),
        "plain caller": lambda: of(replica_cert),
        "plain replica": Security,
    }[fault]()
    caller = Security() if fault == "plain caller" else Security(tls_ca=authority.ca)
    async with serving(served) as server, ReplicaChannel(server.address, "orders", security=caller) as channel:
        with pytest.raises(ConnectionLostError, match=server.address):
            await channel.status(5)


@pytest.mark.asyncio
async def test_only_callers_with_a_certificate_are_served_where_one_is_demanded(
    authority: Authority, stranger: Authority, replica_cert: dict[str, str]
) -> None:
    async with serving(of(replica_cert, tls_client_ca=authority.ca)) as server:
        for shown in (Security(tls_ca=authority.ca), of(stranger.sign("client"), tls_ca=authority.ca)):
            async with ReplicaChannel(server.address, "orders", security=shown) as channel:
                with pytest.raises(ConnectionLostError):
                    await channel.status(5)
        mine = of(authority.sign("client"), tls_ca=authority.ca)
        async with ReplicaChannel(server.address, "orders", security=mine) as channel:
            assert await channel.status(5) == b"{}"


@pytest.mark.asyncio
@pytest.mark.parametrize("lacks", ["tls", "token", "both"])
async def test_beyond_loopback_nothing_is_served_without_tls_and_token(
    lacks: str, replica_cert: dict[str, str], token_file: str
) -> None:
    security = {
        "tls": lambda: Security(token_file=token_file),
        "token": lambda: of(replica_cert),
        "both": Security,
    }[lacks]()
    said = {"tls": "without a certificate", "token": "without a token", "both": "certificate .* and a token"}[lacks]
    with pytest.raises(UsageError, match=said):
        ReplicaServer("orders", bind="0.0.0.0", security=security)


@pytest.mark.asyncio
async def test_beyond_loopback_it_serves_with_both(
    authority: Authority, replica_cert: dict[str, str], token_file: str
) -> None:
    async with serving(of(replica_cert, token_file=token_file), bind="0.0.0.0") as server:
        address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        caller = Security(tls_ca=authority.ca, token_file=token_file)
        async with ReplicaChannel(address, "orders", security=caller) as channel:
            assert await channel.status(5) == b"{}"


@pytest.mark.asyncio
@pytest.mark.usefixtures("transport")
async def test_a_map_client_takes_its_certificates_and_token_from_the_environment(
    authority: Authority, replica_cert: dict[str, str], token_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSM_STORE__TLS_CA", authority.ca)
    monkeypatch.setenv("RSM_STORE__TOKEN_FILE", token_file)
    async with serving(of(replica_cert, token_file=token_file)) as server:
        async with MapClient(Finder(server.address, server), "orders", timeout_s=60) as client:
            revision = await client.put(b"k", b"v")
            assert await client.get(b"k") == MapValue(b"v", revision, revision, 1)


@pytest.mark.asyncio
async def test_a_token_never_travels_in_plain_text_beyond_loopback(token_file: str) -> None:
    for address in ("192.0.2.1:5000", "example.org:5000", "[2001:db8::1]:5000"):
        with pytest.raises(UsageError, match="plain text"):
            open_channel(address, Security(token_file=token_file))
    for address in ("127.0.0.1:5000", "localhost:5000", "[::1]:5000"):
        await open_channel(address, Security(token_file=token_file)).close()


@pytest.mark.parametrize(
    "text", ["", "short", "spaces in the middle of it", "line-one-0123456789\nline-two 0123456789"]
)
def test_a_file_that_holds_no_token_is_named_and_its_contents_are_not(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(UsageError, match=str(file)) as raised:
        Security(token_file=str(file)).check_caller()
    assert not text or text not in str(raised.value)
    with pytest.raises(UsageError, match="does not exist"):
        Security(token_file=str(tmp_path / "missing")).check_caller()


def test_a_file_of_keys_that_cannot_be_used_is_named(tmp_path: Path, authority: Authority) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("no certificate")
    with pytest.raises(UsageError, match="missing.pem does not exist"):
        Security(tls_ca=str(tmp_path / "missing.pem")).check_caller()
    with pytest.raises(UsageError, match="damaged.pem"):
        Security(tls_ca=str(damaged)).check_caller()
    pair = {"cert": authority.sign("one")["cert"], "key": authority.sign("two")["key"]}
    with pytest.raises(UsageError, match="not that of the certificate"):
        of(pair).check_caller()


def test_the_environment_names_each_file() -> None:
    files = [name for name in Security.__struct_fields__ if name != "held_token"]
    named = {f"RSM_STORE__{name.upper()}": f"/{name}" for name in files}
    expected: dict[str, Any] = {name: f"/{name}" for name in files}
    assert Security.from_environment(named) == Security(**expected)
    assert Security.from_environment({"RSM_STORE__TLS_CA": ""}) == Security()


def test_loopback_is_told_from_other_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


@pytest.mark.parametrize(("bind", "advertise"), [("0.0.0.0", ""), ("::", ""), ("127.0.0.1", "a b:1"), ("::1", ":5")])
def test_a_replica_that_nobody_could_call_is_refused(tmp_path: Path, bind: str, advertise: str) -> None:
    with pytest.raises(UsageError, match="--advertise"):
        StoreSettings(log="orders", replica_id="a", data_dir=tmp_path, bind=bind, advertise=advertise)


def test_a_token_is_not_told_by_what_describes_the_settings(token_file: str) -> None:
    security = Security(token_file=token_file)
    assert TOKEN not in f"{security!r} {security}"


@pytest.mark.asyncio
async def test_a_client_without_the_token_hears_so_at_once_and_nothing_is_executed(
    tmp_path: Path, token_file: str
) -> None:
    group = Group()
    server = ReplicaServer("orders", security=Security(token_file=token_file))
    await server.start(ReplicaDouble(group), lambda: b"{}")
    async with MapClient(Finder(server.address), "orders", timeout_s=60, security=Security()) as client:
        async with asyncio.timeout(60):
            for _ in range(2):
                with pytest.raises(AccessDeniedError, match="needs the cluster's token"):
                    await client.put(b"k", b"v")
                with pytest.raises(AccessDeniedError, match="query was not answered"):
                    await client.get(b"k")
    assert group.executed == []
    await server.stop(0)
