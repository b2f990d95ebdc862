"""A worker of which a test is the executor, over the real stream; and brokers in the test's own process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.machine.commands import EndedRun, HeldRun, ProgressOf, SubmitTasks, TaskSpec
from broker.machine.policies import WorkerOffer
from broker.machine.replies import TasksSubmitted
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun, FromBroker, FromWorker, WorkerHello
from broker.server.service import BrokerService
from broker.server.settings import BrokerSettings
from broker.worker.stream import WorkerStream
from ledger.client.client import LedgerClient
from rsm_spark.errors import ConnectionLostError
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import transport_of

__all__ = ["Hands", "broker_settings", "leading", "running", "submit", "until"]

REPLICA = ReplicaSettings(ensemble_size=3, write_quorum=3, ack_quorum=2, snapshot_s=0)


def broker_settings(log: str, folder: Path, replica_id: str = "a", **fields: Any) -> BrokerSettings:
    """Return settings of a broker without HTTP."""
    given = {"http": None, "replica": REPLICA, "worker_lease_s": 10.0, "worker_ping_s": 10.0, **fields}
    return BrokerSettings(log=log, replica_id=replica_id, data_dir=folder / replica_id, **given)


@asynccontextmanager
async def running(metadata_uri: str, settings: BrokerSettings) -> AsyncIterator[BrokerService]:
    """Run a broker here."""
    client = await LedgerClient.connect(metadata_uri, session_timeout_ms=3_000)
    try:
        async with BrokerService(client, settings) as broker:
            yield broker
    finally:
        await client.close()


@asynccontextmanager
async def leading(metadata_uri: str, settings: BrokerSettings) -> AsyncIterator[BrokerService]:
    """Run a broker here that leads."""
    async with running(metadata_uri, settings) as broker:
        await until(lambda: broker.replica.role is ReplicaRole.LEADER)
        FRAMED[broker.address] = broker.replica.framed
        yield broker


async def until(condition: Callable[[], Any], timeout_s: float = 30) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


async def submit(broker: BrokerService, *specs: TaskSpec, tenant: str = "t", **fields: Any) -> list[int]:
    """Submit tasks; return their ids."""
    reply = await broker.execute(SubmitTasks(tenant, list(specs), **fields))
    assert isinstance(reply, TasksSubmitted), reply
    return reply.task_ids(len(specs))


FRAMED: dict[str, str] = {}
"""Framed ports of the brokers that run here, by address."""


class Hands:
    """One worker process as the broker sees it; the test decides what it does.

    Attributes:
        received: Every message of the present stream.
        assigned: Every run ever assigned, by assignment id.
        acknowledged: Assignments whose end was acknowledged.
        cancels: Runs that were to be stopped.

    """

    def __init__(
        self, worker_id: str = "w", offer: WorkerOffer | None = None, security: Security | None = None
    ) -> None:
        self.worker_id = worker_id
        self.security = security or Security()
        self.offer = offer or WorkerOffer(100)
        self.incarnation = secrets.token_hex(16)
        self.received: list[FromBroker] = []
        self.assigned: dict[int, AssignedRun] = {}
        self.acknowledged: list[int] = []
        self.cancels: list[HeldRun] = []
        self.held: dict[int, HeldRun] = {}
        self.ended: dict[int, EndedRun] = {}
        self.epoch = 0
        self.lost: ConnectionLostError | None = None
        self._stream: WorkerStream | None = None
        self._reader: asyncio.Task[None] | None = None

    async def connect(self, address: str, *, leader_epoch: int | None = None) -> None:
        """Open a stream and say hello; the former one is ended first."""
        await self.leave()
        self.received, self.lost = [], None
        framed = FRAMED.get(address, "") if transport_of(None) == "framed" else ""
        stream = self._stream = WorkerStream(address, self.security, framed)
        hello = WorkerHello(
            self.worker_id, self.incarnation, "test", self.offer, max(self.assigned, default=0),
            list(self.held.values()), list(self.ended.values()), self.epoch if leader_epoch is None else leader_epoch,
        )  # fmt: skip
        try:
            await stream.send(FromWorker(hello=hello))
        except ConnectionLostError as error:
            self.lost = error
            return
        self._reader = asyncio.get_running_loop().create_task(self._read(stream))

    async def _read(self, stream: WorkerStream) -> None:
        try:
            while True:
                message = await stream.receive()
                self.received.append(message)
                self.epoch = max(self.epoch, message.leader_epoch)
                for run in message.assignments:
                    assert run.assignment_id > max(self.assigned, default=0)
                    self.assigned[run.assignment_id] = run
                    self.held[run.assignment_id] = HeldRun(run.task_id, run.assignment_id)
                self.cancels += message.cancels
                for assignment_id in message.acknowledged:
                    self.acknowledged.append(assignment_id)
                    self.ended.pop(assignment_id, None)
        except ConnectionLostError as error:
            self.lost = error

    @property
    def is_welcome(self) -> bool:
        """Whether the broker serves it."""
        return any(message.welcome is not None for message in self.received)

    @property
    def leader(self) -> str:
        """Who leads, as it was told."""
        return next((message.leader for message in reversed(self.received) if message.leader), "")

    @property
    def refused(self) -> str:
        """Why it was refused."""
        return next((message.refused for message in reversed(self.received) if message.refused), "")

    @property
    def is_replaced(self) -> bool | None:
        """Whether it was refused because another process has its name."""
        return next((message.is_replaced for message in reversed(self.received) if message.refused), None)

    async def serve(self, address: str) -> None:
        """Connect and wait to be welcome."""
        await self.connect(address)
        await until(lambda: self.is_welcome)

    async def take(self, count: int) -> list[AssignedRun]:
        """Wait until so many runs are held; return them."""
        await until(lambda: len(self.held) >= count)
        return [self.assigned[assignment_id] for assignment_id in self.held]

    async def say(self, **fields: Any) -> None:
        """Say something."""
        assert self._stream is not None
        await self._stream.send(FromWorker(**fields))

    async def end(self, *runs: AssignedRun, status: int = TaskStatus.FINISHED, result: bytes = b"done") -> None:
        """Say that runs have ended."""
        ended = [EndedRun(run.task_id, run.assignment_id, int(status), "", "", result) for run in runs]
        for one in ended:
            self.held.pop(one.assignment_id, None)
            self.ended[one.assignment_id] = one
        await self.say(ended=ended)

    async def progress(self, run: AssignedRun, fraction: float) -> None:
        """Say how far a run is."""
        await self.say(progress=[ProgressOf(run.task_id, run.assignment_id, fraction, "on the way")])

    async def say_bytes(self, text: bytes) -> None:
        """Say what is perhaps no message."""
        assert self._stream is not None
        await self._stream._stream.write(text)

    def stop_reading(self) -> None:
        """Take nothing more from the stream, which stays open."""
        assert self._reader is not None
        self._reader.cancel()

    async def leave(self) -> None:
        """Close the stream without a word."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._reader = None
