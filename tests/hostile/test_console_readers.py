"""Clients with the right to one log, at a console: by no path do they learn of another log, and their own is shown."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from broker.client import BrokerClient
from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.console.api import ConsoleRequests
from rsm_spark.console.browsing import DataRequests
from rsm_spark.console.calls import ConsoleRoute
from rsm_spark.console.pages import ConsolePages
from rsm_spark.console.task_requests import TaskRequests
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.logs.namespace import Logs
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.sql.client.blocking import BlockingSqlClient
from rsm_spark.transport.security import Security
from tests.integration.broker_processes import brokers
from tests.integration.consoles import ConsoleProcess, console
from tests.integration.store_processes import stores

TOKENS = {
    name: f"{name}-{'x' * 24}" for name in ("root", "eye", "reader", "narrow", "clerk", "any", "tenant", "worker")
}
_ROLES = {
    "root": 'role = "operator"',
    "eye": 'role = "auditor"',
    "reader": 'role = "client"\naccess = "read"\nlogs = ["orders"]',
    "narrow": 'role = "client"\naccess = "write"\nlogs = ["orders"]\nprefix = "open/"',
    "clerk": 'role = "client"\naccess = "read"\nlogs = ["shop"]\ntables_read = ["item"]',
    "any": 'role = "client"\naccess = "read"',
    "tenant": 'role = "tenant"\ntenant = "acme"',
    "worker": 'role = "worker"',
}
HUSH = "hush"
"""Is in each name, key, value, row and task that is none of the reader's."""
OTHERS = ("hush-map", "shop", "hush-line", "hush-tasks")
_MISSING = "absent"


class Site(NamedTuple):
    """A console of a cluster with logs of several owners, all of whose servers know the same principals."""

    console: ConsoleProcess
    principals: Path

    def asking(self, name: str) -> httpx.Client:
        return self.console.asking(TOKENS[name])


def write_principals(file: Path, **other: str) -> None:
    text = ""
    for name, role in {**_ROLES, **other}.items():
        digest = hashlib.sha256(TOKENS[name].encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{role}\ntokens = ["{digest}"]\n'
    file.write_text(text)
    file.chmod(0o600)


@pytest.fixture(scope="module")
def site(own_cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("readers")
    file = folder / "principals.toml"
    write_principals(file)
    shown = {name: folder / f"{name}.token" for name in ("root", "eye")}
    for name, path in shown.items():
        path.write_text(TOKENS[name])
        path.chmod(0o600)
    uri, options = own_cluster.metadata_uri, ("--principals", str(file))
    root = Security(token_file=str(shown["root"]))
    as_eye = {"RSM_STORE__TOKEN_FILE": str(shown["eye"]), "RSM_BROKER_TOKEN_FILE": str(shown["eye"])}
    with contextlib.ExitStack() as stack:
        for log, command in (("orders", None), ("hush-map", None), ("shop", ("rsm_spark", "sql", "serve"))):
            (folder / log).mkdir()
            replicas = stack.enter_context(stores(uri, log, folder / log))
            replicas.start("a", *options, **({} if command is None else {"command": command}))
        broker_options = ("--metadata-uri", uri, "--log", "hush-tasks", *options)
        stack.enter_context(brokers(folder, "hush-broker", options=broker_options))
        with BlockingMapClient.connect("orders", uri, security=root) as orders:
            orders.put(b"open/1", b"mine")
            orders.put(b"shut/1", b"shut away")
        with BlockingMapClient.connect("hush-map", uri, security=root) as others:
            others.put(b"hush-key", b"hush-value")
        with BlockingSqlClient.connect("shop", uri, security=root) as shop:
            shop.execute("CREATE TABLE item (name TEXT)")
            shop.execute("INSERT INTO item VALUES ('apple')")
            shop.execute("CREATE TABLE hush_salary (name TEXT)")
            shop.execute("INSERT INTO hush_salary VALUES ('hush-row')")
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(_add_logs(uri))).result()
        one = stack.enter_context(
            console(uri, *options, "--audit-file", str(folder / "audit.jsonl"), environment=as_eye)
        )
        site = Site(one, file)
        url = next(log["url"] for log in one.view(TOKENS["eye"])["logs"] if log["log"] == "hush-tasks")
        with BrokerClient.connect([url], token=TOKENS["tenant"]) as client:
            client.submit("hush-type", "hush-payload")
        deadline = time.monotonic() + 60
        while "hush-type" not in json.dumps(one.view(TOKENS["eye"])):
            assert time.monotonic() < deadline, "the console has not seen the task"
        yield site


async def _add_logs(uri: str) -> None:
    client = await LedgerClient.connect(uri)
    try:
        logs = Logs(client)
        await logs.create("hush-line")
        async with await logs.open_writer("hush-line") as writer:
            await writer.append(b"hush-record")
        for log, name in (("orders", "lake"), ("hush-map", "hush-consumer")):
            chain, _ = await ChainStore(client.store, log).read()
            await LogConsumers(client.store, chain.log_id).register(log, name, 0, what=name)
    finally:
        await client.close()


def _routes() -> list[ConsoleRoute]:
    """Return every path of a console, files aside."""
    client: Any = None  # Nobody asks these routes.
    told = [*ConsoleRequests(client, "").routes(), *DataRequests(client, "").routes(), *TaskRequests().routes()]
    told += ConsolePages(client).own_routes()
    return [one for one in told if not one.path.startswith("/static/") and one.path != "/"]


def _ask(http: httpx.Client, route: ConsoleRoute, log: str) -> tuple[int, str]:
    """Return status and text of the answer; of a stream, of its beginning."""
    path = route.path.replace("{log}", log).replace("{task_id}", "1")
    path += {"/api/v1/logs/{log}/sql": "?sql=SELECT%201", "/api/v1/history": f"?log={log}"}.get(route.path, "")
    if route.path == "/api/v1/events":
        with http.stream("GET", f"{path}?since=1") as told:
            return told.status_code, next(told.iter_text()) if told.status_code == 200 else told.read().decode()
    if route.method == "POST":
        answer = http.post(path, json={"task_ids": [1]})
    else:
        answer = http.get(path)
    return answer.status_code, answer.text


def test_an_auditor_sees_all_of_it(site: Site) -> None:
    """What the others must not see is there to be seen."""
    view = json.dumps(site.console.view(TOKENS["eye"]))
    for said in (*OTHERS, "hush-consumer", "hush-type", "orders"):
        assert said in view, said
    with site.asking("eye") as eye:
        assert "hush-value" in eye.get("/api/v1/logs/hush-map/map").text
        assert "hush-row" in eye.get("/api/v1/logs/shop/sql?sql=SELECT%20name%20FROM%20hush_salary").text
        assert eye.get("/api/v1/history").json()["bookies"]


@pytest.mark.parametrize("name", ["reader", "narrow"])
def test_no_path_tells_a_reader_of_one_log_anything_of_another(site: Site, name: str) -> None:
    with site.asking(name) as http:
        for route in _routes():
            status, text = _ask(http, route, "orders")
            assert HUSH not in text, (route.path, text)
            assert "shop" not in text, (route.path, text)
            assert status != 500, (route.path, text)
            if "{log}" not in route.path:
                continue
            for log in (*OTHERS, "hush-", "*", "orders%20", "ORDERS"):
                refused, told = _ask(http, route, log)
                nothing, said = _ask(http, route, _MISSING)
                named = said.replace(_MISSING, httpx.URL(f"http://x/{log}").path[1:])
                assert (refused, told) == (nothing, named), (route.path, log)
                assert refused in {403, 404}
        for log in OTHERS:
            asked, absent = (http.get("/api/v1/history", params={"log": one}) for one in (log, _MISSING))
            assert (asked.status_code, asked.text.replace(log, _MISSING)) == (404, absent.text)


def test_a_reader_gets_its_own_log_in_full(site: Site) -> None:
    with site.asking("reader") as http:
        me = http.get("/api/v1/me").json()
        assert (me["sees_cluster"], me["sees_logs"], me["sees_tasks"]) == (False, True, False)
        view = http.get("/api/v1/view").json()
        assert [(one["log"], one["leader"]) for one in view["logs"]] == [("orders", "a")]
        assert {one["log"] for one in view["findings"]} == {"orders"}
        assert (view["bookies"], view["copies"], view["cookies"], view["placement"]) == ([], None, [], None)
        history = http.get("/api/v1/history", params={"log": "orders"}).json()
        assert history["bookies"] == history["warnings"] == history["waiting"] == []
        assert len(history["revision"]) == len(history["at_ms"]) > 0
        detail = http.get("/api/v1/logs/orders").json()
        assert detail["leaders"][0]["replica_id"] == "a"
        records = http.get("/api/v1/logs/orders/records?from_revision=1")
        assert "open/1" in records.text
        assert "shut/1" in records.text
        assert [row["key"] for row in http.get("/api/v1/logs/orders/map").json()["rows"]] == ["open/1", "shut/1"]


def test_keys_and_tables_are_those_that_the_replica_gives_the_caller(site: Site) -> None:
    with site.asking("narrow") as http:
        assert [row["key"] for row in http.get("/api/v1/logs/orders/map").json()["rows"]] == ["open/1"]
        for query in ({"prefix": "shut/"}, {"prefix": "open/", "start": "shut/"}, {"start": "z"}):
            answer = http.get("/api/v1/logs/orders/map", params=query)
            assert "shut away" not in answer.text, query
        assert http.get("/api/v1/logs/orders/map", params={"prefix": "shut/"}).status_code == 403
        refused = http.get("/api/v1/logs/orders/records")
        assert (refused.status_code, "shut" in refused.text) == (403, False)
    with site.asking("clerk") as http:
        found = http.get("/api/v1/logs/shop/sql", params={"sql": "SELECT name FROM item"}).json()
        assert found["rows"] == [["apple"]]
        refused = http.get("/api/v1/logs/shop/sql", params={"sql": "SELECT name FROM hush_salary"})
        assert (refused.status_code, "hush-row" in refused.text) == (400, False)
        assert http.get("/api/v1/logs/shop/records").status_code == 403


def test_records_of_a_log_that_has_no_keys_for_clients_are_for_none_of_them(site: Site) -> None:
    """The console asks the process behind: a broker gives clients nothing of its log."""
    with site.asking("any") as http:
        assert {"orders", *OTHERS} <= {one["log"] for one in http.get("/api/v1/view").json()["logs"]}
        assert "hush-record" in http.get("/api/v1/logs/hush-line/records?from_revision=1").text
        refused = http.get("/api/v1/logs/hush-tasks/records?from_revision=1")
        assert (refused.status_code, "hush-payload" in refused.text) == (403, False)
        assert http.get("/api/v1/brokers/hush-tasks/tasks").status_code == 403


@pytest.mark.parametrize("name", ["tenant", "worker"])
def test_who_reads_no_log_is_told_of_none(site: Site, name: str) -> None:
    with site.asking(name) as http:
        for path in ("/api/v1/view", "/api/v1/history", "/api/v1/logs/orders", "/api/v1/logs/orders/records"):
            assert http.get(path).status_code == 403, path
        with http.stream("GET", "/api/v1/events?since=1") as told:
            assert told.status_code == (200 if name == "tenant" else 403), "a tenant is told of tasks alone"
        assert not http.get("/api/v1/me").json()["sees_logs"]


def test_a_log_that_is_taken_from_a_reader_ends_its_stream(site: Site) -> None:
    with site.asking("reader") as http, http.stream("GET", "/api/v1/events?since=1") as told:
        assert told.status_code == 200
        lines = told.iter_lines()
        assert any(line == "event: logs" for line in lines)
        write_principals(site.principals, reader='role = "client"\naccess = "read"\nlogs = ["hush-map"]')
        try:
            for _ in lines:
                pass
            with site.asking("reader") as now:
                assert now.get("/api/v1/logs/orders").status_code == 404
        finally:
            write_principals(site.principals)
