"""Sockets that stop in the middle of a TLS handshake, against a bookie with a writer beside."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ledger import ClientSettings, DigestType, LedgerClient
from ledger.open_files import allow_files
from ledger.tls import TlsSettings
from ledger.wire.packets import StartTlsRequest
from ledger.wire.v3 import encode_request
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.bookie_process import Bookie
from tests.unit.ledger.bookie.test_tls import Authority

_PAYLOAD = bytes(1_000)
_CALLS, _UNITS_A_CALL = 300, 100
_DEADLINE_S = 10.0
_REQUEST = encode_request(StartTlsRequest(1))


def _hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


_SAID = {
    "nothing": b"",
    "half a hello": _hello()[:100],
    "a hello alone": _hello(),
    # Four records of one handshake message of 64 KiB, of which the last byte never comes.
    "a long hello": b"".join(
        b"\x16\x03\x01" + struct.pack(">H", 16_384) + (b"\x01\x00\xff\xff" if n == 0 else bytes(4)) + bytes(16_380)
        for n in range(4)
    )[:-1],
}


class HalfHandshakes:
    """Sockets that ask for TLS, say so much, and wait; who is cut comes again. One thread for all.

    Attributes:
        held_s: How long those were held that were cut.
        work: Counts sockets that were opened and handshakes that were begun.

    """

    def __init__(self, port: int, *, socket_count: int, said: bytes) -> None:
        self.held_s: list[float] = []
        self.work = Work()
        self._port, self._socket_count, self._said = port, socket_count, said
        self._stopped = threading.Event()
        self._full = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[HalfHandshakes]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            assert self._full.wait(60)
            yield self
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self._socket_count):
                self._open(selector)
            self._full.set()
            while not self._stopped.is_set():
                for key, _ in selector.select(0.1):
                    one = cast("socket.socket", key.fileobj)
                    opened_s, has_asked = key.data
                    try:
                        if not one.recv(10_000):
                            raise ConnectionResetError
                        if not has_asked:
                            one.sendall(self._said)
                            self.work.add()
                            selector.modify(one, selectors.EVENT_READ, (opened_s, True))
                    except OSError:
                        self.held_s.append(time.monotonic() - opened_s)
                        selector.unregister(one)
                        one.close()
                        time.sleep(0.002)  # A slow and steady enemy: what is tested is not the machine's speed.
                        self._open(selector)
            held: list[Any] = [key.fileobj for key in selector.get_map().values()]
            for one in held:
                one.close()

    def _open(self, selector: selectors.BaseSelector) -> None:
        one = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        one.sendall(_REQUEST)
        self.work.add()
        selector.register(one, selectors.EVENT_READ, (time.monotonic(), False))


@pytest.fixture
def start(zookeeper: str, tmp_path: Path, unique_name: str):
    """Return a function that starts a bookie with TLS, and settings of a client that has a certificate."""
    authority = Authority(tmp_path, "authority")
    cert, mine = authority.sign("bookie"), authority.sign("writer")
    bookie = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}", options=())

    def begin(*, is_required: bool) -> tuple[Bookie, ClientSettings]:
        more = ("--tls-ca", authority.ca, "--tls-required") if is_required else ()
        bookie.start("--tls-cert", cert["cert"], "--tls-key", cert["key"], *more)
        return bookie, ClientSettings(tls=TlsSettings(ca=authority.ca, **mine))

    yield begin
    bookie.kill()


def _write_beside(bookie: Bookie, settings: ClientSettings, attack: HalfHandshakes, units: int) -> float:
    """Return by how many MiB the bookie grew."""

    async def scenario() -> float:
        async with await LedgerClient.connect(bookie.uri, settings=settings) as client:
            writer = await client.create(digest_type=DigestType.CRC32C, ensemble_size=1, write_quorum=1, ack_quorum=1)
            victim = Victim(lambda: writer.append(_PAYLOAD), servers=[bookie.process.pid])
            quiet = await victim.run(_CALLS)
            before_mib = resident_mib(bookie.process.pid)
            with attack.running():
                attacked = await victim.run(_CALLS, beside=attack.work, units=units)
                grown_mib = resident_mib(bookie.process.pid) - before_mib
            assert await writer.close() + 1 == quiet.calls + attacked.calls
            attacked.assert_goes_on_like(quiet, units_per_call=_UNITS_A_CALL)
            # Who comes anew is let in, too.
            async with await LedgerClient.connect(bookie.uri, settings=settings) as other:
                reader = await other.open(writer.ledger_id)
                (entry,) = await reader.read(0, 0)
                assert len(entry.payload) == len(_PAYLOAD)
            return grown_mib

    return asyncio.run(scenario())


@pytest.mark.parametrize("said", ["half a hello", pytest.param("nothing", marks=pytest.mark.slow),
                                  pytest.param("a hello alone", marks=pytest.mark.slow),
                                  pytest.param("a long hello", marks=pytest.mark.slow)])  # fmt: skip
def test_a_writer_goes_on_beside_120_half_handshakes(start, said: str) -> None:
    bookie, settings = start(is_required=True)
    attack = HalfHandshakes(bookie.port, socket_count=120, said=_SAID[said])
    grown_mib = _write_beside(bookie, settings, attack, 100)
    assert grown_mib < 100


@pytest.mark.slow
@pytest.mark.parametrize("is_required", [True, False])
def test_half_handshakes_are_bounded_in_number_and_time(start, is_required: bool) -> None:
    assert allow_files(4_000) == 4_000, "this test needs files: ulimit -n"
    bookie, settings = start(is_required=is_required)
    attack = HalfHandshakes(bookie.port, socket_count=3_000, said=_SAID["half a hello"])
    # A unit is an opened socket or a hello begun: as many as this there are when each has been cut once.
    grown_mib = _write_beside(bookie, settings, attack, 9_000)
    print(f"grown by {grown_mib:.0f} MiB, {len(attack.held_s)} cut after {max(attack.held_s):.0f} s at most")
    assert len(attack.held_s) >= 3_000, "who only began to shake hands was let sit"
    assert max(attack.held_s) < _DEADLINE_S + 60
    assert grown_mib < 300
