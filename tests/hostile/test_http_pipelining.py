"""Requests without end on one connection, sent before any answer is read: others go on, and memory stays."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.edge_process import EdgeProcess
from tests.hostile.victim import Victim, resident_mib
from tests.unit.broker.api.stand import Caller, write_tokens
from tests.unit.ledger.bookie.test_tls import Authority

_GROWTH_MIB_MAX = 60.0
_ATTACKERS = 4


@contextlib.asynccontextmanager
async def _flood(edge: EdgeProcess, request: bytes, **options: Any) -> AsyncIterator[None]:
    """Send from some connections as much as the server takes; read no answer from half of them."""

    async def attack(number: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            caller = await edge.connect(**options)
            if number % 2:
                caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
            reading = asyncio.create_task(_swallow(caller))
            try:
                while True:
                    caller.writer.write(request * 2_000)
                    await caller.writer.drain()
            finally:
                reading.cancel()
                caller.close()

    async def _swallow(caller: Caller) -> None:
        with contextlib.suppress(OSError):
            while await caller.reader.read(1 << 20):
                pass

    attackers = [asyncio.create_task(attack(number)) for number in range(_ATTACKERS)]
    await asyncio.sleep(0.3)
    try:
        yield
    finally:
        for one in attackers:
            one.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


async def _beside(edge: EdgeProcess, request: bytes, token: str = "", **options: Any) -> None:
    victim = await edge.connect(**options)

    async def submit() -> None:
        answer = await victim.ask("POST", "/api/v1/tasks", {"type": "mail"}, token=token)
        assert answer.status == 201, answer

    quiet = await Victim(submit).run_for(1.0)
    before = resident_mib(edge.pid)
    async with _flood(edge, request, **options):
        attacked = await Victim(submit).run_for(3.0)
        grown = resident_mib(edge.pid) - before
    victim.close()
    attacked.assert_goes_on_like(quiet)
    assert grown < _GROWTH_MIB_MAX, f"{grown:.0f} MiB more"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", id="tiny"),
        pytest.param(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n7\r\nno JSON\r\n0\r\n\r\n", id="with bodies",
        ),
        pytest.param(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id="behind a stream"),
    ],
)  # fmt: skip
def test_others_are_served_beside_requests_that_wait_for_no_answer(request_: bytes) -> None:
    with EdgeProcess() as edge:
        asyncio.run(_beside(edge, request_))


def test_others_are_served_beside_requests_that_wait_for_no_answer_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    trusting = ssl.create_default_context(cafile=authority.ca)
    settings = {"tls_cert": signed["cert"], "tls_key": signed["key"], "tokens_file": write_tokens(tmp_path / "t.toml")}
    with EdgeProcess(**settings) as edge:
        asyncio.run(_beside(edge, b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", "acme", ssl=trusting))
