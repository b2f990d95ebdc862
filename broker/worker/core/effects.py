"""Effects that a worker's protocol asks its shell to carry out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from broker.machine.worker_messages import AssignedRun


class StopReason(StrEnum):
    """Reasons to stop a run before its end.

    CANCELLED: the broker asked for it. LEASE: the broker may believe this worker dead and the run lost. LEAVING: the
    worker ends, and did not want to wait any longer.
    """

    CANCELLED = "cancelled"
    LEASE = "lease"
    LEAVING = "leaving"


class StartRuns(msgspec.Struct, frozen=True, gc=False):
    """Run these, in this order; report each end once by `WorkerProtocol.ended`."""

    runs: list[AssignedRun]


class StopRuns(msgspec.Struct, frozen=True, gc=False):
    """Stop these runs; their ends are reported as any other."""

    assignment_ids: list[int]
    reason: StopReason


class EndStream(msgspec.Struct, frozen=True, gc=False):
    """End the present stream; another one may be opened after a pause."""

    why: str


class FollowLeader(msgspec.Struct, frozen=True, gc=False):
    """End the present stream; this is the address of who leads."""

    address: str


class ServiceRefused(msgspec.Struct, frozen=True, gc=False):
    """The broker does not serve this worker, and says why; the stream is over.

    Attributes:
        why: In its words.
        is_replaced: Another process works by this name: coming back would only drive that one out.

    """

    why: str
    is_replaced: bool = False


class AskToDrain(msgspec.Struct, frozen=True, gc=False):
    """An operator wants this worker to end: begin to drain."""


Effect = StartRuns | StopRuns | EndStream | FollowLeader | ServiceRefused | AskToDrain
