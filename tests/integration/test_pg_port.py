"""PostgreSQL's protocol of replicas that are processes: psql and psycopg, any replica, failovers, log-ins."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import StoreProcess, Stores, stores
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
_WAIT_S = 60.0


def serve(replicas: Stores, name: str, *options: str) -> StoreProcess:
    """Start a replica with a port for PostgreSQL's clients."""
    return replicas.start(name, "--pg-port", "0", *options, command=SQL)


def place(store: StoreProcess) -> dict[str, Any]:
    """Return where psycopg finds a replica."""
    host, _, port = str(store.ready["pg_address"]).rpartition(":")
    return {"host": host, "port": int(port), "dbname": store.log, "autocommit": True}


def until_led(call: Callable[[], Any]) -> Any:
    """Call until a leader answers."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return call()
        except psycopg.OperationalError as error:
            if error.sqlstate not in ("57P03", "08007", "08006") or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


async def test_any_replica_serves_psycopg(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        places = [place(serve(replicas, name)) for name in "ab"]
        await asyncio.to_thread(_serve_both, places)


def _serve_both(places: list[dict[str, Any]]) -> None:
    with psycopg.connect(**places[0], user="ann") as one, psycopg.connect(**places[1], user="ann") as other:
        until_led(
            lambda: one.execute("CREATE TABLE item (id SERIAL PRIMARY KEY, name TEXT UNIQUE, price REAL, at DATE)")
        )
        made = other.execute(
            "INSERT INTO item (name, price, at) VALUES (%s, %s, %s), ('ink', 2, '2026-01-02') RETURNING id, name",
            ("pen", 1.5, "2026-01-01"),
        )
        assert made.fetchall() == [(1, "pen"), (2, "ink")]
        for side in (one, other):
            found = side.execute("SELECT id, name, price, at FROM item WHERE id = %s", (1,))
            assert [(column.name, column.type_code) for column in found.description or ()] == [
                ("id", 20), ("name", 25), ("price", 701), ("at", 1082),
            ]  # fmt: skip
            (row,) = found.fetchall()
            assert (*row[:3], str(row[3])) == (1, "pen", 1.5, "2026-01-01")
            panel = side.execute(
                'SELECT floor(extract(epoch from at)/3600)*3600 AS "time", count(*) FROM item '
                "WHERE at BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-01T23:59:59.999Z' GROUP BY 1 ORDER BY 1"
            )
            assert panel.fetchall() == [(1767225600.0, 1)], "as Grafana asks"
            assert side.execute("SELECT count(*), max(name) FROM item", binary=True).fetchall() == [(2, "pen")]
        with pytest.raises(psycopg.errors.UniqueViolation) as failed:
            other.execute("INSERT INTO item (name) VALUES ('pen')")
        assert (failed.value.diag.table_name, failed.value.diag.column_name) == ("item", "name")
        for wrong, kind in (
            ("SELEC 1", psycopg.errors.SyntaxError),
            ("SELECT * FROM missing", psycopg.errors.UndefinedTable),
            ("SELECT missing FROM item", psycopg.errors.UndefinedColumn),
            ("ATTACH 'x' AS y", psycopg.errors.FeatureNotSupported),
        ):
            with pytest.raises(kind):
                one.execute(wrong)
        with one.pipeline(), one.cursor() as cursor:
            cursor.executemany("INSERT INTO item (name) VALUES (%s)", [(f"n{n}",) for n in range(1_500)])
        assert one.execute("SELECT count(*) FROM item").fetchone() == (1_502,)
        with pytest.raises(psycopg.errors.UniqueViolation):
            _insert_together(one, "whole", "pen")
        assert one.execute("SELECT count(*) FROM item WHERE name = 'whole'").fetchone() == (0,)
        one.execute("SET rsm.read = 'stale'")
        assert one.execute("SHOW rsm.read").fetchone() == ("stale",)
        other.execute("SET rsm.read = 'session'")
        other.execute("UPDATE item SET price = 9 WHERE id = 1")
        assert other.execute("SELECT price FROM item WHERE id = 1").fetchone() == (9.0,), "it reads what it has written"
        with other.cursor() as cursor:
            rows = cursor.stream("SELECT id FROM item ORDER BY id", size=100)
            assert [row[0] for row in rows] == list(range(1, 1_503))
        text = "INSERT INTO item (name) VALUES ('x'); INSERT INTO item (name) VALUES ('y'); SELECT count(*) FROM item"
        _copies(one, other)
        cursor = one.execute(text)
        assert [cursor.statusmessage, cursor.nextset(), cursor.statusmessage] == ["INSERT 0 1", True, "INSERT 0 1"]
        assert (cursor.nextset(), cursor.statusmessage) == (True, "SELECT 1")


def _copies(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> None:
    """Copy rows in and out."""
    one.execute("CREATE TABLE copied (id INTEGER PRIMARY KEY, v TEXT, at TIMESTAMP, b BYTEA)")
    rows = [(n, f"tab\t{n}\n\\", datetime(2026, 1, 2, 3, 4, 5), b"\0\xff") for n in range(3_000)]
    with other.cursor() as cursor:
        with cursor.copy("COPY copied (id, v, at, b) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        with cursor.copy("COPY (SELECT id, v FROM copied ORDER BY id) TO STDOUT") as copy:
            copy.set_types(["int8", "text"])
            assert list(copy.rows()) == [row[:2] for row in rows]
        with pytest.raises(psycopg.errors.UniqueViolation), cursor.copy("COPY copied FROM STDIN csv") as copy:
            copy.write("9000,x,,\n1,y,,\n")
        assert cursor.execute("SELECT count(*) FROM copied").fetchone() == (3_000,)
    assert one.execute("SELECT at, b FROM copied WHERE id = 1").fetchall() == [rows[1][2:]]


def _insert_together(connection: psycopg.Connection[Any], *names: str) -> None:
    with connection.pipeline():
        for name in names:
            connection.execute("INSERT INTO item (name) VALUES (%s)", (name,))


async def test_what_takes_long_is_cancelled(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a", "--read-s-max", "60"))
        async with await psycopg.AsyncConnection.connect(**at, user="ann") as connection:
            await asyncio.to_thread(until_led, lambda: _select_one(at))
            bomb = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
            running = asyncio.create_task(connection.execute(bomb))
            await asyncio.sleep(0.2)
            while not running.done():
                await connection.cancel_safe()
                await asyncio.wait([running], timeout=0.2)
            with pytest.raises(psycopg.errors.QueryCanceled):
                await running
            found = await connection.execute("SELECT 1")
            assert await found.fetchone() == (1,)


def _select_one(at: dict[str, Any]) -> None:
    with psycopg.connect(**at, user="ann") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


async def test_a_failover_loses_nothing_that_was_answered(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        places = {name: place(serve(replicas, name)) for name in "ab"}
        leader = await replicas.leader()
        survivor = "b" if leader.replica_id == "a" else "a"

        def work() -> None:
            with psycopg.connect(**places[survivor], user="ann") as left:
                until_led(lambda: left.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, n INTEGER)"))
                for n in range(5):
                    left.execute("INSERT INTO t (n) VALUES (%s)", (n,))
                leader.kill()
                for n in range(5, 10):
                    left.execute("INSERT INTO t (n) VALUES (%s)", (n,))
                assert left.execute("SELECT n FROM t ORDER BY id").fetchall() == [(n,) for n in range(10)]

        await asyncio.to_thread(work)


TOKENS = {"ann": "token-of-ann-0123456789", "eve": "token-of-eve-0123456789", "rob": "token-of-rob-0123456789"}
_PRINCIPALS = """
[[principal]]
name = "replica"
role = "replica"
tokens = ["{replica}"]

[[principal]]
name = "ann"
role = "client"
access = "write"
tokens = ["{ann}"]
scram = "{scram}"

[[principal]]
name = "rob"
role = "client"
access = "read"
tokens = ["{rob}"]

[[principal]]
name = "eve"
role = "client"
access = "write"
logs = ["another"]
tokens = ["{eve}"]
"""


def principals_of(folder: Path) -> list[str]:
    """Return the options of a replica that knows the principals of `TOKENS`."""
    token, principals, ann = folder / "token", folder / "principals.toml", folder / "ann"
    token.write_text("token-of-the-replica-0123456789")
    ann.write_text(TOKENS["ann"])
    for path in (token, ann):
        path.chmod(0o600)
    made = subprocess.run([".venv/bin/rsm", "sql", "verifier", str(ann)], capture_output=True, text=True, check=True)
    hashed = {name: hashlib.sha256(shown.encode()).hexdigest() for name, shown in TOKENS.items()}
    hashed["replica"] = hashlib.sha256(token.read_bytes()).hexdigest()
    principals.write_text(_PRINCIPALS.format(**hashed, scram=made.stdout.strip()))
    principals.chmod(0o600)
    return ["--token-file", str(token), "--principals", str(principals)]


async def test_who_logs_in_may_do_what_its_principal_may(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    cert = authority.sign("replica")
    tls = ["--tls-cert", cert["cert"], "--tls-key", cert["key"], "--tls-ca", authority.ca]
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a", *principals_of(tmp_path), *tls))
        await asyncio.to_thread(_log_ins, at, authority.ca)


def _log_ins(at: dict[str, Any], ca: str) -> None:
    safe = {**at, "sslmode": "verify-ca", "sslrootcert": ca}
    rights = "SELECT has_schema_privilege('public', 'CREATE'), has_table_privilege('t', 'INSERT')"
    with psycopg.connect(**safe, user="ann", password=TOKENS["ann"], require_auth="scram-sha-256") as ann:
        until_led(lambda: ann.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY)"))
        ann.execute("INSERT INTO t VALUES (1)")
        assert ann.execute(rights).fetchone() == (True, True)
    with psycopg.connect(**safe, user="rob", password=TOKENS["rob"]) as rob:
        assert rob.execute("SELECT id FROM t").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="reads only"):
            rob.execute("INSERT INTO t VALUES (2)")
        assert rob.execute(rights).fetchone() == (False, False)
    refused = (
        ({**safe, "user": "ann", "password": TOKENS["rob"]}, "not this user's token"),
        ({**safe, "user": "rob", "password": "wrong"}, "no principal's token"),
        ({**safe, "user": "eve", "password": TOKENS["eve"]}, "may not touch the log"),
        ({**safe, "user": "ann", "password": TOKENS["ann"], "dbname": "another"}, "there is no database 'another'"),
        ({**at, "sslmode": "disable", "user": "ann", "password": TOKENS["ann"]}, "TLS alone"),
    )
    for options, words in refused:
        with pytest.raises(psycopg.OperationalError, match=words):
            psycopg.connect(**options)


async def test_psql_shows_rows_and_runs_scripts(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed: apt-get install postgresql-client")
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a"))
        await asyncio.to_thread(until_led, lambda: _select_one(at))

        def run(*arguments: str) -> str:
            uri = f"postgresql://ann@{at['host']}:{at['port']}/{at['dbname']}"
            command = [psql, uri, "-X", "-v", "ON_ERROR_STOP=1", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        script = tmp_path / "script.sql"
        script.write_text(
            "CREATE TABLE t (id SERIAL PRIMARY KEY, n INT);\n"
            "INSERT INTO t (n) VALUES (7), (8), (9); -- three\n"
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET n = n + 1 WHERE id = new.id\\; END;\n"
            "INSERT INTO t (n) VALUES (1);\n"
        )
        said = await asyncio.to_thread(run, "-f", str(script))
        assert said.split("\n")[:4] == ["CREATE TABLE", "INSERT 0 3", "CREATE TRIGGER", "INSERT 0 1"]
        shown = await asyncio.to_thread(run, "-c", "SELECT id, n::text FROM t WHERE n > 1 ORDER BY id", "-A", "-t")
        assert shown.split() == ["1|7", "2|8", "3|9", "4|2"]
        (tmp_path / "rows.csv").write_text('id,n\n100,5\n101,"6"\n')
        await asyncio.to_thread(run, "-c", f"\\copy t (id, n) FROM '{tmp_path}/rows.csv' WITH (FORMAT csv, HEADER)")
        out = await asyncio.to_thread(run, "-c", r"\copy (SELECT id, n FROM t WHERE id >= 100) TO STDOUT csv")
        assert out == "100,6\n101,7\n", "the trigger adds one"
        said = await asyncio.to_thread(run, "-c", r"\dt", "-c", r"\d t")
        assert "public | t    | table | rsm" in said
        for words in (
            "nextval('t_id_seq'::regclass)",
            '"t_pkey" PRIMARY KEY, btree (id)',
            "g AFTER INSERT ON t",
        ):
            assert words in said, said


async def test_transactions_of_several_requests_are_kept_as_a_whole_or_not_at_all(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        places = [{**place(serve(replicas, name)), "autocommit": False} for name in "ab"]
        await asyncio.to_thread(_transactions, places)


def _transactions(places: list[dict[str, Any]]) -> None:
    with psycopg.connect(**places[0], user="ann") as one, psycopg.connect(**places[1], user="ann") as other:

        def begin() -> None:
            one.rollback()
            one.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER)")
            one.execute("INSERT INTO stock (name, n) VALUES ('pen', 5), ('ink', 5)")
            one.commit()

        until_led(begin)
        found = one.execute("SELECT n FROM stock WHERE name = %s", ("pen",)).fetchone()
        assert found == (5,)
        one.execute("UPDATE stock SET n = %s WHERE name = 'pen'", (found[0] - 1,))
        assert one.execute("SELECT n FROM stock WHERE name = 'pen'").fetchone() == (4,), "it reads what it has written"
        assert other.execute("SELECT n FROM stock WHERE name = 'pen'").fetchone() == (5,), "nobody else does"
        other.rollback()
        one.commit()
        assert other.execute("SELECT n FROM stock WHERE name = 'pen'").fetchone() == (4,)
        one.execute("UPDATE stock SET n = n + 1 WHERE name = 'pen'")
        one.commit()
        other.execute("UPDATE stock SET n = 0 WHERE name = 'pen' RETURNING n")
        assert other.execute("SELECT n FROM stock WHERE name = 'ink'").fetchone() == (5,)
        with pytest.raises(psycopg.errors.SerializationFailure):
            _overtaken(one, other)
        other.rollback()
        assert one.execute("SELECT n FROM stock ORDER BY id").fetchall() == [(5,), (7,)]
        with pytest.raises(psycopg.errors.UniqueViolation):
            one.execute("INSERT INTO stock (name) VALUES ('pen')")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            one.execute("SELECT 1")
        one.rollback()
        with one.transaction():
            one.execute("INSERT INTO stock (name, n) VALUES ('box', 1)")
            with pytest.raises(psycopg.errors.UniqueViolation), one.transaction():
                one.execute("INSERT INTO stock (name, n) VALUES ('pen', 1)")
            one.execute("INSERT INTO stock (name, n) VALUES ('lid', 1)")
        assert one.execute("SELECT count(*) FROM stock").fetchone() == (4,)


async def test_one_client_takes_its_part_of_the_open_transactions(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(
            serve(replicas, "a", "--transactions-max", "16", "--transaction-idle-s", "60", *principals_of(tmp_path))
        )
        await asyncio.to_thread(_many_open, {**at, "autocommit": False})


async def test_asyncpg_and_its_pool_are_served(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        at = place(serve(replicas, "a"))
        await asyncio.to_thread(until_led, lambda: _select_one(at))
        where = {"host": at["host"], "port": at["port"], "database": at["dbname"], "user": "ann"}
        async with asyncpg.create_pool(**where, min_size=1, max_size=1) as pool:
            async with pool.acquire() as one:
                await one.execute("CREATE TABLE t (id SERIAL PRIMARY KEY, v TEXT, at TIMESTAMPTZ DEFAULT now())")
                made = await one.fetchrow("INSERT INTO t (v) VALUES ($1) RETURNING id, at", "x")
                assert (made["id"], made["at"].utcoffset().total_seconds()) == (1, 0)
                async with one.transaction():
                    await one.execute("UPDATE t SET v = $1 WHERE v = $2", "y", "x")
                    assert await one.fetchval("SELECT v FROM t WHERE id = $1", "1") == "y"
                assert str(await one.fetchval("SELECT version()")).startswith("PostgreSQL 15.0")
            async with pool.acquire() as again:
                assert [tuple(row) for row in await again.fetch("SELECT id, v FROM t")] == [(1, "y")]


def _many_open(at: dict[str, Any]) -> None:
    ann = {**at, "user": "ann", "password": TOKENS["ann"]}
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(psycopg.connect(**ann))

        def begin() -> None:
            first.rollback()
            first.execute("SELECT 1")

        until_led(begin)
        begin()  # The first one may have gone over a link, before this replica knew that it leads: it counts there.
        others = [stack.enter_context(psycopg.connect(**ann)) for _ in range(3)]
        for other in others:
            other.execute("SELECT 1")
        one_more = stack.enter_context(psycopg.connect(**ann))
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            one_more.execute("SELECT 1")
        with psycopg.connect(**at, user="rob", password=TOKENS["rob"]) as rob:
            assert rob.execute("SELECT 1").fetchone() == (1,), "another one has a part of its own"


def _overtaken(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> None:
    """Commit what another transaction has overtaken."""
    other.rollback()
    found = other.execute("SELECT n FROM stock WHERE name = 'ink'").fetchone()
    assert found == (5,)
    one.execute("UPDATE stock SET n = 7 WHERE name = 'ink'")
    one.commit()
    other.execute("UPDATE stock SET n = %s WHERE name = 'ink'", (found[0] + 1,))
    other.commit()
