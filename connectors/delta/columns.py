"""Columns of a follower table, from the machine's description and from the Delta table. Pure.

A machine may add columns: rows that were logged before have fewer of them, and their bytes count in the digest. So
each column that came later says in the Delta schema since which revision rows have it; a row's `_revision` tells how
many of its columns were logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from connectors.errors import DeltaSinkError
from ledger.decoding import json_decoder
from rsm_spark.core.machine import FIRST_TYPES, Field, FieldType, TableDescription
from rsm_spark.snapshots.column_arrays import arrow_type

REVISION_COLUMN = "_revision"
"""Revision of the record that last changed the row; in `append` mode, of the record itself."""

DELETED_COLUMN = "_deleted"
"""Only on its way into a merge."""

FOLD_COLUMN = "_fold"
"""`append` mode: `upsert`, `delete`, or `snapshot` for a row that the table began with."""

LOGGED_AT_COLUMN = "_logged_at"
"""`append` mode: logged time of the record."""

SINCE_KEY = "rsm.since"
"""Key in a Delta field's metadata: revision of the description that added the column."""

PLACE_KEY = "rsm.place"
"""Key in a Delta field's metadata: place of an added column in the log's rows; a merge adds columns in any order."""

_OURS = (REVISION_COLUMN, DELETED_COLUMN, FOLD_COLUMN, LOGGED_AT_COLUMN)

TYPE_KEY = "rsm.type"
"""Key in a Delta field's metadata: the described type, where Delta's own does not tell it."""

_FIELD_TYPES = {
    "long": FieldType.INT,
    "double": FieldType.FLOAT,
    "boolean": FieldType.BOOL,
    "string": FieldType.STR,
    "binary": FieldType.BYTES,
}
_TYPE = json_decoder(Field)
# What Parquet and Delta cannot have in a column's name; the backtick would end a quoted one.
_FORBIDDEN = frozenset(" ,;{}()\n\t=`")


class Column(NamedTuple):
    """A column that is no key.

    Attributes:
        field: Its name and type.
        since: Revision of the description that added it; rows of records before do not have it. 0 = all have it.

    """

    field: Field
    since: int


class FollowedTable(msgspec.Struct, frozen=True):
    """Columns of a table of the machine, as a follower knows them.

    Attributes:
        name: Of the table.
        key: Key columns, in the order of the log's arrays.
        row: The other columns, likewise; `since` never falls from one to the next.

    """

    name: str
    key: tuple[Field, ...]
    row: tuple[Column, ...]

    @classmethod
    def described(cls, table: TableDescription) -> FollowedTable:
        """Return the table as a description has it.

        Raises:
            DeltaSinkError: Its columns cannot be those of a Delta table.

        """
        followed = cls(table.name, table.key, tuple(Column(field, 0) for field in table.row))
        followed.check()
        return followed

    @classmethod
    def stored(cls, table: TableDescription, delta_fields: Iterable[dict[str, Any]]) -> FollowedTable:
        """Return the table as a Delta table has it.

        Args:
            table: As described when the Delta table was made.
            delta_fields: Fields of its schema, as Delta's JSON has them.

        """
        known = {field.name: field for field in table.row}
        others = {*_OURS, *(field.name for field in table.key)}
        row = [
            Column(known.get(field["name"]) or _field(field), int(field["metadata"].get(SINCE_KEY, 0)))
            for field in in_log_order(field for field in delta_fields if field["name"] not in others)
        ]
        return cls(table.name, table.key, tuple(row))

    def check(self) -> None:
        """Check that these can be the columns of a Delta table.

        Raises:
            DeltaSinkError: Names are not unique in Delta's sense (case does not count), ours, or cannot be written.

        """
        names = [field.name for field in self.fields]
        lower = [name.lower() for name in names]
        if len(set(lower)) < len(lower) or set(_OURS) & set(lower):
            raise DeltaSinkError(
                f"table {self.name}: its columns {', '.join(names)} are not unique (case does not count in Delta), or "
                f"taken by ours ({', '.join(_OURS)})"
            )
        for name in names:
            if not name or _FORBIDDEN & set(name):
                raise DeltaSinkError(f"table {self.name}: Delta cannot have a column with the name {name!r}")

    @property
    def fields(self) -> tuple[Field, ...]:
        """Key columns, then the others."""
        return (*self.key, *(column.field for column in self.row))

    @property
    def key_names(self) -> list[str]:
        return [field.name for field in self.key]

    @property
    def row_names(self) -> list[str]:
        """Names of the other columns."""
        return [column.field.name for column in self.row]

    def width_at(self, revision: int) -> int:
        """Return how many columns besides the key the row of a record has."""
        return sum(column.since <= revision for column in self.row)

    def schema(self, *extra: pa.Field[Any]) -> pa.Schema:
        """Return the Arrow schema: key, other columns, then `extra`."""
        fields: list[pa.Field[Any]] = [pa.field(f.name, arrow_type(f), nullable=False) for f in self.key]
        fields += [
            pa.field(one.field.name, arrow_type(one.field), metadata=_metadata(one, place))
            for place, one in enumerate(self.row)
        ]
        return pa.schema([*fields, *extra])

    def renamed(self, table: TableDescription | None) -> FollowedTable:
        """Return the table with the names that a later description has for its columns."""
        later = () if table is None else table.row
        row = [
            column._replace(field=new)
            if new.is_same(column.field) and new.type_name == column.field.type_name
            else column
            for column, new in zip(self.row, later, strict=False)
        ]
        return msgspec.structs.replace(self, row=(*row, *self.row[len(row) :]))

    def widened(self, table: TableDescription | None, revision: int) -> FollowedTable:
        """Return the table after the machine was described anew.

        Args:
            table: As the new description has it; None = it does not.
            revision: Of the description.

        Raises:
            DeltaSinkError: The change is no addition of columns at the end.

        """
        change = self._change_to(table)
        if change:
            raise DeltaSinkError(
                f"table {self.name}: at revision {revision} the machine describes it anew, and {change}: a follower "
                "takes columns added at the end and nothing else; materialize into a new place from there on"
            )
        assert table is not None, "said by the change"
        added = table.row[len(self.row) :]
        if not added:
            return self
        wider = msgspec.structs.replace(self, row=(*self.row, *(Column(field, revision) for field in added)))
        wider.check()
        return wider

    def _change_to(self, table: TableDescription | None) -> str:
        """Say what stands against going on with a description; "" = nothing."""
        if table is None:
            return "it is gone"
        if _named_types(table.key) != _named_types(self.key):
            return f"its key was {listed_fields(self.key)} and is now {listed_fields(table.key)}"
        old, new = [column.field for column in self.row], table.row
        for number, field in enumerate(old):
            if number >= len(new):
                return f"column {field.name} is gone"
            if _named_types([new[number]]) != _named_types([field]):
                return f"column {listed_fields([field])} is now {listed_fields([new[number]])}"
        return ""


def in_log_order(delta_fields: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return fields that are no key, as Delta's JSON has them, in the order of the log's arrays."""
    placed = [(int(field["metadata"].get(PLACE_KEY, at)), field) for at, field in enumerate(delta_fields)]
    return [field for _, field in sorted(placed, key=lambda one: one[0])]


def listed_fields(fields: Sequence[Field]) -> str:
    """Return fields for an error: names and types."""
    return ", ".join(f"{field.name} ({field.type_name})" for field in fields) or "(nothing)"


def _same_type(one: Field, other: Field) -> bool:
    return one.type_name == other.type_name


def _named_types(fields: Sequence[Field]) -> list[tuple[str, str]]:
    return [(field.name, field.type_name) for field in fields]


def _metadata(column: Column, place: int) -> dict[str, str] | None:
    """Return what a Delta field has to say of a column besides name and type."""
    metadata = {SINCE_KEY: str(column.since), PLACE_KEY: str(place)} if column.since else {}
    if column.field.type not in FIRST_TYPES:
        metadata[TYPE_KEY] = msgspec.json.encode(_plain(column.field)).decode()
    return metadata or None


def _field(delta_field: dict[str, Any]) -> Field:
    """Return the field of a column by what Delta has of it."""
    described = delta_field["metadata"].get(TYPE_KEY)
    return (
        Field(delta_field["name"], _FIELD_TYPES[delta_field["type"]]) if described is None else _TYPE.decode(described)
    )


def _plain(field: Field) -> Field:
    """Return a field as name and type alone."""
    return Field(field.name, field.type, precision=field.precision, scale=field.scale, items=field.items)
