"""Streams of changes over HTTP: what they tell, to whom, and who is served beside readers that take nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.sql import SqlClient
from rsm_spark.transport.security import Security
from tests.hostile.victim import resident_mib
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_pg_port import TOKENS, principals_of
from tests.integration.test_sql_http import ask, code_of
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio
SQL = ("rsm_spark", "sql", "serve")
EVENTS = "/v1/sql/changes"


class Stream:
    """One reader: the events as they come; over TLS where it knows the authority of the replica's certificate."""

    def __init__(
        self,
        store: StoreProcess,
        query: str = "",
        token: str = "",
        last_id: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        address = store.ready["http_address"]
        self._connection = (
            http.client.HTTPConnection(address, timeout=120)
            if tls is None
            else http.client.HTTPSConnection(address, timeout=120, context=tls)
        )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if last_id is not None:
            headers["Last-Event-ID"] = str(last_id)
        self._connection.request("GET", EVENTS + query, headers=headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def events(self) -> Iterator[dict[str, str]]:
        event: dict[str, str] = {}
        for line in self.answer:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                event[name] = value
            else:
                yield event
                event = {}

    def changes(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for event in self.events():
            if event.get("event") == "change":
                found.append(json.loads(event["data"]))
                assert event["id"] == str(found[-1]["revision"])
            if len(found) == count:
                return found
        raise AssertionError(found)

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


async def test_changes_come_as_events_from_any_revision_on_any_replica(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    def work(a: StoreProcess, b: StoreProcess) -> None:
        assert ask(a, {"sql": "CREATE TABLE item (id INTEGER PRIMARY KEY, v)"})[0] == 200
        made = ask(a, {"sql": "CREATE TABLE other (v)"})[1]["revision"]
        following = Stream(b, f"?from={made + 1}&table=item&table=none")
        assert following.status == 200
        events = following.events()
        first = next(events)
        assert set(first) == {"retry", "id"}
        statements = [
            {"sql": "INSERT INTO item VALUES (1, ?)", "parameters": [{"base64": "AP8="}]},
            {"sql": "INSERT INTO other VALUES (1)"},
            {"sql": "INSERT INTO item VALUES (2, 1)"},
        ]
        done = ask(a, {"statements": statements})[1]
        told = following.changes(2)
        assert [(one["kind"], one["new"], one["is_last"]) for one in told] == [
            ("insert", {"id": 1, "v": {"base64": "AP8="}}, False),
            ("insert", {"id": 2, "v": 1}, True),
        ]
        assert {one["transaction"] for one in told} == {done["revision"]}
        ask(a, {"sql": "UPDATE item SET v = 5 WHERE id = 2"})
        # An id without data says how far the stream is though nothing of its tables was written.
        far = ask(b, {"sql": "INSERT INTO other VALUES (2)"})[1]["revision"]
        (sold,) = following.changes(1)
        assert (sold["old"], sold["new"]) == ({"id": 2, "v": 1}, {"id": 2, "v": 5})
        assert any("event" not in event and int(event["id"]) >= far for event in following.events())
        following.close()
        for one in (a, b):
            again = Stream(one, "?table=item", last_id=told[0]["revision"])
            assert again.changes(2) == [told[1], sold]
            again.close()
            whole = Stream(one, "?from=beginning&table=ITEM")
            assert [change["kind"] for change in whole.changes(4)] == ["schema", "insert", "insert", "update"]
            whole.close()
        for query in (
            "?from=soon",
            "?from=0",
            "?from=-1",
            "?since=1",
            "?from=9999999999999999999",
            "?table=" + "x" * 2_000,
        ):
            refused = Stream(a, query)
            assert (refused.status, json.load(refused.answer)["error"]["sqlstate"]) == (400, "08P01"), query
        refused = Stream(a, last_id=-5)
        assert refused.status == 400
        assert b"Last-Event-ID" in refused.answer.read()

    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        first, second = (replicas.start(name, "--http-port", "0", command=SQL) for name in "ab")
        await asyncio.to_thread(work, first, second)


async def test_a_victim_is_told_beside_readers_that_take_nothing(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    def lazy(store: StoreProcess, stack: list[socket.socket]) -> str:
        host, _, port = store.ready["http_address"].rpartition(":")
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.settimeout(60)
        one.connect((host, int(port)))
        head = (
            f"GET {EVENTS}?from=beginning HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKENS['ann']}\r\n\r\n"
        )
        one.sendall(head.encode())
        stack.append(one)
        return one.recv(100).split(b" ")[1].decode()

    def work(one: StoreProcess) -> None:
        ann = TOKENS["ann"]
        assert ask(one, {"sql": "CREATE TABLE t (id INTEGER PRIMARY KEY, v)"}, ann)[0] == 200
        for token, status in (("", 401), ("wrong-token-of-nobody", 401), (TOKENS["eve"], 403)):
            assert Stream(one, token=token).status == status
        # Each row is some MiB of text.
        grow = {"sql": "INSERT INTO t (v) VALUES (CAST(zeroblob(150000) AS TEXT))"}
        for _ in range(10):
            assert ask(one, grow, ann)[0] == 200
        before = resident_mib(one.process.pid)
        held: list[socket.socket] = []
        said = [lazy(one, held) for _ in range(12)]
        assert (said.count("200"), said.count("429")) == (8, 4)
        victim = Stream(one, "?table=t", token=TOKENS["rob"])
        seen: list[int] = []
        next(victim.events())
        told = threading.Thread(target=lambda: seen.extend(one["key"]["id"] for one in victim.changes(40)))
        told.start()
        for _ in range(40):
            assert ask(one, grow, ann)[0] == 200
            assert ask(one, {"sql": "SELECT count(*) FROM t"}, TOKENS["rob"])[0] == 200
        told.join(120)
        assert seen == list(range(11, 51))
        assert resident_mib(one.process.pid) < before + 200
        assert code_of(ask(one, grow, TOKENS["rob"])) == (403, "42501")
        for lost in held:
            lost.close()
        victim.close()

    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        one = replicas.start("a", "--http-port", "0", *principals_of(tmp_path), command=SQL)
        await asyncio.to_thread(work, one)


async def test_over_tls_the_same_events_come_and_nothing_goes_in_plain_text(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    cert = authority.sign("replica")
    trusting = ssl.create_default_context(cafile=authority.ca)
    options = ("--tls-cert", cert["cert"], "--tls-key", cert["key"], "--tls-ca", authority.ca)

    async def work(one: StoreProcess) -> None:
        async with await SqlClient.connect(
            unique_name, cluster.metadata_uri, security=Security(tls_ca=authority.ca, token_file=str(tmp_path / "ann"))
        ) as ann:
            await ann.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
            reader = await asyncio.to_thread(Stream, one, "?from=beginning&table=t", TOKENS["rob"], None, trusting)
            assert reader.status == 200
            # Larger than a record of TLS, and than a piece of the stream.
            for number in range(12):
                await ann.execute("INSERT INTO t VALUES (?, CAST(zeroblob(90000 + ?) AS TEXT))", (number, number))
            told = await asyncio.to_thread(reader.changes, 13)
        assert [change["kind"] for change in told] == ["schema", *["insert"] * 12]
        assert [len(change["new"]["v"]) for change in told[1:]] == [90_000 + number for number in range(12)]
        again = await asyncio.to_thread(Stream, one, "?table=t", TOKENS["rob"], told[6]["revision"], trusting)
        assert await asyncio.to_thread(again.changes, 6) == told[7:]
        for stream in (reader, again):
            stream.close()
        refused = await asyncio.to_thread(Stream, one, "", "token-of-nobody", None, trusting)
        assert refused.status == 401
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(Stream, one, "", TOKENS["rob"], None, ssl.create_default_context())
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            await asyncio.to_thread(Stream, one, "", TOKENS["rob"])

    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        rights = principals_of(tmp_path)
        one = await asyncio.to_thread(lambda: replicas.start("a", "--http-port", "0", *rights, *options, command=SQL))
        await work(one)
