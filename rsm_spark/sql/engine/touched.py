"""Rows that a client's statements touch: what each was before the first of them, and the records of what it is now."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rsm_spark.core.machine import RowChange
from rsm_spark.core.records import pack
from rsm_spark.sql.engine.catalog import SqlCatalog
from rsm_spark.sql.engine.faults import SqlRefusal
from rsm_spark.sql.engine.shapes import Execute, TableShape
from rsm_spark.sql.limits import ROWS_CHANGED_MAX, ROWS_REWRITTEN_MAX
from rsm_spark.sql.records import ROWS, SqlRecord

_TOLD_BYTES_MAX = 4 * 1024 * 1024
"""Of what the hook has told of rows so much is kept, as much as a transaction may change; others are read later."""
_VALUE_BYTES = 32
decode_values = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class MadeRecord(NamedTuple):
    """A record of the log, and the row that it changes."""

    type: SqlRecord
    fields: tuple[Any, ...]
    change: RowChange | None


def row_change(number: int, key: bytes, old: bytes | None, new: bytes | None) -> RowChange:
    """Return the change of a row of a table, as the digest counts it."""
    return RowChange(
        ROWS, pack((number, key)), None if old is None else pack((old,)), None if new is None else pack((new,))
    )


def read_values(execute: Execute, shape: TableShape, key: bytes) -> tuple[Any, ...] | None:
    """Return the columns behind the key of the row with exactly this key, as it is now; None = there is none."""
    row: tuple[Any, ...] | None = execute(shape.select, decode_values(key)).fetchone()
    width = len(shape.key)
    # By a collation, another key than this one may have been found.
    return None if row is None or pack(row[:width]) != key else row[width:]


def read_image(execute: Execute, shape: TableShape, key: bytes) -> bytes | None:
    """Return the image of the row with exactly this key, as it is now; None = there is none."""
    values = read_values(execute, shape, key)
    return None if values is None else shape.image(values)


def told_old(old: tuple[Any, ...], new: tuple[Any, ...]) -> bytes:
    """Return what a row was, as a record tells it beside its new image; see `rsm_spark.sql.records`."""
    told: list[Any] = []
    for place, (was, value) in enumerate(zip(old, new, strict=True)):
        if was != value or type(was) is not type(value):
            told += (place, was)
    return pack(told)


class TouchedRows:
    """Rows touched since the last `take_records`.

    Args:
        execute: Runs a statement of the replica itself.
        catalog: Of the tables.

    Attributes:
        tells_old: Records say what rows were before: the log's version of the machine knows it.
        direct_count: Changes made by statements themselves, not by triggers or foreign keys, ever.
        fault: Why the statement must end, found where none can be raised; None = it need not.

    """

    def __init__(self, execute: Execute, catalog: SqlCatalog) -> None:
        self._execute = execute
        self._catalog = catalog
        self.tells_old = False
        self.direct_count = 0
        self.fault: Exception | None = None
        # Image before, by (number, key). Invariant: at most ROWS_CHANGED_MAX, and one more.
        self._before: dict[tuple[int, bytes], bytes | None] = {}
        # Columns as SQLite's hook told them, before the first change and behind the last one. Invariant: of some of
        # the rows in `_before`, none else.
        self._told_before: dict[tuple[int, bytes], tuple[Any, ...]] = {}
        self._told_now: dict[tuple[int, bytes], tuple[Any, ...] | None] = {}
        self._told_bytes = 0
        self._is_told = True

    def clear(self) -> None:
        """Forget all."""
        if self._before:
            self._before.clear()
            self._told_before.clear()
            self._told_now.clear()
        self._told_bytes = 0
        self._is_told = True
        self.fault = None

    def read_all(self) -> None:
        """Read from now on what has become of rows: some of what the hook told, or tells, may be undone."""
        self._told_now.clear()
        self._is_told = False

    def on_change(self, update: Any) -> None:
        """Hear of a row that is about to change: SQLite's pre-update hook."""
        if self.fault is not None:
            return
        try:
            self._note(update)
        except Exception as error:  # noqa: BLE001 - SQLite's callback; it is raised when the statement has ended
            self.fault = error

    def _note(self, update: Any) -> None:
        if update.depth == 0:
            self.direct_count += 1
        shape = self._catalog.shape(update.table_name)
        operation = update.op
        if shape.told_from is not None:
            self._note_told(shape, operation, update)
            return
        if operation != "INSERT":
            self._touch(shape, self._key(shape, update, is_new=False), is_there=True)
        if operation != "DELETE":
            self._touch(shape, self._key(shape, update, is_new=True), is_there=False)

    def _note_told(self, shape: TableShape, operation: str, update: Any) -> None:
        """Note a change of a row of a table whose rows the hook tells as they are read."""
        number, now = shape.number, self._told_now
        place: tuple[int, bytes] | None = None
        if operation != "INSERT":
            place = (number, pack((update.rowid,)))
            if place not in self._before:
                values = shape.told(update.old)
                if values is None:
                    self._touch(shape, place[1], is_there=True)
                else:
                    self._bound()
                    self._before[place] = shape.image(values)
                    if self._has_room_for(values):
                        self._told_before[place] = values
            if operation == "DELETE" or update.rowid_new != update.rowid:
                if self._is_told:
                    now[place] = None
                place = None
        if operation != "DELETE":
            if place is None:
                place = (number, pack((update.rowid_new,)))
                if place not in self._before:
                    self._bound()
                    self._before[place] = None
            values = update.new[shape.told_from :] if self._is_told and shape.tells_new else None
            if values is not None and self._has_room_for(values):
                now[place] = values
            else:
                now.pop(place, None)

    def _has_room_for(self, values: tuple[Any, ...]) -> bool:
        """Count what is to be kept of what the hook has told; return whether there is room for it."""
        self._told_bytes += _VALUE_BYTES * len(values) + sum([
            len(value) for value in values if type(value) is str or type(value) is bytes
        ])  # fmt: skip
        return self._told_bytes <= _TOLD_BYTES_MAX

    @staticmethod
    def _key(shape: TableShape, update: Any, *, is_new: bool) -> bytes:
        if shape.is_by_rowid:
            return pack((update.rowid_new if is_new else update.rowid,))
        values = update.new if is_new else update.old
        return pack([values[place] for place in shape.key_places])

    def _touch(self, shape: TableShape, key: bytes, *, is_there: bool) -> None:
        place = (shape.number, key)
        if place in self._before:
            return
        self._bound()
        # The row itself is still as it was. What the hook says of it leaves out generated columns, and has other values
        # for columns that were added since the row was written.
        self._before[place] = read_image(self._execute, shape, key) if is_there else None

    def _bound(self) -> None:
        if len(self._before) >= ROWS_CHANGED_MAX:
            raise SqlRefusal("limit", f"more than {ROWS_CHANGED_MAX} rows change: do it in several transactions")

    def touch_all(self, shape: TableShape) -> None:
        """Touch each row of a table: it is about to go, or all its rows are written anew.

        Raises:
            SqlRefusal: There are too many.

        """
        width = len(shape.key)
        self.read_all()
        for row in self._execute(shape.scan):
            self._before.setdefault((shape.number, pack(row[:width])), shape.image(row[width:]))
            if len(self._before) > ROWS_REWRITTEN_MAX:
                raise SqlRefusal(
                    "limit",
                    f"table {shape.name} has more than {ROWS_REWRITTEN_MAX} rows, and each would be written into the "
                    "log at once: delete rows first, in several transactions",
                )

    def take_all_gone(self, number: int, *, are_back: bool) -> list[MadeRecord]:
        """Return records by which every touched row of a table goes.

        Args:
            number: Of the table.
            are_back: The rows are there still, in another form: `take_records` finds them as new ones.

        """
        keys = [(place, old) for place, old in self._before.items() if place[0] == number]
        for place, _ in keys:
            if are_back:
                self._before[place] = None
            else:
                del self._before[place]
        return [self._gone(number, key, old, told=old) for (_, key), old in keys if old is not None]

    def take_records(self) -> list[MadeRecord]:
        """Return the records of what has become of the touched rows: what is gone first, then what is there."""
        before, self._before = self._before, {}
        was_told, self._told_before = self._told_before, {}
        now_told, self._told_now = self._told_now, {}
        self._told_bytes = 0
        leaving: list[MadeRecord] = []
        coming: list[MadeRecord] = []
        changed: list[tuple[TableShape, bytes, bytes, bytes, tuple[Any, ...]]] = []
        for place, old in before.items():
            number, key = place
            shape = self._catalog.shape_of(number)
            values = now_told[place] if place in now_told else read_values(self._execute, shape, key)
            if values is None:
                if old is not None:
                    leaving.append(self._gone(number, key, old, told=old))
                continue
            new = shape.image(values)
            if old is None:
                coming.append(self._there(number, key, None, new, told=None))
            elif new != old:
                changed.append((shape, key, old, new, values))
        # Two rows may have swapped what is unique: each then leaves before any comes.
        is_alone, tells_old = len(before) == 1, self.tells_old
        for shape, key, old, new, values in changed:
            number = shape.number
            was = was_told.get((number, key)) or (shape.filled(decode_values(old)) if tells_old or not is_alone else ())
            told = told_old(was, values) if tells_old else None
            if not is_alone and shape.must_leave_first(was, values):
                leaving.append(self._gone(number, key, old, told=None))
                old = None  # noqa: PLW2901 - it has left
            coming.append(self._there(number, key, old, new, told=told))
        return leaving + coming

    def _there(self, number: int, key: bytes, old: bytes | None, new: bytes, *, told: bytes | None) -> MadeRecord:
        change = row_change(number, key, old, new)
        if self.tells_old:
            return MadeRecord(SqlRecord.ROW_CHANGED, (number, key, new, told), change)
        return MadeRecord(SqlRecord.ROW_PUT, (number, key, new), change)

    def _gone(self, number: int, key: bytes, old: bytes, *, told: bytes | None) -> MadeRecord:
        change = row_change(number, key, old, None)
        if self.tells_old:
            return MadeRecord(SqlRecord.ROW_REMOVED, (number, key, told), change)
        return MadeRecord(SqlRecord.ROW_GONE, (number, key), change)
