"""Port to the other replicas of the log. The kernel decides, whoever wires it connects."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from rsm_spark.core.commands import Answer, AnswerStatus, Report
from rsm_spark.core.freshness import LeaderClock
from rsm_spark.snapshots.manifest import SnapshotManifest


class PeerSnapshots(msgspec.Struct, frozen=True):
    """Snapshots on the disk of a replica.

    Attributes:
        replica_id: Its name.
        domain: What its disk fails together with.
        manifests: Whole snapshots, newest first.
        protected: Revisions of those that stay, whatever newer ones come.
        damaged: Places and reasons of those that must not be used, one line each.

    """

    replica_id: str
    domain: str
    manifests: tuple[SnapshotManifest, ...]
    damaged: tuple[str, ...] = ()
    protected: tuple[int, ...] = ()


class LogIndex(NamedTuple):
    """Index of the log's end, as a leader told it.

    Attributes:
        status: OK, or why it does not tell.
        revision: Of a confirmed state that holds all that anybody was told before the question came.
        clock: Of the leader, read after the question came; None = it does not tell.

    """

    status: AnswerStatus
    revision: int
    clock: LeaderClock | None = None


class Peers(Protocol):
    """The other replicas. No call waits for ever: a peer that is silent for seconds is an error."""

    async def list(self, replica_id: str) -> PeerSnapshots:
        """Return what a replica has.

        Raises:
            ConnectionLostError: It is gone, or does not answer.

        """
        ...

    async def download(self, replica_id: str, manifest: SnapshotManifest, *, read_back: bool) -> SnapshotManifest:
        """Copy a snapshot of a replica into the own store.

        Every file is checked against the manifest. What has arrived when it fails is kept, and the next attempt goes
        on there.

        Args:
            replica_id: Who has it.
            manifest: As it was listed.
            read_back: Copy it even if the own store has it, and read all rows: only what they come to counts.

        Raises:
            ConnectionLostError: The peer is gone, or does not answer.
            SnapshotGoneError: It does not have this snapshot any more: list again.
            CorruptSnapshotError: What it has is not what its manifest says; nothing was kept.
            SnapshotError: The own disk refuses it.

        """
        ...

    async def report(self, report: Report) -> Answer:
        """Tell the leader.

        Raises:
            ConnectionLostError: Nobody leads at present, or it is gone: it may have taken the report.

        """
        ...

    async def read_index(self, address: str) -> LogIndex:
        """Ask the replica at an address, as the leader, how far the log is.

        Raises:
            ConnectionLostError: It is gone, or too old to be asked.

        """
        ...
