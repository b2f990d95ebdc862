"""Who opens and says nothing, says half, or listens too often: others go on being served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from ledger.open_files import allow_files
from tests.hostile.edge_process import EdgeProcess
from tests.hostile.victim import Victim, Work, resident_mib
from tests.unit.broker.api.stand import Caller, write_tokens
from tests.unit.ledger.bookie.test_tls import Authority

_IDLE = 4_100
_AT_ONCE = 50
_CALLS = 100


async def _new_connection(edge: EdgeProcess, token: str = "", **options: Any) -> None:
    caller = await edge.connect(**options)
    try:
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token=token)
        assert answer.status == 201, answer
    finally:
        caller.close()


@contextlib.asynccontextmanager
async def _idle_sockets(
    edge: EdgeProcess, count: int, work: Work, ask: Callable[[], Awaitable[object]]
) -> AsyncIterator[None]:
    """Hold so many sockets open, from two addresses; what is cut is opened again, as fast as the server takes them.

    A unit is a number of sockets behind which one more call was answered: what was opened before it has been taken.
    """
    assert allow_files(count + 200) == count + 200, "this test needs files: ulimit -n"
    held: list[socket.socket] = []

    async def attack() -> None:
        while True:
            for number in range(_AT_ONCE):
                opened = socket.socket()
                opened.setblocking(False)  # noqa: FBT003
                opened.bind((f"127.0.0.{2 + number % 2}", 0))
                opened.connect_ex((edge.host, edge.port))
                held.append(opened)
                if len(held) >= count:
                    held.pop(0).close()
            await ask()
            work.add()

    attacking = asyncio.create_task(attack())
    work.ends_with(attacking)
    await work.reaches(count // _AT_ONCE)
    try:
        yield
        assert not attacking.done(), attacking.exception()
    finally:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
        for one in held:
            one.close()


def test_new_connections_are_served_beside_thousands_that_say_nothing() -> None:
    async def run(edge: EdgeProcess) -> None:
        kept = await edge.connect()
        await kept.ask("GET", "/api/v1/slots")

        def call() -> Any:
            return _new_connection(edge)

        work, victim = Work(), Victim(call, servers=[edge.pid])
        quiet = await victim.run(_CALLS)
        async with _idle_sockets(edge, _IDLE, work, call):
            attacked = await victim.run(_CALLS, beside=work, units=20)
        attacked.assert_goes_on_like(quiet, units_per_call=10)
        assert (await kept.ask("GET", "/api/v1/slots")).status == 200, "who asked before keeps its connection"
        kept.close()

    with EdgeProcess() as edge:
        asyncio.run(run(edge))


def test_clients_that_never_do_their_part_of_tls_take_no_files_from_others(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("broker")
    trusting = ssl.create_default_context(cafile=authority.ca)
    files_max = 900  # Of which 194 are left for connections of this port.

    async def run(edge: EdgeProcess) -> None:
        def submit() -> Any:
            return _new_connection(edge, "acme", ssl=trusting)

        work, victim = Work(), Victim(submit, servers=[edge.pid])
        quiet = await victim.run(_CALLS)
        async with _idle_sockets(edge, 2 * files_max, work, submit):
            attacked = await victim.run(_CALLS, beside=work, units=20)
            files = len(list(Path(f"/proc/{edge.pid}/fd").iterdir()))
        attacked.assert_goes_on_like(quiet, units_per_call=10)
        assert files < files_max - 600, f"{files} files are open: too few are left for the log"

    settings = {"tls_cert": signed["cert"], "tls_key": signed["key"], "tokens_file": write_tokens(tmp_path / "t.toml")}
    with EdgeProcess(files_max=files_max, **settings) as edge:
        asyncio.run(run(edge))


def test_a_client_that_never_does_its_part_of_tls_is_left_in_time(tmp_path: Path) -> None:
    signed = Authority(tmp_path, "authority").sign("broker")

    async def run(edge: EdgeProcess) -> None:
        silent = await edge.connect()
        half = await edge.connect()
        half.writer.write(b"\x16\x03\x01\x02\x00\x01")
        async with asyncio.timeout(60):
            assert await silent.closed()
            assert await half.closed()

    with EdgeProcess(tls_cert=signed["cert"], tls_key=signed["key"], handshake_s=0.5, read_head_s=0.5) as edge:
        asyncio.run(run(edge))


def test_half_bodies_of_one_token_leave_room_for_those_of_others(tmp_path: Path) -> None:
    large = {"type": "mail", "payload": "x" * 300_000}
    half = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    half += b"Authorization: Bearer the-one-of-bolt-inc\r\nContent-Length: 8000000\r\n\r\n" + b" " * 7_500_000

    work = Work()  # A unit is a half body; after it an attacker waits, as long as the server lets it.

    async def attack(edge: EdgeProcess) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                caller = await edge.connect()
                caller.writer.write(half)
                work.add()
                await caller.closed()  # It is refused at once, or when its time is over.
                caller.close()
                await asyncio.sleep(0.02)  # Forty of them send from the victim's own loop.

    async def run(edge: EdgeProcess) -> None:
        caller = await edge.connect()

        async def submit() -> None:
            answer = await caller.ask("POST", "/api/v1/tasks", large, token="acme")
            assert answer.status == 201, answer
            await asyncio.sleep(0.01)  # Within its own rate of bytes.

        victim = Victim(submit, servers=[edge.pid])
        quiet = await victim.run(_CALLS)
        before = resident_mib(edge.pid)
        attackers = [asyncio.create_task(attack(edge)) for _ in range(40)]
        await work.reaches(40)
        attacked = await victim.run(3 * _CALLS)
        grown = resident_mib(edge.pid) - before
        for one in attackers:
            one.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        attacked.assert_goes_on_like(quiet)
        assert grown < 300, f"{grown:.0f} MiB more"  # A quarter of 256 MiB, and what the stand-in keeps.
        caller.close()

    with EdgeProcess(tokens_file=write_tokens(tmp_path / "t.toml")) as edge:
        asyncio.run(run(edge))


def test_streams_of_one_token_leave_some_for_others(tmp_path: Path) -> None:
    async def stream(edge: EdgeProcess, token: str) -> tuple[int, Caller]:
        caller = await edge.connect()
        head = f"GET /api/v1/events HTTP/1.1\r\nHost: {caller.host}\r\nAuthorization: Bearer {token}\r\n\r\n"
        caller.writer.write(head.encode())
        return int((await caller.reader.readuntil(b"\r\n\r\n")).split()[1]), caller

    async def run(edge: EdgeProcess) -> None:
        got = [await stream(edge, "the-one-of-bolt-inc") for _ in range(200)]
        assert [status for status, _ in got].count(200) == 125, "a quarter of 500"
        assert {status for status, _ in got} == {200, 429}

        async def watch() -> None:
            status, caller = await stream(edge, "the-one-of-acme-inc")
            assert status == 200
            await caller.reader.readuntil(b"task_ended")
            caller.close()

        (await Victim(watch).run(5)).assert_answered()
        for _, caller in got:
            caller.close()

    with EdgeProcess(tokens_file=write_tokens(tmp_path / "t.toml")) as edge:
        asyncio.run(run(edge))
