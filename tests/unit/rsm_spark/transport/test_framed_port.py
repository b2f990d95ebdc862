"""The framed port, by bytes: who is let in, what is refused and with which words, how little a stranger may hold."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.rights.table import Right
from rsm_spark.core.operation import Message, taken_apart
from rsm_spark.errors import RsmError
from rsm_spark.map import messages as m
from rsm_spark.transport import framed_port, served_call
from rsm_spark.transport.call_frames import (
    BEAT,
    HELLO_BYTES_MAX,
    CallEnd,
    CallHello,
    FrameKind,
    decode_end,
    encode_end,
    encode_frame,
    encode_hello,
)
from rsm_spark.transport.codec import EXCHANGE_METHOD
from rsm_spark.transport.security import MESSAGE_BYTES_MAX, Security
from rsm_spark.transport.server import ReplicaServer
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble, serve
from tests.unit.rsm_spark.transport.framed_caller import FramedCaller, calling, requests
from tests.unit.rsm_spark.transport.rights_stand import all_services, entry, principals, sha256, token_of
from tests.unit.rsm_spark.transport.test_replica_server import message

pytestmark = pytest.mark.asyncio

INVALID, EXHAUSTED, UNKNOWN, DENIED, MISSING = (
    grpc.StatusCode[name].value[0]
    for name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
)
HELLO = encode_hello(CallHello(EXCHANGE_METHOD))


@asynccontextmanager
async def served(double: ReplicaDouble | None = None) -> AsyncIterator[ReplicaServer]:
    server = await serve(double or ReplicaDouble(Group()))
    try:
        yield server
    finally:
        await server.stop(0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def test_messages_are_answered_and_the_call_ends_when_the_caller_has_no_more() -> None:
    async with served() as server, calling(server.framed_address) as caller:
        await caller.begin()
        received = await caller.ask(message(9, commands=2, queries=1))
        assert (received.message_id, received.revisions) == (9, [1, 2, 3, 3])
        assert m.decode_result(received.payloads[3]) == m.Found(b"v", 2, 2, 1)
        await caller.say(requests(message(10, commands=0, queries=1, opens=False)), encode_end(CallEnd()))
        assert (await caller.hear() or (None,))[0] is FrameKind.MESSAGE
        assert await caller.end() == CallEnd()
        assert await caller.hear() is None


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", INVALID, "no frame of the framed protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", INVALID, "gRPC and HTTP have ports of their own"),
        (encode_frame(FrameKind.HELLO, b"\xc1"), INVALID, "no hello"),
        ((HELLO_BYTES_MAX + 9).to_bytes(4, "big") + b"\x01", INVALID, "no frame of the framed protocol"),
        (
            encode_hello(CallHello(EXCHANGE_METHOD, b"", 7, 9)),
            MISSING,
            "version 1 .* the caller 7 to 9: call over gRPC",
        ),
        (encode_hello(CallHello("/no.such/Method")), MISSING, "'/no.such/Method' is not served here"),
        (encode_hello(CallHello("/rsm.store.v1.Replica/Call")), MISSING, "is not served here"),
        (HELLO + requests(message()), INVALID, "MESSAGE, which may not come now"),
    ],
)
async def test_a_beginning_that_is_none_ends_the_call_with_its_reason(said: bytes, status: int, words: str) -> None:
    double = ReplicaDouble(Group())
    async with served(double) as server:
        async with calling(server.framed_address) as caller:
            await caller.say(said)
            end = await caller.end()
            assert end is not None
            assert end.status == status
            with pytest.raises(AssertionError, match=words):
                raise AssertionError(end.details)
            assert await caller.hear() is None
        await until(lambda: server.framed_calls == 0)
        assert server.seats.taken == 0
    assert double.submissions == []


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (requests(message(), "other"), grpc.StatusCode.FAILED_PRECONDITION.value[0], "serves the log 'orders'"),
        (encode_frame(FrameKind.MESSAGE, b"rubbish"), INVALID, "no batch of requests"),
        (encode_frame(FrameKind.MESSAGE, b""), INVALID, "no batch of requests"),
        ((MESSAGE_BYTES_MAX + 2).to_bytes(4, "big") + b"\x03", EXHAUSTED, "allowed for MESSAGE"),
        (HELLO, INVALID, "HELLO, which may not come now"),
        (b"\0\0\0\x01\x77", INVALID, "kind 119"),
        (encode_end(CallEnd()) + requests(message()), INVALID, "may not come now"),
    ],
)
async def test_a_message_that_is_none_ends_the_call_with_its_reason(said: bytes, status: int, words: str) -> None:
    double = ReplicaDouble(Group())
    async with served(double) as server, calling(server.framed_address) as caller:
        await caller.begin()
        await caller.say(said)
        end = await caller.end()
        assert end is not None
        assert (end.status, words in end.details) == (status, True), end
        await until(lambda: server.framed_calls == 0)
    assert double.submissions == []


# ---- who may call


async def test_the_guard_s_word_is_the_same_as_over_grpc_and_nothing_is_read_before_it(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    more = entry("elsewhere", "client", 'access = "write"\nlogs = ["other"]')
    double = ReplicaDouble(Group())
    async with all_services(Security(principals=principals(tmp_path, more)), double) as server:
        server.guard.on_refused = lambda who, method, _peer, _why: told.append((who.name if who else "", method))
        for token, status in (
            (b"", UNKNOWN), (b"x" * 20, UNKNOWN), (token_of("tenant").encode(), DENIED),
            (token_of("worker").encode(), DENIED), (token_of("elsewhere").encode(), DENIED),
        ):  # fmt: skip
            async with calling(server.framed_address) as caller:
                await caller.say(encode_hello(CallHello(EXCHANGE_METHOD, token)))
                end = await caller.end()
                assert end is not None
                assert end.status == status, end
        async with calling(server.framed_address) as caller:
            await caller.say(encode_hello(CallHello("/no.such/One", token_of("client").encode())))
            assert (await caller.end() or CallEnd()).status == MISSING
        async with calling(server.framed_address) as caller:
            await caller.begin(token=token_of("client").encode())
            assert (await caller.ask(message())).revisions == [1, 2]
        assert server.refused_calls == len(told)
    assert told == [
        ("", EXCHANGE_METHOD), ("", EXCHANGE_METHOD), ("tenant", EXCHANGE_METHOD), ("worker", EXCHANGE_METHOD),
        ("elsewhere", EXCHANGE_METHOD), ("", ""),
    ]  # fmt: skip
    assert double.owners == {"principal client"}


async def test_a_call_ends_when_its_principal_is_taken_away_and_others_go_on(tmp_path: Path) -> None:
    entries = [entry(name, "client", 'access = "read"') for name in ("gone", "kept")]
    file = Path(principals(tmp_path, *entries))
    async with all_services(Security(principals=str(file)), ReplicaDouble(Group())) as server:
        async with calling(server.framed_address) as gone, calling(server.framed_address) as kept:
            await gone.begin(token=token_of("gone").encode())
            await kept.begin(token=token_of("kept").encode())
            await asyncio.sleep(1.1)  # A file is looked at once a second, by its time.
            file.write_text(file.read_text().replace(sha256(token_of("gone")), sha256("somebody-else-s-token")))
            async with asyncio.timeout(60):
                end = await gone.end()
            assert end is not None
            assert (end.status, "not in force" in end.details) == (grpc.StatusCode.ABORTED.value[0], True)
            assert (await kept.ask(message(opens=False, commands=0, queries=1))).statuses == []


async def test_one_principal_has_its_part_of_the_connections_of_both_ports(tmp_path: Path) -> None:
    security = Security(principals=principals(tmp_path))
    async with all_services(security, ReplicaDouble(Group()), connections_max=16) as server, AsyncExitStack() as held:

        async def call(name: str) -> FramedCaller:
            caller = await held.enter_async_context(calling(server.framed_address))
            await caller.say(encode_hello(CallHello(EXCHANGE_METHOD, token_of(name).encode())))
            return caller

        for _ in range(4):
            heard = await (await call("client")).hear()
            assert heard is not None
            assert heard[0] is FrameKind.WELCOME
        end = await (await call("client")).end()
        assert end is not None
        assert (end.status, "has its part of this port's connections" in end.details) == (EXHAUSTED, True)
        for name in ("replica", "replica", "operator"):
            heard = await (await call(name)).hear()
            assert heard is not None
            assert heard[0] is FrameKind.WELCOME
        server.seats.validate()


async def test_a_certificate_names_a_principal_a_token_goes_before_it_and_a_new_one_is_served(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    served_cert, other = authority.sign("replica"), authority.sign("other")
    mine, strange = authority.sign("c1", host="DNS:c1.example.org"), authority.sign("c2", host="DNS:c2.example.org")
    file = principals(
        tmp_path, '[[principal]]\nname="c1"\nrole="client"\naccess="write"\ncertificates=["c1.example.org"]\n'
    )
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: dict[str, str]) -> None:
        for path, name in ((cert, "cert"), (key, "key")):
            path.write_bytes(Path(pair[name]).read_bytes())
            path.chmod(0o600)

    def shown(pair: dict[str, str]) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority.ca)
        context.load_cert_chain(pair["cert"], pair["key"])
        return context

    async def status(pair: dict[str, str], token: bytes = b"") -> int:
        async with calling(server.framed_address, shown(pair)) as caller:
            await caller.say(encode_hello(CallHello(EXCHANGE_METHOD, token)))
            heard = await caller.hear()
            assert heard is not None
            return 0 if heard[0] is FrameKind.WELCOME else decode_end(heard[1]).status

    async def serial() -> str:
        async with calling(server.framed_address, shown(mine)) as caller:
            return str(caller.writer.get_extra_info("peercert")["serialNumber"])

    put(served_cert)
    security = Security(tls_cert=str(cert), tls_key=str(key), tls_client_ca=authority.ca, principals=file)
    async with all_services(security, ReplicaDouble(Group())) as server:
        assert await status(mine) == 0
        assert await status(strange) == UNKNOWN
        assert await status(mine, b"a-token-of-nobody-at-all") == UNKNOWN
        assert await status(mine, token_of("worker").encode()) == DENIED
        before = await serial()
        put(other)
        assert await serial() != before
        cert.write_text("rubbish")
        assert await serial() != before, "a broken file changes nothing"


# ---- how little a stranger may hold, and anybody


async def test_who_says_nothing_or_half_a_hello_is_cut_in_time_and_who_calls_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_call, "STRANGER_S", 0.5)
    async with served() as server, AsyncExitStack() as held:
        caller = await held.enter_async_context(calling(server.framed_address))
        await caller.begin()
        half = await held.enter_async_context(calling(server.framed_address))
        await half.say(HELLO[:-3])
        async with asyncio.timeout(60):
            end = await half.end()
        assert end is not None
        assert "no call came within 0.5 s" in end.details
        await until(lambda: server.framed_calls == 1)
        assert (await caller.ask(message())).revisions == [1, 2]


@pytest.mark.parametrize("limit", ["SILENCE_S", "_FRAME_S"])
async def test_a_caller_that_is_silent_or_never_ends_a_frame_is_cut(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(served_call, limit, 0.5)
    async with served() as server, calling(server.framed_address) as caller:
        await caller.begin()
        if limit == "_FRAME_S":
            await caller.say(encode_frame(FrameKind.MESSAGE, bytes(1_000))[:-1])
        async with asyncio.timeout(60):
            assert await caller.end() is None
        await until(lambda: server.framed_calls == 0)


async def test_signs_of_life_without_end_are_cut_and_some_are_not() -> None:
    async with served() as server, calling(server.framed_address) as flood, calling(server.framed_address) as caller:
        await flood.begin()
        await caller.begin()

        async def send() -> None:
            while True:
                await flood.say(BEAT * 1_000)

        sending = asyncio.get_running_loop().create_task(send())
        async with asyncio.timeout(60):
            assert await flood.end() is None
        sending.cancel()
        await asyncio.wait([sending])
        await caller.say(BEAT * 100)
        assert (await caller.ask(message())).revisions == [1, 2]


async def test_frames_that_are_not_whole_hold_a_bounded_part_and_who_holds_most_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framed_port, "_UNFINISHED_BYTES_MAX", 8 << 20)
    half = encode_frame(FrameKind.MESSAGE, bytes(7 << 20))[: 1 << 20]
    async with served() as server, AsyncExitStack() as held:
        caller = await held.enter_async_context(calling(server.framed_address))
        await caller.begin()
        holders = [await held.enter_async_context(calling(server.framed_address)) for _ in range(8)]
        for holder in holders:
            await holder.begin()
            await holder.say(half)
        await until(lambda: server.framed_calls < 9)
        framed: Any = server._framed
        assert framed._pot.held_bytes <= 4 << 20, "one address has half"
        assert (await caller.ask(message())).revisions == [1, 2]


async def test_a_caller_that_does_not_take_its_answers_is_not_read_on() -> None:
    double = ReplicaDouble(Group())
    async with served(double) as server, calling(server.framed_address) as caller:
        await caller.begin()
        await caller.ask(message())
        put = message(2, opens=False)
        (operation,) = taken_apart(put.commands)
        operation.payload = m.encode(m.Put(b"k0", b"v" * 200_000))
        operation.sequence = 2
        await caller.ask(put)
        before = len(double.submissions)
        caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
        read = message(3, commands=0, queries=1, opens=False)
        for number in range(2_000):
            caller.writer.write(requests(Message(number + 3, read.session, False, 0, [], read.queries)))
        seen = -1
        while len(double.submissions) > seen:  # As long as anything moves.
            seen = len(double.submissions)
            await asyncio.sleep(0.5)
        assert seen - before < 500, "answers pile up at the replica"


async def test_a_taken_port_is_an_error_that_says_so_and_minus_one_is_none() -> None:
    async with served() as server:
        with pytest.raises(RsmError, match=r"framed calls on .*the port is taken"):
            ReplicaServer("orders", framed_port=int(server.framed_address.rpartition(":")[2]))
    without = ReplicaServer("orders", framed_port=-1)
    assert without.framed_address == ""
    await without.start(ReplicaDouble(Group()), lambda: b"{}")
    await without.stop(0)


async def test_methods_of_other_services_are_served_with_their_one_request_first() -> None:
    async def count(text: bytes, context: Any) -> None:
        for n in range(int(text)):
            await context.write(b"%d" % n)

    async def fail(_text: bytes, _context: Any) -> None:
        raise ZeroDivisionError

    server = ReplicaServer("orders")
    make: Callable[[Callable[[bytes, Any], Awaitable[None]]], Any] = grpc.unary_stream_rpc_method_handler
    handlers = {"Count": make(count), "Fail": make(fail), "Other": make(count)}
    server.add_service("own.Service", handlers, dict.fromkeys(handlers, Right.STATUS), framed=["Count", "Fail"])
    await server.start(ReplicaDouble(Group()), lambda: b"{}")
    async with calling(server.framed_address) as caller:
        await caller.begin("/own.Service/Count")
        await caller.say(encode_frame(FrameKind.MESSAGE, b"3"))
        assert [await caller.hear() for _ in range(3)] == [(FrameKind.MESSAGE, b"%d" % n) for n in range(3)]
        assert await caller.end() == CallEnd()
    async with calling(server.framed_address) as caller:
        await caller.begin("/own.Service/Fail")
        await caller.say(encode_frame(FrameKind.MESSAGE, b""))
        assert (await caller.end() or CallEnd()).status == grpc.StatusCode.UNKNOWN.value[0]
    async with calling(server.framed_address) as caller:
        await caller.say(encode_hello(CallHello("/own.Service/Other")))
        assert (await caller.end() or CallEnd()).status == MISSING
    await server.stop(0)


async def test_a_server_that_stops_answers_what_it_took_and_turns_others_away() -> None:
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    server = await serve(double)
    async with calling(server.framed_address) as caller, calling(server.framed_address) as late:
        await caller.begin()
        await caller.say(requests(message(1, commands=3)))
        await until(lambda: bool(double.submissions))
        await until(lambda: server.framed_calls >= 1)
        stopping = asyncio.get_running_loop().create_task(server.stop(600))
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.set()
        heard = await caller.hear()
        assert heard is not None
        assert heard[0] is FrameKind.MESSAGE
        assert await caller.end() == CallEnd()
        assert await late.end() is None
        async with asyncio.timeout(60):
            await stopping
    with pytest.raises(OSError):
        await FramedCaller.connect(server.framed_address)
