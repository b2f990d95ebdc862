"""Interactive transactions of real processes: leaders end or freeze, histories are checked, holders harm nobody."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.sql import (
    BlockingSqlClient,
    InteractiveTransaction,
    SqlAbortedError,
    SqlClient,
    SqlConflictError,
    SqlError,
)
from rsm_spark.testing.list_append import AppendOutcome, AppendTransaction, check_lists
from tests.integration.sql_callers import TABLES, TOTALS, SqlCaller, check_totals
from tests.integration.store_processes import stores
from tests.integration.test_store_cluster import run_cli

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")


async def delete_all_and_fail(client: SqlClient) -> None:
    async with client.interactive() as tx:
        await tx.execute("DELETE FROM t")
        await tx.execute("SELECT * FROM nothing")


async def test_blocks_commit_roll_back_conflict_and_end_in_time(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", "--transaction-idle-s", "1", "--transaction-s-max", "3", command=SQL)
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await client.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
            async with client.interactive() as tx:
                assert (await tx.execute("INSERT INTO t (v) VALUES ('a')")).last_rowid == 1
                assert await tx.executemany("INSERT INTO t (v) VALUES (?)", [(n,) for n in range(1200)]) == 1200
                assert (await tx.execute("SELECT count(*) FROM t")).rows == ((1201,),)
                assert (await client.query("SELECT count(*) FROM t")).rows == ((0,),)
            assert (await client.query("SELECT count(*) FROM t")).rows == ((1201,),)
            with pytest.raises(SqlError, match="nothing"):
                await delete_all_and_fail(client)
            first, second = await client.begin(), await client.begin()
            for one in (first, second):
                ((count,),) = (await one.execute("SELECT count(*) FROM t")).rows
                await one.execute("INSERT INTO t (v) VALUES (?)", (count,))
            assert await first.commit() > 0
            with pytest.raises(SqlConflictError, match="statement 0"):
                await second.commit()
            idle = await client.begin()
            await idle.execute("DELETE FROM t")
            await asyncio.sleep(1.5)
            with pytest.raises(SqlAbortedError, match="waited for its client for longer than 1 s"):
                await idle.execute("SELECT 1 FROM t")
            long = await client.begin()

            async def hold() -> None:
                while True:
                    await long.execute("UPDATE t SET v = 1 WHERE id = 1")
                    await asyncio.sleep(0.2)

            with pytest.raises(SqlAbortedError, match="open for longer than 3 s"):
                await hold()

            async def add(tx: InteractiveTransaction) -> None:
                ((n,),) = (await tx.execute("SELECT v FROM t WHERE id = 1")).rows
                await tx.execute("UPDATE t SET v = ? WHERE id = 1", (n + 1,))

            await client.execute("UPDATE t SET v = 0 WHERE id = 1")
            await asyncio.gather(*(client.retry(add, attempts=100) for _ in range(10)))
            found = await client.query("SELECT count(*), (SELECT v FROM t WHERE id = 1) FROM t")
            assert found.rows == ((1202, 10),)
        with BlockingSqlClient.connect(log, uri) as blocking, blocking.interactive() as kept:
            assert kept.execute("UPDATE t SET v = 'kept' WHERE id = 2").row_count == 1


async def test_histories_are_strictly_serializable_while_leaders_are_killed_and_frozen(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    rng = random.Random(7)
    history: list[AppendTransaction] = []
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, "--snapshot-s", "2", command=SQL)
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(await SqlClient.connect(log, uri, timeout_s=60)) for _ in range(3)
            ]
            await clients[0].transaction(TABLES)
            callers = [SqlCaller(clients[n % 3], random.Random(n), history, "abcdef"[n]) for n in range(6)]
            is_over = False

            async def work(caller: SqlCaller) -> None:
                while not is_over:
                    await caller.work()

            workers = [asyncio.create_task(work(caller)) for caller in callers]
            for is_frozen in (False, True, False, True):
                enough = len(history) + 120
                while len(history) < enough and not any(one.done() for one in workers):
                    await asyncio.sleep(0.02)
                victim = await replicas.leader()
                if is_frozen:  # What it had under way goes on when it wakes, perhaps beside another leader.
                    victim.pause()
                    await asyncio.sleep(rng.uniform(1.0, 6.0))
                    victim.resume()
                    continue
                victim.kill()
                replicas.gone(victim.replica_id)
                await asyncio.sleep(rng.uniform(0.0, 1.0))
                replicas.start(victim.replica_id, "--snapshot-s", "2", command=SQL)
            is_over = True
            await asyncio.gather(*workers)
            last = SqlCaller(clients[0], rng, history, "z")
            await last.look()
            found = await clients[0].query(TOTALS)
            said = await replicas.agree(found.revision)
    assert len({one["digest"] for one in said}) == 1
    check_totals(found.rows[0], [total for caller in (*callers, last) for total in caller.totals])
    fates = Counter(one.fate for one in history)
    print(dict(fates))
    assert fates[AppendOutcome.OK] > 100
    assert fates[AppendOutcome.FAILED] > 0
    assert check_lists(history) == []


async def test_a_script_may_begin_and_commit(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    script = tmp_path / "shop.sql"
    script.write_text(
        "CREATE TABLE t (a);\nBEGIN IMMEDIATE;\nINSERT INTO t VALUES (1);\nSELECT count(*) FROM t;\nSAVEPOINT s;\n"
        "INSERT INTO t VALUES (2);\nROLLBACK TO s;\nEND;\nBEGIN; DELETE FROM t; ROLLBACK;\nSELECT count(*) FROM t;\n"
    )
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", command=SQL)
        code, lines = run_cli(uri, "sql", "script", str(script), "--log", log)
        assert code == 0
        assert [line["rows"] for line in lines if "rows" in line] == [[[1]], [[1]]]
        for text in ("BEGIN; DELETE FROM t;", "COMMIT;", "BEGIN; BEGIN;"):
            script.write_text(text)
            assert run_cli(uri, "sql", "script", str(script), "--log", log)[0] != 0
        assert run_cli(uri, "sql", "exec", "SELECT * FROM t", "--log", log)[1][0]["rows"] == [[1]]
