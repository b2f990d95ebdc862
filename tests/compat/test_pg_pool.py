"""Pools of psycopg's connections on a follower of SQL tables, with and without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_CALLERS = 8
_WRITES = 10


@pytest.fixture
def address(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[str]:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at: dict[str, Any] = [place(serve(replicas, name)) for name in "ab"][1]
        told = f"host={at['host']} port={at['port']} dbname={at['dbname']} user=ann"

        def make() -> None:
            with psycopg.connect(told, autocommit=True) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS visit (id SERIAL PRIMARY KEY, who TEXT, number INT)")

        until_led(make)
        yield told


def test_threads_share_a_pool(address: str) -> None:
    with ConnectionPool(address, min_size=2, max_size=4, open=True, check=ConnectionPool.check_connection) as pool:
        pool.wait(60)
        faults: list[BaseException] = []

        def visit(caller: int) -> None:
            try:
                for number in range(_WRITES):
                    with pool.connection() as connection:
                        connection.autocommit = True
                        connection.execute("INSERT INTO visit (who, number) VALUES (%s, %s)", (f"t{caller}", number))
            except BaseException as fault:  # noqa: BLE001 - of a thread, for the test
                faults.append(fault)

        callers = [threading.Thread(target=visit, args=(caller,)) for caller in range(_CALLERS)]
        for one in callers:
            one.start()
        for one in callers:
            one.join()
        assert faults == []
        with pytest.raises(ZeroDivisionError), pool.connection() as connection:
            _fail_behind(connection)
        with pool.connection() as connection:
            assert connection.execute("SELECT count(*), count(DISTINCT who) FROM visit").fetchone() == (80, _CALLERS)


@pytest.mark.asyncio
async def test_tasks_share_a_pool(address: str) -> None:
    async with AsyncConnectionPool(address, min_size=2, max_size=4, open=False, kwargs={"autocommit": True}) as pool:
        await pool.wait(60)

        async def visit(caller: int) -> None:
            for number in range(_WRITES):
                async with pool.connection() as connection:
                    await connection.execute("INSERT INTO visit (who, number) VALUES (%s, %s)", (f"a{caller}", number))

        await asyncio.gather(*(visit(caller) for caller in range(_CALLERS)))
        async with pool.connection() as connection:
            found = await connection.execute("SELECT count(*), count(DISTINCT who) FROM visit")
            assert await found.fetchone() == (_CALLERS * _WRITES, _CALLERS)


def _fail_behind(connection: psycopg.Connection[Any]) -> None:
    connection.autocommit = False
    connection.execute("DELETE FROM visit")
    raise ZeroDivisionError
