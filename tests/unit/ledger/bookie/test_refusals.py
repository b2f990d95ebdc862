"""What a bookie refuses is counted by reason, and one of each kind is a line of its audit."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from ledger.bookie.gate import GateLimits
from ledger.bookie.server import ServerSettings
from ledger.logs import AUDIT_LOGGER
from ledger.wire import packets as p
from ledger.wire.codes import Status
from ledger.wire.digests import master_key
from ledger.wire.sasl_digest import PLUGIN, ClientLogin
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, Client, add, fence, read

OTHER = master_key(b"other")


async def log_in(client: Client, user: str, password: str) -> None:
    login, payload = ClientLogin(user, password, "nonce"), b""
    while payload is not None:
        response = await client.ask_one(p.AuthRequest(0, PLUGIN, payload))
        if response.status != OK:
            return
        payload = login.step(response.payload)


def counts(bench: Bench) -> dict[str, int]:
    return dict(bench.server.refusals.by_reason)


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == AUDIT_LOGGER]


def served(scenario, **settings) -> None:
    async def run() -> None:
        bench = Bench(**settings)
        await bench.start()
        await scenario(bench)

    asyncio.run(run())


def test_refusals_are_counted_by_reason_and_a_flood_of_one_kind_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    keys = {7: KEY}

    async def find(ledger_id: int) -> bytes | None:
        return keys.get(ledger_id)

    async def scenario(bench: Bench) -> None:
        writer, stranger = Client(bench), Client(bench)
        assert (await writer.ask_one(add(7, 0))).status == OK
        assert counts(bench) == {}
        for number in range(50):
            assert (await stranger.ask_one(fence(100 + number, key=OTHER))).status == Status.EUA
        assert (await stranger.ask_one(fence(7, key=OTHER))).status == Status.EUA
        stranger.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        await bench.settle()
        assert counts(bench) == {"unknown-ledger": 50, "wrong-password": 1, "protocol": 1}
        assert (await writer.ask_one(add(7, 1))).status == OK, "who does no wrong is served on"

    served(scenario, find_key=find)
    told = [(record.action, record.outcome.partition(")")[0]) for record in lines(caplog)]
    assert told == [
        ("ReadRequest", "refused (unknown-ledger"),
        ("fence", "refused (wrong-password"),
        ("message", "refused (protocol"),
    ]
    assert lines(caplog)[-1].refusals == {"unknown-ledger": 50, "wrong-password": 1, "protocol": 1}


def test_who_does_not_log_in_or_logs_in_wrongly_is_counted_and_named_by_nothing_it_says() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client(bench)
        assert (await client.ask_one(read(7, 0))).status == Status.EUA
        await log_in(client, "hd", "guessed")
        assert counts(bench) == {"log-in": 2}
        honest = Client(bench)
        await log_in(honest, "hd", "testpwd")
        assert (await honest.ask_one(add(8, 0))).status == OK
        assert counts(bench) == {"log-in": 2}

    served(scenario, server=ServerSettings(users={"hd": "testpwd"}))


def test_what_a_principal_may_not_do_is_counted_with_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    path = tmp_path / "principals.toml"
    path.write_text('[[principal]]\nname = "reader"\nrole = "client"\nledgers = "read"\nlogins = ["hd"]\n')
    path.chmod(0o600)

    async def scenario(bench: Bench) -> None:
        client = Client(bench)
        await log_in(client, "hd", "testpwd")
        assert (await client.ask_one(add(8, 0))).status == Status.EUA
        assert counts(bench) == {"not-allowed": 1}

    served(scenario, server=ServerSettings(users={"hd": "testpwd"}, principals=str(path)))
    (line,) = lines(caplog)
    assert (line.principal, line.role, line.action) == ("reader", "client", "AddRequest")


def test_connections_above_the_bound_are_counted() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            Client(bench).send(add(7, 0))
        assert counts(bench).get("over-limit", 0) >= 1

    served(scenario, server=ServerSettings(gate=GateLimits(2, 2, 2)))
