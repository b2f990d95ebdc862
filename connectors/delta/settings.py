"""Settings of runs that stream a log into tables, and what such a run says of itself."""

from __future__ import annotations

import msgspec

from connectors.delta.follower import POSITION_INTERVAL_S
from connectors.delta.place import MERGE_MODE
from connectors.delta.position import TablePosition

BATCH_BYTES_MAX = "64m"
"""Log of one micro-batch. What is more goes in several commits: the driver holds a few times as much, and one merge of
100,000 keys by `deltalake` costs less than any by Spark (measured on tables of 200,000 rows)."""


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a stream from a log into tables: the log, and the pace.

    Attributes:
        log: Name of the log.
        source: Further options of the source (`metadataUri`, `passwordFile`, …).
        hold: Those of its options that hold the log (`consumer`, `holdTime`, `holdBytes`); what the tables do not have
            yet is held then. {} = nothing is.
        checkpoint: Folder or URI for Spark's checkpoints; "" = a local folder of each run.
        trigger: Spark's interval between micro-batches.
        available_now: Apply what there is and end.
        records_per_batch_max: Records of one micro-batch, and of one commit: what the driver holds at a time.
        bytes_per_batch_max: The same in bytes of the log, as the option `maxBytesPerTrigger` takes them; whichever is
            reached first. "" = no limit.
        storage_options: For `deltalake`.

    """

    log: str
    source: dict[str, str] = {}
    hold: dict[str, str] = {}
    checkpoint: str = ""
    trigger: str = "1 second"
    available_now: bool = False
    records_per_batch_max: int = 100_000
    bytes_per_batch_max: str = BATCH_BYTES_MAX
    storage_options: dict[str, str] = {}


class MaterializeSettings(StreamSettings, frozen=True, kw_only=True):
    """Settings of a run that materializes: the log, the table, and the pace.

    Attributes:
        place: Path or URI of the Delta table; with `is_every_table`, of the folder that holds one for each table. Of a
            partitioned log it is a folder that holds, as `p0`, `p1`, …, the same for each partition.
        machine_table: Table of the machine; "" = its only one, or the one that bears its name.
        is_every_table: All tables of the machine, those that appear later too.
        mode: `place.MERGE_MODE` (a row a key) or `place.APPEND_MODE` (a row a change).
        has_change_feed: Commits tell each change of a row, for `readChangeFeed`; a table that has that keeps it.
        position_interval_s: Least time between commits of a table that only move its position.
        lake: Where the snapshots of all logs lie, for tables that begin after the log was trimmed; "" = nowhere.
        optimize_every: Commits of a table after which its small files are merged; 0 = never.
        vacuum_retain_hours: Then also remove files that no version of the last so many hours needs; None = never.

    """

    place: str
    machine_table: str = ""
    is_every_table: bool = False
    mode: str = MERGE_MODE
    has_change_feed: bool = False
    position_interval_s: float = POSITION_INTERVAL_S
    lake: str = ""
    optimize_every: int = 0
    vacuum_retain_hours: int | None = None


class Progress(msgspec.Struct, frozen=True):
    """One micro-batch.

    Attributes:
        log: The log; of a partitioned one the partition, each of which is told of by itself.
        revision: Last record in the tables; that no row changed may be committed a little later.
        records: Records of the micro-batch.
        upserted: Rows inserted or changed, in all tables.
        deleted: Rows that went.
        commits: Tables that were committed to.
        seconds: Time that applying it took, reading included.

    """

    log: str
    revision: int
    records: int
    upserted: int
    deleted: int
    commits: int
    seconds: float


class Summary(msgspec.Struct, frozen=True):
    """Summary of a run.

    Attributes:
        position: Where the table stands; of several the one that is least far.
        positions: Where each table stands, by log and name.
        batches: Micro-batches that were new.
        records: Records in them.
        upserted: Rows inserted or changed.
        deleted: Rows that went.
        restarts: How often the stream failed and started again.
        files_merged: Small files that upkeep merged.
        files_removed: Files that upkeep removed.
        seconds: All in all.

    """

    position: TablePosition
    positions: tuple[TablePosition, ...]
    batches: int
    records: int
    upserted: int
    deleted: int
    restarts: int
    files_merged: int
    files_removed: int
    seconds: float
