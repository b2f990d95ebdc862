"""Tables and records of the kernel itself, described like a machine's: whoever folds a log by key needs no more.

`_sessions` is folded from openings, expiries and the heads of commands (see `rsm_spark.core.sessions`); every other
kernel table is an upsert or a delete by key, as `KERNEL_RECORDS` says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import convert, msgpack_decoder
from rsm_spark.core.envelope import body_of, decode_envelope, record_count_of
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    Row,
    RowChange,
    TableDescription,
    decode_description,
)
from rsm_spark.core.records import (
    MIGRATIONS_TABLE,
    SESSIONS_TABLE,
    VERIFIED_TABLE,
    WRITERS_TABLE,
    KernelRecord,
    decode_records,
    pack,
)
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError

CHECKPOINTS_MAX = 256
"""Checkpoints remembered: a snapshot that is verified later than this many of them has newer ones to verify."""


def _fields(**types: FieldType) -> tuple[Field, ...]:
    return tuple(Field(name, kind) for name, kind in types.items())


_PLACE = _fields(place=FieldType.STR)
_SESSION = _fields(session=FieldType.BYTES)
_VERIFIED_ROW = _fields(
    domain=FieldType.STR,
    revision=FieldType.INT,
    digest=FieldType.BYTES,
    prefix_hash=FieldType.BYTES,
    row_count=FieldType.INT,
    by=FieldType.STR,
)

_VERSION = _fields(version=FieldType.INT)
_MIGRATION = _fields(from_version=FieldType.INT, began=FieldType.INT, ended=FieldType.INT)

_WRITER_PART = _fields(writer=FieldType.STR, part=FieldType.INT)
_WRITER_ROW = _fields(
    checkpoint=FieldType.STR,
    run=FieldType.STR,
    batch=FieldType.INT,
    chunks=FieldType.INT,
    digests=FieldType.BYTES,
    row_count=FieldType.INT,
    is_ended=FieldType.BOOL,
    former_runs=FieldType.BYTES,
)

KERNEL_TABLES: tuple[TableDescription, ...] = (
    TableDescription(VERIFIED_TABLE, _PLACE, _VERIFIED_ROW),
    TableDescription(MIGRATIONS_TABLE, _VERSION, _MIGRATION),
    TableDescription(WRITERS_TABLE, _WRITER_PART, _WRITER_ROW),
)
"""Tables of the kernel that are folded by key."""

KERNEL_RECORDS: tuple[RecordDescription, ...] = (
    RecordDescription(KernelRecord.MACHINE_DESCRIBED, "machine_described", _fields(description=FieldType.BYTES)),
    RecordDescription(
        KernelRecord.LEADER_STARTED,
        "leader_started",
        _fields(replica_id=FieldType.STR, incarnation=FieldType.STR),
    ),
    RecordDescription(KernelRecord.SESSION_OPENED, "session_opened", _SESSION),
    RecordDescription(KernelRecord.SESSION_EXPIRED, "session_expired", _SESSION),
    RecordDescription(KernelRecord.COMMAND_ANSWERED, "command_answered", ()),
    RecordDescription(
        KernelRecord.CHECKPOINT_LOGGED,
        "checkpoint_logged",
        _fields(revision=FieldType.INT, digest=FieldType.BYTES, row_count=FieldType.INT),
    ),
    RecordDescription(
        KernelRecord.SNAPSHOT_VERIFIED,
        "snapshot_verified",
        _PLACE + _VERIFIED_ROW,
        VERIFIED_TABLE,
        Fold.UPSERT,
        tuple(field.name for field in _PLACE),
        tuple(field.name for field in _VERIFIED_ROW),
    ),
    RecordDescription(
        KernelRecord.SNAPSHOT_WITHDRAWN,
        "snapshot_withdrawn",
        _PLACE,
        VERIFIED_TABLE,
        Fold.DELETE,
        tuple(field.name for field in _PLACE),
    ),
    RecordDescription(KernelRecord.FORMAT_RAISED, "format_raised", _fields(level=FieldType.INT)),
    RecordDescription(
        KernelRecord.KEY_ADOPTED, "key_adopted", _fields(key_id=FieldType.BYTES, public_key=FieldType.BYTES)
    ),
    RecordDescription(
        KernelRecord.CHECKPOINT_SIGNED,
        "checkpoint_signed",
        _fields(key_id=FieldType.BYTES, signature=FieldType.BYTES),
    ),
    RecordDescription(
        KernelRecord.AUDITED,
        "audited",
        _fields(
            principal=FieldType.STR,
            role=FieldType.STR,
            source=FieldType.STR,
            action=FieldType.STR,
            target=FieldType.STR,
            outcome=FieldType.STR,
        ),
    ),
    RecordDescription(
        KernelRecord.MIGRATED,
        "migrated",
        _VERSION + _MIGRATION,
        MIGRATIONS_TABLE,
        Fold.UPSERT,
        tuple(field.name for field in _VERSION),
        tuple(field.name for field in _MIGRATION),
    ),
    RecordDescription(
        KernelRecord.WRITER_MARKED,
        "writer_marked",
        _WRITER_PART + _WRITER_ROW,
        WRITERS_TABLE,
        Fold.UPSERT,
        tuple(field.name for field in _WRITER_PART),
        tuple(field.name for field in _WRITER_ROW),
    ),
    RecordDescription(
        KernelRecord.WRITER_FORGOTTEN,
        "writer_forgotten",
        _WRITER_PART,
        WRITERS_TABLE,
        Fold.DELETE,
        tuple(field.name for field in _WRITER_PART),
    ),
)
"""Every record of the kernel; `_sessions` is the one table that these folds do not tell."""


class VerifiedSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A snapshot that a process which did not write it has read back and found right: a row of `VERIFIED_TABLE`.

    Attributes:
        place: Where it lies: "replica:<replica id>" or "lake". The key.
        domain: What fails together with that place.
        revision: Of the snapshot.
        digest: State digest found, 16 bytes.
        prefix_hash: Hash of the log up to there, 32 bytes.
        row_count: Rows found.
        by: Who read it.

    """

    place: str
    domain: str
    revision: int
    digest: bytes
    prefix_hash: bytes
    row_count: int
    by: str


class _VerifiedRow(NamedTuple):
    """Row as the table holds it: decoded, canonical, and the revision of its record."""

    snapshot: VerifiedSnapshot
    packed: bytes
    revision: int


class VerifiedTable:
    """The newest verified snapshot of each place."""

    def __init__(self) -> None:
        self._rows: dict[str, _VerifiedRow] = {}
        self._by_place: Mapping[str, VerifiedSnapshot] | None = None

    @property
    def by_place(self) -> Mapping[str, VerifiedSnapshot]:
        """Verified snapshots by place; a copy that does not change."""
        if self._by_place is None:
            self._by_place = {place: row.snapshot for place, row in self._rows.items()}
        return self._by_place

    def fold(self, record_type: int, fields: Sequence[Any], revision: int) -> RowChange:
        """Fold SNAPSHOT_VERIFIED or SNAPSHOT_WITHDRAWN.

        Raises:
            CorruptLogError: The fields are not those of the record.

        """
        self._by_place = None
        try:
            if record_type == KernelRecord.SNAPSHOT_WITHDRAWN:
                (place,) = fields
                gone = self._rows.pop(place, None)
                return RowChange(VERIFIED_TABLE, pack((place,)), None if gone is None else gone.packed, None)
            verified = convert(fields, VerifiedSnapshot)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"revision {revision}: snapshot record with the fields {fields!r}") from error
        place, row = verified.place, pack(fields[1:])
        old = self._rows.get(place)
        self._rows[place] = _VerifiedRow(verified, row, revision)
        return RowChange(VERIFIED_TABLE, pack((place,)), None if old is None else old.packed, row)

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume."""
        frozen = list(self._rows.items())
        return (Row(VERIFIED_TABLE, pack((place,)), row, revision) for place, (_, row, revision) in frozen)

    def restore(self, rows: Sequence[Row]) -> None:
        """Replace all by these rows.

        Raises:
            CorruptSnapshotError: A row is none of this table.

        """
        self._by_place = None
        self._rows = {}
        for row in rows:
            try:
                (place,) = msgpack_decoder(tuple[str]).decode(row.key)
                verified = convert([place, *msgspec.msgpack.decode(row.row)], VerifiedSnapshot)
            except (msgspec.MsgspecError, TypeError) as error:
                raise CorruptSnapshotError(f"row of {VERIFIED_TABLE} is no verified snapshot: {error}") from error
            self._rows[place] = _VerifiedRow(verified, row.row, row.revision)


class Checkpoint(NamedTuple):
    """The state that a leader logged between two entries.

    Attributes:
        revision: Of the last record before it.
        digest: State digest there, 16 bytes.
        row_count: Rows there.
        prefix_hash: Hash of the log up to there, 32 bytes.

    """

    revision: int
    digest: bytes
    row_count: int
    prefix_hash: bytes


class Checkpoints:
    """The last `CHECKPOINTS_MAX` checkpoints that this replica has applied; not part of the state."""

    def __init__(self) -> None:
        # By revision, ascending. Invariant: at most CHECKPOINTS_MAX.
        self._known: OrderedDict[int, Checkpoint] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, revision: int) -> Checkpoint | None:
        """Return the checkpoint of this revision, or None if it is not known (any more)."""
        return self._known.get(revision)

    def add(self, checkpoint: Checkpoint) -> None:
        """Remember one; the oldest is forgotten."""
        self._known[checkpoint.revision] = checkpoint
        self._known.move_to_end(checkpoint.revision)
        if len(self._known) > CHECKPOINTS_MAX:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()


def peek_checkpoint(payload: bytes | memoryview) -> Checkpoint | None:
    """Return the checkpoint that an entry begins with, without applying it; None if it begins otherwise.

    A checkpoint is the first record of its entry, or the second behind the machine's description, and names the
    state before the entry: there a follower's snapshot is the same as the leader's.

    Raises:
        CorruptLogError: It is no entry, or none of this log's format.

    """
    envelope = decode_envelope(payload)
    if envelope.record_count == 0:
        return None
    body = body_of(payload)
    # Cheap for every other entry: array head of 1, 3 or 5 bytes, then the record's own array, its type, no command.
    skipped = 1 if envelope.record_count < 16 else 3 if envelope.record_count < 65_536 else 5
    begin = bytes(body[skipped : skipped + 3])
    if begin not in (b"\x93\x05\xc0", b"\x93\x00\xc0"):
        return None
    for record in decode_records(body)[:2]:
        if record.type == KernelRecord.CHECKPOINT_LOGGED:
            try:
                revision, digest, row_count = record.fields
            except ValueError as error:
                raise CorruptLogError(f"checkpoint with the fields {record.fields!r}") from error
            return Checkpoint(revision, digest, row_count, envelope.prefix_hash)
    return None


def peek_description(payload: bytes | memoryview) -> MachineDescription | None:
    """Return the description that an entry begins with, without applying it; None if it begins otherwise.

    Raises:
        CorruptLogError: It is no entry, or none of this log's format.

    """
    count = record_count_of(payload)
    if count == 0:
        return None
    body = body_of(payload)
    skipped = 1 if count < 16 else 3 if count < 65_536 else 5
    if bytes(body[skipped : skipped + 3]) != b"\x93\x00\xc0":
        return None
    first = decode_records(body)[0]
    return decode_description(first.fields[0]) if first.type == KernelRecord.MACHINE_DESCRIBED else None


assert {record.type for record in KERNEL_RECORDS} == set(KernelRecord)
assert all(table.name != SESSIONS_TABLE for table in KERNEL_TABLES)
