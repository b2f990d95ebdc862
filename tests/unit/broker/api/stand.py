"""A broker that says what a test wants, and somebody who asks it over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from broker.api.server import HttpServer
from broker.api.settings import HttpSettings
from broker.machine.commands import (
    BeginTransaction,
    BrokerCommand,
    CancelTasks,
    ChangeTasks,
    CommitTransaction,
    DeleteDead,
    ReplayDead,
    RollbackTransaction,
    SubmitTasks,
)
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.queries import (
    BrokerQuery,
    ExplainTask,
    GetCode,
    GetOverview,
    GetTask,
    ListCodes,
    ListLimits,
    ListSlots,
    ListTasks,
    ListTenants,
    ListTransactions,
    ListWorkers,
)
from broker.machine.replies import Begun, BrokerReply, Changed, Committed, Done, TasksSubmitted
from broker.machine.statuses import ENDED, TaskStatus
from broker.machine.views import (
    BrokerResult,
    CodeArchive,
    Codes,
    CodeView,
    ExplanationView,
    HoldView,
    LimitsView,
    Nothing,
    OverviewView,
    ResourceView,
    Slots,
    SlotView,
    TaskPageView,
    TaskView,
    Tenants,
    TenantView,
    Transactions,
    TransactionView,
    TypeView,
    Workers,
    WorkerView,
)
from ledger.http.routes import ProbePage
from rsm_spark.core.commands import Audited
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.freshness import STALE, Freshness
from rsm_spark.core.records import Record, encode_records
from rsm_spark.errors import MissingLogError
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.server.probes import readiness

STATUS = ReplicaStatus(
    log="broker", log_id="00" * 16, replica_id="a", incarnation="11" * 16, role=ReplicaRole.LEADER, phase="lead",
    leader="a", leader_address="", leader_epoch=4, revision=70, digest="", prefix_hash="", position=None, row_count=9,
    session_count=2, logged_ms=1_000, lag_ms=0, queued=3, snapshot_revision=60, failure="",
)  # fmt: skip
SECRETS = {"admin": "the-administrator-s", "acme": "the-one-of-acme-inc", "bolt": "the-one-of-bolt-inc",
           "viewer": "who-looks-only-at-all", "acme-viewer": "who-looks-at-acme-s"}  # fmt: skip


def task(task_id: int, tenant: str = "acme", status: int = TaskStatus.WAITING, **changes: Any) -> TaskView:
    """A task as it is shown."""
    shown = TaskView(
        task_id, tenant, "mail", int(status), 0, 3, False, 0, 1, {"db": 1}, "", "", 1_000, 0, 0, 0, 0, "", "", 0, "", 0,
        0, 0, 0, 0, "", "", 0, -1.0, "", b"hello", b"",
    )  # fmt: skip
    return msgspec.structs.replace(shown, **changes)


class Feed(ChangeFeed):
    """The real feed, of entries that a test makes; what has left the ring has been trimmed."""

    def __init__(self, ring_bytes: int = 1_000_000) -> None:
        context: Any = SimpleNamespace(payload_listeners=[], tip=SimpleNamespace(revision=0))
        super().__init__(context, ring_bytes=ring_bytes)

    def log(self, *records: tuple[int, tuple[Any, ...]], logged_ms: int = 5_000) -> int:
        """Confirm an entry of these records; return its last revision."""
        first = self._last_revision + 1
        body = encode_records([Record(number, None, fields) for number, fields in records])
        envelope = Envelope(bytes(16), 1, first, first - 1, logged_ms, len(records), bytes(32))
        self._keep(encode_envelope(envelope, body))
        return first + len(records) - 1

    async def read_log(self, reader: Any, revision: int) -> Any:  # noqa: ARG002
        """Nothing is left of what was before."""
        oldest = self._entries[self._head].first_revision if self._entries else 1
        raise MissingLogError("trimmed", first_revision=revision, last_revision=oldest - 1)


class Audit:
    """Keeps what it was told; `failure` is what `asked` raises."""

    def __init__(self) -> None:
        self.told: list[Audited] = []
        self.refusals: list[Audited] = []
        self.failure: Exception | None = None

    async def asked(self, audited: Audited) -> None:
        """Note it, or fail."""
        if self.failure is not None:
            raise self.failure
        self.told.append(msgspec.structs.replace(audited, outcome="asked"))

    async def ended(self, audited: Audited, outcome: str) -> None:
        """Note it."""
        self.told.append(msgspec.structs.replace(audited, outcome=outcome))

    def refused(self, audited: Audited, now_s: float) -> None:  # noqa: ARG002
        """Note it."""
        self.refusals.append(audited)


class StandIn:
    """Keeps what it was told in `commands` and `queries`; answers as `answers` says, else plausibly."""

    def __init__(self) -> None:
        self.status = STATUS
        self.replica = SimpleNamespace(status=lambda: self.status)
        self.audit = Audit()
        self.leader: str | None = None
        self.commands: list[Any] = []
        self.queries: list[BrokerQuery] = []
        self.freshness: list[Freshness] = []
        self.answers: dict[type[Any], Callable[[Any], Any]] = {}
        self.tasks: dict[int, TaskView] = {}
        self.requests: dict[str, TasksSubmitted] = {}
        self.next_id = 100
        self.ended = asyncio.Event()
        self.waiting = 0
        self.changes = Feed()

    async def execute(self, command: BrokerCommand, *, timeout_s: float = 30) -> BrokerReply:  # noqa: ARG002
        """Do as told."""
        self.commands.append(command)
        answer = self.answers.get(type(command))
        if answer is not None:
            return answer(command)
        match command:
            case SubmitTasks():
                return self._submit(command)
            case BeginTransaction():
                return Begun(77, 9_000)
            case CommitTransaction() | RollbackTransaction():
                return Committed(3)
            case CancelTasks() | ChangeTasks() | ReplayDead() | DeleteDead():
                known = sum(self._seen(command.tenant, one) is not None for one in command.task_ids)
                return Changed(known, 0, len(command.task_ids) - known)
        return Done(70)

    def _submit(self, command: SubmitTasks) -> TasksSubmitted:
        if command.request_key in self.requests:
            return self.requests[command.request_key]
        first, self.next_id = self.next_id, self.next_id + len(command.tasks)
        for place, spec in enumerate(command.tasks):
            self.tasks[first + place] = task(first + place, command.tenant, type=spec.type, payload=spec.payload)
        submitted = TasksSubmitted(first, len(command.tasks))
        if command.request_key:
            self.requests[command.request_key] = submitted
        return submitted

    def _seen(self, tenant: str, task_id: int) -> TaskView | None:
        found = self.tasks.get(task_id)
        return found if found is not None and tenant in {"", found.tenant} else None

    async def query(self, query: BrokerQuery, *, freshness: Freshness = STALE) -> tuple[BrokerResult, int]:
        """Answer."""
        self.queries.append(query)
        self.freshness.append(freshness)
        answer = self.answers.get(type(query))
        return (answer(query) if answer is not None else self._answer(query)), 70

    def _answer(self, query: BrokerQuery) -> BrokerResult:
        match query:
            case GetTask():
                return self._seen(query.tenant, query.task_id) or Nothing()
            case ListTasks():
                found = [one for one in self.tasks.values() if query.tenant in {"", one.tenant}]
                return TaskPageView(found[: query.limit], 0)
            case ExplainTask():
                seen = self._seen(query.tenant, query.task_id)
                return ExplanationView(0, "no-worker", "no worker serves it", 2) if seen else Nothing()
            case GetOverview():
                return OverviewView({0: 3}, [TypeView("mail", {0: 3})], {0: 1}, 4, 1, 900, 70, 1_000)
            case ListWorkers():
                return Workers([WorkerView("w1", "i1", 0, "host", 1, 2, WorkerOffer(), 1, {"mail": 1})])
            case ListTenants():
                names = [query.tenant] if query.tenant else ["acme", "bolt"]
                return Tenants([TenantView(one, TenantPolicy(), False, {0: 3}, 0.5, 9, 1.0, -1.0) for one in names
                                if one in {"acme", "bolt"}], "")  # fmt: skip
            case ListLimits():
                return LimitsView([ResourceView("db", "", "", None, 1)], [HoldView("acme", "", "", True, False, 0, "")])
            case ListSlots():
                return Slots([SlotView("acme", "nightly", 17)], "")
            case ListTransactions():
                return Transactions([TransactionView(77, "acme", 1, 2, 3)])
            case ListCodes():
                return Codes([CodeView("pool", 1, 0, "00", 3, 0)])
            case GetCode():
                return CodeArchive("pool", "00" * 32, b"PK\x03\x04") if query.code == "pool" else Nothing()

    def readiness(self) -> ProbePage:
        """Of the status that stands here."""
        return readiness(self.status, lag_ms_max=10_000)

    def leader_http(self) -> str | None:
        """Who leads."""
        return self.leader

    def weight_of(self, tenant: str) -> float:  # noqa: ARG002
        """All are worth the same."""
        return 1.0

    def feed(self) -> ChangeFeed:
        """The feed."""
        return self.changes

    async def metrics(self) -> bytes:
        """None."""
        return b"# process\n"

    async def wait_task(self, tenant: str, task_id: int, timeout_s: float) -> TaskView | Nothing:
        """Wait for `ended`."""
        self.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.ended.wait()
        finally:
            self.waiting -= 1
        return self._seen(tenant, task_id) or Nothing()

    def end(self, task_id: int) -> None:
        """Finish a task."""
        self.tasks[task_id] = task(task_id, self.tasks[task_id].tenant, TaskStatus.FINISHED, result=b"done")
        assert self.tasks[task_id].status in ENDED
        self.ended.set()


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return msgspec.json.decode(self.body)


class Caller:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader = reader
        self.writer = writer
        self.host = host

    @classmethod
    async def of(cls, server: HttpServer, **options: Any) -> Caller:
        """Connect."""
        host, _, port = server.address.rpartition(":")
        return cls(*await asyncio.open_connection(host.strip("[]"), int(port), **options), server.address)

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        """Ask, and read the answer."""
        lines = {"Host": self.host, **(headers or {})}
        if token:
            lines["Authorization"] = f"Bearer {SECRETS.get(token, token)}"
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        if body is not None:
            lines = {"Content-Type": "application/json", "Content-Length": str(len(content)), **lines}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content)
        return await self.answer(is_head=method == "HEAD")

    async def answer(self, *, is_head: bool = False) -> Answer:
        """Read one answer."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            length = 0 if is_head or first.split()[1] == "304" else int(headers.get("content-length", 0))
            return Answer(int(first.split()[1]), headers, await self.reader.readexactly(length))

    async def closed(self) -> bool:
        """Whether the other end closes."""
        async with asyncio.timeout(60):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionError:
                pass
        return True

    def close(self) -> None:
        """Leave."""
        self.writer.close()


@contextlib.asynccontextmanager
async def serving(broker: StandIn | None = None, **settings: Any) -> AsyncIterator[tuple[HttpServer, StandIn]]:
    """Serve on a free port of loopback."""
    broker = broker or StandIn()
    async with HttpServer(broker, HttpSettings(**settings)) as server:
        yield server, broker


@contextlib.asynccontextmanager
async def asking(broker: StandIn | None = None, **settings: Any) -> AsyncIterator[tuple[Caller, StandIn]]:
    """Serve, and connect."""
    async with serving(broker, **settings) as (server, served):
        caller = await Caller.of(server)
        try:
            yield caller, served
        finally:
            caller.close()


def run_asking(scenario: Callable[[Caller, StandIn], Awaitable[None]], **settings: Any) -> None:
    """Run what asks a server before a stand-in."""

    async def run() -> None:
        async with asking(**settings) as (caller, broker):
            await scenario(caller, broker)

    asyncio.run(run())


def assert_problem(answer: Answer, status: int, reason: str) -> None:
    """It is a problem document, whole and without a trace."""
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (status, status, reason)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["type"].endswith(reason)
    assert answer.json["title"]
    assert answer.json["detail"]
    assert b"Traceback" not in answer.body


def write_tokens(path: Path, **more: str) -> str:
    """Write a file with a token for each of `SECRETS`; `more`: lines of one of them."""
    entries = []
    for name, secret in SECRETS.items():
        role = "admin" if name == "admin" else "viewer" if name.endswith("viewer") else "tenant"
        tenant = {"acme": "acme", "bolt": "bolt", "acme-viewer": "acme"}.get(name, "")
        sha256 = hashlib.sha256(secret.encode()).hexdigest()
        lines = [
            f'name = "{name}"',
            f'sha256 = "{sha256}"',
            f'role = "{role}"',
            f'tenant = "{tenant}"',
            more.get(name, ""),
        ]
        entries.append("\n".join(["[[token]]", *lines, ""]))
    path.write_text("".join(entries))
    return str(path)
