"""Who may call which gRPC method: every (role, method) pair by real calls, and how far a scope reaches."""

# Longer than 400 lines: every method of the port, every role, and every way to say who one is.

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import FromWorker, WorkerHello
from broker.wire import worker_pb2
from broker.wire.worker_codec import encode_from_worker
from ledger.rights.principal import Role
from ledger.rights.table import ROLES_OF, Right
from rsm_spark.errors import AccessDeniedError, InvalidCommandError
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport import beat_pb2, peer_pb2, relay_pb2, store_pb2, watch_pb2
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.security import Security, open_channel
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.standard_services import HEALTH_CHECK
from rsm_spark.transport.watch_codec import WatchRequest, encode_watch
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble
from tests.unit.rsm_spark.transport.rights_stand import (
    all_services,
    code_of,
    entry,
    methods_of,
    opened,
    principals,
    shown_by,
)
from tests.wall_clock import SetClock

METHODS = {
    "/grpc.health.v1.Health/List": Right.STATUS,
    "/grpc.health.v1.Health/Watch": Right.STATUS,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Right.STATUS,
    "/rsm.broker.v1.Workers/DownloadCode": Right.CODE_READ,
    "/rsm.broker.v1.Workers/Work": Right.WORK,
    "/rsm.beat.v1.Beats/Ask": Right.REPORT,
    "/rsm.beat.v1.Beats/Listen": Right.REPORT,
    "/rsm.peer.v1.Peer/Download": Right.SNAPSHOT_READ,
    "/rsm.peer.v1.Peer/List": Right.SNAPSHOT_READ,
    "/rsm.peer.v1.Peer/ReadIndex": Right.REPORT,
    "/rsm.peer.v1.Peer/Report": Right.REPORT,
    "/rsm.relay.v1.Relay/Exchange": Right.STATE_READ,
    "/rsm.relay.v1.Relay/PassOn": Right.REPORT,
    "/rsm.store.v1.Replica/Call": Right.STATE_READ,
    "/rsm.store.v1.Replica/Exchange": Right.STATE_READ,
    "/rsm.store.v1.Replica/Status": Right.STATUS,
    "/rsm.watch.v1.Watches/Watch": Right.STATE_READ,
}
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED
WATCH = "/rsm.watch.v1.Watches/Watch"
WORK = "/rsm.broker.v1.Workers/Work"


def backend() -> ReplicaDouble:
    return ReplicaDouble(Group())


@pytest.mark.asyncio
async def test_every_method_that_there_is_has_a_line_and_every_role_is_served_as_the_table_says(tmp_path: Path) -> None:
    described = methods_of(beat_pb2, health_pb2, reflection_pb2, store_pb2, peer_pb2, relay_pb2, watch_pb2, worker_pb2)
    described.remove(HEALTH_CHECK)  # For everybody: see tests/unit/rsm_spark/transport/test_standard_services.py.
    async with all_services(Security(principals=principals(tmp_path)), backend()) as server:
        assert dict(server.guard.rights) == METHODS
        assert described == sorted(METHODS)
        for role in Role:
            async with opened(server.address, shown_by(tmp_path, role.value)) as channel:
                for method, right in METHODS.items():
                    code, details = await code_of(channel, method)
                    assert code is not UNKNOWN, (role, method)
                    assert (code is DENIED) is (role not in ROLES_OF[right]), (role, method, code, details)
        async with opened(server.address, Security()) as channel:
            for method in METHODS:
                assert (await code_of(channel, method))[0] is UNKNOWN, method


@pytest.mark.asyncio
async def test_a_method_that_names_no_right_is_for_nobody(tmp_path: Path) -> None:
    async def echo(text: bytes, _context: Any) -> bytes:
        return text

    for security in (Security(principals=principals(tmp_path)), Security()):
        server = ReplicaServer("orders", security=security)
        server.add_service("own.Service", {"Echo": grpc.unary_unary_rpc_method_handler(echo)}, {})
        await server.start(backend(), lambda: b"{}")
        async with opened(server.address, shown_by(tmp_path, "operator")) as channel:
            assert (await code_of(channel, "/own.Service/Echo"))[0] is DENIED
        await server.stop(0)


@pytest.mark.asyncio
async def test_a_certificate_names_a_principal_and_a_token_goes_before_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    served = authority.sign("replica")
    file = principals(
        tmp_path, '[[principal]]\nname="w1"\nrole="worker"\ncertificates=["w1.example.org","spiffe://c/w1"]\n'
    )
    security = Security(
        tls_cert=served["cert"], tls_key=served["key"], tls_client_ca=authority.ca, principals=file
    )  # fmt: skip
    async with all_services(security, backend()) as server:
        codes = {}
        for name in ("DNS:w1.example.org", "URI:spiffe://c/w1", "DNS:w2.example.org"):
            cert = authority.sign(name.replace(":", "-").replace("/", "-"), host=name)
            mine = Security(tls_ca=authority.ca, tls_cert=cert["cert"], tls_key=cert["key"])
            async with opened(server.address, mine) as channel:
                codes[name] = [(await code_of(channel, method))[0] for method in (WORK, "/rsm.peer.v1.Peer/List")]
            if "spiffe" in name:
                wrong = tmp_path / "wrong"
                wrong.write_text("a-token-of-nobody-at-all")
                for token, expected in ((str(wrong), UNKNOWN), (shown_by(tmp_path, "auditor").token_file, DENIED)):
                    other = Security(
                        tls_ca=authority.ca, tls_cert=cert["cert"], tls_key=cert["key"], token_file=token
                    )  # fmt: skip
                    async with opened(server.address, other) as channel:
                        assert (await code_of(channel, WORK))[0] is expected
        assert codes["DNS:w2.example.org"] == [UNKNOWN, UNKNOWN]
        for name in ("DNS:w1.example.org", "URI:spiffe://c/w1"):
            assert codes[name] == [grpc.StatusCode.INVALID_ARGUMENT, DENIED]  # no hello; not a replica


# ---- how far a client's messages reach


CLIENTS = (
    entry("all", "client", 'access = "write"\nlogs = ["orders"]'),
    entry("reader", "client", 'access = "read"'),
    entry("a", "client", 'access = "write"\nprefix = "a/"'),
    entry("a-reader", "client", 'access = "read"\nprefix = "a/"'),
    entry("elsewhere", "client", 'access = "write"\nlogs = ["other"]'),
    entry("ledgers", "client", 'ledgers = "write"'),
)


@pytest.mark.asyncio
async def test_one_principal_does_not_take_the_connections_of_its_address(tmp_path: Path) -> None:
    status, security = "/rsm.store.v1.Replica/Status", Security(principals=principals(tmp_path))
    async with all_services(security, backend(), connections_max=16) as server, AsyncExitStack() as held:

        async def call(name: str) -> tuple[grpc.StatusCode, str]:
            channel = await held.enter_async_context(opened(server.address, shown_by(tmp_path, name)))
            return await code_of(channel, status)

        for _ in range(4):
            assert (await call("client"))[0] is grpc.StatusCode.OK
        code, why = await call("client")
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "has its part of this port's connections" in why
        for name in ("worker", "replica", "replica", "replica"):
            assert (await call(name))[0] is grpc.StatusCode.OK


@pytest.mark.asyncio
@pytest.mark.usefixtures("transport")
async def test_a_client_touches_the_keys_of_its_scope_and_no_others(tmp_path: Path) -> None:
    double = backend()
    async with all_services(Security(principals=principals(tmp_path, *CLIENTS)), double) as server:

        def client(name: str) -> MapClient:
            return MapClient(Finder(server.address, server), "orders", timeout_s=60, security=shown_by(tmp_path, name))

        async with (
            client("all") as everything, client("reader") as reader, client("a") as a, client("a-reader") as look
        ):  # fmt: skip
            await everything.put(b"b/1", b"secret")
            await a.put(b"a/1", b"1")
            executed = len(double.group.executed)
            assert (await reader.get(b"b/1")).value == b"secret"
            assert (await look.get(b"a/1")).value == b"1"
            for read_only in (reader, look):
                with pytest.raises(InvalidCommandError, match="reads only"):
                    await read_only.put(b"a/1", b"x")
            assert len(double.group.executed) == executed, "what a reader wants to write reaches no log"
            for beyond in (
                a.put(b"b/1", b"x"), a.delete(b"b/1"), a.delete_range(start=b"a/", end=b"c"), a.get(b"b/1"),
                look.get(b"b/1"), a.scan_page(start=b"b/", end=b"b0"), a.leases(),
                a.transact([], [m.Put(b"a/2", b""), m.Read(b"b/1")]),
            ):  # fmt: skip
                with pytest.raises(InvalidCommandError, match="has the keys of b'a/' only"):
                    await beyond
            assert (await everything.get(b"b/1")).value == b"secret"
            # The session goes on behind what was refused, and commands sent together do not wait for each other.
            results = await asyncio.gather(
                *(a.put(b"a/%d" % n if n % 3 else b"b/1", b"x") for n in range(30)), return_exceptions=True
            )
            assert [isinstance(one, InvalidCommandError) for one in results] == [n % 3 == 0 for n in range(30)]
            assert (await everything.get(b"b/1")).value == b"secret"
            assert len([key async for key in a.scan(prefix=b"a/")]) == 20
        for name in ("elsewhere", "ledgers"):
            async with client(name) as stranger:
                with pytest.raises(AccessDeniedError):
                    await stranger.get(b"a/1")


@pytest.mark.asyncio
async def test_a_watch_stays_within_the_keys_of_its_client(tmp_path: Path) -> None:
    async with all_services(Security(principals=principals(tmp_path, *CLIENTS)), backend()) as server:
        async with opened(server.address, shown_by(tmp_path, "a")) as channel:
            for request, is_denied in (
                (WatchRequest("orders", "map", b"", None), True),
                (WatchRequest("orders", "map", b"a/", None), True),
                (WatchRequest("orders", "map", b"a/x", b"b"), True),
                (WatchRequest("orders", "leases", b"", None), True),
                (WatchRequest("orders", "map", b"a/", b"a0"), False),
            ):
                code, _ = await code_of(channel, WATCH, request=encode_watch(request))
                assert (code is DENIED) is is_denied, request


# ---- workers


@pytest.mark.asyncio
async def test_a_worker_has_its_own_names_and_offers_what_is_in_its_scope(tmp_path: Path) -> None:
    scoped = entry("w", "worker", 'workers = ["w-*"]\ntypes = ["convert"]\ngroups = [1]')
    convert = WorkerOffer(threads_by_type={"convert": 2}, threads_max=2, groups=(1,))
    async with all_services(Security(principals=principals(tmp_path, scoped)), backend()) as server:
        async with opened(server.address, shown_by(tmp_path, "w")) as channel:
            for name, offer, is_denied in (
                ("w-1", convert, False),
                ("w", convert, True),
                ("x-1", convert, True),
                ("w-1", WorkerOffer(), True),
                ("w-1", WorkerOffer(threads_by_type={"convert": 1}, any_type_threads=1, groups=(1,)), True),
                ("w-1", WorkerOffer(threads_by_type={"convert": 1, "mail": 1}, groups=(1,)), True),
                ("w-1", WorkerOffer(threads_by_type={"convert": 1}, groups=(0,)), True),
                ("w-1", WorkerOffer(threads_by_type={"convert": 1}, groups=(1, 2)), True),
            ):
                hello = WorkerHello(name, "0" * 32, "", offer, 0, [], [], 0, 1)
                code, details = await code_of(channel, WORK, request=encode_from_worker(FromWorker(hello)))
                assert (code is DENIED) is is_denied, (name, offer, code, details)


# ---- what is refused is told


@pytest.mark.asyncio
@pytest.mark.usefixtures("transport")
async def test_each_refusal_is_told_by_who_what_and_why_and_a_stranger_s_methods_are_all_one(tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    peers: set[str] = set()

    def on_refused(principal: Any, method: str, peer: str, why: str) -> None:
        told.append(("" if principal is None else principal.name, method, why))
        peers.add(peer.partition(":")[0])

    async with all_services(Security(principals=principals(tmp_path, *CLIENTS)), backend()) as server:
        server.guard.on_refused = on_refused
        async with opened(server.address, Security()) as channel:
            for method in (WORK, "/no.such/One", "/no.such/Other"):
                await code_of(channel, method)
        async with opened(server.address, shown_by(tmp_path, "tenant")) as channel:
            await code_of(channel, WORK)
        async with opened(server.address, shown_by(tmp_path, "worker")) as channel:
            hello = WorkerHello("another", "0" * 32, "", WorkerOffer(), 0, [], [], 0, 1)
            await code_of(channel, WORK, request=encode_from_worker(FromWorker(hello)))
        async with opened(server.address, shown_by(tmp_path, "a")) as channel:
            await code_of(channel, WATCH, request=encode_watch(WatchRequest("orders", "map", b"", None)))
        async with opened(server.address, shown_by(tmp_path, "elsewhere")) as channel:
            await code_of(channel, "/rsm.store.v1.Replica/Exchange")
        mine = shown_by(tmp_path, "a")
        async with MapClient(Finder(server.address, server), "orders", timeout_s=60, security=mine) as a:
            await a.put(b"a/1", b"1")
            with pytest.raises(InvalidCommandError):
                await a.put(b"b/1", b"1")
        assert server.refused_calls == len(told)
    assert [one[:2] for one in told] == [
        ("", WORK), ("", ""), ("", ""), ("tenant", WORK), ("worker", WORK), ("a", WATCH),
        ("elsewhere", "/rsm.store.v1.Replica/Exchange"), ("a", "/rsm.store.v1.Replica/Exchange"),
    ]  # fmt: skip
    for (*_, why), words in zip(
        told, ("", "", "", "needs the right", "may not work as 'another'", "keys of b'a/'", "may not touch the log",
               "keys of b'a/'"), strict=True,
    ):  # fmt: skip
        assert words in why, why
    assert peers <= {"ipv4", "ipv6"}


# ---- while it runs


async def until(true: Any, limit_s: float = 60.0) -> None:
    began = time.monotonic()
    while not await true():
        assert time.monotonic() - began < limit_s
        await asyncio.sleep(0.05)


async def held_streams(server: ReplicaServer, count: int) -> None:
    async def are_open() -> bool:
        return len(server.guard._streams) == count

    await until(are_open)


@pytest.mark.asyncio
async def test_a_stream_ends_when_its_principal_is_taken_away_and_goes_on_through_any_other_change(
    tmp_path: Path,
) -> None:
    entries = [entry(name, "client", 'access = "read"') for name in ("gone", "kept")]
    file = Path(principals(tmp_path, *entries))
    async with all_services(Security(principals=str(file)), backend()) as server:
        streams = {}
        channels = [open_channel(server.address, shown_by(tmp_path, name)) for name in ("gone", "kept")]
        for name, channel in zip(("gone", "kept"), channels, strict=True):
            streams[name] = channel.stream_stream("/rsm.store.v1.Replica/Exchange")()
            await streams[name].write(b"")
        await held_streams(server, 2)
        file.write_text(principals_without(file, "gone"))
        assert await asyncio.wait_for(streams["gone"].code(), 60) is grpc.StatusCode.ABORTED
        assert not streams["kept"].done()
        file.write_text("rubbish = [")
        await asyncio.sleep(2.2)
        assert not streams["kept"].done(), "a slip of the pen locks nobody out"
        assert (await code_of(channels[0], "/rsm.store.v1.Replica/Status"))[0] is UNKNOWN
        streams["kept"].cancel()
        for channel in channels:
            await channel.close()


@pytest.mark.asyncio
async def test_a_stream_ends_by_time_when_its_principal_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock(monkeypatch, Guard)
    passing = entry("passing", "client", f'access = "read"\nexpires = {clock.in_an_hour}')
    lasting = entry("lasting", "client", 'access = "read"')
    async with (
        all_services(Security(principals=principals(tmp_path, passing, lasting)), backend()) as server,
        opened(server.address, shown_by(tmp_path, "passing")) as one,
        opened(server.address, shown_by(tmp_path, "lasting")) as other,
    ):
        streams = [channel.stream_stream("/rsm.store.v1.Replica/Exchange")() for channel in (one, other)]
        for stream in streams:
            await stream.write(b"")
        await held_streams(server, 2)
        clock.pass_that_hour()
        assert await asyncio.wait_for(streams[0].code(), 60) is grpc.StatusCode.ABORTED
        assert not streams[1].done()
        assert (await code_of(one, "/rsm.store.v1.Replica/Status"))[0] is UNKNOWN
        streams[1].cancel()


def principals_without(file: Path, name: str) -> str:
    entries = file.read_text().split("[[principal]]")
    return "[[principal]]".join(one for one in entries if f'name = "{name}"' not in one)


@pytest.mark.asyncio
async def test_a_cluster_token_is_changed_without_a_restart_while_old_and_new_overlap(tmp_path: Path) -> None:
    old, new = "the-old-token-of-the-cluster", "the-new-token-of-the-cluster"
    served, mine = tmp_path / "served", tmp_path / "mine"
    served.write_text(old)
    mine.write_text(old)
    async with all_services(Security(token_file=str(served)), backend()) as server:
        async with opened(server.address, Security(token_file=str(mine))) as channel:

            async def is_served() -> bool:
                return (await code_of(channel, "/rsm.store.v1.Replica/Status"))[0] is grpc.StatusCode.OK

            async def is_refused() -> bool:
                return not await is_served()

            assert await is_served()
            served.write_text(f"{old}\n{new}\n")
            await asyncio.sleep(1.1)
            await until(is_served)
            mine.write_text(new)
            await asyncio.sleep(1.1)
            assert await is_served(), "the server knows both tokens, whichever the caller shows"
            served.write_text(new)
            await asyncio.sleep(1.1)
            await until(is_served)
            served.write_text("short")
            await asyncio.sleep(1.1)
            assert await is_served(), "a broken file keeps the old token"
            mine.write_text(old)
            await until(is_refused)


def serial(address: str, authority: Authority) -> str:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        return str((tls.getpeercert() or {})["serialNumber"])


@pytest.mark.asyncio
async def test_a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    first, second = authority.sign("one"), authority.sign("two")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: dict[str, str]) -> None:
        for name, path in (("cert", cert), ("key", key)):
            Path(shutil.copy(pair[name], f"{path}.new")).replace(path)

    put(first)
    security = Security(tls_cert=str(cert), tls_key=str(key))
    async with all_services(security, backend()) as server:
        before = await asyncio.to_thread(serial, server.address, authority)
        put(second)
        after = await asyncio.to_thread(serial, server.address, authority)
        assert after != before
        cert.write_text("rubbish")
        assert await asyncio.to_thread(serial, server.address, authority) == after
        put(first)
        assert await asyncio.to_thread(serial, server.address, authority) == before
