"""Settings of a replica, with their defaults and their limits."""

from __future__ import annotations

import msgspec

from ledger.errors import UsageError
from rsm_spark.core.chain import CHAIN_BYTES_MAX, DEFAULT_RSM_ROOT
from rsm_spark.core.envelope import ENTRY_BYTES_MAX

__all__ = ["ReplicaSettings"]


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica runs; every default suits a small production cluster.

    Attributes:
        rsm_root: Node of the metadata store under which logs and services live.
        ledger_password: Of every ledger of the log.
        ensemble_size: Bookies that share a ledger; shrinks to the writable ones, not below the ack quorum.
        write_quorum: Bookies that store each entry; shrinks with the ensemble.
        ack_quorum: Answers needed before an entry counts; never shrinks. At least 2 unless `allow_single_copy`.
        allow_single_copy: Accept an ack quorum of 1 (a development cluster of one bookie): one disk lost, log lost.
        roll_bytes: A ledger that holds more payload bytes than this is closed and followed by a new one.
        roll_records: One with this many records is rolled too.
        roll_s: A ledger older than this is rolled too.
        retention_ms: Logged time for which every entry is kept at least; see `rsm_spark.core.trimming`.
        trim_s: How often a leader looks what may be trimmed.
        single_copy: Trim by a verified snapshot in one failure domain: one disk lost, what was trimmed is lost.
        chain_bytes_max: What the metadata store takes in one node (ZooKeeper's `jute.maxbuffer`, less a little). From
            70 % of it on ledgers are no longer rolled, and an alarm says so.
        domain: What the disk of this replica fails together with (a machine, a rack); "" = nothing but itself.
        entry_bytes_max: Header and body of one entry.
        entry_commands_max: Requests composed into one entry: bounds the time that the event loop is busy.
        queue_requests_max: Requests that wait for their batch; more are answered OVERLOADED.
        sessions_max: Client sessions open at once; more are answered OVERLOADED.
        session_ttl_ms: Logged time without a command after which a session expires.
        checkpoint_records: A state digest is logged after so many records.
        explicit_lac_s: Silence after a confirmed batch before followers are told by an explicit LAC.
        idle_entry_s: A leader with nothing to do writes an empty entry this often: followers see that they are
            fresh, a deposed leader sees its fence.
        give_up_s: A leader, or who takes over, resigns when no entry was confirmed or replayed for so long, for another
            replica to try: it may be cut off from the bookies alone.
        poll_s: How often a follower reads chain and ledger metadata again although no watch fired.
        retry_s: Pause before a refused step (no bookies, metadata store away) is tried again.
        tail_pause_s: How long a follower lets entries gather before it reads again; part of its lag.
        tail_entries_max: Entries read by a follower at once.
        snapshot_s: Period of local snapshots; 0 = none by time.
        snapshot_bytes: Log bytes after which a local snapshot is taken; 0 = none by size.
        snapshot_at_stop: Take a snapshot when the replica is stopped in an orderly way.
        verify_s: How often a replica looks for snapshots of others, and of the lake, to read back.
        scrub_s: How often it reads again what is verified already.
        lake_s: Period of the snapshots in the lake.
        campaign: Whether this replica may lead; False = it only follows.

    """

    rsm_root: str = DEFAULT_RSM_ROOT
    ledger_password: bytes = b""
    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    allow_single_copy: bool = False
    roll_bytes: int = 256 * 1024 * 1024
    roll_records: int = 10_000_000
    roll_s: float = 3600.0
    retention_ms: int = 48 * 3_600_000
    trim_s: float = 60.0
    single_copy: bool = False
    chain_bytes_max: int = CHAIN_BYTES_MAX
    domain: str = ""
    entry_bytes_max: int = ENTRY_BYTES_MAX
    entry_commands_max: int = 2_000
    queue_requests_max: int = 200_000
    sessions_max: int = 100_000
    session_ttl_ms: int = 3_600_000
    checkpoint_records: int = 10_000
    explicit_lac_s: float = 0.005
    idle_entry_s: float = 0.5
    give_up_s: float = 10.0
    poll_s: float = 1.0
    retry_s: float = 0.5
    tail_pause_s: float = 0.01
    tail_entries_max: int = 256
    snapshot_s: float = 600.0
    snapshot_bytes: int = 1024 * 1024 * 1024
    snapshot_at_stop: bool = False
    verify_s: float = 30.0
    scrub_s: float = 6 * 3600.0
    lake_s: float = 3600.0
    campaign: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: A value is out of its bounds; the message names it.

        """
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise UsageError(
                f"ensemble_size {self.ensemble_size}, write_quorum {self.write_quorum}, ack_quorum "
                f"{self.ack_quorum}: need 1 <= ack quorum <= write quorum <= ensemble"
            )
        if self.ack_quorum < 2 and not self.allow_single_copy:
            raise UsageError(
                "ack_quorum 1 keeps acknowledged records on a single disk: use ack_quorum 2 with two bookies, or "
                "set allow_single_copy for development"
            )
        if not 64 * 1024 <= self.entry_bytes_max <= ENTRY_BYTES_MAX:
            raise UsageError(f"entry_bytes_max {self.entry_bytes_max}: need 65,536 <= bytes <= {ENTRY_BYTES_MAX}")
        if self.retention_ms < 0:
            raise UsageError(f"retention_ms {self.retention_ms}: must not be below 0")
        for name in ("roll_bytes", "roll_records", "roll_s", "trim_s", "chain_bytes_max",
                     "entry_commands_max", "queue_requests_max", "sessions_max",
                     "session_ttl_ms", "checkpoint_records", "idle_entry_s", "give_up_s", "poll_s", "retry_s",
                     "tail_entries_max"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} {getattr(self, name)}: must be above 0")
