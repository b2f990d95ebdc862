"""SQL tables served by processes: leaders are killed, files survive, nothing is done twice, no one waits for a bomb."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.freshness import at_least
from rsm_spark.sql import BlockingSqlClient, SqlClient, SqlError
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_store_cluster import run_cli
from tests.unit.rsm_spark.sql.sql_pair import contents

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")


async def test_every_transaction_is_done_once_while_leaders_are_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    rng = random.Random(1)
    done: list[int] = []
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, "--snapshot-s", "2", command=SQL)
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await client.transaction([
                "CREATE TABLE done (id INTEGER PRIMARY KEY AUTOINCREMENT, number, at DEFAULT CURRENT_TIMESTAMP)",
                "CREATE TABLE total (one INTEGER PRIMARY KEY, n INTEGER)",
                "CREATE TRIGGER count AFTER INSERT ON done BEGIN UPDATE total SET n = n + 1; END",
                "INSERT INTO total VALUES (1, 0)",
            ])  # fmt: skip
            is_over = False

            async def work(number: int) -> None:
                while not is_over:
                    await client.execute("INSERT INTO done (number) VALUES (?)", (number,))
                    done.append(number)

            workers = [asyncio.create_task(work(number)) for number in range(8)]
            for _ in range(3):
                before = len(done)
                while len(done) < before + 100:
                    await asyncio.sleep(0.02)
                killed = await replicas.leader()
                killed.kill()
                replicas.gone(killed.replica_id)
                await asyncio.sleep(rng.uniform(0.0, 1.0))
                replicas.start(killed.replica_id, "--snapshot-s", "2", command=SQL)
            is_over = True
            await asyncio.gather(*workers)
            found = await client.query("SELECT (SELECT n FROM total), count(*), count(DISTINCT id), max(id) FROM done")
            assert found.rows == ((len(done),) * 4,)
            said = await replicas.agree(found.revision)
            assert len({one["digest"] for one in said}) == 1
        paths = [tmp_path / name / "tables.db" for name in "abc"]
        for store in list(replicas.alive.values()):
            assert replicas.gone(store.replica_id).stop() == 0
    first, *others = (contents(path) for path in paths)
    assert len(first["done"]) == len(done)
    assert all(one == first for one in others)


async def test_a_replica_goes_on_with_its_file_and_an_empty_one_with_a_snapshot(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", "--snapshot-s", "1", command=SQL)
        async with await SqlClient.connect(log, uri, timeout_s=60) as client:
            await client.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
            await client.executemany("INSERT INTO t (v) VALUES (?)", [(n,) for n in range(500)])
            revision = (await client.query("SELECT 1")).revision
            replicas.gone("a").kill()
            again = replicas.start("a", "--snapshot-s", "1", command=SQL)
            assert again.ready["revision"] >= revision  # Before it has read the log.
            assert (await client.query("SELECT count(*), sum(v) FROM t")).rows == ((500, 124_750),)
            while not (await again.status())["snapshots"]:
                await client.execute("UPDATE t SET v = v + 1 WHERE id = 1")
                await asyncio.sleep(0.2)
            replicas.start("b", command=SQL)
            revision = (await client.query("SELECT 1")).revision
            await replicas.agree(revision)
            session = at_least(revision)
            async with await SqlClient.connect(log, replica=replicas.alive["b"].address) as follower:
                found = await follower.query("SELECT count(*) FROM t", read=session)
            assert found.rows == ((500,),)


async def test_commands_run_statements_and_scripts(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    script = tmp_path / "shop.sql"
    script.write_text(
        "-- a shop\nCREATE TABLE item (name TEXT PRIMARY KEY, stock INTEGER);\n"
        "CREATE TRIGGER lower AFTER INSERT ON item BEGIN UPDATE item SET name = lower(name); SELECT 1; END;\n"
        "INSERT INTO item VALUES ('Pen; blue', 5), ('Ink', x'00');\nSELECT name FROM item ORDER BY name;\n"
    )
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", command=SQL)
        code, lines = run_cli(uri, "sql", "script", str(script), "--log", log)
        assert code == 0
        assert lines[-2]["row_count"] == 2
        assert lines[-1]["rows"] == [["ink"], ["pen; blue"]]
        code, lines = run_cli(uri, "sql", "exec", "SELECT stock FROM item ORDER BY name", "--log", log)
        assert (code, lines[0]["columns"], lines[0]["rows"]) == (0, ["stock"], [["\x00"], [5]])
        assert run_cli(uri, "sql", "exec", "SELECT * FROM nothing", "--log", log)[0] == 1
        code, (status,) = run_cli(uri, "status", "--log", log)
        assert (code, status["machine"]) == (0, "sql")
        with BlockingSqlClient.connect(log, uri) as client:
            with pytest.raises(SqlError, match="UNIQUE constraint failed") as failed:
                client.transaction(["UPDATE item SET stock = 0", ("INSERT INTO item VALUES (?, 1)", ("ink",))])
            assert (failed.value.kind, failed.value.statement) == ("constraint", 1)
            assert client.execute("UPDATE item SET stock = stock + 1 WHERE name LIKE 'pen%'").row_count == 1
            with pytest.raises(SqlError, match="write \\(value,\\)"):
                client.query("SELECT ?", "abc")


async def test_clients_are_answered_while_one_sends_bombs(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    bomb = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with stores(uri, log, tmp_path) as replicas:
        store: StoreProcess = replicas.start("a", "--read-s-max", "0.5", "--command-s-max", "0.2", command=SQL)
        async with await SqlClient.connect(log, uri) as attacker, await SqlClient.connect(log, uri) as victim:
            await victim.execute("CREATE TABLE t (a)")
            faults: list[str] = []

            async def throw() -> None:
                for sql in (bomb, bomb.replace("SELECT count(*)", "INSERT INTO t SELECT i"), "SELECT zeroblob(1e9)"):
                    try:
                        await (attacker.execute(sql) if "INSERT" in sql else attacker.query(sql))
                    except SqlError as error:
                        faults.append(error.kind)

            throwing = [asyncio.create_task(throw()) for _ in range(3)]
            count = 0
            while not all(task.done() for task in throwing):
                await victim.execute("INSERT INTO t VALUES (1)")
                count += 1
                assert (await victim.query("SELECT count(*) FROM t")).rows == ((count,),)
            await asyncio.gather(*throwing)
            assert faults == ["limit"] * 9
            assert count > 0
            assert (await store.status())["role"] == "leader"
