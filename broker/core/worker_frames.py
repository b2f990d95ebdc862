"""What workers and the broker say to each other over a stream, as both cores use it; `broker.grpc` gives it its bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from broker.core.commands import EndedRun, HeldRun, ProgressOf
from broker.core.policies import WorkerOffer

__all__ = ["Assignment", "BrokerFrame", "Hello", "Welcome", "WorkerFrame"]


class Hello(msgspec.Struct, frozen=True):
    """What a worker says first on each stream.

    Attributes:
        worker_id: Stable name.
        incarnation: Of its process: 32 hex digits.
        location: For people.
        offer: What it can run.
        delivered_up_to: Highest assignment id that this process ever received; higher ones were not delivered.
        held: Runs in its hands, and ends that did not fit this message and follow at once.
        ended: Ends that no leader has acknowledged.
        leader_epoch: Highest that it has served.

    """

    worker_id: str
    incarnation: str
    location: str
    offer: WorkerOffer
    delivered_up_to: int = 0
    held: Sequence[HeldRun] = ()
    ended: Sequence[EndedRun] = ()
    leader_epoch: int = 0


class WorkerFrame(msgspec.Struct, frozen=True):
    """One message of a worker: whatever has gathered since the last one.

    Attributes:
        hello: In the first message only.
        ended: Ends of runs.
        progress: Signs of life.
        offer: Instead of the one before; None = as it was.
        draining: It wants nothing more.
        leaving: It has nothing left and closes the stream.
        ping: Above 0: to be answered in `BrokerFrame.pong`.

    """

    hello: Hello | None = None
    ended: Sequence[EndedRun] = ()
    progress: Sequence[ProgressOf] = ()
    offer: WorkerOffer | None = None
    draining: bool = False
    leaving: bool = False
    ping: int = 0


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """A task to run; confirmed in the log.

    Attributes:
        task_id: Its task.
        assignment_id: Fencing token of this run: ids rise from one to the next.
        tenant: Whose.
        type: What to run.
        payload: For the executor.
        attempt: 1 at first.
        timeout_ms: Longest run; 0 = none.
        deadline_in_ms: How long after it was sent its deadline is; 0 = none.
        heartbeat_ms: A run that says nothing for so long is given up; 0 = not watched.
        code: Code pool that it needs; "" = the worker's own code.
        mode: How the code is entered.
        slot: That it holds; "" = none.
        key: By which it may be held back; "" = none.
        resources: Amounts that it holds, by name.

    """

    task_id: int
    assignment_id: int
    tenant: str
    type: str
    payload: bytes = b""
    attempt: int = 1
    timeout_ms: int = 0
    deadline_in_ms: int = 0
    heartbeat_ms: int = 0
    code: str = ""
    mode: str = ""
    slot: str = ""
    key: str = ""
    resources: tuple[tuple[str, int], ...] = ()


class Welcome(msgspec.Struct, frozen=True):
    """The leader serves this worker.

    Attributes:
        ping_ms: A worker that has said nothing for so long pings.
        lease_ms: Of a worker whose stream is down.
        broker_id: Who leads.

    """

    ping_ms: int
    lease_ms: int
    broker_id: str = ""


class BrokerFrame(msgspec.Struct, frozen=True):
    """One message of a broker.

    Attributes:
        leader_epoch: Of the leader; frames of a lower one than the highest ever seen are dropped.
        welcome: The first answer of a leader.
        assignments: To run; ascending ids.
        acknowledged: Assignments whose end is confirmed in the log.
        cancels: Runs to stop.
        pong: Answers `WorkerFrame.ping`; 0 = none.
        leader: "host:port" of who leads instead; the stream ends.
        refused: Why this worker is not served; the stream ends.
        stop: The worker is asked to drain and leave.

    """

    leader_epoch: int = 0
    welcome: Welcome | None = None
    assignments: Sequence[Assignment] = ()
    acknowledged: Sequence[int] = ()
    cancels: Sequence[HeldRun] = ()
    pong: int = 0
    leader: str = ""
    refused: str = ""
    stop: bool = False
