"""Messages between a worker and the broker on the worker's stream; `broker/wire/worker.proto` is its wire."""

from __future__ import annotations

import msgspec

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.policies import WorkerOffer


class WorkerHello(msgspec.Struct, frozen=True):
    """The first thing that a worker says on a stream.

    Attributes:
        worker_id: Stable name.
        incarnation: Of its process: 32 hex digits.
        location: For people.
        offer: What it can run.
        delivered_up_to: Highest assignment id that this process ever received.
        held: Runs in its hands.
        ended: Runs that ended, whose end was not acknowledged.
        leader_epoch: Highest that it has served.
        stream: The process's number of this stream, above those before; 0 = not said.

    """

    worker_id: str
    incarnation: str
    location: str
    offer: WorkerOffer
    delivered_up_to: int = 0
    held: list[HeldRun] = []
    ended: list[EndedRun] = []
    leader_epoch: int = 0
    stream: int = 0


class FromWorker(msgspec.Struct, frozen=True):
    """One message of a worker: whatever has gathered since the one before.

    Attributes:
        hello: Only in the first one.
        ended: Ends of runs.
        progress: Signs of life of runs.
        offer: Instead of the one before; None = as it was.
        is_draining: It wants nothing more.
        is_leaving: It has nothing left and closes the stream.
        ping: Any number above 0, to be answered; 0 = none.

    """

    hello: WorkerHello | None = None
    ended: list[EndedRun] = []
    progress: list[ProgressOf] = []
    offer: WorkerOffer | None = None
    is_draining: bool = False
    is_leaving: bool = False
    ping: int = 0


class AssignedRun(msgspec.Struct, frozen=True):
    """A run that a worker is to begin.

    Attributes:
        task_id: Its task.
        assignment_id: Rises from message to message; it names the run in everything that is said of it.
        tenant: Whose.
        type: Of the task.
        payload: Of the task.
        attempt: 1 at first.
        timeout_ms: Longest run; 0 = none.
        deadline_in_ms: It has to be over by then, counted from when the message was made; 0 = none.
        heartbeat_ms: Something has to be heard of it as often; 0 = not watched.
        code: Code pool that it needs; "" = the worker's own code.
        mode: How that is entered.
        slot: Of the task; "" = none.
        key: Of the task; "" = none.
        resources: What it holds while it runs.

    """

    task_id: int
    assignment_id: int
    tenant: str
    type: str
    payload: bytes
    attempt: int
    timeout_ms: int = 0
    deadline_in_ms: int = 0
    heartbeat_ms: int = 0
    code: str = ""
    mode: str = ""
    slot: str = ""
    key: str = ""
    resources: dict[str, int] = {}


class WorkerWelcome(msgspec.Struct, frozen=True):
    """The broker serves this worker.

    Attributes:
        ping_ms: A worker that has said nothing for so long pings; one that has said nothing for long is cut off.
        lease_ms: How long a worker whose stream is down keeps its runs.
        broker_id: Replica that says so.

    """

    ping_ms: int
    lease_ms: int
    broker_id: str


class FromBroker(msgspec.Struct, frozen=True):
    """One message of the broker: whatever has gathered since the one before.

    Attributes:
        leader_epoch: Of the broker; a worker drops messages below the highest that it has seen.
        welcome: Only in the first one, of a broker that leads.
        assignments: Ascending, each confirmed in the log.
        acknowledged: Assignments whose end is confirmed in the log.
        cancels: Runs to stop; confirmed by their end.
        pong: Answers a ping; 0 = none.
        leader: "host:port" of who leads instead; the stream ends.
        refused: Why this worker is not served; the stream ends.
        is_stop: The worker is asked to drain and leave.
        is_replaced: With `refused`: another process works by this name, for good. None = not said: brokers of before
            version 0.2 say it in the words of `refused` alone.

    """

    leader_epoch: int
    welcome: WorkerWelcome | None = None
    assignments: list[AssignedRun] = []
    acknowledged: list[int] = []
    cancels: list[HeldRun] = []
    pong: int = 0
    leader: str = ""
    refused: str = ""
    is_stop: bool = False
    is_replaced: bool | None = None


class CodePiece(msgspec.Struct, frozen=True):
    """A piece of an archive.

    Attributes:
        data: Its bytes, which follow those before.
        total_bytes: Of the whole archive.
        sha256: Of the whole archive, hex.

    """

    data: bytes
    total_bytes: int
    sha256: str
