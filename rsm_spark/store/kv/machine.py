"""The map as a replicated state machine."""

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
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidCommandError
from rsm_spark.store.kv.messages import (
    SCAN_BYTES_MAX,
    SCAN_LIMIT_MAX,
    CompareAndSet,
    Delete,
    Found,
    Get,
    KeyValue,
    MapCommand,
    Mismatched,
    NotFound,
    Page,
    Put,
    Refused,
    Scan,
    Written,
    decode_command,
    decode_query,
    encode,
    key_fault,
    value_fault,
)
from rsm_spark.store.kv.sorted_keys import SortedKeys

__all__ = ["DELETED", "MAP_DESCRIPTION", "MAP_TABLE", "PUT", "MapMachine"]

MAP_TABLE = "map"
PUT = MACHINE_TYPE_FIRST
"""Record ``[key, value]``."""
DELETED = MACHINE_TYPE_FIRST + 1
"""Record ``[key]``."""

_KEY = Field("key", FieldType.BYTES)
_VALUE = Field("value", FieldType.BYTES)
MAP_DESCRIPTION = MachineDescription(
    name="map",
    version=1,
    tables=(TableDescription(MAP_TABLE, (_KEY,), (_VALUE,)),),
    records=(
        RecordDescription(PUT, "put", (_KEY, _VALUE), MAP_TABLE, Fold.UPSERT, ("key",), ("value",)),
        RecordDescription(DELETED, "deleted", (_KEY,), MAP_TABLE, Fold.DELETE, ("key",)),
    ),
)

_COLUMN = msgspec.msgpack.Decoder(tuple[bytes])
_NOT_FOUND = encode(NotFound())


def _column(packed: bytes) -> bytes:
    """Return the one column of a canonical key or row."""
    return _COLUMN.decode(packed)[0]


class MapMachine:
    """State of the map. Keys have 1 to 4,096 bytes, values up to 1 MiB; refusals are replies, not errors."""

    def __init__(self) -> None:
        # Key -> (canonical row, mod revision). The row is kept packed: the digest needs its old bytes at every write.
        self._rows: dict[bytes, tuple[bytes, int]] = {}
        # Invariant: knows every key of `_rows`, once placed.
        self._order = SortedKeys(self._rows)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._rows)

    @property
    def description(self) -> MachineDescription:
        """Self-description."""
        return MAP_DESCRIPTION

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002 - the map knows no time
        """Decide a command: see `rsm_spark.store.kv.messages` for its bytes and its replies."""
        try:
            decoded = decode_command(command)
        except InvalidCommandError as error:
            return Decision((), encode(Refused(str(error))))
        fault = _fault(decoded)
        if fault is not None:
            return Decision((), encode(Refused(fault)))
        if isinstance(decoded, Put):
            return Decision(((PUT, (decoded.key, decoded.value)),), encode(Written(revision)))
        if isinstance(decoded, Delete):
            if decoded.key not in self._rows:
                return Decision((), _NOT_FOUND)
            return Decision(((DELETED, (decoded.key,)),), encode(Written(revision)))
        return self._compare_and_set(decoded, revision)

    def _compare_and_set(self, command: CompareAndSet, revision: int) -> Decision:
        found = self._rows.get(command.key)
        expected = command.expected
        if found is None:
            matches = expected is None
        elif isinstance(expected, int):
            matches = found[1] == expected
        else:
            matches = expected is not None and found[0] == pack((expected,))
        if not matches:
            return Decision((), encode(Mismatched(0 if found is None else found[1])))
        if command.value is not None:
            return Decision(((PUT, (command.key, command.value)),), encode(Written(revision)))
        if found is None:
            return Decision((), encode(Written(0)))
        return Decision(((DELETED, (command.key,)),), encode(Written(revision)))

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange:
        """Fold one record into the map.

        Raises:
            CorruptLogError: It is no record of the map.

        """
        try:
            if record_type == PUT:
                key, value = fields
                row = pack((value,))
                old = self._rows.get(key)
                self._rows[key] = (row, revision)
                if old is not None:
                    return RowChange(MAP_TABLE, pack((key,)), old[0], row)
                self._order.note(key)
                return RowChange(MAP_TABLE, pack((key,)), None, row)
            if record_type == DELETED:
                (key,) = fields
                gone = self._rows.pop(key, None)
                if gone is not None:
                    self._order.note(key)
                return RowChange(MAP_TABLE, pack((key,)), None if gone is None else gone[0], None)
        except (TypeError, ValueError) as error:
            raise CorruptLogError(
                f"revision {revision}: record type {record_type} of the map has the fields {fields!r}"
            ) from error
        raise CorruptLogError(
            f"revision {revision}: the map (version {MAP_DESCRIPTION.version}) has no record type {record_type}: "
            "a newer version wrote this log, or it is not a map's"
        )

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002 - the answer carries it
        """Answer a query: see `rsm_spark.store.kv.messages`."""
        try:
            decoded = decode_query(query)
        except InvalidCommandError as error:
            return encode(Refused(str(error)))
        if isinstance(decoded, Get):
            found = self._rows.get(decoded.key)
            if found is None:
                return _NOT_FOUND
            return encode(Found(_column(found[0]), found[1]))
        if decoded.limit < 1:
            return encode(Refused(f"a scan's limit is at least 1, this one is {decoded.limit}"))
        return encode(self._scan(decoded))

    def _scan(self, scan: Scan) -> Page:
        limit = min(scan.limit, SCAN_LIMIT_MAX)
        entries: list[KeyValue] = []
        room = SCAN_BYTES_MAX
        for key in self._order.since(scan.start):
            if scan.end is not None and key >= scan.end:
                break
            packed, revision = self._rows[key]
            room -= len(key) + len(packed)
            # The first row is always given, or a page could be empty and have a successor.
            if entries and (len(entries) == limit or room < 0):
                return Page(entries, key)
            entries.append(KeyValue(key, _column(packed), revision))
        return Page(entries, None)

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are now; one shallow copy, 40-130 ms for a million keys."""
        frozen = self._rows.copy()
        return (Row(MAP_TABLE, pack((key,)), row, revision) for key, (row, revision) in frozen.items())

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state.

        Raises:
            CorruptSnapshotError: A row is none of the map; the state is then empty.

        """
        self._rows.clear()
        self._order.load(())
        try:
            for row in rows:
                _check_table(row)
                _column(row.row)
                self._rows[_column(row.key)] = (row.row, row.revision)
        except msgspec.MsgspecError as error:
            self._rows.clear()
            raise CorruptSnapshotError(f"snapshot row that is none of the map: {error}") from error
        except BaseException:
            self._rows.clear()
            raise
        self._order.load(self._rows)

    def validate(self) -> None:
        """Check the invariants."""
        self._order.validate()
        assert list(self._order.since(b"")) == sorted(self._rows)


def _check_table(row: Row) -> None:
    if row.table != MAP_TABLE:
        raise CorruptSnapshotError(f"snapshot row of table {row.table!r}: the map has only {MAP_TABLE!r}")


def _fault(command: MapCommand) -> str | None:
    fault = key_fault(command.key)
    if fault is None and not isinstance(command, Delete) and command.value is not None:
        return value_fault(command.value)
    return fault
