"""Status of a replica."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ledger.ports import SessionState
from rsm_spark.core.position import LogPosition
from rsm_spark.core.trimming import TrimPlan


class ReplicaRole(StrEnum):
    """FOLLOWER: reads the log. CANDIDATE: won the election, takes the log over. LEADER: takes requests."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica at one moment.

    Attributes:
        log: Name of the log.
        log_id: 32 hex digits; "" before the chain is read.
        replica_id: Stable name of the replica.
        incarnation: Of this process.
        role: See `ReplicaRole`.
        phase: State of the take-over protocol ("follow", "claim", …, "lead", "sent", "close").
        leader: Replica id of the leader as far as known; "" = none.
        leader_address: Its advertised address; "" = not known.
        leader_epoch: Of the last entry applied, or of the own claim.
        revision: Applied and confirmed.
        digest: State digest at `revision`, 32 hex digits.
        prefix_hash: Hash of the log up to `position`, 64 hex digits.
        position: Last entry applied; None before the first.
        row_count: Rows of all tables, sessions included.
        session_count: Open client sessions.
        logged_ms: Logged time of the last entry applied.
        lag_ms: Wall clock minus `logged_ms`; how old this state may be. 0 on the leader.
        queued: Requests that wait for their batch.
        snapshot_revision: Of the newest local snapshot written or booted from; 0 = none.
        snapshot_ms: Wall clock when this process took its newest local snapshot; 0 = it took none yet.
        known_revision: Highest revision that is known to be confirmed, applied or not.
        verified: By place, the revision of its newest verified snapshot.
        trim: What the leader may trim and why the rest stays; None on a follower.
        alarms: What an operator has to look at.
        failure: Why the replica stopped; "" while it runs.
        machine: Name of the machine.
        machine_version: Of the code that this process runs.
        log_version: That the log is of, as far as this replica has applied it; 0 before it is described.
        reads_by_check: Linearizable reads that this process answered as leader without an entry.
        reads_by_lease: Those that it answered without a message, by what bookies had promised before.
        reads_by_entry: Reads that it answered with one.
        reads_by_index: Linearizable reads that it answered as a follower, once the leader had said how far the log is.
        entries_told: Entries that it applied as a follower by the leader's word.
        entries_read: Entries that it applied as a follower as bookies hold them.
        lapsed_consumers: Consumers from under which this process, as leader, trimmed what they had not read; each time
            counts.
        metadata_session: Session with ZooKeeper: "connected", "suspended" (it is away; adds and reads go on), "lost".

    """

    log: str
    log_id: str
    replica_id: str
    incarnation: str
    role: ReplicaRole
    phase: str
    leader: str
    leader_address: str
    leader_epoch: int
    revision: int
    digest: str
    prefix_hash: str
    position: LogPosition | None
    row_count: int
    session_count: int
    logged_ms: int
    lag_ms: int
    queued: int
    snapshot_revision: int
    failure: str
    snapshot_ms: int = 0
    known_revision: int = 0
    verified: dict[str, int] = {}
    trim: TrimPlan | None = None
    alarms: tuple[str, ...] = ()
    machine: str = ""
    machine_version: int = 0
    log_version: int = 0
    metadata_session: str = SessionState.CONNECTED.value
    reads_by_check: int = 0
    reads_by_lease: int = 0
    reads_by_entry: int = 0
    reads_by_index: int = 0
    entries_told: int = 0
    entries_read: int = 0
    lapsed_consumers: int = 0
