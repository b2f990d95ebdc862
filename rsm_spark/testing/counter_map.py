"""A small machine for tests: named counters that know how they may be misused.

Commands (msgpack arrays): ``["add", key, amount]`` replies the new value; ``["add_if_odd", key]`` adds one if the
value is odd, else replies nil and changes nothing; ``["drop", key]`` deletes; ``["blob", size]`` logs a record of that
size; ``["burst", key, count]`` logs `count` records; ``["chatter", size]`` replies so many bytes. A query is a key:
``[key]`` -> value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rsm_spark.core.machine import (
    Decision,
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    Row,
    RowChange,
    TableDescription,
)
from rsm_spark.core.records import MACHINE_TYPE_FIRST, pack
from rsm_spark.errors import CorruptLogError

COUNTED = MACHINE_TYPE_FIRST
DROPPED = MACHINE_TYPE_FIRST + 1
BLOB_LOGGED = MACHINE_TYPE_FIRST + 2

_KEY = (Field("key", FieldType.STR),)
_VALUE = (Field("value", FieldType.INT),)


def command(*values: Any) -> bytes:
    """Return the payload of a command or a query."""
    return msgspec.msgpack.encode(values)


def unpack(reply: bytes) -> Any:
    """Return what a reply or an answer says."""
    return msgspec.msgpack.decode(reply)


class CounterMap:
    """The machine.

    Attributes:
        values: Counters by name.

    """

    def __init__(self, version: int = 1) -> None:
        self.values: dict[str, int] = {}
        self._revisions: dict[str, int] = {}
        self._description = MachineDescription(
            "counters",
            version,
            (TableDescription("counters", _KEY, _VALUE),),
            (
                RecordDescription(COUNTED, "counted", _KEY + _VALUE, "counters", Fold.UPSERT, ("key",), ("value",)),
                RecordDescription(DROPPED, "dropped", _KEY, "counters", Fold.DELETE, ("key",)),
                RecordDescription(BLOB_LOGGED, "blob_logged", (Field("blob", FieldType.BYTES),)),
            ),
        )

    @property
    def description(self) -> MachineDescription:
        """Describe the machine."""
        return self._description

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002
        """Decide one command."""
        kind, *args = msgspec.msgpack.decode(command)
        match kind:
            case "add":
                value = self.values.get(args[0], 0) + args[1]
                return Decision(((COUNTED, (args[0], value)),), pack([value])[1:])
            case "add_if_odd":
                value = self.values.get(args[0], 0)
                if value % 2 == 0:
                    return Decision((), b"\xc0")
                return Decision(((COUNTED, (args[0], value + 1)),), pack([value + 1])[1:])
            case "drop":
                return Decision(((DROPPED, (args[0],)),) if args[0] in self.values else (), b"\xc0")
            case "blob":
                return Decision(((BLOB_LOGGED, (bytes(args[0]),)),), b"\xc0")
            case "burst":
                value = self.values.get(args[0], 0)
                records = tuple((COUNTED, (args[0], value + i + 1)) for i in range(args[1]))
                return Decision(records, pack([value + args[1]])[1:])
            case "chatter":
                return Decision((), bytes(args[0]))
        return Decision((), b"\xc0")

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold one record."""
        if record_type == BLOB_LOGGED:
            return None
        key = fields[0]
        old = self.values.get(key)
        packed = pack((key,))
        before = None if old is None else pack((old,))
        if record_type == COUNTED:
            self.values[key] = fields[1]
            self._revisions[key] = revision
            return RowChange("counters", packed, before, pack((fields[1],)))
        if record_type == DROPPED:
            del self.values[key]
            del self._revisions[key]
            return RowChange("counters", packed, before, None)
        raise CorruptLogError(f"revision {revision} has type {record_type}, which counters do not know")

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002
        """Return a counter."""
        (key,) = msgspec.msgpack.decode(query)
        return pack([self.values.get(key, 0)])[1:]

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are now."""
        revisions = dict(self._revisions)
        values = dict(self.values)
        return (Row("counters", pack((key,)), pack((value,)), revisions[key]) for key, value in values.items())

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state."""
        self.values, self._revisions = {}, {}
        for row in rows:
            (key,) = msgspec.msgpack.decode(row.key)
            (value,) = msgspec.msgpack.decode(row.row)
            self.values[key] = value
            self._revisions[key] = row.revision
