"""System tables at every door of replicas that are processes: the same rows, joined with tables, by right."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.dev import DevCluster
from rsm_spark.core.freshness import STALE
from rsm_spark.sql import SqlClient, SqlError, connect
from rsm_spark.transport.security import Security
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_pg_port import place
from tests.integration.test_sql_http import ask

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
PLACES = "SELECT n.name, n.role, p.town FROM rsm_nodes n JOIN place p ON p.node = n.name ORDER BY n.name"
LOCKS = "SELECT owner, is_own, waits_for FROM rsm_locks WHERE kind = 'transaction' ORDER BY owner NULLS LAST"


def logins(folder: Path) -> tuple[list[str], dict[str, str], dict[str, Security]]:
    """Return options of replicas with principals, and each one's token and what it shows."""
    roles = {
        "replica": "replica",
        "ann": 'client"\naccess = "write',
        "bob": 'client"\naccess = "read',
        "ops": "operator",
    }
    entries, tokens, shown = "", {}, {}
    for name, role in roles.items():
        tokens[name] = f"{name}-{'x' * 20}"
        path = folder / f"{name}.token"
        path.write_text(tokens[name])
        path.chmod(0o600)
        digest = hashlib.sha256(tokens[name].encode()).hexdigest()
        entries += f'[[principal]]\nname = "{name}"\nrole = "{role}"\ntokens = ["{digest}"]\n'
        shown[name] = Security(token_file=str(path))
    principals = folder / "principals.toml"
    principals.write_text(entries)
    principals.chmod(0o600)
    return ["--token-file", str(folder / "replica.token"), "--principals", str(principals)], tokens, shown


async def test_every_door_shows_them(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    rights, tokens, shown = logins(tmp_path)
    options = (*rights, "--http-port", "0", "--pg-port", "0", "--transaction-idle-s", "60", "--transaction-s-max", "90")
    with stores(uri, log, tmp_path) as replicas:
        one, two = (replicas.start(name, *options, command=SQL) for name in "ab")
        async with (
            await SqlClient.connect(log, uri, security=shown["ann"]) as ann,
            await SqlClient.connect(log, uri, security=shown["bob"]) as bob,
            await SqlClient.connect(log, uri, security=shown["ops"]) as ops,
        ):
            await ann.transaction(
                ["CREATE TABLE place (node, town)", "INSERT INTO place VALUES ('a', 'x'), ('b', 'y')"]
            )
            found = (await ann.query(PLACES)).rows
            assert [(name, town) for name, _, town in found] == [("a", "x"), ("b", "y")]
            assert sorted(role for _, role, _ in found) == ["follower", "leader"]
            leader, follower = (one, two) if found[0][1] == "leader" else (two, one)

            def doors(asked: str) -> list[list[tuple[Any, ...]]]:
                """Ask the other doors, as ann."""
                seen = []
                for store in (leader, follower):
                    at = place(store) | {"user": "ann", "password": tokens["ann"]}
                    with psycopg.connect(**at) as pg:
                        seen += [pg.execute(asked).fetchall(), pg.execute(asked, prepare=True).fetchall()]
                        with pg.transaction():
                            assert len(pg.execute("SELECT * FROM rsm_ledgers").fetchall()) == 1
                    status, answer = ask(store, {"sql": asked}, tokens["ann"])
                    assert status == 200, answer
                    seen.append([tuple(row) for row in answer["results"][0]["rows"]])
                for autocommit in (True, False):
                    with connect(uri, log=log, autocommit=autocommit, security=shown["ann"]) as db:
                        if autocommit:
                            seen.append(db.execute(asked).fetchall())
                        else:
                            assert db.execute("SELECT count(*) FROM rsm_nodes").fetchone() == (2,)
                    db.close()
                return seen

            for seen in await asyncio.to_thread(doors, PLACES):
                assert [tuple(row) for row in seen] == list(found)
            async with ann.interactive() as held:
                await held.execute("UPDATE place SET town = town")
                assert (await ann.query(LOCKS)).rows == (("principal ann", 1, "its client"),)
                assert (await bob.query(LOCKS)).rows == ((None, 0, "its client"),)
                assert (await ops.query(LOCKS)).rows == (("principal ann", 0, "its client"),)
                async with await bob.rows(LOCKS) as stream:
                    assert [row async for row in stream] == [(None, 0, "its client")]
                assert (await held.execute("SELECT count(*) FROM rsm_locks")).rows == ((1,),)
                with pytest.raises(SqlError, match="not together with tables"):
                    await held.execute(PLACES)
            await _of_the_rest(ann, leader)
            follower.kill()
            rows = (await ann.query("SELECT name, error FROM rsm_nodes WHERE error IS NOT NULL", read=STALE)).rows
            assert [name for name, _ in rows] in ([], [follower.replica_id])


async def _of_the_rest(ann: SqlClient, leader: StoreProcess) -> None:
    ((ledger, state, bookies),) = (await ann.query("SELECT ledger_id, state, bookies FROM rsm_ledgers")).rows
    assert (state, len(json.loads(str(bookies)))) == ("open", 2), ledger
    ((count, commands),) = (await ann.query("SELECT count(*), max(commands) FROM rsm_sessions")).rows
    assert isinstance(count, int)
    assert isinstance(commands, int)
    assert (count > 0, commands > 0) == (True, True)
    assert (await ann.query("SELECT count(*) FROM rsm_snapshots WHERE place = ?", (leader.replica_id,))).rows
    with pytest.raises(SqlError, match="system tables are read by queries"):
        await ann.execute("INSERT INTO place SELECT name, role FROM rsm_nodes")
