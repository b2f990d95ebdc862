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
from tests.hostile.victim import Victim, Work, resident_mib
from tests.unit.broker.api.stand import Caller, write_tokens
from tests.unit.ledger.bookie.test_tls import Authority

_GROWTH_MIB_MAX = 60.0
_ATTACKERS = 4
_CALLS, _BLOCKS = 300, 60
_REQUESTS = 2_000
"""In each block."""


@contextlib.asynccontextmanager
async def _flood(edge: EdgeProcess, request: bytes, work: Work, **options: Any) -> AsyncIterator[None]:
    """Send from some connections as much as the server takes; read no answer from half of them.

    A unit is a block that has left this process.
    """

    async def attack(number: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            caller = await edge.connect(**options)
            if number % 2:
                caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
            reading = asyncio.create_task(_swallow(caller))
            try:
                while True:
                    caller.writer.write(request * _REQUESTS)
                    await caller.writer.drain()
                    work.add()
            finally:
                reading.cancel()
                caller.close()

    async def _swallow(caller: Caller) -> None:
        with contextlib.suppress(OSError):
            while await caller.reader.read(1 << 20):
                pass

    attackers = [asyncio.create_task(attack(number)) for number in range(_ATTACKERS)]
    await work.reaches(_ATTACKERS)
    try:
        yield
    finally:
        for one in attackers:
            one.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


async def _beside(edge: EdgeProcess, request: bytes, blocks: int = _BLOCKS, token: str = "", **options: Any) -> None:
    caller = await edge.connect(**options)

    async def submit() -> None:
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token=token)
        assert answer.status == 201, answer

    work, victim = Work(), Victim(submit, servers=[edge.pid])
    quiet = await victim.run(_CALLS)
    before = resident_mib(edge.pid)
    async with _flood(edge, request, work, **options):
        attacked = await victim.run(_CALLS, beside=work, units=blocks)
        grown = resident_mib(edge.pid) - before
    caller.close()
    attacked.assert_goes_on_like(quiet, units_per_call=10 if blocks else None, longest=1_000)
    assert grown < _GROWTH_MIB_MAX, f"{grown:.0f} MiB more"


@pytest.mark.parametrize(
    ("request_", "blocks"),
    [
        pytest.param(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", _BLOCKS, id="tiny"),
        pytest.param(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n7\r\nno JSON\r\n0\r\n\r\n", _BLOCKS, id="with bodies",
        ),
        # The stream has no end, so the server takes what fits into buffers and then nothing more.
        pytest.param(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, id="behind a stream"),
    ],
)  # fmt: skip
def test_others_are_served_beside_requests_that_wait_for_no_answer(request_: bytes, blocks: int) -> None:
    with EdgeProcess() as edge:
        asyncio.run(_beside(edge, request_, blocks))


def test_others_are_served_beside_requests_that_wait_for_no_answer_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    trusting = ssl.create_default_context(cafile=authority.ca)
    settings = {"tls_cert": signed["cert"], "tls_key": signed["key"], "tokens_file": write_tokens(tmp_path / "t.toml")}
    with EdgeProcess(**settings) as edge:
        asyncio.run(_beside(edge, b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", token="acme", ssl=trusting))
