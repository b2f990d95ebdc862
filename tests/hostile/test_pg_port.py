"""Clients of PostgreSQL's protocol that ask for very much, or for nonsense: others are served beside them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.dev import DevCluster
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.store_processes import Stores, stores
from tests.integration.test_pg_port import TOKENS, place, principals_of, serve, until_led
from tests.unit.rsm_spark.sql.pg import pg_bytes as b

pytestmark = pytest.mark.asyncio

_CALLS, _UNITS = 20, 60
_THREADS = 3
_FEW_BYTES = {"large results", "nothing read", "bombs"}
"""Of these packets the buffers of the system hold some ten thousand: how many were sent says nothing."""
_GROWTH_MIB_MAX = 700


@asynccontextmanager
async def served(cluster: DevCluster, log: str, folder: Path) -> AsyncIterator[tuple[Stores, dict[str, Any]]]:
    """A replica with principals: a client attacks, a reader is beside it."""
    with stores(cluster.metadata_uri, log, folder) as replicas:
        yield replicas, place(serve(replicas, "a", *principals_of(folder)))


def _open(at: dict[str, Any]) -> socket.socket:
    return socket.create_connection((at["host"], at["port"]), timeout=10)


def _logged_in(at: dict[str, Any]) -> socket.socket:
    """Return a connection that has logged in by its token, as one who writes."""
    found = _open(at)
    found.sendall(b.startup(user="replica", database=at["dbname"]))
    _until(found, b"R\0\0\0\x08\0\0\0\3")
    found.sendall(b.frame(b"p", b"token-of-the-replica-0123456789\0"))
    _until(found, b"Z\0\0\0\5I")
    return found


def _until(of: socket.socket, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        part = of.recv(65_536)
        if not part:
            raise ConnectionResetError(said)
        said += part
    return said


def _sends(text: Callable[[], bytes], *, reads: bool = True) -> Callable[[dict[str, Any], Work], None]:
    """Send the same again and again over one connection, with or without reading what comes back.

    A unit is a packet that was taken, or not within a second.
    """

    def attack(at: dict[str, Any], work: Work) -> None:
        with _logged_in(at) as found:
            found.settimeout(1.0)
            packet = text()
            if reads:
                threading.Thread(target=_swallow, args=(found.dup(),), daemon=True).start()
            while not work.is_over:
                work.add()
                found.sendall(packet)

    return attack


def _swallow(of: socket.socket) -> None:
    with of, contextlib.suppress(OSError):
        while of.recv(1_000_000):
            pass


def _texts() -> bytes:
    """Texts that sqlglot has to read, each another one."""
    mark = os.urandom(8).hex()
    items = ", ".join(f"a{n}::int + now()" for n in range(200))
    return b"".join(b.query(f"SELECT {items}, 'x{mark}{n}'") for n in range(20))


def _strangers(at: dict[str, Any], work: Work) -> None:
    """Take seats and say little, or nonsense. A unit is a seat."""
    held: list[socket.socket] = []
    for n in range(60):
        with contextlib.suppress(OSError):
            held.append(found := _open(at))
            work.add()
            found.sendall((b"\0", b"GET / HTTP/1.1\r\n\r\n", b.startup(user="ann", database="x"), b"\0\0\0\x08")[n % 4])
            if n % 4 == 2:
                found.sendall(b.frame(b"p", os.urandom(5_000)) * 10)
    time.sleep(0.5)
    for found in held:
        found.close()


def _cancels(at: dict[str, Any], work: Work) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), _open(at) as found:
            found.sendall(struct.pack("!ii", 16, 80877102) + os.urandom(8))
            work.add()


_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, hex(zeroblob(200)) FROM n"


def _slow_readers(at: dict[str, Any], work: Work) -> None:
    """Ask for results without end over ten connections, and take a few bytes of each. A unit is such a taking."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_logged_in(at)) for _ in range(10)]
        for found in opened:
            found.sendall(b.query(_ENDLESS))
        while not work.is_over:
            for found in opened:
                work.add(bool(found.recv(100)))
            time.sleep(0.01)


_SMALL = b.parse("", "SELECT 1") + b.bind("", "") + b.describe("P", "") + b.execute("")
_ATTACKS: dict[str, Callable[[dict[str, Any], Work], None]] = {
    "syncs": _sends(lambda: b.SYNC * 50_000),
    "prepared": _sends(lambda: (b.parse("", "SELECT 1 -- x") + b.bind("", "")) * 2_000 + b.SYNC),
    "small queries": _sends(lambda: _SMALL * 500 + b.SYNC),
    "batches": _sends(
        lambda: (
            b.parse("", "INSERT INTO t (v) VALUES ($1)") + (b.bind("", "", b"x" * 500) + b.execute("")) * 200 + b.SYNC
        )
    ),
    "texts": _sends(_texts),
    "semicolons": _sends(lambda: b.query(";" * 200_000)),
    "large results": _sends(
        lambda: b.query("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000) SELECT x FROM n")
    ),
    "nothing read": _sends(lambda: b.query("SELECT hex(zeroblob(500000))"), reads=False),
    "bombs": _sends(
        lambda: b.query("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")
    ),
    "strangers": _strangers,
    "cancels": _cancels,
}
_OF_RESULTS: dict[str, Callable[[dict[str, Any], Work], None]] = {
    "slow readers": _slow_readers,
    "open portals": _sends(
        lambda: (
            b.parse("s", _ENDLESS)
            + b"".join(b.bind(f"p{n}", "s") + b.execute(f"p{n}", 1) for n in range(100))
            + b.SYNC
            + b.close("S", "s")
            + b.SYNC
        )
    ),
}
"""Of results in slices, that are not read on."""
_OF_COPIES: dict[str, Callable[[dict[str, Any], Work], None]] = {
    "a line without end": _sends(lambda: b.query("COPY t (v) FROM STDIN") + b.frame(b"d", b"x" * 100_000) * 50),
    "copies that end": _sends(
        lambda: b.query("COPY t (v) FROM STDIN") + b.frame(b"d", b"y\n" * 5_000) * 3 + b.frame(b"c")
    ),
    "copies in pieces": _sends(
        lambda: b.query("COPY t (v) FROM STDIN csv") + b.frame(b"d", b'"') * 20_000 + b.frame(b"c")
    ),
}
"""Of copies that are too large, or never whole."""
_BINARY_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def _binary_copy(*parts: bytes) -> bytes:
    return b.query("COPY t (v) FROM STDIN (FORMAT binary)") + b"".join(b.frame(b"d", one) for one in parts)


_OF_BINARY_COPIES: dict[str, Callable[[dict[str, Any], Work], None]] = {
    "a row without end": _sends(
        lambda: _binary_copy(_BINARY_BEGIN, b"\0\1\0\x1f\0\0") + b.frame(b"d", b"x" * 100_000) * 50
    ),
    "a row in pieces": _sends(
        lambda: _binary_copy(_BINARY_BEGIN, b"\0\1\0\1\0\0") + b.frame(b"d", b"x") * 20_000 + b.frame(b"c")
    ),
    "sizes and counts that lie": _sends(
        lambda: b"".join(
            _binary_copy(lie) + b.frame(b"c")
            for lie in (
                _BINARY_BEGIN + b"\0\1\x7f\xff\xff\xff", _BINARY_BEGIN + b"\x7f\xff",
                _BINARY_BEGIN[:15] + b"\x7f\xff\xff\xff",
            )
        ) * 300
    ),
}  # fmt: skip
"""Likewise, in binary."""


@contextlib.contextmanager
def _attacking(attack: Callable[[dict[str, Any], Work], None], at: dict[str, Any], work: Work) -> Iterator[None]:
    def run() -> None:
        while not work.is_over:
            with contextlib.suppress(OSError):
                attack(at, work)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        work.wait_for(1)
        yield
    finally:
        work.end()
        for thread in threads:
            thread.join(60)


async def test_others_are_served_beside_who_asks_for_very_much(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _served_beside(_ATTACKS, cluster, unique_name, tmp_path)


async def test_others_are_served_beside_results_that_nobody_reads_on(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _served_beside(_OF_RESULTS, cluster, unique_name, tmp_path)


async def test_others_are_served_beside_copies_that_are_too_much(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _served_beside(_OF_COPIES, cluster, unique_name, tmp_path)


async def test_others_are_served_beside_binary_copies_that_are_too_much(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _served_beside(_OF_BINARY_COPIES, cluster, unique_name, tmp_path)


async def _served_beside(
    attacks: dict[str, Callable[[dict[str, Any], Work], None]], cluster: DevCluster, log: str, folder: Path
) -> None:
    async with served(cluster, log, folder) as (replicas, at):
        pid = replicas.alive["a"].process.pid
        ann = {**at, "user": "ann", "password": TOKENS["ann"]}

        def fill() -> None:
            with psycopg.connect(**ann) as connection:
                until_led(lambda: connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)"))

        await asyncio.to_thread(fill)
        async with await psycopg.AsyncConnection.connect(**ann) as connection:

            async def ask() -> None:
                made = await connection.execute("INSERT INTO t (v) VALUES ('victim') RETURNING id")
                (number,) = await made.fetchone() or (0,)
                found = await connection.execute("SELECT v FROM t WHERE id = %s", (number,))
                assert await found.fetchone() == ("victim",)

            victim = Victim(ask, servers=[pid])
            quiet = await victim.run(_CALLS)
            before = resident_mib(pid)
            for name, attack in attacks.items():
                work = Work()
                with _attacking(attack, at, work):
                    attacked = await victim.run(_CALLS, beside=work, units=_UNITS)
                    grown = resident_mib(pid) - before
                print(f"{name}: grown by {grown:.0f} MiB")
                try:
                    units = None if name in _FEW_BYTES else 4_000
                    attacked.assert_goes_on_like(quiet, units_per_call=units, longest=20_000, cpu=2_000.0)
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from None
                assert grown < _GROWTH_MIB_MAX, name
        assert replicas.alive["a"].process.poll() is None


async def test_who_does_not_log_in_in_time_is_cut(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    async with served(cluster, unique_name, tmp_path) as (_, at):

        def wait(said: bytes) -> float:
            with _open(at) as found:
                found.settimeout(60)
                found.sendall(said)
                began = time.monotonic()
                while found.recv(1_000):
                    pass
                return time.monotonic() - began

        said = [b"\0", b.startup(user="rob", database=at["dbname"]), struct.pack("!ii", 8, 80877104)]
        times = await asyncio.gather(*(asyncio.to_thread(wait, one) for one in said))
        assert min(times) > 5, "it has some time"


async def test_words_before_tls_are_not_taken_for_words_behind_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    from tests.unit.ledger.bookie.test_tls import Authority

    cert = Authority(tmp_path, "authority").sign("replica")
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a", "--tls-cert", cert["cert"], "--tls-key", cert["key"]))
        with _open(at) as found:
            found.sendall(struct.pack("!ii", 8, 80877103) + b.startup(user="ann", database=at["dbname"]))
            said = b""
            while part := found.recv(1_000):
                said += part
        assert b"08P01" in said
