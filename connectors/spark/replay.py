"""The state at a revision, folded from the log by DataFrames: written from the formats, not from the service's code.

So it is a second opinion: if a replica and this fold agree on a digest, both have the same state.

    tables       the last record of each key decides: an upsert is its row, a delete is none; the kernel's tables too,
                 by `rsm_spark.core.kernel_tables.KERNEL_RECORDS`
    `_sessions`  from openings, expiries and the heads of commands, see `rsm_spark.core.records.SESSIONS_TABLE`
    digest       sum over all rows, in parallel; order does not matter
    prefix hash  each entry's hash is named by the next one: linked inside a ledger in parallel, between ledgers after
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.envelope import root_hash
from rsm_spark.core.kernel_tables import KERNEL_RECORDS
from rsm_spark.core.machine import Fold
from rsm_spark.core.records import SESSIONS_TABLE, KernelRecord, pack
from rsm_spark.errors import CorruptLogError, ForkedLogError

__all__ = ["Checkpoint", "RowSum", "fold_state", "last_checkpoint", "sum_rows", "verify_links"]

_STATE_DDL = "table_name string, key binary, row binary, revision bigint"
_STATE_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("row", pa.binary()),
    pa.field("revision", pa.int64()),
]
_CHANGE_COLUMNS = ("table_name", "fold", "key", "row", "revision")
_CHANGE_DDL = "table_name string, fold string, key binary, row binary, revision bigint"
_CHANGE_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string()),
    pa.field("fold", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("row", pa.binary()),
    pa.field("revision", pa.int64()),
]
_SUM_FIELDS: list[pa.Field[Any]] = [pa.field("digest", pa.binary()), pa.field("row_count", pa.int64())]
# msgpack of an array of one byte string of 16 bytes, before the string: how the key of a session begins.
_SESSION_KEY_HEAD = "91C410"
_HASH_BYTES = 32


class RowSum(NamedTuple):
    """What the rows of a state come to.

    Attributes:
        digest: State digest, 32 hex digits.
        row_count: Rows.

    """

    digest: str
    row_count: int


class Checkpoint(NamedTuple):
    """What a leader logged of its own state.

    Attributes:
        revision: The state is that right after this record.
        digest: Its digest, 32 hex digits.
        row_count: Its rows.

    """

    revision: int
    digest: str
    row_count: int


def fold_state(records: DataFrame, revision: int) -> DataFrame:
    """Return the rows of the state right after a record: table_name, key, row, revision.

    Args:
        records: `rows=records` of the log from its first record on.
        revision: Records after it are left out.

    """
    upto = records.where(F.col("revision") <= revision)
    changes = upto.where(F.col("fold").isin("upsert", "delete")).select(*_CHANGE_COLUMNS)
    kernel = upto.where(F.col("type").isin(list(_KERNEL_FOLDS))).select("type", "fields", "revision")
    changes = changes.unionByName(kernel.mapInArrow(_name_changes, _CHANGE_DDL))
    return _fold_tables(changes).unionByName(_fold_sessions(upto))


_KERNEL_FOLDS = {int(record.type): record for record in KERNEL_RECORDS if record.fold != Fold.NONE}


def _name_changes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write records of the kernel as what they do to their row (in a task)."""
    for batch in batches:
        changes: list[tuple[str, str, bytes, bytes | None, int]] = []
        for kind, fields, revision in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            record = _KERNEL_FOLDS[kind]
            by_name = dict(zip((field.name for field in record.fields), msgspec.msgpack.decode(fields), strict=True))
            row = pack([by_name[name] for name in record.row]) if record.fold == Fold.UPSERT else None
            key = pack([by_name[name] for name in record.key])
            changes.append((record.table, str(record.fold), key, row, revision))
        columns = zip(*changes, strict=True) if changes else [()] * len(_CHANGE_FIELDS)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _CHANGE_FIELDS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_CHANGE_FIELDS))


def _fold_tables(changes: DataFrame) -> DataFrame:
    last = F.max_by(F.struct("fold", "row", "revision"), "revision").alias("last")
    kept = changes.groupBy("table_name", "key").agg(last).where("last.fold = 'upsert'")
    return kept.select("table_name", "key", F.col("last.row").alias("row"), F.col("last.revision").alias("revision"))


def _fold_sessions(records: DataFrame) -> DataFrame:
    """Fold the clients' sessions; a session that was opened again after it ended begins anew."""
    is_opening, is_end = (F.col("type") == int(kind) for kind in (_OPENED, _EXPIRED))
    key = F.when(F.col("session").isNotNull(), F.concat(F.unhex(F.lit(_SESSION_KEY_HEAD)), "session"))
    events = records.where(is_opening | is_end | F.col("session").isNotNull()).select(
        # The one field of an opening or an end is the session: as an array it is the key of the session's row.
        F.coalesce(key, F.col("fields")).alias("key"),
        "revision",
        F.unix_millis("logged_at").alias("ms"),
        is_opening.alias("is_opening"),
        is_end.alias("is_end"),
        "sequence",
        "answered_up_to",
        "reply",
    )
    ends = events.where("is_end").groupBy("key").agg(F.max("revision").alias("end"))
    living = events.where("NOT is_end").join(ends, "key", "left")
    living = living.where(F.col("end").isNull() | (F.col("revision") > F.col("end")))
    sessions = living.groupBy("key").agg(
        F.min(F.when(F.col("is_opening"), F.col("ms"))).alias("opened_ms"),
        F.max("ms").alias("last_ms"),
        F.coalesce(F.max("answered_up_to"), F.lit(0)).alias("answered"),
        F.coalesce(F.max("sequence"), F.lit(0)).alias("last_sequence"),
        F.max("revision").alias("revision"),
    )
    # Only replies that the client may still ask for are collected, however long the session has lived.
    replies = (
        living.join(sessions.select("key", "answered"), "key")
        .where(F.col("sequence") > F.col("answered"))
        .groupBy("key")
        .agg(F.sort_array(F.collect_list(F.struct("sequence", "reply"))).alias("replies"))
    )
    return sessions.join(replies, "key", "left").mapInArrow(_pack_sessions, _STATE_DDL)


_OPENED, _EXPIRED = KernelRecord.SESSION_OPENED, KernelRecord.SESSION_EXPIRED


def _pack_sessions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write sessions as rows of their table (in a task)."""
    for batch in batches:
        found = batch.to_pylist()
        rows = [
            pack(
                (
                    one["opened_ms"],
                    one["last_ms"],
                    one["answered"],
                    one["last_sequence"],
                    [(reply["sequence"], reply["reply"]) for reply in one["replies"] or ()],
                )
            )
            for one in found
        ]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([SESSIONS_TABLE] * len(found), pa.string()),
                pa.array([one["key"] for one in found], pa.binary()),
                pa.array(rows, pa.binary()),
                pa.array([one["revision"] for one in found], pa.int64()),
            ],
            schema=pa.schema(_STATE_FIELDS),
        )


def sum_rows(state: DataFrame) -> RowSum:
    """Return digest and count of a state's rows; each task sums its own."""
    digest, count = 0, 0
    for part in state.mapInArrow(_sum_part, "digest binary, row_count bigint").collect():
        digest += int.from_bytes(part.digest, "big")
        count += part.row_count
    return RowSum(digest_bytes(digest % DIGEST_MODULUS).hex(), count)


def _sum_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prefixes: dict[str, bytes] = {}
    digest, count = 0, 0
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("table_name", "key", "row"))
        for table, key, row in zip(*columns, strict=True):
            prefix = prefixes.get(table) or prefixes.setdefault(table, table_prefix(table))
            digest += row_term(prefix, key, row)
        count += batch.num_rows
    yield pa.RecordBatch.from_arrays(
        [pa.array([digest_bytes(digest % DIGEST_MODULUS)], pa.binary()), pa.array([count], pa.int64())],
        schema=pa.schema(_SUM_FIELDS),
    )


def last_checkpoint(records: DataFrame, revision: int) -> Checkpoint | None:
    """Return the last checkpoint that a leader logged up to a record, or None."""
    logged = records.where((F.col("type") == int(KernelRecord.CHECKPOINT_LOGGED)) & (F.col("revision") <= revision))
    found = logged.orderBy(F.desc("revision")).select("fields").first()
    if found is None:
        return None
    at, digest, row_count = msgspec.msgpack.decode(bytes(found.fields), type=tuple[int, bytes, int])
    return Checkpoint(at, digest.hex(), row_count)


def verify_links(entries: DataFrame, ledger_ids: list[int], log_id: bytes) -> bytes:
    """Check that entries are one unbroken log, from its very first one on.

    Args:
        entries: `rows=raw` of the log.
        ledger_ids: Its ledgers, in the order of the chain.
        log_id: uuid of the log.

    Returns:
        The prefix hash after the last entry.

    Raises:
        ForkedLogError: An entry does not continue the one before it.
        CorruptLogError: Entries or records are missing.

    """
    # The prefix hash stands at the end of the envelope of 96 bytes.
    before = F.substring("payload", 65, _HASH_BYTES)
    links = entries.select(
        "ledger_id",
        "entry_id",
        F.col("revision").alias("first"),
        (F.col("revision") + F.col("record_count")).alias("following"),
        F.unhex(F.sha2("payload", 256)).alias("hash"),
        before.alias("before"),
    )
    in_order = Window.partitionBy("ledger_id").orderBy("entry_id")

    def lag(name: str) -> Column:
        return F.lag(name).over(in_order)

    broken = links.select(
        "ledger_id",
        "entry_id",
        (F.col("entry_id") != F.coalesce(lag("entry_id"), F.lit(-1)) + 1).alias("is_missing"),
        (F.col("first") != F.coalesce(lag("following"), F.col("first"))).alias("is_gap"),
        (F.col("before") != F.coalesce(lag("hash"), F.col("before"))).alias("is_fork"),
    ).where("is_missing OR is_gap OR is_fork")
    found = broken.orderBy("ledger_id", "entry_id").first()
    if found is not None:
        place = f"ledger {found.ledger_id} entry {found.entry_id}"
        if found.is_fork and not found.is_missing:
            raise ForkedLogError(f"{place} does not continue the entry before it: the prefix hash differs")
        raise CorruptLogError(f"{place}: entries or records before it are missing")
    ends = links.groupBy("ledger_id").agg(
        F.min_by(F.struct("before", "first"), "entry_id").alias("begin"),
        F.max_by(F.struct("hash", "following"), "entry_id").alias("end"),
    )
    by_ledger = {row.ledger_id: row for row in ends.collect()}
    present, revision = root_hash(log_id), 1
    for row in (by_ledger[ledger_id] for ledger_id in ledger_ids if ledger_id in by_ledger):
        if bytes(row.begin.before) != present:
            raise ForkedLogError(
                f"ledger {row.ledger_id} does not continue the ledger before it: the prefix hash differs"
            )
        if row.begin.first != revision:
            raise CorruptLogError(f"ledger {row.ledger_id} begins with record {row.begin.first}, {revision} is next")
        present, revision = bytes(row.end.hash), row.end.following
    return present
