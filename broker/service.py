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
from typing import TYPE_CHECKING, Any, Self

from broker.core.commands import BrokerCommand
from broker.core.machine import BrokerMachine
from broker.core.messages import decode_reply, decode_result, encode
from broker.core.queries import BrokerQuery, GetCode, GetTask
from broker.core.replies import BrokerReply, Refusal, Refused
from broker.core.shown import BrokerResult, CodeArchive, Nothing, TaskShown
from broker.core.statuses import ENDED
from broker.grpc.worker_service import WorkerService
from broker.serving_workers import WorkerRole
from broker.session import BrokerSession
from broker.settings import BrokerSettings
from broker.task_waits import TaskWaits
from broker.telemetry import BrokerTelemetry
from ledger.client.client import LedgerClient
from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.freshness import STALE, Freshness
from rsm_spark.errors import (
    InvalidCommandError,
    NotLeaderError,
    NotReadyError,
    OverloadedError,
    RsmError,
    TooStaleError,
)
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.store.service import StoreService

if TYPE_CHECKING:
    from broker.http.server import HttpServer
    from broker.http.settings import HttpSettings

__all__ = ["BrokerService"]


class BrokerService:
    """See the module. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: See `BrokerSettings`.
        lake: Snapshots to boot from when there is no local one.

    Attributes:
        address: "host:port" that workers are told.
        http_address: "host:port" of the HTTP API; "" = there is none.
        machine: The state; read it through `query`.
        replica: The replica; its role, revision, status.
        workers: Who works for this broker while it leads.
        telemetry: Counts.

    Raises:
        RsmError: The port is taken, or not on loopback.

    """

    def __init__(self, client: LedgerClient, settings: BrokerSettings, *, lake: SnapshotStore | None = None) -> None:
        self._settings = settings
        self.machine = BrokerMachine(settings.rules, settings.mapper)
        self._store = StoreService(client, settings, lake=lake, machine=self.machine)
        self.address = self._store.address
        self.replica = self._store.replica
        self._session = BrokerSession(self.replica)
        self._waits = TaskWaits()
        self.replica.on_entry(self._waits.on_entry)
        self.workers = WorkerRole(self.machine, self._session, self._store, settings)
        streams = WorkerService(self.workers.desk, self.workers, self._read_code, ping_s=settings.worker_ping_s)
        streams.add_to(self._store.server)
        self.workers.on_tick = streams.cut_silent
        self.telemetry = BrokerTelemetry(self.replica, self.machine, self.workers.desk, streams)
        self._http = None if settings.http is None else _http_server(self, settings.http)
        self.http_address = "" if self._http is None else self._http.address
        self.replica.http = self.http_address
        self._store.describe = self._describe

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

    async def stop(self) -> None:
        """Leave in an orderly way: take nothing more, answer what was taken, name who leads instead."""
        self._waits.close()
        try:
            await self._store.stop()
        finally:
            self._session.close()
            self.workers.stop()
            if self._http is not None:
                await self._http.stop()

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped.

        Raises:
            RsmError: It stopped by itself: a corrupt log, a state that differs from the leader's.

        """
        await self._store.wait_stopped()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop."""
        await asyncio.shield(self.stop())

    # ---- what is asked of it

    async def execute(self, command: BrokerCommand, *, timeout_s: float = 30) -> BrokerReply:
        """Have a command decided, exactly once; return its confirmed reply, a refusal too.

        Args:
            command: One of `broker.core.commands`.
            timeout_s: Longest wait.

        Raises:
            NotLeaderError: This broker does not lead; the command was certainly not applied.
            OverloadedError: Too much waits; it was not applied.
            NoLeaderError: Nothing was confirmed in time; it was not applied.
            OutcomeUnknownError: It may have been applied.
            InvalidCommandError: The broker failed on it.

        """
        text = encode(command)
        bytes_max = self._settings.replica.entry_bytes_max
        if len(text) > bytes_max:
            return Refused(
                Refusal.TOO_LARGE,
                f"the command has {len(text)} bytes, at most {bytes_max} fit the log: send less at once",
            )
        return decode_reply(await self._session.execute(text, timeout_s))

    async def query(self, query: BrokerQuery, *, freshness: Freshness = STALE) -> tuple[BrokerResult, int]:
        """Return what is asked, and the revision of the confirmed state that it was read from.

        Args:
            query: One of `broker.core.queries`.
            freshness: How new that state has to be.

        Raises:
            NotLeaderError: Only the leader can answer.
            TooStaleError: This broker's state is not new enough.
            NotReadyError: It has no whole state now.
            OverloadedError: Too much waits.

        """
        (answer,) = await self.replica.submit([Query(encode(query))], freshness=freshness)
        if answer.status is not AnswerStatus.OK:
            raise self._error_of(answer)
        return decode_result(answer.payload), answer.revision

    def _error_of(self, answer: Answer) -> RsmError:
        match answer.status:
            case AnswerStatus.TOO_STALE:
                lag_ms = int(answer.payload) if answer.payload.isdigit() else None
                return TooStaleError(
                    "this broker's state is not new enough: ask the leader, or for less", lag_ms=lag_ms
                )
            case AnswerStatus.NOT_READY:
                return NotReadyError("this broker has no whole state now: ask another one, or again later")
            case AnswerStatus.OVERLOADED:
                return OverloadedError("this broker's queues are full: ask again later")
            case AnswerStatus.REFUSED:
                return InvalidCommandError(f"the broker failed on the query: {answer.payload.decode(errors='replace')}")
            case _:
                leader = self.replica.leader_address
                return NotLeaderError("this broker does not lead: only the leader can answer", leader=leader)

    async def wait_task(self, tenant: str, task_id: int, timeout_s: float) -> TaskShown | Nothing:
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
                assert isinstance(found, TaskShown | Nothing)
                left_s = due_s - loop.time()
                if isinstance(found, Nothing) or found.status in ENDED or left_s <= 0 or self._waits.is_closed:
                    return found
                await asyncio.wait([woken], timeout=left_s)
            finally:
                self._waits.leave(task_id, woken)

    def leader_http(self) -> str | None:
        """Return "http://host:port" of the leader's HTTP API, as far as known."""
        address = self._store.successor_http or self.replica.leader_http
        http = self._settings.http
        scheme = "https" if http is not None and http.tls_cert is not None else "http"
        return f"{scheme}://{address}" if address else None

    def feed(self) -> ChangeFeed:
        """Return the confirmed records, from any retained revision on."""
        return self._store.feed

    def status_json(self) -> bytes:
        """Return what `rsm status` shows of this broker, as JSON."""
        return self._store.status_json()

    def _describe(self) -> dict[str, Any]:
        desk = self.workers.desk
        said = {"http_address": self.http_address, "workers": desk.served_count, "dispatched": desk.dispatched}
        return {"broker": {**said, "undelivered": desk.undelivered}}

    def metrics(self) -> bytes:
        """Return metrics in Prometheus' text format."""
        return self.telemetry.text()

    async def _read_code(self, code: str) -> CodeArchive | None:
        found, _ = await self.query(GetCode(code))
        return found if isinstance(found, CodeArchive) else None


def _http_server(broker: BrokerService, settings: HttpSettings) -> HttpServer:
    from broker.http.server import HttpServer  # noqa: PLC0415 - the web framework only where it is asked for

    return HttpServer(broker, settings)
