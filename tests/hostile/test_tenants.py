"""One tenant against the others at a real broker: large batches, listings that scan, memory, bans, what it names."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.unit.broker.api.stand import Caller, write_tokens

pytestmark = pytest.mark.asyncio

_CALLS = 100
_BATCH = {"tasks": [{"type": "mail", "payload": "x" * 20}] * 5_000}


class _Broker:
    """A broker's process, as tenants see it."""

    def __init__(self, process: BrokerProcess) -> None:
        self.pid = process.process.pid
        self._address = process.ready["http_address"]

    async def connect(self) -> Caller:
        host, _, port = self._address.rpartition(":")
        return Caller(*await asyncio.open_connection(host, int(port)), self._address)

    async def until_it_leads(self) -> None:
        caller = await self.connect()
        while (await caller.ask("GET", "/api/v1/status")).json["role"] != "leader":
            await asyncio.sleep(0.05)
        caller.close()


@contextlib.contextmanager
def _broker(cluster: DevCluster, log: str, folder: Path, *options: str) -> Iterator[_Broker]:
    tokens = write_tokens(folder / "tokens.toml")
    told = ("--metadata-uri", cluster.metadata_uri, "--log", log, "--tokens-file", tokens, "--rate", "0", *options)
    with brokers(folder, "b1", options=told) as (process,):
        yield _Broker(process)


@contextlib.asynccontextmanager
async def _beside(attacks: list[Callable[[], Coroutine[Any, Any, None]]], work: Work) -> AsyncIterator[None]:
    running = [asyncio.create_task(attack()) for attack in attacks]
    for one in running:
        work.ends_with(one)
    await work.reaches(len(attacks))
    try:
        yield
        assert not [one for one in running if one.done()], [one.exception() for one in running if one.done()]
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _victim(broker: _Broker) -> Victim:
    caller = await broker.connect()

    async def submit() -> None:
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token="bolt")
        assert answer.status == 201, answer

    return Victim(submit, servers=[broker.pid])


def _repeated(
    broker: _Broker, work: Work, method: str, path: str, body: Any = None, *, okay: set[int]
) -> Callable[[], Any]:
    """Return what asks the same as acme, again and again; a unit is an answer."""

    async def attack() -> None:
        caller = await broker.connect()
        while True:
            answer = await caller.ask(method, path, body, token="acme")
            assert answer.status in okay, answer
            work.add()

    return attack


async def test_large_batches_of_one_tenant_leave_the_others_served(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with _broker(cluster, unique_name, tmp_path) as broker:
        await broker.until_it_leads()
        victim = await _victim(broker)
        work = Work()
        quiet = await victim.run(_CALLS)
        attack = _repeated(broker, work, "POST", "/api/v1/tasks/batch", _BATCH, okay={200, 429})
        async with _beside([attack] * 3, work):
            attacked = await victim.run(_CALLS, beside=work, units=15)
        attacked.assert_goes_on_like(quiet, units_per_call=2, cpu=50.0)


async def test_listings_that_scan_leave_the_others_served(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with _broker(cluster, unique_name, tmp_path) as broker:
        await broker.until_it_leads()
        caller = await broker.connect()
        rare = await caller.ask("POST", "/api/v1/tasks", {"type": "rare", "slot": "s"}, token="acme")
        for _ in range(8):
            await caller.ask("POST", "/api/v1/tasks/batch", _BATCH, token="acme")
        last = await caller.ask("POST", "/api/v1/tasks", {"type": "rare", "slot": "t"}, token="acme")
        victim = await _victim(broker)
        work = Work()
        quiet = await victim.run(_CALLS)
        listing = _repeated(broker, work, "GET", "/api/v1/tasks?type=rare&order=newest&limit=1000", okay={200, 429})
        async with _beside([listing] * 4, work):
            attacked = await victim.run(_CALLS, beside=work, units=15)
        attacked.assert_goes_on_like(quiet, units_per_call=2, cpu=50.0)
        found, after = [], 0
        while True:
            page = (await caller.ask("GET", f"/api/v1/tasks?type=rare&after={after}", token="acme")).json
            found += [one["task_id"] for one in page["tasks"]]
            after = page["next"]
            if not after:
                break
        assert found == [rare.json["task_id"], last.json["task_id"]]


async def test_a_flood_of_payloads_ends_at_the_quota_and_nobody_else_is_hurt(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """With the default quotas: a quarter of the memory limit for all, an eighth for one tenant."""
    await _flood(cluster, unique_name, tmp_path, "bytes-full", ("--memory-limit-mib", "600"), others=201)


async def test_without_quotas_the_memory_mark_stops_the_flood_and_the_broker_comes_back_at_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    options = ("--memory-limit-mib", "500", "--tasks-mib-max", "9999", "--tenant-tasks-mib-max", "9999")
    await _flood(cluster, unique_name, tmp_path, "memory-full", options, others=507)


async def _flood(
    cluster: DevCluster, log: str, folder: Path, reason: str, options: tuple[str, ...], *, others: int
) -> None:
    payload = "x" * 1_000_000
    with _broker(cluster, log, folder, *options) as broker:
        await broker.until_it_leads()
        caller = await broker.connect()
        taken: list[int] = []
        refused: list[str] = []
        for _ in range(400):
            answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail", "payload": payload}, token="acme")
            if answer.status == 201:
                taken.append(answer.json["task_id"])
            else:
                refused.append(answer.json["reason"])
                if len(refused) == 50:
                    break
        print(f"{log}: {len(taken)} taken, {len(refused)} refused, {resident_mib(broker.pid):.0f} MiB resident")
        assert refused
        assert set(refused) == {reason}
        assert resident_mib(broker.pid) < int(options[1])
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token="bolt")
        assert answer.status == others, answer
        assert (await caller.ask("POST", f"/api/v1/tasks/{taken[0]}/cancel", {}, token="acme")).status == 200
        hold = await caller.ask("PUT", "/api/v1/holds?tenant=acme", {"is_draining": True}, token="admin")
        assert hold.status == 200, "what an operator does is taken"
    with _broker(cluster, log, folder, *options) as broker:  # It was killed; all of it is there again.
        await broker.until_it_leads()
        caller = await broker.connect()
        assert (await caller.ask("GET", f"/api/v1/tasks/{taken[-1]}", token="acme")).status == 200
        assert (await caller.ask("POST", f"/api/v1/tasks/{taken[1]}/cancel", {}, token="acme")).status == 200
        assert resident_mib(broker.pid) < int(options[1])


async def test_a_tenant_neither_lifts_a_ban_nor_names_what_reaches_further(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with _broker(cluster, unique_name, tmp_path) as broker:
        await broker.until_it_leads()
        caller = await broker.connect()

        async def ask(method: str, path: str, body: Any = None, *, by: str = "acme") -> tuple[int, str]:
            answer = await caller.ask(method, f"/api/v1/{path}", body, token=by)
            return answer.status, json.loads(answer.body).get("reason", "")

        for guarded in ("spark_sql", "spark_python", "spark_submit"):
            assert await ask("POST", "tasks", {"type": guarded}) == (403, "not-allowed")
        assert await ask("POST", "tasks/batch", {"tasks": [{"type": "a"}, {"type": "spark_sql"}]}) == (
            403,
            "not-allowed",
        )
        assert (await ask("POST", "tasks", {"type": "spark_sql", "tenant": "acme"}, by="admin"))[0] == 201
        assert (await ask("POST", "tasks", {"type": "mail", "code": "pool"}))[0] in {403, 409}
        for query in ("holds?tenant=acme", "holds?tenant=acme&type=mail"):
            assert (await ask("PUT", query, {"is_draining": True}, by="admin"))[0] == 200
        for method, body in (("DELETE", None), ("PUT", {"is_paused": True}), ("PUT", {"until_ms": 4_000_000_000_000})):
            assert await ask(method, "holds", body) == (403, "not-allowed")
            assert await ask(method, "holds?type=mail", body) == (403, "not-allowed")
        assert await ask("POST", "tasks", {"type": "mail"}) == (409, "draining")
        assert (await ask("DELETE", "holds?tenant=acme&type=mail", by="admin"))[0] == 200
        assert (await ask("DELETE", "holds?tenant=acme", by="admin"))[0] == 200
        assert (await ask("POST", "tasks", {"type": "mail"}))[0] == 201
        assert (await ask("PUT", "holds?type=mail", {}))[0] == 200
        assert (await ask("DELETE", "holds?type=mail"))[0] == 200, "its own it ends"
