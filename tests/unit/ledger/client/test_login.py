"""A client and a bookie that demands a log-in: what fits, and each way in which it does not."""

from __future__ import annotations

import asyncio
import random

import pytest
import uvloop

from ledger.bookie.server import ServerSettings
from ledger.bookie.tls import TlsPolicy
from ledger.client.answers import AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.login import LoginSettings
from ledger.testing import SimDisk
from ledger.tls import TlsSettings
from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.codes import Status
from tests.unit.ledger.bookie.bookie_bench import OK, Bench, add, fence, read
from tests.unit.ledger.bookie.bookie_port import Port
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.ledger.client.test_connection_tls import add_and_read, ask, policy

USERS = {"hd": "testpwd", "other": "word"}
HD = LoginSettings(user="hd", password="testpwd")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("login"), "authority")


def serve(
    scenario,
    users: dict[str, str] | None = USERS,
    tls: TlsPolicy | None = None,
    settings: ClientSettings | None = None,
    *,
    loop: str = "asyncio",
) -> None:
    """Run `scenario(port, pool)`: a bookie with these users, a pool with these settings."""

    async def program() -> None:
        server = ServerSettings(users=users)
        bench = Bench(SimDisk(random.Random(1)), journal={"file_bytes": 1 << 22}, tls=tls, server=server)
        await bench.start()
        port = await bench.server.listen("127.0.0.1", 0)

        async def resolve(bookie_id: str) -> tuple[str, int]:
            return "127.0.0.1", port

        pool = ConnectionPool(resolve, random.Random(1), settings)
        await scenario(Port(bench, port), pool)
        await pool.close()
        await bench.server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(program())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_everything_goes_on_after_the_log_in(protocol: str, has_tls: bool, loop: str, authority: Authority) -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        await add_and_read(pool, "b")
        assert (await ask(pool, "b")).reason == "EOK"

    settings = ClientSettings(protocol=protocol, login=HD, tls=TlsSettings(ca=authority.ca) if has_tls else None)  # type: ignore[arg-type]
    serve(scenario, USERS, policy(authority.sign("bookie"), is_required=True) if has_tls else None, settings, loop=loop)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_bookie_that_demands_no_log_in_serves_a_client_that_has_one(protocol: str) -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        await add_and_read(pool, "b")

    serve(scenario, None, None, ClientSettings(protocol=protocol, login=HD))  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize(("user", "password"), [("hd", "word"), ("nobody", "testpwd")])
def test_a_wrong_user_or_password_is_said(protocol: str, user: str, password: str) -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        answers = AnswerQueue()
        pool.ask_entries("b", 7, [0], answers)
        (answered,) = await answers.next_batch()
        assert f"log-in as '{user}'" in answered.reason
        assert repr(password) not in answered.reason
        assert not port.bench.server.store.ledgers

    settings = ClientSettings(protocol=protocol, login=LoginSettings(user=user, password=password))  # type: ignore[arg-type]
    serve(scenario, settings=settings)


@pytest.mark.parametrize("codec", [v2, v3])
def test_without_a_log_in_nothing_is_served(codec) -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        for request in (add(1, 0), read(1, 0), fence(1)):
            talk = await port.talk(codec)
            for _ in range(2):
                assert (await talk.ask(request)).status == Status.EUA
        assert not port.bench.server.store.ledgers

    serve(scenario)


def test_a_log_in_by_another_plugin_is_turned_away() -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        talk = await port.talk()
        assert (await talk.ask(p.AuthRequest(1, "AuthDisabledPlugin", b""))).status == Status.EUA
        assert await talk.receive() is None, "the connection goes on"
        assert await (await port.talk(v2)).ask(p.AuthRequest(0, "basic", b"")) is None

    serve(scenario)


def test_requests_behind_a_log_in_of_one_wake_up_are_served_only_if_it_succeeds() -> None:
    async def scenario(port: Port, pool: ConnectionPool) -> None:
        talk = await port.talk()
        talk.writer.write(v3.encode_request(p.AuthRequest(1, "sasl", b"")) + v3.encode_request(add(1, 0)))
        assert (await talk.receive()).status == OK  # the challenge
        assert (await talk.receive()).status == Status.EUA
        assert not port.bench.server.store.ledgers

    serve(scenario)
