"""Settings of a replica, with their defaults and their limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.core.lease_promises import LEASE_MS_MAX
from ledger.errors import UsageError
from ledger.options import NOT, SECONDS, Option
from rsm_spark.core.chain import CHAIN_BYTES_MAX, DEFAULT_RSM_ROOT
from rsm_spark.core.envelope import ENTRY_BYTES_MAX
from rsm_spark.core.seal import KeyRing
from rsm_spark.core.trimming import HOLD_BYTES, HOLD_MS


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one replica; every default suits a small production cluster.

    Attributes:
        ledger_password: Of every ledger from before the log had a key; of every one if it has none.
        log_keys: Keys of the log, re-read while the replica runs. A new log has a key from its first entry on, one of
            before by `rsm log key adopt`. None = it takes part only in logs without a key.
        ensemble_size: Bookies that share a ledger; shrinks to the writable ones, not below the ack quorum.
        write_quorum: Bookies that store each entry; shrinks with the ensemble.
        ack_quorum: Answers needed before an entry counts; never shrinks. At least 2 unless `allow_single_copy`.
        chain_bytes_max: What the metadata store takes in one node (ZooKeeper's `jute.maxbuffer`, less a little). From
            70 % of it on ledgers are no longer rolled, and an alarm says so.
        entry_bytes_max: Header and body of one entry.
        entry_commands_max: Requests composed into one entry: bounds the time that the event loop is busy.
        queue_requests_max: Requests that wait for their batch; more are answered OVERLOADED.
        sessions_max: Client sessions open at once; more are answered OVERLOADED.
        explicit_lac_s: Silence after a confirmed batch before followers are told by an explicit LAC.
        idle_entry_s: A leader with nothing to do writes an empty entry this often: followers see that they are
            fresh, a deposed leader sees its fence.
        grow_s: A ledger on fewer bookies than wanted is kept for so long before its leader looks whether enough are
            back, and rolls; twice as long each time that bookies go again soon, up to 10 minutes.
        give_up_s: A leader, or who takes over, resigns when for so long no entry was confirmed or replayed, nor another
            step of its take-over done, for another replica to try: it may be cut off from the bookies alone.
        beat_s: Time between two beats of a replica's event loop, which other replicas listen to.
        poll_s: How often a follower reads chain and ledger metadata again although no watch fired.
        retry_s: Pause before a refused step (no bookies, metadata store away) is tried again.
        producer_ttl_ms: A producer of a plain log is forgotten when it has appended nothing for so long.
        tail_pause_s: How long a follower lets entries gather before it reads again; part of its lag.
        tail_entries_max: Entries read by a follower at once.
        snapshot_at_stop: Take a snapshot when the replica is stopped in an orderly way.
        scrub_s: How often it reads again what is verified already.
        raise_version: As leader, raise the log's version of the machine by itself, once every live replica runs the
            newer one; False = an operator does it (`rsm log raise-version`), and until then there is a way back.

    """

    rsm_root: Annotated[str, Option("Root of the logs in ZooKeeper.")] = DEFAULT_RSM_ROOT
    ledger_password: bytes = b""
    log_keys: KeyRing | None = None
    allow_unsigned: Annotated[
        bool,
        Option(
            "Take part in a log without a key, also beyond loopback. Whoever reaches a bookie can then forge entries.",
            name="unsigned",
        ),
    ] = False
    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    allow_single_copy: Annotated[
        bool, Option("Allow an ack quorum of 1. With one disk the log is lost.", name="single_copy")
    ] = False
    roll_bytes: Annotated[int, Option("A new ledger begins when the present one has so many bytes.")] = (
        256 * 1024 * 1024
    )
    roll_records: Annotated[int, Option("A new ledger begins when the present one has so many records.")] = 10_000_000
    roll_s: Annotated[float, Option("A new ledger begins when the present one is so old.")] = 3600.0
    retention_ms: Annotated[
        int, Option("Records that are younger stay in the log in any case.", name="retention_s", unit=SECONDS, ge=0)
    ] = 48 * 3_600_000
    consumer_hold_ms: Annotated[
        int,
        Option(
            "What a registered consumer has not read stays so long after it was written, and no longer.",
            name="consumer_hold_s",
            unit=SECONDS,
            ge=0,
        ),
    ] = HOLD_MS
    consumer_hold_bytes: Annotated[
        int, Option("What a registered consumer has not read stays up to so many bytes of log, and no more.", ge=0)
    ] = HOLD_BYTES
    trim_s: Annotated[float, Option("Time between two looks of the leader for what may be trimmed.")] = 60.0
    single_copy: Annotated[
        bool,
        Option(
            "Trim when one place alone has a verified snapshot. With that disk the log is lost.",
            name="trim_single_copy",
        ),
    ] = False
    chain_bytes_max: int = CHAIN_BYTES_MAX
    domain: Annotated[
        str, Option("Name of what fails together with this disk, such as its machine or its rack.", shown="only itself")
    ] = ""
    entry_bytes_max: int = ENTRY_BYTES_MAX
    entry_commands_max: int = 2_000
    queue_requests_max: int = 200_000
    sessions_max: int = 100_000
    session_ttl_ms: Annotated[int, Option("A client's session ends after this time without a command.", ge=1)] = (
        3_600_000
    )
    checkpoint_records: Annotated[
        int, Option("Records of the log between two checkpoints, which hold a digest of the state.", ge=1)
    ] = 10_000
    explicit_lac_s: float = 0.005
    idle_entry_s: float = 0.5
    grow_s: float = 30.0
    check_reads: Annotated[
        bool,
        Option(
            "As leader, log an entry for linearizable reads, instead of asking bookies whether the ledger is fenced.",
            name="reads_by_entry",
            unit=NOT,
        ),
    ] = True
    read_leases_ms: Annotated[
        int,
        Option(
            "As leader, answer linearizable reads without a message while bookies have promised for this time that "
            "nobody takes over; a take-over waits for as long. 0 = no promises, at most 250.",
            ge=0,
        ),
    ] = 0
    told_entries: Annotated[
        bool,
        Option(
            "As follower, read every entry from bookies, instead of having confirmed ones from the leader.",
            name="entries_by_bookies",
            unit=NOT,
        ),
    ] = True
    give_up_s: float = 10.0
    beat_s: float = 0.1
    beat_silence_s: Annotated[
        float,
        Option(
            "A leader of which nothing is heard for this time, by no replica, is replaced without waiting for its "
            "session with ZooKeeper; 0 = its session alone tells.",
            ge=0,
        ),
    ] = 0.3
    poll_s: float = 1.0
    retry_s: float = 0.5
    producer_ttl_ms: int = 7 * 86_400_000
    tail_pause_s: float = 0.01
    tail_entries_max: int = 256
    snapshot_s: Annotated[float, Option("Time between two local snapshots; 0 = none by time.")] = 600.0
    snapshot_bytes: Annotated[int, Option("Bytes of log between two local snapshots; 0 = none by size.")] = (
        1024 * 1024 * 1024
    )
    snapshot_at_stop: bool = False
    verify_s: Annotated[
        float, Option("Time between two looks for snapshots of other replicas, which this one verifies.")
    ] = 30.0
    scrub_s: float = 6 * 3600.0
    lake_s: Annotated[float, Option("Time between two snapshots in the lake.")] = 3600.0
    lake_tables: Annotated[
        bool,
        Option("Keep no typed tables beside the snapshots in the lake.", name="lake_without_tables", unit=NOT),
    ] = True
    memory_limit_mib: Annotated[
        int,
        Option(
            "Memory of this process. From 70 % on, what needs more is refused. 0 = that of its cgroup or machine.",
            ge=0,
        ),
    ] = 0
    campaign: Annotated[bool, Option("Never lead.", name="follow_only", unit=NOT)] = True
    raise_version: Annotated[
        bool,
        Option(
            "As leader, leave the version of the log's machine as it is, until an operator raises it.",
            name="keep_version",
            unit=NOT,
        ),
    ] = True

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
        if self.memory_limit_mib < 0:
            raise UsageError(f"memory_limit_mib {self.memory_limit_mib}: must not be below 0")
        if self.beat_silence_s and self.beat_silence_s <= 2 * self.beat_s:
            raise UsageError(
                f"beat_silence_s {self.beat_silence_s}: need more than two beats, {2 * self.beat_s:g} s; 0 = sessions "
                "alone tell"
            )
        if not 0 <= self.read_leases_ms <= LEASE_MS_MAX:
            raise UsageError(f"read_leases_ms {self.read_leases_ms}: need 0 <= milliseconds <= {LEASE_MS_MAX}")
        if self.read_leases_ms and not self.check_reads:
            raise UsageError("read_leases_ms needs reads without an entry: leave reads_by_entry away")
        for name in ("retention_ms", "consumer_hold_ms", "consumer_hold_bytes"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} {getattr(self, name)}: must not be below 0")
        for name in ("roll_bytes", "roll_records", "roll_s", "trim_s", "chain_bytes_max",
                     "entry_commands_max", "queue_requests_max", "sessions_max",
                     "session_ttl_ms", "checkpoint_records", "beat_s", "idle_entry_s", "give_up_s", "grow_s", "poll_s",
                     "retry_s", "tail_entries_max", "producer_ttl_ms"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} {getattr(self, name)}: must be above 0")
