"""Strangers at a replica's gRPC port: many, silent, or endless; calls of others are answered."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from rsm_spark.transport.codec import SERVICE
from tests.hostile.port_attacks import AT_ONCE, flooding, sitting
from tests.hostile.replica_port_process import ReplicaPortProcess
from tests.hostile.victim import Served, Victim, Work, resident_mib

_CALLS = 60
_BLOCKS = 300
_STRANGERS = 600
_BLOCKS_A_CALL = 3_000
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _text(text: bytes) -> bytes:
    """A string of HPACK, not packed."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    left, length = len(text) - 127, b"\x7f"
    while left >= 128:
        length += bytes([left % 128 + 128])
        left //= 128
    return length + bytes([left]) + text


def _header(name: bytes, value: bytes) -> bytes:
    return b"\x00" + _text(name) + _text(value)


_HEAD = b"".join(
    _header(name, value)
    for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"a"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    )
)  # fmt: skip


def _continuations(_: int) -> tuple[bytes, bytes]:
    """A head that never ends."""
    return _frame(1, 0, 1, _HEAD), _frame(9, 0, 1, _header(b"a-b", b"x" * 4_000)) * 16


def _resets(first: int) -> tuple[bytes, bytes]:
    """Calls that are taken back at once."""
    streams = range(first, first + 200, 2)
    return b"", b"".join(_frame(1, 5, one, _HEAD) + _frame(3, 0, one, b"\0\0\0\x08") for one in streams)


def _settings(_: int) -> tuple[bytes, bytes]:
    """Each of them has to be acknowledged."""
    return b"", _frame(4, 0, 0, b"") * 1_000


async def call(address: str) -> None:
    """Call over a new connection, as who comes for the first time; tried again, as clients do."""
    channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    try:
        status: Any = channel.unary_unary(f"/{SERVICE}/Status")
        await status(b"", timeout=60, wait_for_ready=True)
    finally:
        await channel.close()


def _served(port: ReplicaPortProcess, beside: Work | None = None, units: int = 0) -> Served:
    victim = Victim(lambda: call(port.address), servers=[port.pid])
    return asyncio.run(victim.run(_CALLS, beside=beside, units=units))


@pytest.mark.parametrize("sent", [_continuations, _resets, _settings])
def test_calls_are_answered_beside_frames_without_end(sent: Callable[[int], tuple[bytes, bytes]]) -> None:
    with ReplicaPortProcess() as port:
        work = Work()
        quiet = _served(port)
        with flooding(port.grpc, lambda: _GREETING + sent(1)[0], lambda count: sent(1 + 200 * count)[1], work):
            attacked = _served(port, work, _BLOCKS)
            grown = resident_mib(port.pid)
        attacked.assert_goes_on_like(quiet, units_per_call=_BLOCKS_A_CALL, cpu=100.0)
        assert grown < 600, f"{grown:.0f} MiB"
        assert port.errors() == "", "a stranger writes no lines into this process's log"


@pytest.mark.parametrize("said", [b"", _GREETING], ids=["silent", "greeted"])
def test_new_connections_are_taken_beside_more_strangers_than_there_is_room_for(said: bytes) -> None:
    files_max = 900  # Of which 194 are left for connections of this port.
    with ReplicaPortProcess(files_max=files_max) as port:
        work = Work()
        quiet = _served(port)
        # They come from the victim's own address, so they must not come without end: some for each of its calls.
        may_come = threading.Semaphore(_STRANGERS // AT_ONCE)

        async def call_again() -> None:
            await call(port.address)
            may_come.release()

        with sitting(port.grpc, _STRANGERS, said, work, lambda: may_come.acquire(timeout=60)):
            victim = Victim(call_again, servers=[port.pid])
            attacked = asyncio.run(victim.run(_CALLS, beside=work, units=_STRANGERS // AT_ONCE))
            files = port.files()
        attacked.assert_goes_on_like(quiet, units_per_call=2)
        assert files < files_max - 500, f"{files} files are open: too few are left for the log"


@pytest.mark.slow
def test_who_greets_and_never_calls_is_cut_in_time_and_who_calls_stays() -> None:
    async def run(address: str, stranger: socket.socket) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.unary_unary(f"/{SERVICE}/Status")
            await call(b"", timeout=60)
            await asyncio.to_thread(_read_to_end, stranger)
            await asyncio.sleep(2)
            assert channel.get_state() == grpc.ChannelConnectivity.READY

    with ReplicaPortProcess() as port, socket.create_connection((port.host, port.port), timeout=60) as stranger:
        began = time.monotonic()
        stranger.sendall(_GREETING)
        asyncio.run(run(port.address, stranger))
        assert time.monotonic() - began > 5


def _read_to_end(stranger: socket.socket) -> None:
    while stranger.recv(65_536):
        pass
