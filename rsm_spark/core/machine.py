"""What a replicated state machine is, and how it describes itself in its log.

Every record of a machine declares which row of which table it writes or deletes, so that anybody (Spark above all)
folds the log by key without the machine's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

__all__ = [
    "Decision",
    "Field",
    "FieldType",
    "Fold",
    "MachineDescription",
    "RecordDescription",
    "Row",
    "RowChange",
    "StateMachine",
    "TableDescription",
    "TimedMachine",
    "decode_description",
    "encode_description",
]


class FieldType(StrEnum):
    """Type of a column: what msgpack holds, and what Spark makes of it."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"
    BYTES = "bytes"


class Fold(StrEnum):
    """What a record does to the row of its key. UPSERT: it becomes this row. DELETE: it is gone. NONE: nothing."""

    UPSERT = "upsert"
    DELETE = "delete"
    NONE = "none"


class Field(msgspec.Struct, frozen=True):
    """A named, typed column of a table or field of a record."""

    name: str
    type: FieldType


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
    return msgspec.json.decode(text, type=MachineDescription)


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
    """What `apply` did to one row: canonical bytes before and after, None = no row."""

    table: str
    key: bytes
    old: bytes | None
    new: bytes | None


class Decision(NamedTuple):
    """What the leader makes of one command.

    Attributes:
        records: (type, fields) of each record to log, in order; may be empty.
        reply: What the client is told; at most `REPLY_BYTES_MAX`, not beginning with 0xC1. A refusal is a reply too.

    """

    records: Sequence[tuple[int, tuple[Any, ...]]]
    reply: bytes


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
class TimedMachine(StateMachine, Protocol):
    """A machine in which things fall due: leases, times to live, deadlines. Optional.

    What is due happens only by a record that the leader logs. A deadline is counted from
    ``max(logged when it was set, promoted_ms) + length``: a new leader gives everything its full time again.
    """

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterable[tuple[int, tuple[Any, ...]]]:
        """Return the records that time makes due on the present state, oldest first, without changing it.

        Each is applied before the next one is asked for: a generator may decide each on what the ones before have
        made of the state. An entry may take only the first of them, the next asks again.

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
