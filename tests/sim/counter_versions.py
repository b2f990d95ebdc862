"""Counters in three versions, with the commands of `CounterMap`: a later one logs what a log of before cannot hold.

Version 2 has how often a counter was marked; version 3 renames that, has notes of its own, and counts how often a row
was migrated to it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.migrations import migrate
from rsm_spark.core.records import pack
from rsm_spark.core.table_machine import TableMachine, delete, upsert
from rsm_spark.testing.counter_map import COUNTED, DROPPED, unpack

__all__ = ["VERSIONS", "moves_of"]

NOTED = 19
_KEY, _VALUE = (Field("key", FieldType.STR),), Field("value", FieldType.INT)
_NOTES = TableDescription("notes", (Field("number", FieldType.INT),), _KEY)


def _described(version: int, *columns: Field) -> MachineDescription:
    counters = TableDescription("counters", _KEY, (_VALUE, *columns))
    records = (upsert(COUNTED, "counted", counters), delete(DROPPED, "dropped", counters))
    if version < 3:
        return MachineDescription("counters", version, (counters,), records)
    return MachineDescription("counters", version, (counters, _NOTES), (*records, upsert(NOTED, "noted", _NOTES)))


class _Counters(TableMachine):
    """Version 1."""

    description: ClassVar = _described(1)

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        kind, key, *amount = unpack(command)
        value, *others = self.get("counters", key) or (0, *(f.default for f in self.description.tables[0].row[1:]))
        if kind == "add_if_odd" and value % 2 == 0:
            return Decision((), b"\xc0")
        value += amount[0] if amount else 1
        records = [(COUNTED, (key, value, *others)), *self.more(key, revision)]
        return Decision(records, pack([value])[1:])

    def more(self, _key: str, _revision: int) -> list[tuple[int, tuple[Any, ...]]]:
        """Return what only this version logs."""
        return []

    def query(self, query: bytes, revision: int) -> bytes:
        (key,) = unpack(query)
        return pack([(self.get("counters", key) or (0,))[0]])[1:]


class _Marked(_Counters):
    """Version 2."""

    description: ClassVar = _described(2, Field("marks", FieldType.INT, default=0))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        records, reply = super().decide(command, revision, now_ms)
        if revision % 4 == 0:  # The log's version may not have it yet: the command is refused then.
            records = [
                (kind, (*fields[:2], fields[2] + 1, *fields[3:]) if kind == COUNTED else fields)
                for kind, fields in records
            ]
        return Decision(records, reply)


class _Noted(_Marked):
    """Version 3."""

    description: ClassVar = _described(
        3,
        Field("times", FieldType.INT, default=0, was=("marks",)),
        Field("by", FieldType.STR, nullable=True),
        Field("moved", FieldType.INT, default=0),
    )
    migrations = (migrate(3, "counters", lambda row: {"moved": row["moved"] + 1}),)
    migrated_rows_max = 2

    def more(self, key: str, revision: int) -> list[tuple[int, tuple[Any, ...]]]:
        return [(NOTED, (revision % 7, key))] if revision % 5 == 0 else []


VERSIONS: tuple[type[TableMachine], ...] = (_Counters, _Marked, _Noted)


def moves_of(row: bytes) -> int:
    """Return how often a row of `counters` was migrated."""
    columns = msgspec.msgpack.decode(row, type=tuple[Any, ...])
    return columns[3] if len(columns) > 3 else 0
