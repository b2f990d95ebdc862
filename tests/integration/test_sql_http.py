"""SQL over HTTP, on the replicas' own HTTP servers: any of them, by right, within bounds."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from tests.hostile.victim import resident_mib
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_pg_port import TOKENS, principals_of

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
PATIENT = ("--command-s-max", "60", "--http-port", "0")
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
FILLING = BOMB.replace("SELECT count(*)", "INSERT INTO t SELECT i")


def ask(store: StoreProcess, body: Any, token: str = "", **headers: str) -> tuple[int, Any]:
    """Ask a replica; return status and the JSON that it answered."""
    given = {"Content-Type": "application/json"} | headers
    if token:
        given["Authorization"] = f"Bearer {token}"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{store.ready['http_address']}/v1/sql", content, given)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - its address is the test's own
            return int(answer.status), json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


def code_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["sqlstate"]


async def test_statements_are_done_and_answered_by_any_replica(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name

    def work(a: StoreProcess, b: StoreProcess) -> int:
        assert ask(b, {"sql": "CREATE TABLE t (id INTEGER PRIMARY KEY, v UNIQUE)"})[0] == 200
        status, made = ask(
            b,
            {
                "statements": [
                    {"sql": "INSERT INTO t (v) VALUES (?), (?)", "parameters": [{"base64": "AP8="}, 2**60]},
                    {"sql": "INSERT INTO t (v) VALUES (:v) RETURNING id", "parameters": {"v": 1.5}, "expected": 1},
                    {"sql": "INSERT INTO t (v) VALUES (?)", "parameters": [{"float": "-Infinity"}]},
                ]
            },
        )
        assert status == 200, made
        assert [one["row_count"] for one in made["results"]] == [2, 1, 1]
        assert made["results"][1]["rows"] == [[3]]
        rows = [[1, {"base64": "AP8="}], [2, 2**60], [3, 1.5], [4, {"float": "-Infinity"}]]
        for one in (a, b):
            for more in ({}, {"at_least": made["revision"]}):
                status, found = ask(one, {"sql": "SELECT * FROM t ORDER BY id", **more})
                assert (status, found["results"][0]["rows"]) == (200, rows)
                assert found["results"][0]["columns"] == [{"name": "id", "type": "INTEGER"}, {"name": "v", "type": ""}]
                assert found["revision"] >= made["revision"]
            assert ask(one, {"sql": "SELECT 1", "read": "stale"})[0] == 200
            assert ask(one, {"sql": "SELECT 1", "read": 60_000})[0] == 200
            for sql, expected in (
                ("SELECT * FROM missing", (400, "42P01")),
                ("SELEKT", (400, "42601")),
                ("INSERT INTO t (v) VALUES (1.5)", (409, "23505")),
                ("PRAGMA journal_mode", (403, "42501")),
                ("SELECT zeroblob(1000000) FROM t, t AS u", (413, "54000")),
            ):
                assert code_of(ask(one, {"sql": sql})) == expected, sql
            failed = ask(one, {"statements": [{"sql": "DELETE FROM t"}, {"sql": "DELETE FROM t", "expected": 9}]})
            assert (*code_of(failed), failed[1]["error"]["statement"]) == (409, "P0002", 1)
            for wrong in (
                b"", b"[]", b"{", b'{"sql": 1}', {}, {"sql": "SELECT 1", "statements": [{"sql": "SELECT 1"}]},
                {"sql": "SELECT ?", "parameters": [[1]]}, {"sql": "SELECT ?", "parameters": [2**63]},
                {"sql": "SELECT ?", "parameters": [{"base64": "?"}]}, {"sql": "SELECT 1", "read": "soon"},
                {"sql": "SELECT 1", "unknown": 1}, {"sql": "SELECT 1", "read": -5}, b"\xff", b"[" * 100_000,
            ):  # fmt: skip
                assert code_of(ask(one, wrong)) == (400, "08P01"), wrong
            assert ask(one, b"x" * 300_000)[0] == 400
            large = {"sql": "SELECT length(?)", "parameters": ["x" * 200_000]}
            assert ask(one, large)[1]["results"][0]["rows"] == [[200_000]]
            assert ask(one, {"sql": "SELECT 1"}, Origin="http://elsewhere.example")[0] == 403
            assert ask(one, {"sql": "SELECT 1"}, Host="elsewhere.example")[0] == 421
        assert ask(a, {"sql": "SELECT count(*) FROM t"})[1]["results"][0]["rows"] == [[4]]
        return int(made["revision"])

    with stores(uri, log, tmp_path) as replicas:
        first, second = (replicas.start(name, *PATIENT, command=SQL) for name in "ab")
        await asyncio.to_thread(work, first, second)


async def test_who_may_do_what_is_said_by_the_principals(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        one = replicas.start("a", *PATIENT, *principals_of(tmp_path), command=SQL)

        def work() -> None:
            make = {"sql": "CREATE TABLE t (a)"}
            assert ask(one, make)[0] == 401
            assert ask(one, make, "wrong")[0] == 401
            assert code_of(ask(one, make, TOKENS["rob"])) == (403, "42501")
            assert code_of(ask(one, make, TOKENS["eve"])) == (403, "42501")
            assert ask(one, make, TOKENS["ann"])[0] == 200
            assert ask(one, {"sql": "SELECT * FROM t"}, TOKENS["rob"])[0] == 200
            assert code_of(ask(one, {"sql": "SELECT * FROM t"}, TOKENS["eve"])) == (403, "42501")
            # A caller without rights is not heard out: its body is that of anybody.
            assert ask(one, b"x" * 100_000, "wrong")[0] in (400, 401)

        await asyncio.to_thread(work)


async def test_a_victim_goes_on_beside_bombs_over_http(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        options = ("--http-port", "0", "--read-s-max", "1", "--command-s-max", "0.2")
        one = replicas.start("a", *options, *principals_of(tmp_path), command=SQL)
        token = (tmp_path / "token").read_text()
        before = resident_mib(one.process.pid)
        faults: list[str] = []
        is_over = False

        def attack() -> None:
            while not is_over:
                for sql in (BOMB, FILLING, "SELECT zeroblob(1e9)"):
                    status, answer = ask(one, {"sql": sql}, TOKENS["ann"])
                    assert status in (400, 403, 408, 413, 503), answer
                    faults.append(answer["error"]["sqlstate"])

        def victim() -> None:
            assert ask(one, {"sql": "CREATE TABLE t (a)"}, token)[0] == 200
            attacking = [threading.Thread(target=attack) for _ in range(20)]
            for thread in attacking:
                thread.start()
            nonlocal is_over
            try:
                for number in range(1, 31):
                    assert ask(one, {"sql": "INSERT INTO t VALUES (1)"}, token)[0] == 200
                    found = ask(one, {"sql": "SELECT count(*) FROM t"}, token)
                    assert (found[0], found[1]["results"][0]["rows"]) == (200, [[number]])
            finally:
                is_over = True
                for thread in attacking:
                    thread.join()

        await asyncio.to_thread(victim)
        assert "57014" in faults
        assert resident_mib(one.process.pid) - before < 150
