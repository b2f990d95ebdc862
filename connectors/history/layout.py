"""Layout of the records that the history needs: where the log's own description says that its columns are. Pure.

A later version of the broker may add columns and record types: they are passed over. One that takes away or moves what
the history needs is refused, by name.
"""

# ruff: noqa: PYI024 - of what types a fact's values are, the log says

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from connectors.errors import DeltaSinkError
from connectors.history.words import MACHINE_NAME, FactKind
from rsm_spark.core.machine import Fold, MachineDescription, RecordDescription

# The names are those of the log's columns.
TaskFact = namedtuple(
    "TaskFact",
    "task_id tenant type created_ms at_most_once max_attempts priority group resources slot key start_ms deadline_ms "
    "timeout_ms heartbeat_ms code mode retry transaction payload",
    defaults=(None,),
)
StateFact = namedtuple(
    "StateFact",
    "task_id status attempts worker_id assignment_id assigned_ms ended_ms due_ms cancel_ms outcome error result",
    defaults=(None,),
)
PurgedFact = namedtuple("PurgedFact", "task_id")
ProgressFact = namedtuple("ProgressFact", "task_id assignment_id reported_ms fraction")
LateEndFact = namedtuple("LateEndFact", "task_id assignment_id worker_id status ended_ms")
CommittedFact = namedtuple("CommittedFact", "transaction committed_ms")
WorkerFact = namedtuple("WorkerFact", "worker_id incarnation status location connected_ms changed_ms offer")
WorkerGoneFact = namedtuple("WorkerGoneFact", "worker_id")
TenantFact = namedtuple("TenantFact", "tenant weight running_max waiting_max policy")
TenantGoneFact = namedtuple("TenantGoneFact", "tenant")

FACT_TYPES: dict[FactKind, Any] = {
    FactKind.TASK_SUBMITTED: TaskFact,
    FactKind.TASK_CHANGED: TaskFact,
    FactKind.TASK_REMOVED: PurgedFact,
    FactKind.TASK_ASSIGNED: StateFact,
    FactKind.TASK_ENDED: StateFact,
    FactKind.TASK_REQUEUED: StateFact,
    FactKind.TASK_CANCEL_ASKED: StateFact,
    FactKind.PROGRESS_REPORTED: ProgressFact,
    FactKind.LATE_END: LateEndFact,
    FactKind.TRANSACTION_COMMITTED: CommittedFact,
    FactKind.WORKER_CONNECTED: WorkerFact,
    FactKind.WORKER_CHANGED: WorkerFact,
    FactKind.WORKER_DIED: WorkerFact,
    FactKind.WORKER_REMOVED: WorkerGoneFact,
    FactKind.TENANT_SET: TenantFact,
    FactKind.TENANT_REMOVED: TenantGoneFact,
}
"""Facts by the kind of their records. A field that has a default is taken only if payloads are kept."""

_RAW = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Fact(NamedTuple):
    """One record, as far as the history goes.

    Attributes:
        revision: Its number.
        kind: Its `FactKind`.
        logged_ms: Of its entry.
        said: Of the type that `FACT_TYPES` has for the kind.

    """

    revision: int
    kind: str
    logged_ms: int
    said: Any


class RecordPick(NamedTuple):
    """Places of the fields of one kind of fact in its record.

    Attributes:
        uses_fields: They are in the record's fields; else in its key and row.
        places: Position of each among those.

    """

    uses_fields: bool
    places: tuple[int, ...]

    def said(self, key: bytes | None, row: bytes | None, fields: bytes | None) -> bytes:
        """Return the fact as a msgpack array, joined from the bytes of the record as they stand in the log."""
        if self.uses_fields:
            parts = _RAW.decode(fields or b"\x90")
        else:
            parts = _RAW.decode(key or b"\x90")
            if row is not None:
                parts += _RAW.decode(row)
        count = len(self.places)
        head = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
        return b"".join((head, *[parts[place] for place in self.places]))


HistoryLayout: TypeAlias = dict[str, RecordPick]
"""Picks of facts by the names of their records."""


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
    picks: HistoryLayout = {}
    lacking: list[str] = []
    for kind, fact in FACT_TYPES.items():
        name = str(kind)
        record = records.get(name)
        if record is None:
            lacking.append(name)
            continue
        names = [column for column in fact._fields if payloads or column not in fact._field_defaults]
        uses_fields, columns = _columns(description, record, names)
        lacking += [f"{name}.{column}" for column in names if column not in columns]
        places = tuple(columns.index(column) for column in names if column in columns)
        picks[name] = RecordPick(uses_fields, places)
    if lacking:
        raise DeltaSinkError(
            f"log {log}: version {description.version} of the broker's records lacks {', '.join(lacking)}, which the "
            "history is made of: use the version of this job that belongs to that broker"
        )
    return picks


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
