"""One broker: a replica of the task state with its servers. What `rsm broker run` runs, and what a program embeds.

client = await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers")
settings = BrokerSettings(replica_id="a", data_dir=Path("/var/lib/broker"))
async with BrokerService(client, settings) as broker:
    print(broker.address, broker.http_address)
    reply = await broker.execute(SubmitTasks("tenant", [TaskSpec("mail", b"...")]))
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

import msgspec

from broker.api.server import HttpServer
from broker.machine.auditing import audit_outcome, audit_words
from broker.machine.commands import BrokerCommand
from broker.machine.machine import GROWING, MEMORY_FULL_SAYS, BrokerMachine
from broker.machine.messages import decode_reply, decode_result, encode
from broker.machine.queries import BrokerQuery, GetCode, GetTask
from broker.machine.replies import BrokerReply, Refusal, Refused
from broker.machine.rules import BrokerRules
from broker.machine.statuses import ENDED
from broker.machine.views import BrokerResult, CodeArchive, Nothing, TaskView
from broker.server.local_replica_connection import LocalReplicaConnection
from broker.server.serving_workers import WorkerRole
from broker.server.settings import BrokerSettings
from broker.server.task_waits import TaskWaits
from broker.server.telemetry import BrokerTelemetry
from broker.server.traced_tasks import TaskTraces
from broker.server.worker_service import WorkerService
from ledger.client.client import LedgerClient
from ledger.http.metrics_push import push_metrics
from ledger.http.routes import ProbePage
from ledger.rights.principal import Principal
from rsm_spark.core.commands import AnswerStatus, Query
from rsm_spark.core.freshness import STALE, Freshness
from rsm_spark.core.outcome_errors import AskedReplica, error_of_answer
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.memory import memory_limit
from rsm_spark.server.replica_server import StoreService
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.transport.reach import AuditWords


class BrokerService:
    """See the module. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: See `BrokerSettings`.
        lake: Snapshots to boot from when there is no local one.

    Attributes:
        address: "host:port" that workers are told.
        http_address: "host:port" of the HTTP API; "" = there is none.
        audit: Who changes what.
        machine: The state; read it through `query`.
        replica: The replica; its role, revision, status.
        workers: Who works for this broker while it leads.
        telemetry: Counts.

    Raises:
        RsmError: The port is taken, or not on loopback.

    """

    def __init__(self, client: LedgerClient, settings: BrokerSettings, *, lake: SnapshotStore | None = None) -> None:
        self._settings = settings
        self.machine = BrokerMachine(_with_quotas(settings), settings.mapper)
        words = AuditWords(audit_words, audit_outcome)
        self._store = StoreService(client, settings, lake=lake, machine=self.machine, audit_words=words)
        self.address = self._store.address
        self.replica = self._store.replica
        self.audit = self._store.audit
        self._commands = LocalReplicaConnection(self.replica)
        self._waits = TaskWaits()
        self.replica.on_entry(self._waits.on_entry)
        self.replica.on_entry(TaskTraces(self.replica, self.machine, settings.log).on_entry)
        self.workers = WorkerRole(self.machine, self._commands, self._store, settings)
        streams = WorkerService(
            self.workers.registry, self.workers, self._read_code, self._runs_code, ping_s=settings.worker_ping_s
        )
        streams.add_to(self._store.server)
        self.workers.on_tick = streams.cut_silent
        self.telemetry = BrokerTelemetry(
            self.replica, self.machine, self.workers.registry, streams, str(settings.data_dir)
        )
        self._http = None if settings.http is None else _http_server(self, settings)
        self.http_address = "" if self._http is None else self._http.address
        self.replica.http = self.http_address
        if self._http is not None:
            self.replica.http_is_tls = self._http.url.startswith("https:")
        self._store.describe = self._describe
        self._push: asyncio.Task[None] | None = None

    # ---- life

    async def start(self) -> None:
        """Load the state, follow the log, serve.

        Raises:
            RsmError: The state cannot be loaded: see `Replica.start`.
            LedgerError: Metadata store or bookies cannot be asked.

        """
        try:
            if self._http is not None:
                await self._http.start()  # It tells how far the replica is.
            await self._store.start()
        except BaseException:
            if self._http is not None:
                await self._http.stop()
            await self._store.server.stop(0)
            raise
        self.workers.start()
        self._push = push_metrics(self._metrics_page)

    async def stop(self) -> None:
        """Leave in an orderly way: take nothing more, answer what was taken, name who leads instead."""
        self._waits.close()
        if self._push is not None:
            self._push.cancel()
        try:
            await self._store.stop()
        finally:
            self._commands.close()
            self.workers.stop()
            if self._http is not None:
                await self._http.stop()

    def readiness(self) -> ProbePage:
        """Say whether clients should be sent here."""
        return self._store.readiness()

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped.

        Raises:
            RsmError: It stopped by itself: a corrupt log, a state that differs from the leader's.

        """
        await self._store.wait_stopped()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self.stop())

    # ---- what is asked of it

    async def execute(self, command: BrokerCommand, *, timeout_s: float = 30) -> BrokerReply:
        """Have a command decided, exactly once; return its confirmed reply, a refusal too.

        Args:
            command: One of `broker.machine.commands`.
            timeout_s: Longest wait.

        Raises:
            NotLeaderError: This broker does not lead; the command was certainly not applied.
            OverloadedError: Too much waits; it was not applied.
            NoLeaderError: Nothing was confirmed in time; it was not applied.
            OutcomeUnknownError: It may have been applied.
            InvalidCommandError: The broker failed on it.

        """
        if self.replica.memory.is_full and isinstance(command, GROWING):
            return Refused(Refusal.MEMORY_FULL.value, MEMORY_FULL_SAYS)
        text = encode(command)
        bytes_max = self._settings.replica.entry_bytes_max
        if len(text) > bytes_max:
            return Refused(
                Refusal.TOO_LARGE,
                f"the command has {len(text)} bytes, at most {bytes_max} fit the log: send less at once",
            )
        return decode_reply(await self._commands.execute(text, timeout_s))

    async def query(self, query: BrokerQuery, *, freshness: Freshness = STALE) -> tuple[BrokerResult, int]:
        """Return what is asked, and the revision of the confirmed state that it was read from.

        Args:
            query: One of `broker.machine.queries`.
            freshness: How new that state has to be.

        Raises:
            NotLeaderError: Only the leader can answer.
            TooStaleError: This broker's state is not new enough.
            NotReadyError: It has no whole state now.
            OverloadedError: Too much waits.

        """
        (answer,) = await self.replica.submit([Query(encode(query))], freshness=freshness)
        if answer.status is not AnswerStatus.OK:
            raise error_of_answer(answer, AskedReplica("this broker", leader=self.replica.leader_address or ""))
        return decode_result(answer.payload), answer.revision

    async def wait_task(self, tenant: str, task_id: int, timeout_s: float) -> TaskView | Nothing:
        """Return a task once it has ended, or as it is when the time has passed.

        Args:
            tenant: Whose; "" = anybody's.
            task_id: Which.
            timeout_s: Longest wait.

        Raises:
            RsmError: See `query`.

        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + timeout_s
        wanted = GetTask(tenant, task_id)
        while True:
            woken = self._waits.begin(task_id)  # Before the look: what ends after it is not missed.
            try:
                found, _ = await self.query(wanted)
                assert isinstance(found, TaskView | Nothing)
                left_s = due_s - loop.time()
                if isinstance(found, Nothing) or found.status in ENDED or left_s <= 0 or self._waits.is_closed:
                    return found
                await asyncio.wait([woken], timeout=left_s)
            finally:
                self._waits.leave(task_id, woken)

    def leader_http(self) -> str | None:
        """Return "http://host:port", or "https://…" where it says so, of the leader's HTTP API, as far as known."""
        store, replica = self._store, self.replica
        address, is_tls = replica.leader_http, replica.leader_http_is_tls
        if store.successor_http:
            address, is_tls = store.successor_http, store.successor_http_is_tls
        if is_tls is None:  # Of an older version: brokers of one log are alike.
            http = self._settings.http
            is_tls = http is not None and http.tls_cert is not None
        return f"{'https' if is_tls else 'http'}://{address}" if address else None

    def weight_of(self, tenant: str) -> float:
        """Return the weight of a tenant, above 0."""
        return self.machine.policies.of(tenant).weight

    def feed(self) -> ChangeFeed:
        """Return the confirmed records, from any retained revision on."""
        return self._store.feed

    def status_json(self) -> bytes:
        """Return what `rsm status` shows of this broker, as JSON."""
        return self._store.status_json()

    def _describe(self) -> dict[str, Any]:
        registry = self.workers.registry
        said = {"http_address": self.http_address, "workers": registry.served_count, "dispatched": registry.dispatched}
        return {"broker": {**said, "undelivered": registry.undelivered}}

    async def metrics(self) -> bytes:
        """Return metrics in Prometheus' text format."""
        return await self.telemetry.text()

    async def _metrics_page(self) -> ProbePage:
        text = self.metrics if self._http is None else self._http.edge.metrics
        return ProbePage(200, await text())

    async def _read_code(self, code: str) -> CodeArchive | None:
        found, _ = await self.query(GetCode(code))
        return found if isinstance(found, CodeArchive) else None

    def _runs_code(self, principal: Principal, code: str) -> bool:
        machine = self.machine
        return any(
            machine.task_row(task_id).code == code
            for worker_id, runs in machine.tasks.by_worker.items()
            if principal.may_work_as(worker_id)
            for task_id in runs
        )


def _with_quotas(settings: BrokerSettings) -> BrokerRules:
    """Return the rules with bounds in bytes: a task needs some two and a half times its bytes in memory."""
    rules = settings.rules
    bytes_max = rules.bytes_max or memory_limit(settings.replica.memory_limit_mib) // 4
    tenant_bytes_max = rules.tenant_bytes_max or bytes_max // 2
    return msgspec.structs.replace(rules, bytes_max=bytes_max, tenant_bytes_max=tenant_bytes_max)


def _http_server(broker: BrokerService, settings: BrokerSettings) -> HttpServer:
    from broker.api.server import HttpServer  # noqa: PLC0415 - the web framework only where it is asked for

    http = settings.http
    assert http is not None
    principals = settings.security.principals
    if principals is not None and http.principals is None:  # One file for both doors.
        http = msgspec.structs.replace(http, principals=principals)
    return HttpServer(broker, http)
