"""The HTTP API on the real service: ZooKeeper, bookies, a log; a test plays the worker by commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.api.settings import HttpSettings
from broker.machine.commands import EndedRun, ReportRuns, WorkerAppeared
from broker.machine.policies import WorkerOffer
from broker.machine.replies import Changed, Done
from broker.machine.statuses import TaskStatus
from broker.machine.views import TaskView
from broker.server.service import BrokerService
from broker.server.settings import BrokerSettings
from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from tests.unit.broker.api.stand import Answer, Caller, write_tokens

pytestmark = pytest.mark.asyncio

_REPLICA = ReplicaSettings(ensemble_size=3, write_quorum=3, ack_quorum=2, snapshot_s=0)


@asynccontextmanager
async def _running(
    cluster: DevCluster, name: str, folder: Path, replica_id: str = "a", **http: Any
) -> AsyncIterator[BrokerService]:
    settings = BrokerSettings(
        log=name, replica_id=replica_id, data_dir=folder / replica_id, replica=_REPLICA, http=HttpSettings(**http)
    )
    client = await LedgerClient.connect(cluster.metadata_uri, session_timeout_ms=3_000)
    try:
        async with BrokerService(client, settings) as broker:
            yield broker
    finally:
        await client.close()


async def _until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


class Api:
    """Asks one broker."""

    def __init__(self, broker: BrokerService) -> None:
        self.broker = broker
        self._caller: Caller | None = None

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        if self._caller is None:
            host, _, port = self.broker.http_address.rpartition(":")
            self._caller = Caller(*await asyncio.open_connection(host, int(port)), self.broker.http_address)
        return await self._caller.ask(method, f"/api/v1/{path}", body, **more)

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = await self.ask(method, path, body, **more)
        assert answer.status < 300, answer
        return answer.json

    async def work(self, worker_id: str = "w", threads: int = 10) -> None:
        """Appear as a worker."""
        hello = WorkerAppeared(worker_id, "i" + worker_id, "here", WorkerOffer(threads))
        assert not isinstance(await self.broker.execute(hello), Changed)

    async def finish(self, task_id: int, result: bytes = b"done", worker_id: str = "w") -> None:
        """Finish a task as the worker that runs it."""
        shown: list[TaskView] = []

        async def runs() -> bool:
            fields = await self.ok("GET", f"tasks/{task_id}")
            shown[:] = [fields]
            return bool(fields["status"] == "running")

        async with asyncio.timeout(60):
            while not await runs():
                await asyncio.sleep(0.01)
        fields: Any = shown[0]
        ended = EndedRun(task_id, fields["assignment_id"], int(TaskStatus.FINISHED), result=result)
        await self.broker.execute(ReportRuns(worker_id, "i" + worker_id, [ended]))


@pytest_asyncio.fixture
async def api(cluster: DevCluster, unique_name: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with _running(cluster, unique_name, tmp_path) as broker:
        await _until(lambda: broker.replica.role is ReplicaRole.LEADER)
        yield Api(broker)


async def test_a_task_goes_from_its_submission_to_its_result(api: Api) -> None:
    submitted = await api.ok("POST", "tasks", {"type": "mail", "payload_json": {"to": "a"}, "tenant": "acme"})
    task_id = submitted["task_id"]
    waiting = await api.ok("GET", f"tasks/{task_id}")
    assert (waiting["status"], waiting["payload"], waiting["tenant"]) == ("waiting", '{"to":"a"}', "acme")
    assert (await api.ok("GET", f"tasks/{task_id}/explain"))["reason"] == "no-worker"
    asked = asyncio.create_task(Api(api.broker).ok("GET", f"tasks/{task_id}?wait_s=30"))
    await api.work()
    await api.finish(task_id, b"\xffdone")
    ended = await asked
    assert (ended["status"], ended["result_base64"], ended["attempts"]) == ("finished", "/2RvbmU=", 1)
    assert (await api.ask("GET", f"tasks/{task_id}/result")).body == b"\xffdone"
    listed = await api.ok("GET", "tasks?status=finished,error&type=mail&tenant=acme")
    assert [one["task_id"] for one in listed["tasks"]] == [task_id]
    assert (await api.ok("GET", "overview"))["by_status"] == {"finished": 1}


async def test_the_same_request_twice_makes_one_task(api: Api) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = await api.ok("POST", "tasks", {"type": "mail"}, headers=key)
    assert await api.ok("POST", "tasks", {"type": "mail"}, headers=key) == first
    assert len((await api.ok("GET", "tasks"))["tasks"]) == 1


async def test_a_slot_is_taken_by_one_and_who_has_it_is_told(api: Api) -> None:
    holder = (await api.ok("POST", "tasks", {"type": "mail", "slot": "nightly"}))["task_id"]
    refused = await api.ask("POST", "tasks", {"type": "mail", "slot": "nightly"})
    assert (refused.status, refused.json["reason"], refused.json["slot_task_id"]) == (409, "slot-taken", holder)
    tasks = [{"type": "mail"}, {"type": "mail", "slot": "nightly"}, {"type": "mail"}]
    batch = await api.ok("POST", "tasks/batch", {"tasks": tasks})
    assert batch["refused"] == [{"index": 1, "slot_task_id": holder}]
    assert [bool(one) for one in batch["task_ids"]] == [True, False, True]
    assert [one["slot"] for one in (await api.ok("GET", "slots"))["slots"]] == ["nightly"]
    assert (await api.ok("POST", f"tasks/{holder}/cancel"))["count"] == 1
    assert (await api.ask("POST", "tasks", {"type": "mail", "slot": "nightly"})).status == 201


async def test_a_transaction_makes_all_its_tasks_wait_at_once_or_none(api: Api) -> None:
    for end, status in (("commit", "waiting"), ("rollback", None)):
        transaction = (await api.ok("POST", "transactions", {"ttl_s": 60}))["transaction"]
        batch = await api.ok("POST", "tasks/batch", {"tasks": [{"type": "mail"}] * 3, "transaction": transaction})
        one = await api.ok("POST", "tasks", {"type": "mail", "transaction": transaction})
        assert one["status"] == "prepared"
        assert (await api.ok("GET", f"tasks/{one['task_id']}"))["status"] == "prepared"
        assert [t["task_count"] for t in (await api.ok("GET", "transactions"))["transactions"]] == [4]
        assert (await api.ok("POST", f"transactions/{transaction}/{end}"))["task_count"] == 4
        seen = await api.ask("GET", f"tasks/{batch['task_ids'][0]}")
        assert (seen.json.get("status") if seen.status == 200 else None) == status
    over = await api.ask("POST", f"transactions/{transaction}/commit")
    assert over.status in {404, 409}
    assert over.json["detail"]


async def test_a_task_is_delayed_changed_and_cancelled(api: Api) -> None:
    delayed = await api.ok("POST", "tasks", {"type": "mail", "delay_s": 3600, "priority": 1})
    assert delayed["status"] == "delayed"
    path = f"tasks/{delayed['task_id']}"
    assert (await api.ok("PATCH", path, {"priority": 9, "resources": {"db": 2}}))["count"] == 1
    changed = await api.ok("GET", path)
    assert (changed["status"], changed["priority"], changed["resources"]) == ("delayed", 9, {"db": 2})
    assert (await api.ok("POST", f"{path}/cancel"))["count"] == 1
    assert (await api.ok("GET", f"{path}?wait_s=10"))["status"] == "cancelled"
    assert (await api.ok("POST", f"{path}/cancel"))["passed_over"] == 1
    assert (await api.ask("POST", "tasks/999999/cancel")).status == 404


async def test_policies_limits_and_holds_are_set_shown_and_lifted(api: Api) -> None:
    await api.ok("PUT", "tenants/acme", {"weight": 3.5, "running_max": 2, "retry": {"backoff_ms": 100}})
    shown = await api.ok("GET", "tenants/acme")
    assert (shown["policy"]["weight"], shown["is_default"]) == (3.5, False)
    await api.ok("PUT", "resources/db", {"amount_max": 3})
    await api.ok("PUT", "resources/db?tenant=acme&type=mail", {"amount_max": 1})
    await api.ok("PUT", "holds?tenant=acme&type=mail", {"is_draining": True, "reason": "moves"})
    limits = await api.ok("GET", "limits")
    assert {(one["tenant"], one["type"], one["amount_max"]) for one in limits["resources"]} == {
        ("", "", 3),
        ("acme", "mail", 1),
    }
    assert [one["reason"] for one in limits["holds"]] == ["moves"]
    refused = await api.ask("POST", "tasks", {"type": "mail", "tenant": "acme"})
    assert (refused.status, refused.json["reason"]) == (409, "draining")
    await api.ok("DELETE", "holds?tenant=acme&type=mail")
    await api.ok("DELETE", "resources/db")
    assert (await api.ask("POST", "tasks", {"type": "mail", "tenant": "acme"})).status == 201
    await api.ok("DELETE", "tenants/acme")


async def test_policies_that_make_no_sense_are_refused(api: Api) -> None:
    for body in (
        {"weight": 0.0}, {"weight": -1.0}, {"running_max": -1}, {"group": -(10**15)}, {"max_attempts": -1},
        {"running_max_by_type": {"a": -1}}, {"retry": {"factor": 0.0}}, {"retry": {"jitter": 7.0}}, {"weihgt": 1.0},
        {"retention_ms": -5},
    ):  # fmt: skip
        answer = await api.ask("PUT", "tenants/acme", body)
        assert (answer.status, answer.json["reason"]) == (400, "invalid"), (body, answer)


async def test_names_that_nobody_could_read_are_refused_or_kept_as_they_are(api: Api) -> None:
    for name in ("x" * 101 + "ä" * 99, "\u202eevil", "a\u200bb", "a\nb", "a\x7fb", "a\x00b", " "):
        answer = await api.ask("POST", "tasks", {"type": name})
        assert answer.status in {201, 400}
        if answer.status == 201:
            assert (await api.ok("GET", f"tasks/{answer.json['task_id']}"))["type"] == name


async def test_code_is_deployed_once_under_its_name(api: Api) -> None:
    zipped = {"Content-Type": "application/zip"}
    archive = b"PK\x05\x06" + bytes(18)
    assert (await api.ask("PUT", "code/pool-1", archive, headers=zipped)).status == 200
    assert (await api.ask("PUT", "code/pool-1", archive, headers=zipped)).status == 200
    assert (await api.ask("PUT", "code/pool-1", archive + b"x", headers=zipped)).status == 409
    assert (await api.ask("GET", "code/pool-1")).body == archive
    assert (await api.ask("POST", "tasks", {"type": "a", "code": "nowhere"})).status == 409
    task_id = (await api.ok("POST", "tasks", {"type": "a", "code": "pool-1"}))["task_id"]
    assert (await api.ask("DELETE", "code/pool-1")).json["reason"] == "in-use"
    await api.ok("POST", f"tasks/{task_id}/cancel")
    await api.ok("DELETE", "code/pool-1")
    assert (await api.ask("GET", "code/pool-1")).status == 404


async def test_workers_are_listed_and_only_dead_ones_removed(api: Api) -> None:
    await api.work("w1", 3)
    assert [(one["worker_id"], one["offer"]["threads_max"]) for one in (await api.ok("GET", "workers"))["workers"]] == [
        ("w1", 3)
    ]
    assert (await api.ask("DELETE", "workers/w1")).status == 409
    assert (await api.ask("DELETE", "workers/w2")).status == 404


async def test_events_follow_what_happens_and_go_on_where_they_were_left(api: Api) -> None:
    seen: list[tuple[int, str]] = []

    async def read(query: str, count: int) -> None:
        host, _, port = api.broker.http_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /api/v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        found: list[tuple[int, str]] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                line = (await reader.readline()).decode().strip()
                if line.startswith("data: "):
                    fields = json.loads(line[6:])
                    found.append((fields["revision"], str(fields.get("status", ""))))
        seen.extend(found)
        writer.close()

    task_id = (await api.ok("POST", "tasks", {"type": "mail"}))["task_id"]
    reading = asyncio.create_task(read("?from_revision=1", 4))
    await api.work()
    await api.finish(task_id)
    await reading
    assert seen[0][0] == task_id
    assert seen[-1][1] == "finished"
    before = list(seen)
    await read(f"?from_revision={before[1][0]}", 3)
    assert seen[4:] == before[1:]


async def test_a_tenant_sees_its_own_through_the_whole_service(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    tokens_file = write_tokens(tmp_path / "tokens.toml")
    async with _running(cluster, unique_name, tmp_path, tokens_file=tokens_file) as broker:
        await _until(lambda: broker.replica.role is ReplicaRole.LEADER)
        api = Api(broker)
        own = (await api.ok("POST", "tasks", {"type": "mail"}, token="acme"))["task_id"]
        theirs = (await api.ok("POST", "tasks", {"type": "mail", "slot": "s"}, token="bolt"))["task_id"]
        await api.ok("POST", "tasks/cancel", {"task_ids": [own, theirs]}, token="acme")
        assert (await api.ok("GET", f"tasks/{theirs}", token="bolt"))["status"] == "waiting"
        assert (await api.ask("GET", f"tasks/{theirs}", token="acme")).status == 404
        assert [one["task_id"] for one in (await api.ok("GET", "tasks", token="acme"))["tasks"]] == [own]
        assert (await api.ok("GET", "slots", token="acme"))["slots"] == []
        assert (await api.ok("GET", "overview", token="acme"))["by_status"] == {"cancelled": 1}
        assert [one["tenant"] for one in (await api.ok("GET", "tenants", token="acme"))["tenants"]] == ["acme"]
        transaction = (await api.ok("POST", "transactions", {}, token="bolt"))["transaction"]
        assert (await api.ask("POST", f"transactions/{transaction}/commit", token="acme")).status in {404, 409}
        assert (await api.ok("GET", "transactions", token="acme"))["transactions"] == []
        assert len((await api.ok("GET", "tasks", token="viewer"))["tasks"]) == 2


async def test_a_follower_answers_reads_and_sends_writers_to_the_leader(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(_running(cluster, unique_name, tmp_path, "a"))
        await _until(lambda: leader.replica.role is ReplicaRole.LEADER)
        follower = await stack.enter_async_context(_running(cluster, unique_name, tmp_path, "b"))
        await _until(lambda: follower.leader_http() is not None)
        writer, reader = Api(leader), Api(follower)
        submitted = await writer.ask("POST", "tasks", {"type": "mail"})
        task_id = submitted.json["task_id"]
        newer = {"X-Rsm-Min-Revision": submitted.headers["x-rsm-revision"]}
        assert (await reader.ok("GET", f"tasks/{task_id}", headers=newer))["task_id"] == task_id
        sent = await reader.ask("POST", "tasks?", {"type": "mail"})
        assert (sent.status, sent.json["reason"]) == (307, "not-leader")
        assert sent.headers["location"].startswith(f"http://{leader.http_address}/api/v1/tasks")
        fresh = await reader.ask("GET", "slots", headers={"X-Rsm-Consistency": "linearizable"})
        assert fresh.status == 307
        status = await reader.ok("GET", "status")
        assert (status["role"], status["leader"], status["leader_http"]) == (
            "follower",
            "a",
            f"http://{leader.http_address}",
        )
        waiting = asyncio.create_task(reader.ok("GET", f"tasks/{task_id}?wait_s=30"))
        await writer.work()
        await writer.finish(task_id)
        assert (await waiting)["status"] == "finished"


async def test_commands_of_every_kind_are_answered_as_they_are_described(api: Api) -> None:
    assert isinstance(await api.broker.execute(WorkerAppeared("w9", "i9", "here", WorkerOffer(1))), Done | Changed)
    for method, path, body in (
        ("POST", "dead-letters/replay", {"type": "mail"}),
        ("POST", "dead-letters/replay", {}),
        ("POST", "tasks/cancel", {"task_ids": [1, 2, 3]}),
        ("DELETE", "tenants/nobody", None),
        ("DELETE", "holds?type=nothing", None),
        ("DELETE", "resources/nothing", None),
        ("DELETE", "code/nothing", None),
        ("PATCH", "tasks/1", {"priority": 1}),
    ):
        answer = await api.ask(method, path, body)
        assert answer.status in {200, 404, 409}, (method, path, answer)
