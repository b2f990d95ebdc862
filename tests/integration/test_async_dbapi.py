"""The DB-API for programs with an event loop, on a real replica, and SQLAlchemy's asynchronous engine over it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from ledger.dev import DevCluster
from rsm_spark.sql import AsyncDatabaseConnection, InterfaceError, connect_async, dbapi
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000) SELECT i FROM n"


async def test_connections_cursors_and_engines_for_event_loops(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", command=SQL)
        connection = await connect_async(uri, log=log)
        other = await connect_async(uri, log=log, autocommit=True)
        await _transactions(connection, other)
        await _rows(other)
        await connection.close()
        for call in (connection.close(), connection.commit(), connection.execute("SELECT 1")):
            with pytest.raises(InterfaceError, match="closed"):
                await call
        await other.close()
        await _engine(uri, log)


async def _transactions(connection: AsyncDatabaseConnection, other: AsyncDatabaseConnection) -> None:
    await connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, v TEXT UNIQUE)")
    await connection.commit()
    cursor = connection.cursor()
    await cursor.executemany("INSERT INTO kept (v) VALUES (?)", [("a",), ("b",)])
    assert (cursor.rowcount, cursor.lastrowid, connection.in_transaction) == (2, 2, True)
    assert await (await other.execute("SELECT count(*) FROM kept")).fetchone() == (0,)
    with pytest.raises(dbapi.IntegrityError, match="UNIQUE"):
        await cursor.execute("INSERT INTO kept (v) VALUES (:v)", {"v": "a"})
    with pytest.raises(InterfaceError, match="transaction is open"):
        connection.autocommit = True
    await connection.commit()
    with pytest.raises(ZeroDivisionError):
        await _fail_in_a_block(connection)
    async with connection:
        await connection.execute("UPDATE kept SET v = 'c' WHERE v = 'b'")
    found = await other.execute("SELECT v FROM kept ORDER BY v")
    assert ([row async for row in found], found.rowcount) == ([("a",), ("c",)], 2)
    # Of two transactions that read and write the same row the first to commit succeeds.
    for one in (connection, other):
        one.autocommit = False
        await one.execute("UPDATE kept SET v = v || '!' WHERE id = 1 RETURNING v")
    await connection.commit()
    with pytest.raises(dbapi.RetryableTransactionError):
        await other.commit()
    other.autocommit = True


async def _fail_in_a_block(connection: AsyncDatabaseConnection) -> None:
    async with connection:
        await connection.execute("DELETE FROM kept")
        raise ZeroDivisionError


async def _rows(other: AsyncDatabaseConnection) -> None:
    async with other.cursor() as cursor:
        await cursor.execute(NUMBERS)
        assert (cursor.rowcount, await cursor.fetchmany(3)) == (-1, [(1,), (2,), (3,)])
        assert sum([number async for (number,) in cursor]) == 50_000 * 50_001 // 2 - 6
        await cursor.execute(NUMBERS)
        table = await cursor.fetch_arrow_table()
        assert table.num_rows == 50_000
        await cursor.execute("UPDATE kept SET v = v")
        with pytest.raises(dbapi.ProgrammingError, match="no rows"):
            await cursor.fetchone()
    with pytest.raises(InterfaceError, match="cursor is closed"):
        await cursor.execute("SELECT 1")


async def _engine(uri: str, log: str) -> None:
    engine = create_async_engine(f"rsm:///{log}", async_creator=lambda: connect_async(uri, log=log))
    item = sa.Table(
        "item", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text, unique=True)
    )
    async with engine.begin() as tx:
        await tx.run_sync(item.metadata.create_all)
        await tx.execute(sa.insert(item), [{"name": f"n{n}"} for n in range(10)])
        names = await tx.run_sync(lambda one: sa.inspect(one).get_table_names())
    assert sorted(names) == ["item", "kept"]

    async def rename(number: int) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sa.update(item).where(item.c.id == number).values(name=f"m{number}"))

    await asyncio.gather(*(rename(number) for number in range(1, 6)))
    plain = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with plain.connect() as tx:
        found = await tx.execute(sa.select(item.c.name).where(item.c.name.like("m%")).order_by(item.c.id))
        assert found.scalars().all() == [f"m{number}" for number in range(1, 6)]
    async with engine.connect() as tx:
        with pytest.raises(sa.exc.IntegrityError):
            await tx.execute(sa.insert(item).values(name="m1"))
    await engine.dispose()
