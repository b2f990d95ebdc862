"""TLS on the bookie's port: asked for with START_TLS, real certificates, every way in which a handshake fails."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ledger.bookie.tls import TlsPolicy
from ledger.testing import SimDisk
from ledger.tls import TlsSettings, client_context, server_context
from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.codes import Status
from tests.unit.ledger.bookie.bookie_bench import OK, Bench, add, fence, read
from tests.unit.ledger.bookie.bookie_port import Port, Talk

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Authority:
    """Signs certificates with OpenSSL's command, in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=60)

    @property
    def ca(self) -> str:
        return str(self.folder / f"{self.name}.pem")

    def sign(self, name: str, *, host: str = "IP:127.0.0.1", days: str = "2") -> dict[str, Any]:
        """Return `cert` and `key` of a new certificate; negative days make one that has expired."""
        file = f"{self.name}-{name}"
        (self.folder / f"{file}.ext").write_text(f"subjectAltName={host}\n")
        self._openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", f"{file}.key", "-out", f"{file}.csr",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{file}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key",
            "-CAcreateserial", "-days", days, "-extfile", f"{file}.ext", "-out", f"{file}.pem",
        )  # fmt: skip
        return {"cert": str(self.folder / f"{file}.pem"), "key": str(self.folder / f"{file}.key")}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.fixture(scope="module")
def bookie_cert(authority: Authority) -> dict[str, Any]:
    return authority.sign("bookie")


@pytest.fixture(scope="module")
def client_cert(authority: Authority) -> dict[str, Any]:
    return authority.sign("client")


def serve(scenario, policy: TlsPolicy, *, loop: str = "asyncio") -> None:
    """Run `scenario(port)` on a bookie with this policy."""

    async def run() -> None:
        bench = Bench(SimDisk(random.Random(1)), journal={"file_bytes": 1 << 22}, tls=policy)
        await bench.start()
        port = Port(bench, await bench.server.listen("127.0.0.1", 0))
        await scenario(port)
        await bench.server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


def policy(cert: dict[str, Any], *, ca: str | None = None, **more) -> TlsPolicy:
    return TlsPolicy(server_context(TlsSettings(**cert, ca=ca)), **more)


async def secured(port: Port, context, *, codec=v3) -> Talk:
    talk = await port.talk()
    answer = await talk.ask(p.StartTlsRequest(1))
    assert (answer.txn_id, answer.status) == (1, OK)
    await talk.writer.start_tls(context, server_hostname="127.0.0.1", ssl_handshake_timeout=10)
    talk.codec = codec
    return talk


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("codec", [v2, v3])
def test_a_connection_goes_on_in_tls(loop, codec, authority, bookie_cert) -> None:
    context = client_context(TlsSettings(ca=authority.ca))

    async def scenario(port: Port) -> None:
        talk = await secured(port, context, codec=codec)
        for n in range(3):
            assert (await talk.ask(add(1, n, size=100_000 * n))).status == OK
            assert bytes((await talk.ask(read(1, n))).body) == add(1, n, size=100_000 * n).body
        assert (await (await port.talk()).ask(read(1, 0))).status == OK, "plain connections are served too"

    serve(scenario, policy(bookie_cert), loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_second_start_tls_is_refused(loop, authority, bookie_cert) -> None:
    async def scenario(port: Port) -> None:
        talk = await secured(port, client_context(TlsSettings(ca=authority.ca)))
        assert (await talk.ask(p.StartTlsRequest(2))).status == Status.EBADREQ
        assert (await talk.ask(add(1, 0))).status == OK

    serve(scenario, policy(bookie_cert), loop=loop)


def test_without_tls_nothing_is_served_where_it_is_required(authority, bookie_cert) -> None:
    async def scenario(port: Port) -> None:
        for codec in (v2, v3):
            for request in (add(1, 0), read(1, 0), fence(1)):
                talk = await port.talk(codec)
                for _ in range(2):  # the connection goes on, and so do the answers
                    assert (await talk.ask(request)).status == Status.EUA
        talk = await port.talk()
        assert (await talk.ask(p.AuthRequest(1, "any", b""))).status == OK
        assert (await talk.ask(p.StartTlsRequest(2))).status == OK
        await talk.writer.start_tls(client_context(TlsSettings(ca=authority.ca)), server_hostname="127.0.0.1")
        assert (await talk.ask(add(1, 0))).status == OK
        assert list(port.bench.server.store.ledgers) == [1]

    serve(scenario, policy(bookie_cert, is_required=True))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("fault", ["expired", "authority", "host"])
def test_a_client_that_refuses_the_certificate_costs_its_connection_only(
    fault, loop, authority, stranger, bookie_cert
) -> None:
    served = {
        "expired": lambda: authority.sign("expired", days="-1"),
        "authority": lambda: stranger.sign("bookie"),
        "host": lambda: authority.sign("elsewhere", host="DNS:elsewhere.example"),
    }[fault]()
    context = client_context(TlsSettings(ca=authority.ca))

    async def scenario(port: Port) -> None:
        for _ in range(3):
            with pytest.raises((OSError, ValueError)):
                await secured(port, context)
        talk = await port.talk()
        assert (await talk.ask(add(1, 0))).status == OK
        await only(port, talk)

    serve(scenario, policy(served), loop=loop)


async def only(port: Port, *talks: Talk) -> None:
    """Wait until no connection is left but these (and the bench's own)."""
    async with asyncio.timeout(60):
        while len(port.bench.server._connections) > 1 + len(talks):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("loop", LOOPS)
def test_only_clients_with_a_certificate_are_served_where_one_is_demanded(
    loop, authority, stranger, bookie_cert, client_cert
) -> None:
    async def scenario(port: Port) -> None:
        cases: tuple[dict[str, Any], ...] = ({}, stranger.sign("client"), authority.sign("late", days="-1"))
        for shown in cases:
            answer = None
            try:  # In TLS 1.3 a client learns of it with its first read.
                talk = await secured(port, client_context(TlsSettings(**shown, ca=authority.ca)))
                answer = await talk.ask(add(1, 0))
            except OSError:
                pass
            assert answer is None
        talk = await secured(port, client_context(TlsSettings(**client_cert, ca=authority.ca)))
        assert (await talk.ask(add(1, 0))).status == OK
        await only(port, talk)

    serve(scenario, policy(bookie_cert, ca=authority.ca, is_required=True), loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_plain_bytes_behind_the_request_are_never_believed(loop, bookie_cert) -> None:
    async def scenario(port: Port) -> None:
        for behind in (v3.encode_request(add(1, 0)), b"\x00", v3.encode_request(p.StartTlsRequest(2))):
            talk = await port.talk()
            talk.writer.write(v3.encode_request(p.StartTlsRequest(1)) + behind)
            answer = await talk.receive()
            assert answer is None or (answer.txn_id, answer.status) == (1, OK)
            assert await talk.receive() is None
        assert not port.bench.server.store.ledgers

    serve(scenario, policy(bookie_cert), loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshake_that_never_comes_or_is_none_ends_the_connection(loop, bookie_cert) -> None:
    async def scenario(port: Port) -> None:
        silent = await port.talk()
        assert (await silent.ask(p.StartTlsRequest(1))).status == OK
        garbage = await port.talk()
        assert (await garbage.ask(p.StartTlsRequest(1))).status == OK
        garbage.writer.write(v3.encode_request(add(1, 0)))
        lost = await port.talk()
        assert (await lost.ask(p.StartTlsRequest(1))).status == OK
        lost.writer.close()
        await only(port)
        assert not port.bench.server.store.ledgers
        assert (await (await port.talk()).ask(add(1, 0))).status == OK

    serve(scenario, policy(bookie_cert, handshake_s=0.2), loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_required", [True, False])
def test_who_is_cut_while_it_shakes_hands_is_forgotten(loop, bookie_cert, is_required: bool) -> None:
    async def scenario(port: Port) -> None:
        server = port.bench.server
        talk = await port.talk()
        assert (await talk.ask(p.StartTlsRequest(1))).status == OK
        talk.writer.write(b"\x16\x03\x01\x02")  # The beginning of a hello.
        await asyncio.sleep(0.05)
        (connection,) = (x for x in server._connections if x.is_busy)
        assert connection in server._gate._strangers
        connection.cut("for a test")
        await only(port)
        assert connection not in server._connections
        assert connection not in server._gate._strangers

    serve(scenario, policy(bookie_cert, is_required=is_required), loop=loop)
