"""A server that speaks HTTP and does with each request what a test says; and a broker in memory for it.

The broker keeps to the HTTP API's routes and JSON and to nothing else: no log, no scheduler. Tests of the whole run on
the real one; this one makes a connection break exactly where a test wants it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")


class Said(NamedTuple):
    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}
    pieces: AsyncIterator[bytes] | None = None
    is_cut: bool = False


Answering = Callable[[Asked], Awaitable[Said]]


class HttpStandIn:
    """Serves on a port of its own."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.asked: list[Asked] = []
        self.connection_count = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connection_count += 1
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        asked = Asked(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body)
        self.asked.append(asked)
        said = await self.answering(asked)
        if said.is_cut:
            return False
        if said.pieces is not None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            async with contextlib.aclosing(said.pieces) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    await writer.drain()
            return False
        content = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
        head = {"content-type": "application/json", "content-length": str(len(content)), **said.headers}
        lines = [f"HTTP/1.1 {said.status} X", *(f"{name}: {value}" for name, value in head.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return True


def problem(status: int, reason: str, detail: str = "", headers: dict[str, str] | None = None, **more: Any) -> Said:
    """Return a refusal as the broker words it."""
    body = {"type": "about:blank", "title": reason, "status": status, "detail": detail, "reason": reason, **more}
    return Said(status, body, {"content-type": "application/problem+json", **(headers or {})})


class MemoryBroker:
    """Tasks in a dictionary; `finish` ends them. One event a change, as the real broker logs it."""

    def __init__(self) -> None:
        self.tasks: dict[int, dict[str, Any]] = {}
        self.policies: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, Any] = {}
        self.transactions: dict[int, list[int]] = {}
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.holds: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.code: dict[str, bytes] = {}
        self.workers: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        self._changed = asyncio.Condition()

    async def log(self, name: str, **fields: Any) -> int:
        revision = fields.get("task_id") if name == "task_submitted" else next(self._ids)
        self.events.append((revision or 0, name, fields))
        async with self._changed:
            self._changed.notify_all()
        return revision or 0

    async def submit(self, spec: dict[str, Any], tenant: str, transaction: int = 0) -> int | dict[str, Any]:
        slot = spec.get("slot", "")
        for task in self.tasks.values():
            if slot and task["slot"] == slot and task["status"] not in {"finished", "error", "cancelled"}:
                return {"slot_task_id": task["task_id"]}
        task_id = next(self._ids)
        status = "prepared" if transaction else "waiting"
        self.tasks[task_id] = {
            "task_id": task_id, "tenant": tenant, "status": status, "slot": "", "created_ms": 1_700_000_000_000,
            "payload": "", "transaction": transaction, **{k: v for k, v in spec.items() if k != "transaction"},
        }  # fmt: skip
        if transaction:
            self.transactions[transaction].append(task_id)
        await self.log("task_submitted", task_id=task_id, tenant=tenant, type=spec["type"])
        return task_id

    async def finish(self, task_id: int, *, status: str = "finished", **fields: Any) -> None:
        self.tasks[task_id].update(status=status, **fields)
        await self.log("task_ended", task_id=task_id, tenant=self.tasks[task_id]["tenant"], status=status)

    async def answer(self, asked: Asked) -> Said:
        key = asked.headers.get("idempotency-key", "")
        if key in self.requests:
            return self.requests[key]
        said = await self._route(asked)
        if key and said.status < 300:
            self.requests[key] = said
        return said

    async def _route(self, asked: Asked) -> Said:
        tenant = asked.query.get("tenant") or asked.headers.get("x-tenant", "default")
        match asked.method, asked.path.removeprefix("/api/v1").strip("/").split("/"):
            case "POST", ["tasks"]:
                task_id = await self.submit(asked.json, tenant, asked.json.get("transaction", 0))
                if isinstance(task_id, dict):
                    return problem(409, "slot-taken", "the slot is taken", **task_id)
                return Said(201, {"task_id": task_id, "status": "waiting"})
            case "POST", ["tasks", "batch"]:
                done = [
                    await self.submit(spec, tenant, asked.json.get("transaction", 0)) for spec in asked.json["tasks"]
                ]
                refused = [{"index": n, **item} for n, item in enumerate(done) if isinstance(item, dict)]
                return Said(200, {"task_ids": [i if isinstance(i, int) else 0 for i in done], "refused": refused})
            case "POST", ["tasks", "cancel"]:
                waiting = [i for i in asked.json["task_ids"] if self.tasks[i]["status"] == "waiting"]
                for task_id in waiting:
                    await self.finish(task_id, status="cancelled", outcome="cancelled")
                return Said(200, {"count": len(waiting), "asked": len(asked.json["task_ids"]) - len(waiting)})
            case "GET", ["tasks"]:
                return self._page(asked)
            case "GET", ["tasks", number]:
                return await self._one(int(number), float(asked.query.get("wait_s", 0)))
            case "GET", ["tasks", _, "explain"]:
                return Said(200, {"status": "waiting", "reason": "tenant-limit", "text": "3 of 3 run", "place": 4})
            case "PATCH", ["tasks", number]:
                self.tasks[int(number)].update(asked.json)
                return Said(200, {"count": 1})
            case "POST", ["dead-letters", "replay"]:
                return Said(200, {"count": 2, "passed_over": 1})
            case _, ["transactions", *rest]:
                return await self._transaction(asked, rest)
            case _:
                return await self._administrate(asked)

    def _page(self, asked: Asked) -> Said:
        after, limit = int(asked.query.get("after", 0)), int(asked.query.get("limit", 100))
        statuses = [word for word in asked.query.get("status", "").split(",") if word]
        rows = [
            {name: value for name, value in task.items() if name not in {"payload", "result"}}
            for task in self.tasks.values()
            if (not statuses or task["status"] in statuses) and asked.query.get("type", task["type"]) == task["type"]
        ]
        newest = asked.query.get("order") == "newest"
        if after:
            rows = [row for row in rows if (row["task_id"] < after if newest else row["task_id"] > after)]
        rows = rows[::-1] if newest else rows
        rest = rows[limit:]
        return Said(200, {"tasks": rows[:limit], "next": rows[limit - 1]["task_id"] if rest else None})

    async def _one(self, task_id: int, wait_s: float) -> Said:
        if task_id not in self.tasks:
            return problem(404, "not-found", f"there is no task {task_id}")
        task = self.tasks[task_id]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: task["status"] in {"finished", "error", "cancelled"})
        return Said(200, task)

    async def _transaction(self, asked: Asked, rest: list[str]) -> Said:
        if not rest:
            transaction = next(self._ids)
            self.transactions[transaction] = []
            return Said(201, {"transaction": transaction, "expires_ms": 1})
        transaction = int(rest[0])
        if transaction not in self.transactions:
            return problem(409, "transaction-over", f"transaction {transaction} is over")
        tasks = self.transactions.pop(transaction)
        for task_id in tasks:
            if rest[1] == "commit":
                self.tasks[task_id]["status"] = "waiting"
            else:
                del self.tasks[task_id]
        return Said(200, {"task_count": len(tasks)})

    async def _administrate(self, asked: Asked) -> Said:
        match asked.method, asked.path.removeprefix("/api/v1").strip("/").split("/"):
            case "GET", ["status"]:
                return Said(200, {"role": "leader", "leader": "b1", "revision": len(self.events), "leader_epoch": 1})
            case "GET", ["overview"]:
                counts: dict[str, int] = {}
                for task in self.tasks.values():
                    counts[task["status"]] = counts.get(task["status"], 0) + 1
                return Said(200, {"by_status": counts, "threads": 8, "workers_by_status": {"connected": 1}})
            case "GET", ["workers"]:
                return Said(200, {"workers": self.workers})
            case "GET", ["tenants"]:
                return Said(200, {"tenants": [self._tenant(name) for name in sorted(self.policies)], "next": None})
            case "GET", ["tenants", name]:
                return Said(200, self._tenant(name))
            case "PUT", ["tenants", name]:
                self.policies[name] = asked.json
                await self.log("tenant_set", tenant=name)
                return Said(200, {"revision": 1})
            case method, ["holds"]:
                place = tuple(asked.query.get(name, "") for name in ("tenant", "type", "key"))
                if method == "PUT":
                    self.holds[place] = asked.json  # type: ignore[index]
                else:
                    self.holds.pop(place, None)  # type: ignore[arg-type]
                return Said(200, {"revision": 1})
            case "GET", ["limits"]:
                holds = [{"tenant": t, "type": y, "key": k, **hold} for (t, y, k), hold in self.holds.items()]
                return Said(200, {"resources": [], "holds": holds})
            case "PUT", ["code", name]:
                self.code[name] = asked.body
                return Said(201, {"code": name})
            case "GET", ["code", name]:
                return Said(200, self.code[name], {"content-type": "application/zip"})
            case "GET", ["events"]:
                return Said(pieces=self._stream(asked.query.get("from_revision")))
            case _:
                return problem(404, "not-found", f"{asked.method} {asked.path}")

    def _tenant(self, name: str) -> dict[str, Any]:
        return {"tenant": name, "policy": self.policies.get(name, {}), "is_default": name not in self.policies}

    async def _stream(self, start: str | None) -> AsyncIterator[bytes]:
        place = len(self.events)
        if start is not None:
            place = next((n for n, event in enumerate(self.events) if event[0] >= int(start)), place)
        yield b": hello\n\n"
        while True:
            async with self._changed:
                while len(self.events) <= place:
                    await self._changed.wait()
            while place < len(self.events):
                revision, name, fields = self.events[place]
                place += 1
                yield f"id: {revision}\nevent: {name}\ndata: {json.dumps(fields)}\n\n".encode()
