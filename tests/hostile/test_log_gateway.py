"""Attackers at a gateway of logs, beside a producer that goes on: foreign ids, slow readers, half bodies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ledger.dev import DevCluster
from tests.hostile.gateway_principals import SECRETS, principals_file
from tests.hostile.victim import Victim
from tests.integration.gateways import GatewayProcess, asking, batch

pytestmark = pytest.mark.asyncio

_CALLS = 60


@contextlib.asynccontextmanager
async def _gateway(cluster: DevCluster, folder: Path) -> AsyncIterator[GatewayProcess]:
    one = await GatewayProcess.start(cluster.metadata_uri, 0, "--principals", principals_file(folder))
    try:
        async with asking(one.url, SECRETS["root"]) as root:
            for log in ("shared", "hers"):
                assert (await root.put(f"/v1/logs/{log}", json={})).status_code == 200
        yield one
    finally:
        await one.stop()


class _Producer:
    """The victim: appends a record at a time."""

    def __init__(self, http: httpx.AsyncClient, log: str, name: str) -> None:
        self.http = http
        self.path = f"/v1/logs/{log}/records"
        self.name = name
        self.sequence = 0

    async def append(self) -> None:
        self.sequence += 1
        answer = await self.http.post(self.path, json=batch(self.name, self.sequence, "honest"))
        assert answer.status_code == 200, answer.text


async def test_a_stranger_appends_nothing_under_the_id_of_another_and_nothing_to_her_logs(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with _gateway(cluster, tmp_path) as one, asking(one.url, SECRETS["ann"]) as ann:
        name = f"till-{tmp_path.name}"
        victim = _Producer(ann, "shared", name)
        await victim.append()
        async with asking(one.url, SECRETS["eve"]) as eve, asking(one.url) as nobody:
            for sequence in (1, 2):
                stolen = await eve.post("/v1/logs/shared/records", json=batch(name, sequence, "forged"))
                assert (stolen.status_code, stolen.json()["reason"]) == (403, "foreign-producer")
            tried = [
                await eve.post("/v1/logs/hers/records", json=batch("eve", 1, "x")),
                await eve.get("/v1/logs/hers/records"),
                await eve.get("/v1/logs/hers/tail"),
                await eve.put("/v1/logs/hers", json={}),
                await eve.delete("/v1/logs/shared"),
                await eve.post("/v1/logs/shared/truncate", json={"position": 9}),
                await eve.get("/metrics"),
            ]
            assert [one.status_code for one in tried] == [403] * len(tried)
            assert (await eve.get("/v1/logs")).json()["logs"] == ["shared"]
            assert (await nobody.get("/v1/logs")).status_code == 401
            for body in (b"", b"{", b'{"producer":"p","sequence":1,"records":[]}', b'{"producer":1}', b"\xff" * 100):
                answer = await eve.post(
                    "/v1/logs/shared/records", content=body, headers={"content-type": "application/json"}
                )
                assert answer.status_code == 400, answer.text
        await victim.append()


async def test_a_producer_goes_on_beside_readers_that_take_nothing_and_bodies_that_never_end(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with _gateway(cluster, tmp_path) as one, asking(one.url, SECRETS["ann"]) as ann:
        victim = _Producer(ann, "hers", f"till-{tmp_path.name}")
        await victim.append()
        calls = Victim(victim.append, servers=[one.process.pid])
        quiet = await calls.run(_CALLS)
        async with asking(one.url, SECRETS["eve"]) as eve:
            big = {"producer": f"eve-{tmp_path.name}", "sequence": 1, "records": [{"text": "x" * 1000}] * 2000}
            assert (await eve.post("/v1/logs/shared/records", json=big)).status_code == 200
        async with _attack(one.url):
            attacked = await calls.run(_CALLS)
        attacked.assert_goes_on_like(quiet)


@contextlib.asynccontextmanager
async def _attack(url: str) -> AsyncIterator[None]:
    """Hold tails open that nobody reads, and requests whose bodies do not come."""
    parts = urlsplit(url)
    head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {SECRETS['eve']}\r\n"
    tail = f"GET /v1/logs/shared/tail?from=begin HTTP/1.1\r\n{head}\r\n".encode()
    half = f"POST /v1/logs/shared/records HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
    half_body = f"{half}Content-Length: 4000000\r\n\r\n".encode() + b"{" * 100_000
    held = []
    refused = 0
    try:
        for number in range(240):
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
                writer.write(tail if number % 2 else half_body)
                held.append((reader, writer))
        for reader, _ in held:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.05):
                    refused += b" 429 " in await reader.readline()
        yield
    finally:
        for _, writer in held:
            writer.transport.abort()


async def test_a_stranger_ends_no_batch_of_another_and_fills_what_the_log_remembers_for_nobody_else(
    cluster: DevCluster, tmp_path: Path
) -> None:
    path = "/v1/logs/shared/batches"

    def body(kind: str, **more: object) -> dict[str, object]:
        return {"writer": "job", "checkpoint": "c", "run": tmp_path.name, "kind": kind, "batch": 1, **more}

    async with _gateway(cluster, tmp_path) as one, asking(one.url, SECRETS["ann"]) as ann:
        async with asking(one.url, SECRETS["eve"]) as eve, asking(one.url) as nobody:
            row = {"records": [{"text": f"row of {tmp_path.name}"}]}
            assert (await ann.post(path, json=body("chunk", **row))).json()["status"] == "applied"
            assert (await nobody.post(path, json=body("end", parts=[[0, 1]]))).status_code == 401
            assert (await eve.post("/v1/logs/hers/batches", json=body("whole", **row))).status_code == 403
            for forged in (
                body("end", parts=[[0, 1]]),
                body("whole", takes_over_from="c"),
                body("chunk", chunk=1, **row),
                body("forget"),
            ):
                assert (await eve.post(path, json=forged)).status_code == 200  # Of a writer of her own.
            for wrong in (
                body("forgets"), body("whole", batch=-1), body("chunk"), body("chunk", part=10**9, **row),
                body("end", parts=[[0, 1, 2]]), body("end", **row), body("whole", writer="\n", parts=5),
            ):  # fmt: skip
                assert 400 <= (await eve.post(path, json=wrong)).status_code < 500
            for number in range(400):
                long = {
                    "writer": f"{number:0190d}",
                    "checkpoint": "c" * 200,
                    "run": "r" * 200,
                    "records": [{"text": "e"}],
                }
                answer = (await eve.post(path, json={"kind": "chunk", "batch": 1, **long})).json()
                if answer.get("status") == "refused":
                    assert "bytes of writers of eve" in answer["reason"]
                    break
            else:
                raise AssertionError("nobody has stopped her")
            again = await ann.post(path, json=body("chunk", **row))
            assert again.json()["status"] == "done"
            assert (await ann.post(path, json=body("end", parts=[[0, 1]]))).json()["status"] == "applied"
            assert (await ann.post(path, json=body("whole", **row) | {"batch": 2})).json()["status"] == "applied"
