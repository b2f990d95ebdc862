"""Filter for the records that change rows of one table in one range of keys, by the machine's own description."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rsm_spark.core.machine import FieldType, Fold, MachineDescription, Row
from rsm_spark.core.records import pack
from rsm_spark.errors import InvalidCommandError

if TYPE_CHECKING:
    # Clients know changes, too: they need nothing of a replica's at work.
    from rsm_spark.runtime.change_feed import FeedEntry


class TableChange(NamedTuple):
    """A row that was written or removed.

    Attributes:
        revision: Of the record.
        type: Of the record, as the machine numbers them.
        key: Canonical bytes of the row's key.
        row: Canonical bytes of its other columns; None = it is gone.
        logged_ms: Logged time.
        old_row: What the row was before, if it was asked for; None = there was none.
        old_revision: Of the record that had written it; 0 = there was none.
        mod_revision: By which the change counts: of the last record of its command, or of the record itself; 0 = it was
            not told.

    """

    revision: int
    type: int
    key: bytes
    row: bytes | None
    logged_ms: int
    old_row: bytes | None = None
    old_revision: int = 0
    mod_revision: int = 0


SaidRevision = Callable[[int, tuple[Any, ...]], int | None]
"""Returns the mod revision that a record says, of its type and fields; None = its own."""


class ChangeFilter:
    """Takes changes of one table out of entries.

    Args:
        description: Of the machine.
        table: Name of the table.
        start: First value of the key's first column, inclusive.
        end: Exclusive; None = no end.
        types: Only changes by records of these types; () = all.
        said_revision: Of the machine; None = each change counts by the revision of its record.

    Raises:
        InvalidCommandError: There is no such table, or its key has no order of bytes and a range was given.

    """

    def __init__(
        self,
        description: MachineDescription,
        table: str,
        start: bytes = b"",
        end: bytes | None = None,
        types: Collection[int] = (),
        said_revision: SaidRevision | None = None,
    ) -> None:
        known = {one.name: one for one in description.tables}
        if table not in known:
            raise InvalidCommandError(
                f"machine {description.name} has no table {table!r}: its tables are {', '.join(sorted(known))}"
            )
        self._is_text = known[table].key[0].type is FieldType.STR
        self._is_open = not start and end is None
        if not self._is_open and known[table].key[0].type not in {FieldType.BYTES, FieldType.STR}:
            raise InvalidCommandError(f"keys of table {table!r} are numbers: a range of bytes says nothing about them")
        self._table = table
        self._start, self._end = start, end
        self._said_revision = said_revision or _nothing
        # Record type -> places of the key's fields, places of the row's fields or None.
        self._places: dict[int, tuple[list[int], list[int] | None]] = {}
        for record in description.records:
            if record.table == table and record.fold is not Fold.NONE and (not types or record.type in types):
                names = [field.name for field in record.fields]
                row = [names.index(name) for name in record.row] if record.fold is Fold.UPSERT else None
                self._places[record.type] = ([names.index(name) for name in record.key], row)

    def take(self, entry: FeedEntry, from_revision: int) -> list[TableChange]:
        """Return the changes of an entry that count by a revision or a later one.

        Raises:
            CorruptLogError: The entry holds no records.

        """
        changes: list[TableChange] = []
        places, is_open = self._places, self._is_open
        for revision, record in enumerate(entry.records(), entry.first_revision):
            place = places.get(record.type)
            if place is None:
                continue
            fields = record.fields
            mod_revision = self._said_revision(record.type, fields) or revision
            if mod_revision < from_revision:
                continue
            if not is_open and not self._is_inside(fields[place[0][0]]):
                continue
            key = pack([fields[index] for index in place[0]])
            # A record of an older version ends before the columns that were added since.
            row = None if place[1] is None else pack([fields[index] for index in place[1] if index < len(fields)])
            change = TableChange(revision, record.type, key, row, entry.logged_ms, mod_revision=mod_revision)
            changes.append(change)
        return changes

    def holds(self, row: Row) -> bool:
        """Return whether a row is of the table and in the range."""
        if row.table != self._table:
            return False
        return self._is_open or self._is_inside(msgspec.msgpack.decode(row.key)[0])

    def _is_inside(self, first: Any) -> bool:
        value: bytes = first.encode() if self._is_text else first
        return value >= self._start and (self._end is None or value < self._end)


def _nothing(_record_type: int, _fields: tuple[Any, ...]) -> None:
    return None
