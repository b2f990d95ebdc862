"""SQL tables in the process of a replica: reads from its own file, at every level, while another replica writes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.freshness import LINEARIZABLE, STALE, at_least, bounded
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.sql import SqlClient, SqlError
from rsm_spark.sql.embedded import SqlReplica
from rsm_spark.sql.limits import SqlSettings
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def test_a_program_reads_its_own_replicas_file(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        leader = replicas.start("a", command=SQL)
        async with (
            await SqlClient.connect(log, uri) as ann,
            await SqlReplica.open(log, tmp_path / "b", uri, sql=SqlSettings(read_ms_max=300)) as shop,
        ):
            await ann.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
            await ann.execute("INSERT INTO t VALUES (1, 0)")
            for number in range(1, 30):
                one = ann if number % 2 else shop.client
                assert (await one.execute("UPDATE t SET n = ?", (number,))).row_count == 1
                # What was acknowledged is seen, by a replica that follows.
                assert (await shop.query("SELECT n FROM t")).rows == ((number,),)
            found = await shop.query("SELECT n FROM t WHERE id = :id", {"id": 1}, read=STALE)
            assert (found.columns, found.rows) == ((("n", "INTEGER"),), ((29,),))
            for level in (at_least(found.revision), bounded(max_lag_ms=60_000)):
                assert (await shop.query("SELECT n FROM t", read=level)).rows == ((29,),)
            with pytest.raises(NotLeaderError):
                await shop.query("SELECT n FROM t", read=LINEARIZABLE)
            assert shop.read("SELECT n FROM t").revision >= found.revision
            for wrong, words in (("DELETE FROM t", "it writes"), ("SELECT * FROM missing", "no such table")):
                with pytest.raises(SqlError, match=words):
                    shop.read(wrong)
            with pytest.raises(SqlError, match="takes longer"):
                await shop.query(BOMB)
            # System tables are made for `query`, and joined with others; `read` asks nobody.
            asked = "SELECT role, t.n FROM rsm_nodes, t WHERE name = ?"
            assert (await shop.query(asked, ("a",))).rows == (("leader", 29),)
            assert (await shop.query("SELECT count(*) FROM rsm_ledgers", read=STALE)).rows == ((1,),)
            with pytest.raises(SqlError, match="no such table: rsm_nodes"):
                shop.read(asked, ("a",))
            await asyncio.to_thread(_read_in_threads, shop)
            leader.kill()  # This process leads now.
            await shop.client.execute("UPDATE t SET n = n + 1")
            assert (await shop.query("SELECT n FROM t", read=LINEARIZABLE)).rows == ((30,),)
        await shop.close()
        with pytest.raises(RsmError, match="closed"):
            shop.read("SELECT 1")
        with pytest.raises(RsmError, match="closed"):
            await shop.query("SELECT 1", read=STALE)


def _read_in_threads(shop: SqlReplica) -> None:
    seen: list[object] = []

    def work() -> None:
        for _ in range(200):
            seen.append(shop.read("SELECT n FROM t WHERE id = ?", (1,)).rows)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [((29,),)] * 800
