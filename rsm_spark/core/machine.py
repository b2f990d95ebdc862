"""Interface of a replicated state machine, and its self-description in the log.

Every record of a machine declares which row of which table it writes or deletes, so that anybody (Spark above all)
folds the log by key without the machine's code.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from ledger.decoding import json_decoder
from rsm_spark.errors import CorruptLogError, MachineVersionError


class FieldType(StrEnum):
    """Type of a column: see `rsm_spark.core.column_types` for what Python, the log and Spark have of a value."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"
    BYTES = "bytes"
    DECIMAL = "decimal"
    TIMESTAMP = "timestamp"
    DATE = "date"
    UUID = "uuid"
    JSON = "json"
    LIST = "list"


FIRST_TYPES = frozenset({FieldType.INT, FieldType.FLOAT, FieldType.BOOL, FieldType.STR, FieldType.BYTES})
"""Types that every version knows; the others need the log's format level `records.TYPES_LEVEL`."""

# What JSON has only as text.
_READ_DEFAULT: dict[FieldType, Callable[[str], Any]] = {
    FieldType.BYTES: base64.b64decode,
    FieldType.DECIMAL: Decimal,
    FieldType.TIMESTAMP: datetime.fromisoformat,
    FieldType.DATE: date.fromisoformat,
    FieldType.UUID: UUID,
}


class Fold(StrEnum):
    """Effect of a record on the row of its key. UPSERT: it becomes this row. DELETE: it is gone. NONE: nothing."""

    UPSERT = "upsert"
    DELETE = "delete"
    NONE = "none"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named, typed column of a table or field of a record.

    A later version of a machine may add columns at the end of a table, rename them and drop them; a column never
    changes its place, so that a row written by an older version is read as it is: see `rsm_spark.core.evolution`.

    Attributes:
        name: Of the column.
        type: Of its values.
        nullable: None is a value too.
        default: Value of rows that were written before there was this column; None only where it is nullable.
        was: Names that it had before.
        dropped: It is not used any more: it keeps its place, and reads as None. Only a nullable one.
        precision: Of decimals: digits in all, at most 38.
        scale: Of decimals: digits behind the point.
        items: Type of a list's elements; `precision` and `scale` are then theirs.

    """

    name: str
    type: FieldType
    nullable: bool = False
    default: Any = None
    was: tuple[str, ...] = ()
    dropped: bool = False
    precision: int = 0
    scale: int = 0
    items: FieldType | None = None

    def __post_init__(self) -> None:
        # JSON has no bytes, and no times: a description that is read back holds text of them.
        read = _READ_DEFAULT.get(self.type)
        if read is not None and isinstance(self.default, str):
            msgspec.structs.force_setattr(self, "default", read(self.default))

    @property
    def type_name(self) -> str:
        """Return the type in words: `int`, `decimal(12,2)`, `list(uuid)`."""
        if self.type is FieldType.LIST:
            return f"list({self.item.type_name if self.items else '?'})"
        return f"{self.type}({self.precision},{self.scale})" if self.type is FieldType.DECIMAL else str(self.type)

    @property
    def item(self) -> Field:
        """Return what the elements of a list are described as."""
        assert self.items is not None, "checked with the description"
        return Field(self.name, self.items, precision=self.precision, scale=self.scale)

    @property
    def fills(self) -> bool:
        """Return whether rows without this column can be read: it is nullable or has a default."""
        return self.nullable or self.default is not None

    def is_same(self, older: Field) -> bool:
        """Return whether it is the column that an older version described: of that name, or renamed since."""
        return self.name == older.name or older.name in self.was


class TableDescription(msgspec.Struct, frozen=True):
    """A table of the state: its key columns and its other columns, both in the order of their msgpack arrays."""

    name: str
    key: tuple[Field, ...]
    row: tuple[Field, ...]


class RecordDescription(msgspec.Struct, frozen=True):
    """A record type.

    Attributes:
        type: Number in the log, >= `MACHINE_TYPE_FIRST`; below it the kernel's own.
        name: Past participle of the domain ("put", "deleted").
        fields: In the order of the record's fields.
        table: Table whose row it decides; "" with `Fold.NONE`.
        fold: What it does to that row.
        key: Names of the fields that make the key, in the table's order.
        row: Names of the fields that make the row, in the table's order; empty for DELETE and NONE.

    """

    type: int
    name: str
    fields: tuple[Field, ...]
    table: str = ""
    fold: Fold = Fold.NONE
    key: tuple[str, ...] = ()
    row: tuple[str, ...] = ()


class MachineDescription(msgspec.Struct, frozen=True):
    """Name, version, tables and record types of a machine: the first record of its log."""

    name: str
    version: int
    tables: tuple[TableDescription, ...]
    records: tuple[RecordDescription, ...]


def encode_description(description: MachineDescription) -> bytes:
    """Return the bytes that the log's MACHINE_DESCRIBED record and snapshot manifests hold (JSON, fixed order)."""
    return msgspec.json.encode(description)


def decode_description(text: bytes) -> MachineDescription:
    """Read a description back; fields that a later version added are passed over."""
    return json_decoder(MachineDescription).decode(text)


class Row(NamedTuple):
    """One row of the state.

    Attributes:
        table: Its table.
        key: Canonical msgpack bytes of the key.
        row: Canonical msgpack bytes of the other columns.
        revision: Revision of the record that last wrote it.

    """

    table: str
    key: bytes
    row: bytes
    revision: int


class RowChange(NamedTuple):
    """Change of one row by `apply`: canonical bytes before and after, None = no row."""

    table: str
    key: bytes
    old: bytes | None
    new: bytes | None


class Decision(NamedTuple):
    """Decision of the leader on one command.

    Attributes:
        records: (type, fields) of each record to log, in order; may be empty.
        reply: What the client is told; at most `REPLY_BYTES_MAX`, not beginning with 0xC1. A refusal is a reply too.

    """

    records: Sequence[tuple[int, tuple[Any, ...]]]
    reply: bytes


class DeclinedDecision(Decision):
    """Decision that a command is refused, with no records: a writer whose command it is has not done that part."""

    __slots__ = ()


@runtime_checkable
class StateMachine(Protocol):
    """A service's state. All methods are synchronous and deterministic; none reads a clock or rolls dice."""

    @property
    def description(self) -> MachineDescription:
        """Self-description, constant."""
        ...

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide one command on the present state, without changing it (leader only).

        Must not raise: a command on which it does is refused for good, and the error is logged as the machine's bug.

        Args:
            command: The client's bytes.
            revision: What the first record of the decision will get.
            now_ms: Logged time.

        """
        ...

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record into the state; cannot fail except for a corrupt log.

        Raises:
            CorruptLogError: The record is none that this machine knows; the replica stops.

        """
        ...

    def query(self, query: bytes, revision: int) -> bytes:
        """Answer a read on the present state, whose revision is `revision`. Must not raise."""
        ...

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call: a later `apply` does not show; any thread may consume."""
        ...

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state by these rows."""
        ...


@runtime_checkable
class EvolvingMachine(Protocol):
    """A machine that folds what another version of it has described. Optional.

    Its leader describes a new version in the log only once every live replica runs it, and a replica of an older
    version follows that log, but does not lead it. Of other machines a replica refuses a log that a newer version has
    described, but where they heed the log's format level (`is_heeding`).

    Attributes:
        is_evolving: False = it does not take part, although a class above it can.

    """

    is_evolving: bool

    def follow(self, description: MachineDescription) -> None:
        """Fold records from here on, and rows that `restore` gets, as described.

        Args:
            description: In force in the log: of this version, an older or a newer one.

        Raises:
            CorruptLogError: It is no description of this machine.

        """
        ...


@runtime_checkable
class MigratingMachine(Protocol):
    """A machine that changes rows of before a version: see `rsm_spark.core.migrations`. Optional."""

    def follow_migration(self, running: Any) -> None:
        """Read rows through a migration from here on, a `RunningMigration`; None = it has ended."""
        ...


@runtime_checkable
class AdvisedMachine(Protocol):
    """A machine whose decisions heed what the leader tells it before each entry. Optional; no part of the state.

    What newer versions of such a machine log is bound to the log's format level, so that a replica of this version need
    not refuse their descriptions; where that is not so, it says `heeds_levels = False`.

    Attributes:
        format_level: Of the log: replicas of a lower one would stop at what is newer.
        is_full: The leader's memory is nearly used up: a decision that would make the state grow is to be a refusal,
            one that makes it smaller is taken.

    """

    format_level: int
    is_full: bool


@runtime_checkable
class PacedMachine(Protocol):
    """A machine whose commands may take long. Optional; no part of the state.

    Attributes:
        is_spent: Commands of this entry have taken their time: further ones wait for the next entry. False again when
            the entry is confirmed.

    """

    @property
    def is_spent(self) -> bool: ...


DueRecords = tuple[int, tuple[Any, ...]] | list[tuple[int, tuple[Any, ...]]] | Exception
"""A record that is due, several that belong together, or why something that is due could not be decided."""


@runtime_checkable
class TimedMachine(StateMachine, Protocol):
    """A machine in which things fall due: leases, times to live, deadlines. Optional.

    What is due happens only by a record that the leader logs. A deadline is counted from
    ``max(logged when it was set, promoted_ms) + length``: a new leader gives everything its full time again.
    """

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterable[DueRecords]:
        """Return the records that time makes due on the present state, oldest first, without changing it.

        Each is applied before the next one is asked for: a generator may decide each on what the ones before have
        made of the state. An entry may take only the first of them, the next asks again. A list of records, 1 MiB of
        them at most, is logged in one entry or not at all. An error says what could not be decided: the leader tells.

        Args:
            now_ms: Logged time.
            promoted_ms: Logged time at which this leader began.
            limit: At most so many.

        """
        ...

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which something is due next, or None; cheap: asked several times an entry.

        Nothing is asked for before this time. A machine that has work to give out at once says 0.
        """
        ...


def is_heeding(machine: StateMachine) -> bool:
    """Return whether a machine logs new kinds of records only from a format level on."""
    return isinstance(machine, AdvisedMachine) and getattr(machine, "heeds_levels", True)


def check_described(machine: StateMachine, description: MachineDescription) -> None:
    """Refuse a description of a log that a machine has nothing to do with, or cannot fold.

    Raises:
        CorruptLogError: It is that of another machine.
        MachineVersionError: A newer version has described the log, and this machine does not follow that.

    """
    mine = machine.description
    if description.name != mine.name:
        raise CorruptLogError(f"the log is one of machine {description.name!r}, this replica runs {mine.name!r}")
    if description.version > mine.version and evolving(machine) is None and not is_heeding(machine):
        raise MachineVersionError(
            f"the log is of version {description.version} of machine {mine.name!r}, this replica runs version "
            f"{mine.version}: start it with the newer one"
        )


def evolving(machine: StateMachine) -> EvolvingMachine | None:
    """Return the machine as one that follows the descriptions of its log; None if it does not."""
    return machine if isinstance(machine, EvolvingMachine) and machine.is_evolving else None
