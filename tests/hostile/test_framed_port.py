"""Strangers at a replica's framed port, and callers that hold what they can: calls of others are answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rsm_spark.transport.call_frames import (
    BEAT,
    CallEnd,
    CallHello,
    FrameKind,
    encode_end,
    encode_frame,
    encode_hello,
)
from rsm_spark.transport.codec import EXCHANGE_METHOD
from tests.hostile.port_attacks import AT_ONCE, flooding, greeting, sitting
from tests.hostile.replica_port_process import ReplicaPortProcess
from tests.hostile.test_grpc_port import call as call_grpc
from tests.hostile.victim import Served, Victim, Work, resident_mib
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.transport.framed_caller import calling
from tests.unit.rsm_spark.transport.test_replica_server import message

_CALLS = 60
_BLOCKS = 300
_STRANGERS = 600
_BLOCKS_A_CALL = {"framed": 3_000, "grpc": 20_000}
"""A call over gRPC takes longer at its caller, and most of these blocks go no further than the system's buffers."""
_SAT_A_CALL = 10
_ELSEWHERE = "127.0.0.2"
"""Address of the attacker: strangers of one address push out each other, as fast as they come, and nobody else."""
_HALF_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
HELLO = encode_hello(CallHello(EXCHANGE_METHOD))
HALF = encode_frame(FrameKind.MESSAGE, bytes(7 << 20))[: 4 << 20]


async def _call(address: str) -> None:
    """Call over a new connection, as who comes for the first time; tried again, as clients do."""
    while True:
        with contextlib.suppress(OSError, AssertionError):
            async with calling(address) as caller:
                await caller.begin()
                await caller.ask(message(1, commands=0, queries=1, opens=False))
                return
        await asyncio.sleep(0.02)


def _served(port: ReplicaPortProcess, call: Callable[[], Awaitable[None]], beside: Work | None, units: int) -> Served:
    return asyncio.run(Victim(call, servers=[port.pid]).run(_CALLS, beside=beside, units=units))


FLOODS = {
    "rubbish": (b"", b"\xff" * 65_536),
    "hellos": (b"", HELLO * 100),
    "beats": (HELLO, BEAT * 10_000),
    "empty messages": (HELLO, encode_frame(FrameKind.MESSAGE, b"") * 5_000),
    "one byte": (HELLO[:10], HELLO[10:11]),
    "ends": (HELLO, encode_end(CallEnd()) * 1_000),
}


@pytest.mark.parametrize(
    ("flood", "victim"), [*((flood, "framed") for flood in FLOODS), ("rubbish", "grpc"), ("beats", "grpc")]
)
def test_calls_are_answered_beside_bytes_without_end(flood: str, victim: str) -> None:
    first, more = FLOODS[flood]
    with ReplicaPortProcess() as port:
        address = "{}:{}".format(*port.framed)

        async def call() -> None:
            await (_call(address) if victim == "framed" else call_grpc(port.address))

        work = Work()
        quiet = _served(port, call, None, 0)
        with flooding(port.framed, lambda: first, lambda _: more, work):
            attacked = _served(port, call, work, _BLOCKS)
            grown = resident_mib(port.pid)
        attacked.assert_goes_on_like(quiet, units_per_call=_BLOCKS_A_CALL[victim], cpu=100.0)
        assert grown < 600, f"{grown:.0f} MiB"
        assert port.errors() == "", "a stranger writes no lines into this process's log"


@pytest.mark.parametrize("said", [b"", HELLO[:-4]], ids=["silent", "half a hello"])
@pytest.mark.parametrize("victim", ["framed", "grpc"])
def test_new_connections_are_taken_beside_more_strangers_than_there_is_room_for(said: bytes, victim: str) -> None:
    files_max = 900  # Of which 194 are left for connections of both ports.
    with ReplicaPortProcess(files_max=files_max) as port:
        address = "{}:{}".format(*port.framed)

        async def call() -> None:
            await (_call(address) if victim == "framed" else call_grpc(port.address))

        work = Work()
        quiet = _served(port, call, None, 0)
        with sitting(port.framed, _STRANGERS, said, work, greeting(port.framed, HELLO), source=_ELSEWHERE):
            attacked = _served(port, call, work, _STRANGERS // AT_ONCE)
            files = port.files()
        attacked.assert_goes_on_like(quiet, units_per_call=_SAT_A_CALL)
        assert 100 < files < files_max - 500, (
            f"{files} files are open: nobody sat there, or too few are left for the log"
        )


def test_tls_that_is_never_ended_keeps_nobody_out_and_a_token_is_needed_inside(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.sign("replica")
    token = tmp_path / "token"
    token.write_text("a-token-of-the-tests-0123456789")
    told = {"tls_cert": pair["cert"], "tls_key": pair["key"], "token_file": str(token)}
    context = ssl.create_default_context(cafile=authority.ca)
    with ReplicaPortProcess(files_max=900, **told) as port:
        address = "{}:{}".format(*port.framed)

        async def call() -> None:
            while True:
                with contextlib.suppress(OSError, AssertionError):
                    async with calling(address, context) as caller:
                        await caller.begin(token=token.read_bytes())
                        return
                await asyncio.sleep(0.02)

        work = Work()
        quiet = _served(port, call, None, 0)

        def probe() -> None:
            with socket.create_connection(port.framed, timeout=60) as one, context.wrap_socket(
                one, server_hostname=port.host
            ):  # fmt: skip
                pass

        with sitting(port.framed, _STRANGERS, _HALF_CLIENT_HELLO, work, probe, source=_ELSEWHERE):
            attacked = _served(port, call, work, _STRANGERS // AT_ONCE)
            files = port.files()
        attacked.assert_goes_on_like(quiet, units_per_call=_SAT_A_CALL)
        assert 100 < files < 900 - 500, f"{files} files are open: nobody sat there, or too few are left for the log"

        async def refused() -> CallEnd | None:
            async with calling(address, context) as caller:
                await caller.say(HELLO)
                return await caller.end()

        end = asyncio.run(refused())
        assert end is not None
        assert "needs the cluster's token" in end.details


def test_frames_that_callers_never_end_do_not_fill_the_memory() -> None:
    with ReplicaPortProcess() as port:
        address = "{}:{}".format(*port.framed)
        quiet = _served(port, lambda: _call(address), None, 0)
        before = resident_mib(port.pid)
        held: list[socket.socket] = []
        for _ in range(120):  # 480 MiB, were they kept.
            with contextlib.suppress(OSError):
                caller = socket.create_connection(port.framed, timeout=5)
                held.append(caller)
                caller.sendall(HELLO)
                caller.recv(100)
                caller.sendall(HALF)
        attacked = _served(port, lambda: _call(address), None, 0)
        attacked.assert_goes_on_like(quiet)
        assert resident_mib(port.pid) - before < 300
        for one in held:
            one.close()
