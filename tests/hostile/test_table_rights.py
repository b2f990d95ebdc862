"""A client with some tables tries every way to the others, at every door of every replica, beside a victim."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rsm_spark.sql as db
from ledger.dev import DevCluster
from rsm_spark.core.freshness import STALE
from rsm_spark.errors import AccessDeniedError, RsmError
from rsm_spark.sql import SqlAbortedError, SqlClient, SqlError
from rsm_spark.sql.messages import SqlQuery, SqlStatement, SqlTransaction, encode
from rsm_spark.sql.table_rights import TableRights, within
from rsm_spark.transport.security import Security
from tests.hostile.test_sql_streams import Stream
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_pg_port import SQL, place, until_led
from tests.integration.test_sql_http import ask
from tests.unit.rsm_spark.sql.closed_tables import READS, SCHEMA, SETUP, WRITES

pytestmark = pytest.mark.asyncio
HIDDEN = "hidden-from-eve"
RIGHTS = 'access = "write"\ntables_read = {read}\ntables_write = ["mine*", "box"]\ntables_schema = ["mine*"]'
READ = '["mine*", "Shown"]'
OPTIONS = ("--http-port", "0", "--pg-port", "0", "--transaction-idle-s", "60", "--transaction-s-max", "90")
ALL = TableRights(("*",), ("*",), ("*",))


class Site:
    """Replicas with principals: ann has all tables, eve has some."""

    def __init__(self, folder: Path) -> None:
        self.tokens = {name: f"{name}-{'x' * 24}" for name in ("replica", "ann", "eve")}
        self.shown: dict[str, Security] = {}
        for name, token in self.tokens.items():
            path = folder / f"{name}.token"
            path.write_text(token)
            path.chmod(0o600)
            self.shown[name] = Security(token_file=str(path))
        self._file = folder / "principals.toml"
        self.options = ("--token-file", str(folder / "replica.token"), "--principals", str(self._file), *OPTIONS)
        self.give(READ)

    def give(self, read: str) -> None:
        """Write the file, with the tables that eve may read."""
        scopes = {
            "replica": 'role = "replica"',
            "ann": 'role = "client"\naccess = "write"',
            "eve": f'role = "client"\n{RIGHTS.format(read=read)}',
        }
        text = "".join(
            f'[[principal]]\nname = "{name}"\ntokens = ["{hashlib.sha256(self.tokens[name].encode()).hexdigest()}"]\n'
            f"{scope}\n"
            for name, scope in scopes.items()
        )
        self._file.write_text(text)
        self._file.chmod(0o600)

    def at(self, store: StoreProcess, name: str) -> dict[str, Any]:
        return place(store) | {"user": name, "password": self.tokens[name]}


def _refused(call: Callable[[], Any], sql: str) -> None:
    """Check that a client of PostgreSQL's protocol is told nothing but that it has no right."""
    with pytest.raises(psycopg.Error) as told:
        call()
    assert told.value.sqlstate == "42501", (sql, told.value)
    assert HIDDEN not in str(told.value)


def _over_postgresql(site: Site, store: StoreProcess) -> None:
    with psycopg.connect(**site.at(store, "eve")) as eve:
        for sql in (*READS, *WRITES, *SCHEMA):
            if sql.startswith(";"):
                continue
            _refused(lambda sql=sql: eve.execute(sql).fetchall(), sql)  # type: ignore[misc]
            _refused(lambda sql=sql: eve.execute(sql, prepare=True).fetchall(), sql)  # type: ignore[misc]
        for sql in READS[:12]:
            with contextlib.suppress(psycopg.Error), eve.transaction():
                _refused(lambda sql=sql: eve.execute(sql).fetchall(), sql)  # type: ignore[misc]
                raise psycopg.Error
            _refused(lambda sql=sql: eve.execute(f"DECLARE c CURSOR WITH HOLD FOR {sql}"), sql)  # type: ignore[misc]
            _refused(lambda sql=sql: _copied(eve, f"COPY ({sql}) TO STDOUT"), sql)  # type: ignore[misc]
        _refused(lambda: _copied(eve, "COPY secret TO STDOUT"), "COPY")
        _refused(lambda: _copied_in(eve, "COPY secret FROM STDIN"), "COPY")
        _refused(lambda: eve.execute("ALTER TABLE secret ALTER COLUMN v TYPE INTEGER"), "ALTER")
        _refused(lambda: eve.execute("TRUNCATE secret"), "TRUNCATE")
        # One statement of several that she may not: nothing of them is done.
        _refused(lambda: eve.execute("INSERT INTO mine (v) VALUES ('half'); DELETE FROM secret"), "together")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="in the file of principals"):
            eve.execute("GRANT SELECT ON secret TO eve")
        named = eve.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        found = {name for (name,) in named}
        assert {"mine", "shown", "box"} <= found
        assert not found & {"secret", "seen", "secret_ids", "counted", "child"}
        columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'secret'"
        assert eve.execute(columns).fetchone() == (0,)
        classes = "SELECT count(*) FROM pg_catalog.pg_class WHERE relname IN ('secret', 'secret_v')"
        assert eve.execute(classes).fetchone() == (0,)
        # And what is hers is served, also within a transaction that was refused something.
        assert eve.execute("SELECT v FROM shown").fetchall() == [("open",)]
        with eve.transaction():
            eve.execute("INSERT INTO box VALUES (1, 'x')")
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege), eve.transaction():
                eve.execute("SELECT v FROM secret")
            eve.execute("DELETE FROM box")
        assert _copied(eve, "COPY shown TO STDOUT") == b"1\topen\n"


def _copied(eve: psycopg.Connection[Any], sql: str) -> bytes:
    with eve.cursor() as cursor, cursor.copy(sql) as copy:
        return b"".join(bytes(part) for part in copy)


def _copied_in(eve: psycopg.Connection[Any], sql: str) -> None:
    with eve.cursor() as cursor, cursor.copy(sql) as copy:
        copy.write(b"7\tx\n")


def _over_http(site: Site, store: StoreProcess) -> None:
    for sql in (*READS, *WRITES, *SCHEMA):
        status, told = ask(store, {"sql": sql}, site.tokens["eve"])
        assert (status, told["error"]["sqlstate"]) == ((400, "42601") if sql.startswith(";") else (403, "42501")), sql
        assert HIDDEN not in str(told)
        several = {"statements": [{"sql": "INSERT INTO mine (v) VALUES ('half')"}, {"sql": sql}]}
        status, told = ask(store, several, site.tokens["eve"])
        assert status in (403, 400), (sql, told)
    for level in ("stale", 1_000_000):
        assert ask(store, {"sql": "SELECT v FROM secret", "read": level}, site.tokens["eve"])[0] == 403
    assert ask(store, {"sql": "SELECT v FROM shown"}, site.tokens["eve"])[1]["results"][0]["rows"] == [["open"]]
    refused = Stream(store, "?from=beginning&table=mine&table=secret", site.tokens["eve"])
    assert (refused.status, HIDDEN in refused.answer.read().decode()) == (403, False)
    told = Stream(store, "?from=beginning", site.tokens["eve"])
    first = next(iter(told.events()))
    assert first["event"] == "partial"
    assert all(change["table"].startswith(("mine", "shown")) for change in told.changes(12))
    told.close()


def _over_dbapi(site: Site, uri: str, log: str) -> None:
    for autocommit in (True, False):
        with db.connect(uri, log=log, autocommit=autocommit, security=site.shown["eve"]) as eve:
            for sql in ("SELECT v FROM secret", "DELETE FROM secret", "SELECT 1 FROM mine NATURAL JOIN secret"):
                with pytest.raises(db.ProgrammingError, match="no right to"):
                    eve.execute(sql).fetchall()
            assert eve.execute("SELECT v FROM shown").fetchall() == [("open",)]
        eve.close()


async def _over_the_client(site: Site, uri: str, log: str) -> None:
    async with await SqlClient.connect(log, uri, security=site.shown["eve"]) as eve:
        for sql in (*READS, *WRITES, *SCHEMA):
            kind = "sql" if sql.startswith(";") else "denied"
            for call in (
                lambda sql=sql: eve.execute(sql),
                lambda sql=sql: eve.query(sql),
                lambda sql=sql: eve.query(sql, read=STALE),
                lambda sql=sql: _rows(eve, sql),
            ):
                with pytest.raises(SqlError) as told:
                    await call()  # type: ignore[no-untyped-call]
                # A query that writes is none, whoever asks it.
                assert told.value.kind in (kind, "refused"), (sql, told.value)
        async with eve.interactive() as step:
            for sql in (*READS, *WRITES):
                with pytest.raises(SqlError) as told:
                    await step.execute(sql)
                assert told.value.kind in ("denied", "refused", "sql"), (sql, told.value)
            assert (await step.execute("SELECT v FROM shown")).rows == (("open",),)
        # She says herself what she may.
        service = eve._service
        with pytest.raises(RsmError, match="once"):
            await service.query(within(ALL, encode(SqlQuery("SELECT v FROM secret"))))
        forged = within(ALL, encode(SqlTransaction((SqlStatement("DELETE FROM secret"),))))
        assert b"once" in (await service.execute(forged)).payload
        with pytest.raises(AccessDeniedError, match="no right to read secret"):
            await anext(eve.changes("secret", begin="beginning"))
        changes = eve.changes(begin="beginning")
        seen = [await anext(changes) for _ in range(12)]
        assert changes.is_partial
        assert all(change.table.startswith(("mine", "shown")) for change in seen)
        assert HIDDEN not in str(seen)
        await changes.aclose()


async def _rows(eve: SqlClient, sql: str) -> list[Any]:
    async with await eve.rows(sql) as rows:
        return [row async for row in rows]


@contextlib.asynccontextmanager
async def _victim(site: Site, uri: str, log: str) -> AsyncIterator[list[int]]:
    """Have ann move on beside: the same texts as eve's, with her rights."""
    done = [0]
    is_over = False

    async def go_on() -> None:
        async with await SqlClient.connect(log, uri, security=site.shown["ann"]) as ann:
            while not is_over:
                assert ((HIDDEN,),) == (await ann.query("SELECT v FROM secret WHERE id = 3")).rows
                assert (await ann.execute("UPDATE secret SET v = v WHERE id = 3")).row_count == 1
                done[0] += 1

    task = asyncio.get_running_loop().create_task(go_on())
    try:
        yield done
    finally:
        is_over = True
        await task


SHOWN = " UNION ALL ".join(f"SELECT '{name}', id, v FROM {name}" for name in ("secret", "box", "mine"))  # noqa: S608


async def test_no_door_of_any_replica_shows_or_changes_them(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, site = cluster.metadata_uri, unique_name, Site(tmp_path)
    with stores(uri, log, tmp_path) as replicas:
        audits = [tmp_path / f"{name}.audit" for name in "ab"]
        both = [replicas.start(path.stem, *site.options, "--audit-file", str(path), command=SQL) for path in audits]
        async with await SqlClient.connect(log, uri, security=site.shown["ann"]) as ann:
            await ann.transaction([*SETUP, ("INSERT INTO secret VALUES (3, ?)", (HIDDEN,))])
            before = (await ann.query(f"{SHOWN} ORDER BY 1, 2")).rows
            schema = (await ann.query("SELECT name, sql FROM sqlite_schema ORDER BY name")).rows
            async with _victim(site, uri, log) as done:
                await _over_the_client(site, uri, log)
                await asyncio.to_thread(_over_dbapi, site, uri, log)
                for store in both:
                    await asyncio.to_thread(_over_postgresql, site, store)
                    await asyncio.to_thread(_over_http, site, store)
                assert done[0] > 20
            assert (await ann.query(f"{SHOWN} ORDER BY 1, 2")).rows == before
            assert (await ann.query("SELECT name, sql FROM sqlite_schema ORDER BY name")).rows == schema
        _are_audited([line for path in audits for line in path.read_text().splitlines()])


def _are_audited(lines: list[str]) -> None:
    """Check that each door has told of what eve was refused, now and then: each kind at most once in ten seconds."""
    told = [one for one in map(json.loads, lines) if one["principal"] == "eve"]
    doors = {"PostgreSQL: statement", "POST /v1/sql", "GET /v1/sql/changes", "SQL: statement"}
    actions = [one["action"] for one in told]
    assert doors <= set(actions)
    assert any("changes" in action.lower() and action.startswith("/") for action in actions), actions
    assert all("no right to" in one["outcome"] and one["source"] and one["role"] == "client" for one in told), told
    assert len(told) < 100, "hundreds were refused"
    assert HIDDEN not in str(lines)


async def test_what_was_open_before_rights_were_taken_away_shows_nothing_more(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log, site = cluster.metadata_uri, unique_name, Site(tmp_path)
    big = "INSERT INTO mine WITH n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n LIMIT 400) SELECT i, ? FROM n"
    with stores(uri, log, tmp_path) as replicas:
        both = [replicas.start(name, *site.options, command=SQL) for name in "ab"]
        async with (
            await SqlClient.connect(log, uri, security=site.shown["ann"]) as ann,
            await SqlClient.connect(log, uri, security=site.shown["eve"]) as eve,
        ):
            await ann.transaction(["CREATE TABLE mine (id INTEGER PRIMARY KEY, v TEXT)", (big, ("x" * 5_000,))])
            rows = aiter(await eve.rows("SELECT id, v FROM mine"))
            assert await anext(rows) == (10, "x" * 5_000)
            held = await eve.begin()
            await held.execute("SELECT count(*) FROM mine")
            changes = eve.changes("mine", begin="beginning")
            await anext(changes)
            cursors = [await asyncio.to_thread(_cursor, site, store) for store in both]
            site.give("[]")
            for cursor in cursors:
                await asyncio.to_thread(_until_cut, cursor)
            with pytest.raises(AccessDeniedError):
                await _to_the_end(changes)
            with pytest.raises(SqlAbortedError, match="rights"):
                await _to_the_end(rows)
            with pytest.raises(SqlError) as told:
                await held.execute("SELECT v FROM mine")
            assert told.value.kind in ("aborted", "denied")
            with pytest.raises(SqlError, match="no right to read mine"):
                await eve.query("SELECT v FROM mine")
            for store in both:
                with (
                    psycopg.connect(**site.at(store, "eve")) as again,
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                ):
                    again.execute("SELECT v FROM mine")
            assert (await ann.query("SELECT count(*) FROM mine")).rows == ((400,),)


async def _to_the_end(of: AsyncIterator[Any]) -> None:
    async for _ in of:
        pass


def _cursor(site: Site, store: StoreProcess) -> psycopg.Connection[Any]:
    eve = psycopg.connect(**site.at(store, "eve"))
    until_led(lambda: eve.execute("DECLARE c CURSOR WITH HOLD FOR SELECT id, v FROM mine"))
    assert len(eve.execute("FETCH 5 FROM c").fetchall()) == 5
    return eve


def _until_cut(eve: psycopg.Connection[Any]) -> None:
    """Read on until the connection is cut: within seconds, and before the cursor is at its end."""

    def look() -> bool:
        eve.execute("MOVE 0 FROM c")
        time.sleep(0.05)
        return True

    with pytest.raises(psycopg.OperationalError):
        all(look() for _ in range(5_000))
