"""Which columns of which records the history needs, and where the log's own description says that they are. Pure.

A later version of the broker may add columns and record types: they are passed over. One that takes away or moves what
the history needs is refused, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from connectors.errors import DeltaSinkError
from connectors.history.words import MACHINE_NAME, FactKind
from rsm_spark.core.machine import Fold, MachineDescription, RecordDescription

__all__ = ["Fact", "HistoryLayout", "RecordPick", "layout_of"]

_TASK = (
    "task_id", "tenant", "type", "created_ms", "at_most_once", "max_attempts", "priority", "group", "resources", "slot",
    "key", "start_ms", "deadline_ms", "timeout_ms", "heartbeat_ms", "code", "mode", "retry", "transaction",
)  # fmt: skip
_STATE = (
    "task_id", "status", "attempts", "worker_id", "assignment_id", "assigned_ms", "ended_ms", "due_ms", "cancel_ms",
    "outcome", "error",
)  # fmt: skip
_WORKER = ("worker_id", "incarnation", "status", "location", "connected_ms", "changed_ms", "offer")

# Order of a fact's values; the folds unpack them by it.
_NEEDED: dict[FactKind, tuple[str, ...]] = {
    FactKind.TASK_SUBMITTED: _TASK,
    FactKind.TASK_CHANGED: _TASK,
    FactKind.TASK_REMOVED: ("task_id",),
    FactKind.TASK_ASSIGNED: _STATE,
    FactKind.TASK_ENDED: _STATE,
    FactKind.TASK_REQUEUED: _STATE,
    FactKind.TASK_CANCEL_ASKED: _STATE,
    FactKind.PROGRESS_REPORTED: ("task_id", "assignment_id", "reported_ms", "fraction"),
    FactKind.LATE_END: ("task_id", "assignment_id", "worker_id", "status", "ended_ms"),
    FactKind.TRANSACTION_COMMITTED: ("transaction", "committed_ms"),
    FactKind.WORKER_CONNECTED: _WORKER,
    FactKind.WORKER_CHANGED: _WORKER,
    FactKind.WORKER_DIED: _WORKER,
    FactKind.WORKER_REMOVED: ("worker_id",),
    FactKind.TENANT_SET: ("tenant", "weight", "running_max", "waiting_max", "policy"),
    FactKind.TENANT_REMOVED: ("tenant",),
}
_PAYLOADS: dict[FactKind, str] = {
    FactKind.TASK_SUBMITTED: "payload",
    FactKind.TASK_CHANGED: "payload",
    FactKind.TASK_ENDED: "result",
}
_RAW = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Fact(NamedTuple):
    """One record, as far as the history goes: its number, its `FactKind`, its entry's logged time, and the values."""

    revision: int
    kind: int
    logged_ms: int
    values: list[Any]


class RecordPick(NamedTuple):
    """How the values of one kind of fact are found in its record.

    Attributes:
        kind: Of the fact.
        uses_fields: They are in the record's fields; else in its key and row.
        places: Position of each among those.

    """

    kind: FactKind
    uses_fields: bool
    places: tuple[int, ...]

    def values(self, key: bytes | None, row: bytes | None, fields: bytes | None) -> bytes:
        """Return the values as a msgpack array, joined from the bytes of the record as they stand in the log."""
        if self.uses_fields:
            parts = _RAW.decode(fields or b"\x90")
        else:
            parts = _RAW.decode(key or b"\x90")
            if row is not None:
                parts += _RAW.decode(row)
        count = len(self.places)
        head = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
        return b"".join((head, *[parts[place] for place in self.places]))


class HistoryLayout(msgspec.Struct, frozen=True):
    """Everything that a task needs to know to make facts of records: plain values, pickled with the function."""

    picks: dict[str, tuple[int, bool, tuple[int, ...]]]

    def by_name(self) -> dict[str, RecordPick]:
        """Return the picks by the names of records."""
        return {name: RecordPick(FactKind(pick[0]), pick[1], pick[2]) for name, pick in self.picks.items()}


def layout_of(description: MachineDescription, *, payloads: bool, log: str) -> HistoryLayout:
    """Return where the history finds what it needs.

    Args:
        description: Of the machine, as its log has it.
        payloads: Whether payloads and results are wanted.
        log: Name, for errors.

    Raises:
        DeltaSinkError: It is no broker's log, or one of a version that lacks what is needed.

    """
    if description.name != MACHINE_NAME:
        raise DeltaSinkError(
            f"log {log} is of the machine {description.name!r}, not of a task broker: jobs/materialize.py keeps the "
            "tables of any machine"
        )
    records = {record.name: record for record in description.records}
    picks: dict[str, tuple[int, bool, tuple[int, ...]]] = {}
    lacking: list[str] = []
    for kind, needed in _NEEDED.items():
        name = kind.name.lower()
        record = records.get(name)
        if record is None:
            lacking.append(name)
            continue
        names = (*needed, _PAYLOADS[kind]) if payloads and kind in _PAYLOADS else needed
        uses_fields, columns = _columns(description, record, names)
        lacking += [f"{name}.{column}" for column in names if column not in columns]
        picks[name] = (int(kind), uses_fields, tuple(columns.index(column) for column in names if column in columns))
    if lacking:
        raise DeltaSinkError(
            f"log {log}: version {description.version} of the broker's records lacks {', '.join(lacking)}, which the "
            "history is made of: use the version of this job that belongs to that broker"
        )
    return HistoryLayout(picks)


def _columns(
    description: MachineDescription, record: RecordDescription, needed: Sequence[str]
) -> tuple[bool, list[Any]]:
    """Return whether a record is read by its fields, and the names of what is then there."""
    table = next((one for one in description.tables if one.name == record.table), None)
    if record.fold != Fold.NONE and table is not None:
        columns = [field.name for field in table.key]
        if record.fold == Fold.UPSERT:
            columns += [field.name for field in table.row]
        if set(needed) <= set(columns):
            return False, columns
    return True, [field.name for field in record.fields]
