"""Shapes of what a gateway of logs is asked and what it answers: routes, their description and clients share them.

Bytes are base64 in JSON.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rsm_spark.core.partition_layout import PARTITIONS_MAX
from rsm_spark.core.writer_marks import CHUNKS_MAX, PARTS_MAX

BATCH_MAX = 10_000
PAGE_MAX = 10_000
NAMES_MAX = 1_000
WAIT_S_MAX = 30.0

Partition = Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)]
PartitionCount = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]


# ---- what is asked


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A record to append.

    Attributes:
        payload: In base64.
        text: Instead of it, as UTF-8.
        key: In base64.

    """

    payload: bytes | None = None
    text: str | None = None
    key: bytes | None = None


class AppendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Records of a producer.

    Attributes:
        producer: Its id.
        sequence: Of the first record; the others follow it.
        records: Appended together.
        partition: Of a partitioned log: where they go. Left out, it is that of their keys.
        partitions: How many partitions it was chosen by.

    """

    producer: str
    sequence: int
    records: Annotated[list[RecordBody], Meta(min_length=1, max_length=BATCH_MAX)]
    partition: Partition | None = None
    partitions: PartitionCount | None = None


class MarkedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rows of a writer's batch, or its end; see `rsm_spark.core.writer_marks.WriterMark`.

    Attributes:
        writer: Its name; each principal has names of its own.
        kind: A chunk of a part, all of a batch at once, or the end of a batch that came in chunks. Of a writer that is
            passing also its beginning; and that a writer is to be forgotten.
        checkpoint: What counts the batches.
        run: One start of it; a later one takes over from an earlier one.
        batch: Number of the batch, rising.
        part: Of a chunk: number of its part, from 0.
        chunk: Of a chunk: its number in the part, from 0.
        row_count: Of an end: rows of the batch.
        takes_over_from: Checkpoint whose place this one may take.
        parts: Of an end: number of each part, and of its chunks.
        records: Of a chunk, or of all of a batch: appended together.
        is_passing: The writer must have begun, and is forgotten when its batch has ended.
        txids: Transaction id of each record, none below the one before; none = that of the record before them.

    """

    writer: str
    kind: Literal["chunk", "whole", "end", "begin", "forget"]
    checkpoint: str
    run: str
    batch: Annotated[int, Meta(ge=0, lt=2**62)]
    part: Annotated[int, Meta(ge=0, lt=PARTS_MAX)] = 0
    chunk: Annotated[int, Meta(ge=0, lt=CHUNKS_MAX)] = 0
    row_count: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    takes_over_from: str = ""
    parts: Annotated[list[tuple[int, int]], Meta(max_length=PARTS_MAX)] = []
    records: Annotated[list[RecordBody], Meta(max_length=BATCH_MAX)] = []
    is_passing: bool = False
    txids: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=BATCH_MAX)] = []


class RawQuery(msgspec.Struct, frozen=True):
    """Producer and sequence of the one record that the body holds, byte by byte; of a partitioned log also the way."""

    producer: str
    sequence: int
    partition: Partition | None = None
    partitions: PartitionCount | None = None


class RecordsQuery(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """A page of records.

    Attributes:
        begin: "begin", "end", the first position; of a partitioned log by partition, as `next` and ids have it.
        limit: At most so many records.
        wait_s: How long to wait for the first one.

    """

    begin: str = "begin"
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 1_000
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0


class TailQuery(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """Begin of a stream, as that of a page. A `Last-Event-ID` goes before it."""

    begin: str = "end"


class NamesQuery(msgspec.Struct, frozen=True):
    """Names that begin so, behind `after`, at most `limit`."""

    prefix: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=NAMES_MAX)] = NAMES_MAX


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of what a log keeps, and its number of partitions; see `rsm_spark.logs.log_names.LogNames.create`."""

    retention_s: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    retention_bytes: Annotated[int, Meta(ge=0)] | None = None
    until_read: bool = False
    partitions: PartitionCount | None = None


class TruncateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Last position to let go of."""

    position: Annotated[int, Meta(ge=0)]


class GrowBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of partitions that a log is to have."""

    partitions: PartitionCount


# ---- what is answered


class AppendedPlaces(msgspec.Struct, frozen=True):
    """Positions of the records that were sent, in their order."""

    positions: list[int]


class MarkedOutcome(msgspec.Struct, frozen=True):
    """Outcome of what a writer has sent: it is in the log now, or was before, or is refused.

    Attributes:
        status: The same; gone = there is no such writer, which must have begun: its batch has ended.
        reason: Why it is refused, or gone.

    """

    status: Literal["applied", "done", "refused", "gone"]
    reason: str = ""


class ReadRecord(msgspec.Struct, frozen=True):
    """A record that was read.

    Attributes:
        position: Its revision in its log, or in its partition.
        txid: Its transaction id.
        key: As it was appended; None = without one.
        payload: As it was appended.
        logged_ms: Logged time, milliseconds since 1970.
        partition: Where it is; of a partitioned log alone.

    """

    position: int
    txid: int
    key: bytes | None
    payload: bytes
    logged_ms: int
    partition: int | UnsetType = UNSET


class RecordsPage(msgspec.Struct, frozen=True):
    """A page of records.

    Attributes:
        records: In order; those of a key in the order of their appends.
        next: Where the next page begins: the next position, or that of each partition.
        is_ended: The log has its end mark, and nothing is left before it.

    """

    records: list[ReadRecord]
    next: int | str
    is_ended: bool


class TrimmedNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Last event of a stream whose place has left the log.

    Attributes:
        oldest_position: With which it begins now.
        reason: "trimmed".
        partition: In which this is so; of a partitioned log alone.

    """

    oldest_position: int
    reason: str
    partition: int | None = None


class NamesPage(msgspec.Struct, frozen=True):
    """Names of logs, and whether there are more behind the last one."""

    logs: list[str]
    has_more: bool


class NamedLog(msgspec.Struct, frozen=True):
    """Name of the log that was made or deleted."""

    log: str


class GrownLog(msgspec.Struct, frozen=True):
    """Name of a log, and how many partitions it has now."""

    log: str
    partitions: int
