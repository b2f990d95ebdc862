"""Results that are larger than a message, of replicas that are processes: read in slices, on any door."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

import rsm_spark.sql as db
from ledger.dev import DevCluster
from rsm_spark.sql import BlockingSqlClient, SqlAbortedError, SqlClient
from tests.hostile.victim import resident_mib
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve

pytestmark = pytest.mark.asyncio
_COUNT = 40_000
_FILL = (
    "INSERT INTO big SELECT i, printf('%0200d', i) FROM (WITH RECURSIVE n(i) AS "
    "(SELECT ? UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT i FROM n)"
)
PATIENT = ("--command-s-max", "60")
"""The machine may be busy with other things while the table is filled."""
ALL = "SELECT id, v FROM big ORDER BY id"


async def filled(client: SqlClient) -> None:
    """Make a table whose rows are some eight MiB."""
    await client.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, v TEXT)")
    for first in range(1, _COUNT, 2_000):
        await client.execute(_FILL, (first,))


async def test_a_large_result_is_read_by_every_door(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        started = [serve(replicas, name, *PATIENT) for name in "ab"]
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await filled(client)
            async with await client.rows(ALL) as rows:
                revision = rows.revision
                seen = 0
                async for number, text in rows:
                    seen += 1
                    assert (number, int(text)) == (seen, seen)
                    if seen == 10:
                        await client.execute("UPDATE big SET v = 'new' WHERE id > ?", (_COUNT - 2_000,))
                assert seen == _COUNT, "all of them show the commit at which it began"
            await client.execute("UPDATE big SET v = printf('%0200d', id) WHERE v = 'new'")
            async with await SqlClient.connect(log, replica=started[1].address, timeout_s=60) as fixed:
                await replicas.agree(revision + 1)
                async with await fixed.rows("SELECT count(*) FROM big") as rows:
                    assert await rows.next_rows()
            await replicas.agree((await client.query("SELECT 1")).revision)
        await asyncio.to_thread(_by_dbapi, uri, log)
        for one in started:
            await asyncio.to_thread(_by_psycopg, place(one))
        await _by_asyncpg(place(started[0]))


def _by_dbapi(uri: str, log: str) -> None:
    with contextlib.closing(db.connect(uri, log=log, autocommit=True, timeout_s=60)) as connection:
        cursor = connection.execute(ALL)
        assert cursor.rowcount == -1
        assert cursor.description is not None
        assert [column[0] for column in cursor.description] == ["id", "v"]
        assert [row[0] for row in cursor.fetchmany(5)] == [1, 2, 3, 4, 5]
        assert cursor.fetchone() == (6, f"{6:0200d}")
        assert [row[0] for row in cursor.fetchmany(20_000)] == list(range(7, 20_007))
        assert [row[0] for row in cursor] == list(range(20_007, _COUNT + 1))
        assert cursor.fetchall() == []
        assert connection.execute("SELECT 1").rowcount == 1
        cursor.execute(ALL)
        cursor.close()  # It is not read on.
    with BlockingSqlClient.connect(log, uri, timeout_s=60) as client, client.rows(ALL) as rows:
        assert [name for name, _ in rows.columns] == ["id", "v"]
        assert sum(1 for _ in rows) == _COUNT


def _by_psycopg(at: dict[str, Any]) -> None:
    with psycopg.connect(**at, user="ann") as connection:
        found = connection.execute(ALL).fetchall()
        assert [row[0] for row in found] == list(range(1, _COUNT + 1))
        with connection.cursor() as cursor:
            streamed = cursor.stream(ALL, size=100)
            assert [next(streamed)[0] for _ in range(3)] == [1, 2, 3]
            assert sum(1 for _ in streamed) == _COUNT - 3
        assert connection.execute("SELECT 1").fetchone() == (1,)


async def _by_asyncpg(at: dict[str, Any]) -> None:
    one = await asyncpg.connect(host=at["host"], port=at["port"], database=at["dbname"], user="ann")
    try:
        assert len(await one.fetch(ALL)) == _COUNT
    finally:
        await one.close()


async def test_a_result_ends_with_its_leader_and_is_begun_again(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            serve(replicas, name, *PATIENT)
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await filled(client)
            rows = await client.rows(ALL)
            assert await rows.next_rows()
            (await replicas.leader()).kill()
            with pytest.raises(SqlAbortedError):
                [row async for row in rows]
            async with await client.rows(ALL) as again:
                assert len([row async for row in again]) == _COUNT


async def test_memory_is_bounded_whatever_the_size_of_results(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """Twenty readers of eight MiB each, of which nobody reads on: the replica keeps a slice for each."""
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        started = serve(replicas, "a", "--results-max", "128", *PATIENT)
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await filled(client)
            await client.query("SELECT count(*) FROM big")
            before = resident_mib(started.process.pid)
            opened = [await client.rows(ALL) for _ in range(20)]
            for rows in opened:
                assert await rows.next_rows()
                assert await rows.next_rows()
            grown = resident_mib(started.process.pid) - before
            assert grown < 100, f"{grown:.0f} MiB for results of 160 MiB"
            for rows in opened:
                await rows.close()
            assert (await client.query("SELECT count(*) FROM big")).rows == ((_COUNT,),)
