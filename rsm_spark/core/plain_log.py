"""Plain logs: what a program appends itself, without a state machine behind the log. Their records, as pure functions.

A plain log describes itself as a machine `log` with one table, `records`, to which every appended record adds a row. So
whoever reads logs by their description (Spark, `rsm log cat`, backups) reads plain logs too.

    appended  [position, key | nil, txid, payload]   a row of the table
    resumed   [txid]                                 the last transaction id so far: among the first of each ledger
    ended     [txid]                                 nothing is appended behind it, for ever

A log of format level `PRODUCERS_LEVEL` has three more, which tell whose appended records are: see
`rsm_spark.core.producers`. A log of a lower level has none of them and describes none; the appended records are the
same in both, and whoever reads passes over the rest.

1. The position of a record is its revision: 1 first, one more with each record of the log, the kernel's included. So
   positions rise, and have gaps.
2. Transaction ids never fall along a log.
3. Every entry holds one of these records: the last entry tells the last transaction id, and whether the log has ended.

* `PlainLogError`               a `LogError`: what was asked for does not fit this plain log
    * `LogEndedError`           the log has its end mark
    * `TransactionIdError`      the transaction id is below one that was appended before
    * `RecordTooLargeError`     the record does not fit an entry
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from rsm_spark.core.envelope import (
    ENTRY_BYTES_MAX,
    HEADER_BYTES,
    SEAL_BYTES,
    Envelope,
    body_of,
    decode_envelope,
    encode_envelope,
    entry_hash,
)
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.records import KernelRecord, Record, decode_records, pack
from rsm_spark.core.seal import EntryKey
from rsm_spark.errors import CorruptLogError, LogError

RECORD_OVERHEAD = 64
"""More than the bytes of a record beside its key and payload."""

RECORD_BYTES_MAX = ENTRY_BYTES_MAX - HEADER_BYTES - SEAL_BYTES - 8192
"""Key and payload of one record."""

TXID_MAX = 2**63 - 1


class PlainLogError(LogError):
    """A wish that does not fit this plain log."""


class LogEndedError(PlainLogError):
    """The log has its end mark: nothing can be appended any more."""


class TransactionIdError(PlainLogError):
    """The transaction id is below one that was appended before, or none at all."""


class RecordTooLargeError(PlainLogError):
    """Key and payload are larger than an entry of the log."""


class PlainRecord(IntEnum):
    """Record types of a plain log; see the module."""

    APPENDED = 16
    RESUMED = 17
    ENDED = 18
    PRODUCER_OPENED = 19
    PRODUCED = 20
    PRODUCERS_NOTED = 21


_APPENDED = int(PlainRecord.APPENDED)

_POSITION = Field("position", FieldType.INT)
_KEY = Field("key", FieldType.BYTES, nullable=True)
_TXID = Field("txid", FieldType.INT)
_PAYLOAD = Field("payload", FieldType.BYTES)

PLAIN_LOG = MachineDescription(
    "log",
    1,
    (TableDescription("records", (_POSITION,), (_KEY, _TXID, _PAYLOAD)),),
    (
        RecordDescription(
            PlainRecord.APPENDED,
            "appended",
            (_POSITION, _KEY, _TXID, _PAYLOAD),
            "records",
            Fold.UPSERT,
            ("position",),
            ("key", "txid", "payload"),
        ),
        RecordDescription(PlainRecord.RESUMED, "resumed", (_TXID,)),
        RecordDescription(PlainRecord.ENDED, "ended", (_TXID,)),
    ),
)
"""Description of a plain log without producers."""

_PRODUCER = Field("producer", FieldType.STR)

PRODUCED_LOG = MachineDescription(
    PLAIN_LOG.name,
    2,
    PLAIN_LOG.tables,
    (
        *PLAIN_LOG.records,
        RecordDescription(PlainRecord.PRODUCER_OPENED, "producer_opened", (_PRODUCER, Field("owner", FieldType.STR))),
        RecordDescription(
            PlainRecord.PRODUCED,
            "produced",
            (_PRODUCER, Field("sequence", FieldType.INT), Field("count", FieldType.INT)),
        ),
        RecordDescription(PlainRecord.PRODUCERS_NOTED, "producers_noted", (Field("rows", FieldType.BYTES),)),
    ),
)
"""Description of a plain log of `PRODUCERS_LEVEL` or above."""

_DESCRIBED, _PRODUCED_DESCRIBED = (
    (int(KernelRecord.MACHINE_DESCRIBED), None, (encode_description(one),)) for one in (PLAIN_LOG, PRODUCED_LOG)
)


class LogRecord(NamedTuple):
    """One appended record.

    Attributes:
        position: Its revision in the log.
        txid: Its transaction id.
        key: As it was appended; None = without one.
        payload: As it was appended.
        logged_ms: Logged time, milliseconds since 1970; never falls along the log.

    """

    position: int
    txid: int
    key: bytes | None
    payload: bytes
    logged_ms: int


class WrittenEnd(NamedTuple):
    """Statement of the last entry of a plain log about what may follow it.

    Attributes:
        txid: The last transaction id.
        is_ended: It is the end mark.

    """

    txid: int = 0
    is_ended: bool = False


def first_records(
    replica_id: str, incarnation: str, end: WrittenEnd, note: bytes | None = None
) -> list[tuple[object, ...]]:
    """Return the records with which a writer begins, behind what ends so.

    Args:
        replica_id: Of the writer.
        incarnation: Of the same.
        end: What the last entry says.
        note: All producers so far, packed; None = the log has none, by its format level.

    """
    described, *rest = ledger_records(end, note)
    return [described, (int(KernelRecord.LEADER_STARTED), None, (replica_id, incarnation)), *rest]


def ledger_records(end: WrittenEnd, note: bytes | None = None) -> list[tuple[object, ...]]:
    """Return the records that stand among the first of each later ledger: those before it may be trimmed."""
    if note is None:
        return [_DESCRIBED, _end_record(end)]
    return [_PRODUCED_DESCRIBED, (int(PlainRecord.PRODUCERS_NOTED), None, (note,)), _end_record(end)]


def produced_records(producer: str, owner: str | None, sequence: int, count: int) -> list[tuple[object, ...]]:
    """Return the records that stand before those of a producer; with an owner it is opened."""
    records: list[tuple[object, ...]] = [(int(PlainRecord.PRODUCED), None, (producer, sequence, count))]
    return records if owner is None else [(int(PlainRecord.PRODUCER_OPENED), None, (producer, owner)), *records]


def resumed_record(txid: int) -> tuple[object, ...]:
    """Return the record that stands in an entry to which nothing was appended; see the module, 3."""
    return _end_record(WrittenEnd(txid))


def _end_record(end: WrittenEnd) -> tuple[object, ...]:
    return (int(PlainRecord.ENDED if end.is_ended else PlainRecord.RESUMED), None, (end.txid,))


def appended_records(
    first_position: int,
    keys: Sequence[bytes | None],
    txid: int,
    payloads: Sequence[bytes],
    txids: Sequence[int] | None = None,
) -> list[tuple[object, ...]]:
    """Return the records of an append, all of one transaction id, or with `txids` each of its own."""
    if txids is not None:
        return [
            (_APPENDED, None, (at, key, own, payload))
            for at, (key, own, payload) in enumerate(zip(keys, txids, payloads, strict=True), first_position)
        ]
    if len(payloads) == 1:  # As most are.
        return [(_APPENDED, None, (first_position, keys[0], txid, payloads[0]))]
    return [
        (_APPENDED, None, (at, key, txid, payload))
        for at, (key, payload) in enumerate(zip(keys, payloads, strict=True), first_position)
    ]


def ended_record(txid: int) -> tuple[object, ...]:
    """Return the end mark, with the last transaction id."""
    return _end_record(WrittenEnd(txid, is_ended=True))


def encode_entry(
    envelope: Envelope, records: Sequence[tuple[object, ...]], entry_key: EntryKey | None
) -> tuple[bytes, bytes]:
    """Return the payload of an entry, sealed if there is a key, and the prefix hash after it."""
    payload = encode_envelope(envelope, pack(records))
    if entry_key is None:
        return payload, entry_hash(payload)
    sealed = bytearray(payload)
    prefix_hash = entry_key.finish(sealed, 0)
    return bytes(sealed), prefix_hash


def decode_entry(payload: bytes) -> tuple[list[LogRecord], bool]:
    """Return the appended records of an entry, and whether the end mark is behind them.

    Raises:
        CorruptLogError: It is no entry of a plain log.

    """
    envelope = decode_envelope(payload)
    found, is_ended = [], False
    for revision, record in enumerate(_records(payload, envelope), envelope.first_revision):
        if record.type == PlainRecord.APPENDED:
            position, key, txid, body = _fields(record, 4)
            if position != revision:
                raise CorruptLogError(f"the record of revision {revision} says that it is at position {position}")
            found.append(LogRecord(revision, txid, key, body, envelope.logged_ms))
        elif record.type == PlainRecord.ENDED:
            is_ended = True
    return found, is_ended


def written_end(payload: bytes) -> WrittenEnd:
    """Return what an entry says about what may follow it.

    Raises:
        CorruptLogError: It is no entry of a plain log.

    """
    envelope = decode_envelope(payload)
    for record in reversed(_records(payload, envelope)):
        if record.type == PlainRecord.APPENDED:
            return WrittenEnd(_fields(record, 4)[2])
        if record.type in (PlainRecord.RESUMED, PlainRecord.ENDED):
            return WrittenEnd(_fields(record, 1)[0], record.type == PlainRecord.ENDED)
    raise CorruptLogError(f"the entry of revision {envelope.first_revision} has no record of a plain log")


def first_txid(payload: bytes) -> int:
    """Return the transaction id with which an entry begins.

    Raises:
        CorruptLogError: It is no entry of a plain log.

    """
    envelope = decode_envelope(payload)
    for record in _records(payload, envelope):
        if record.type == PlainRecord.APPENDED:
            return int(_fields(record, 4)[2])
        if record.type in (PlainRecord.RESUMED, PlainRecord.ENDED):
            return int(_fields(record, 1)[0])
    raise CorruptLogError(f"the entry of revision {envelope.first_revision} has no record of a plain log")


def _records(payload: bytes, envelope: Envelope) -> list[Record]:
    records = decode_records(body_of(payload))
    if len(records) != envelope.record_count:
        raise CorruptLogError(
            f"the entry of revision {envelope.first_revision} names {envelope.record_count} records and holds "
            f"{len(records)}"
        )
    return records


def _fields(record: Record, count: int) -> tuple[Any, ...]:
    if len(record.fields) != count:
        raise CorruptLogError(f"a record of type {record.type} has {len(record.fields)} fields, {count} are described")
    return record.fields
