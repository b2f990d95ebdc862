"""Somebody holds SQL transactions open, as many as he is given, and works in all: who is beside him is served."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.sql import InteractiveTransaction, SqlClient, SqlError
from rsm_spark.transport.security import Security
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, t"


def logins(folder: Path) -> tuple[Path, dict[str, Security]]:
    """Return a file of two principals, and what each shows."""
    entries, shown = "", {}
    for name in ("holder", "victim"):
        token = folder / f"{name}.token"
        token.write_text(f"{name}-{'x' * 20}\n")
        digest = hashlib.sha256(token.read_text().strip().encode()).hexdigest()
        entries += f'[[principal]]\nname = "{name}"\nrole = "client"\naccess = "write"\ntokens = ["{digest}"]\n'
        shown[name] = Security(token_file=str(token))
    path = folder / "principals.toml"
    path.write_text(entries)
    return path, shown


async def _take_all(client: SqlClient, held: list[InteractiveTransaction]) -> None:
    while True:
        held.append(await client.begin())


async def test_a_victim_is_served_beside_one_who_holds_transactions_open(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    principals, shown = logins(tmp_path)
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", "--read-s-max", "2", "--principals", str(principals), command=SQL)
        async with (
            await SqlClient.connect(log, uri, security=shown["holder"]) as holder,
            await SqlClient.connect(log, uri, security=shown["victim"]) as victim,
        ):
            await victim.transaction(["CREATE TABLE t (id INTEGER PRIMARY KEY, n)", "INSERT INTO t VALUES (1, 0)"])
            held: list[InteractiveTransaction] = []
            with pytest.raises(SqlError, match="are open") as refused:
                await _take_all(holder, held)
            assert (len(held), refused.value.kind) == (16, "limit")
            for one in held:
                await one.execute("UPDATE t SET n = -1")
            stolen = await victim.begin()
            stolen._name = held[0]._name  # Somebody else's transaction is none.
            with pytest.raises(SqlError, match="no such transaction"):
                await stolen.execute("SELECT n FROM t")
            bombs = [asyncio.create_task(one.execute(BOMB)) for one in held]
            for number in range(20):
                async with victim.interactive() as tx:
                    assert (await tx.execute("SELECT n FROM t")).rows == ((number,),)
                    await tx.execute("UPDATE t SET n = n + 1")
                assert (await victim.query("SELECT n FROM t")).rows == ((number + 1,),)
            assert not all(bomb.done() for bomb in bombs)
            ended = await asyncio.gather(*bombs, return_exceptions=True)
            assert all(isinstance(one, SqlError) for one in ended), ended
            assert {one.kind for one in ended if isinstance(one, SqlError)} <= {"limit", "aborted"}
            assert (await victim.query("SELECT n FROM t")).rows == ((20,),)
