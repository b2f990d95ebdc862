"""Tables whose rows are classes: a msgspec Struct, declared once, gives the description and is what is read.

class Account(msgspec.Struct):
    name: str
    balance: int = 0

accounts = table(Account, key="name")

A field with a default fills rows that were written before there was it; one that may be None is nullable.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from ledger.decoding import convert
from rsm_spark.core.machine import Field, FieldType, RecordDescription, TableDescription
from rsm_spark.core.records import MACHINE_TYPE_FIRST
from rsm_spark.core.table_machine import delete, upsert
from rsm_spark.errors import InvalidDescriptionError

R = TypeVar("R", bound=msgspec.Struct)

_COLUMN_TYPES: dict[Any, FieldType] = {
    int: FieldType.INT,
    float: FieldType.FLOAT,
    bool: FieldType.BOOL,
    str: FieldType.STR,
    bytes: FieldType.BYTES,
    Decimal: FieldType.DECIMAL,
    datetime: FieldType.TIMESTAMP,
    date: FieldType.DATE,
    UUID: FieldType.UUID,
    dict: FieldType.JSON,
}
_UNIONS = (typing.Union, types.UnionType)

Staged = dict[tuple[str, tuple[Any, ...]], tuple[int, tuple[Any, ...]]]
"""Records of the command that is decided now, by table and key: a row that is written twice is logged once."""


class RowHolder(Protocol):
    """The machine whose rows a table reads, and the changes of the command that it decides now.

    Attributes:
        staged: None = no command is decided.

    """

    staged: Staged | None

    def get(self, table: str, *key: Any) -> tuple[Any, ...] | None:
        """Return the columns of a row behind its key."""

    def items(self, table: str) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Iterate over all rows."""

    def count(self, table: str) -> int:
        """Return how many rows a table has."""


class ColumnOptions(msgspec.Struct, frozen=True):
    """Options of a column beside its type; see `Field`."""

    was: tuple[str, ...] = ()
    dropped: bool = False
    precision: int = 0
    scale: int = 0


def column(*, was: tuple[str, ...] = (), dropped: bool = False, precision: int = 0, scale: int = 0) -> ColumnOptions:
    """Declare more of a column than its type.

    Args:
        was: Names that it had before.
        dropped: It is not used any more: it stays in its place, and reads as None.
        precision: Of decimals: digits in all.
        scale: Of decimals: digits behind the point.

    Returns:
        What is written as ``limit: Annotated[int, column(was=("overdraft",))] = 0``.

    """
    return ColumnOptions(was, dropped, precision, scale)


class StateTable(Generic[R]):
    """A table of a service; `table` declares it. Rows are read as the command that is decided now has left them.

    Attributes:
        name: Of the table in the log; "" until a machine has it.
        is_writable: It takes rows as they are, past the service's commands; see `rsm_spark.core.typed_rows`.

    """

    def __init__(
        self,
        kind: type[R],
        key: tuple[str, ...],
        *,
        name: str = "",
        records_from: int = 0,
        is_writable: bool = False,
    ) -> None:
        self._kind = kind
        self.name = name
        self.is_writable = is_writable
        self._puts, self._deletes = records_from, records_from + 1
        hints = typing.get_type_hints(kind, include_extras=True)
        found = msgspec.structs.fields(kind)
        fields = {one.name: one for one in found}
        self._key = key
        unknown = [one for one in key if one not in fields]
        if unknown or not key:
            raise InvalidDescriptionError(f"rows of {kind.__name__}: its key {key} names no fields of it: {unknown}")
        self._names = (*key, *(one for one in fields if one not in key))
        self.columns = tuple(_field(kind, hints[one], fields[one], is_key=one in key) for one in self._names)
        # Arguments by their places are made quickest.
        kinds = [one.kind for one in signature(kind).parameters.values()]
        self._is_plain = self._names == tuple(fields) and Parameter.KEYWORD_ONLY not in kinds
        self._width = len(key)
        self._given = {one.name: one.encode_name for one in found}
        self._fields_of = attrgetter(*self._names) if len(self._names) > 1 else _only(self._names[0])
        self._holder: RowHolder | None = None

    def held(self, holder: RowHolder, name: str, records_from: int) -> StateTable[R]:
        """Return this table as that of a machine."""
        table = StateTable(self._kind, self._key, name=name, records_from=records_from, is_writable=self.is_writable)
        table._holder = holder
        return table

    def described(self, name: str, records_from: int) -> tuple[TableDescription, tuple[RecordDescription, ...]]:
        """Return the description of the table, and of the records that write and delete its rows."""
        described = TableDescription(name, self.columns[: self._width], self.columns[self._width :])
        return described, (
            upsert(records_from, f"{name}_written", described),
            delete(records_from + 1, f"{name}_deleted", described),
        )

    @property
    def key_columns(self) -> tuple[Field, ...]:
        """Return the columns of the key."""
        return self.columns[: self._width]

    # ---- rows

    def get(self, *key: Any) -> R | None:
        """Return the row of a key, or None if there is none."""
        holder = self._of()
        if holder.staged:
            record = holder.staged.get((self.name, key))
            if record is not None:
                return self._made(record[1]) if record[0] == self._puts else None
        columns = holder.get(self.name, *key)
        return None if columns is None else self._made(key + columns)

    def fields_of(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the columns of a row, its key first, or None; without what a command changes that is decided now."""
        columns = self._of().get(self.name, *key)
        return None if columns is None else key + columns

    def staged_fields(self, staged: Staged, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the columns of a row as changes leave it, or None."""
        record = staged.get((self.name, key))
        if record is None:
            return self.fields_of(key)
        return record[1] if record[0] == self._puts else None

    def all_fields(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Iterate over keys and columns, as `fields_of` has them, in no order."""
        return ((key, key + columns) for key, columns in self._of().items(self.name))

    def __contains__(self, key: Any) -> bool:
        """Return whether there is a row of a key; one of several columns is a tuple."""
        return self.get(*(key if isinstance(key, tuple) else (key,))) is not None

    def __iter__(self) -> Iterator[R]:
        """Iterate over all rows, in the order of their keys."""
        holder = self._of()
        found: dict[tuple[Any, ...], tuple[Any, ...] | None] = {k: k + row for k, row in holder.items(self.name)}
        for (name, key), (number, fields) in (holder.staged or {}).items():
            if name == self.name:
                found[key] = fields if number == self._puts else None
        return (self._made(fields) for _, fields in sorted(found.items()) if fields is not None)

    def __len__(self) -> int:
        """Return how many rows there are."""
        holder = self._of()
        count = holder.count(self.name)
        for (name, key), (number, _) in (holder.staged or {}).items():
            if name == self.name:
                count += (number == self._puts) - (holder.get(name, *key) is not None)
        return count

    def put(self, row: R) -> None:
        """Write a row: the one of its key becomes this.

        Raises:
            TypeError: It is of another class.
            RuntimeError: No command is decided.

        """
        if type(row) is not self._kind:
            raise TypeError(f"table {self.name!r} has rows of {self._kind.__name__}, this is a {type(row).__name__}")
        fields = self._fields_of(row)
        self._changes("put")[self.name, fields[: self._width]] = self._puts, fields

    def write_columns(self, values: Mapping[str, Any]) -> None:
        """Write columns of the row of a key: the others stay; a row that is new has their defaults.

        Args:
            values: By the names of the columns, those of the key among them.

        Raises:
            ValueError: The row is none of its class; it says what is wrong, and where.
            RuntimeError: No command is decided.

        """
        row = self.get(*(values[name] for name in self._key))
        merged = dict(values) if row is None else {**msgspec.structs.asdict(row), **values}
        try:
            made = convert({self._given[name]: value for name, value in merged.items()}, self._kind)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
        self.put(made)

    def delete(self, *key: Any) -> bool:
        """Delete the row of a key; return whether there was one.

        Raises:
            RuntimeError: No command is decided.

        """
        changes, holder = self._changes("delete"), self._of()
        if self.get(*key) is None:
            return False
        if holder.get(self.name, *key) is None:
            del changes[self.name, key]
        else:
            changes[self.name, key] = self._deletes, key
        return True

    def _made(self, values: tuple[Any, ...]) -> R:
        return self._kind(*values) if self._is_plain else self._kind(**dict(zip(self._names, values, strict=True)))

    def _of(self) -> RowHolder:
        if self._holder is None:
            raise RuntimeError(f"rows of {self._kind.__name__} are those of a service: make one first")
        return self._holder

    def _changes(self, what: str) -> Staged:
        staged = self._of().staged
        if staged is None:
            raise RuntimeError(f"table {self.name!r}: {what}: only a command that is executed changes rows")
        return staged


def table(kind: type[R], *, key: str | tuple[str, ...] | None = None, writable: bool = False) -> StateTable[R]:
    """Declare a table of a service in its class.

    Args:
        kind: Of its rows, a msgspec Struct.
        key: Names of the fields that are its key; None = the first.
        writable: It takes rows as they are, past the service's commands, from everybody who may write the state:
            Spark's sink `as=table` writes them. What the annotations of a field say holds, no other rule does.

    Raises:
        InvalidDescriptionError: A field is of no type of a column, or the key names none.

    """
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise InvalidDescriptionError(f"table({kind!r}): the rows of a table are a class, a msgspec.Struct")
    if key is None:
        key = kind.__struct_fields__[:1]
    return StateTable(kind, (key,) if isinstance(key, str) else key, is_writable=writable)


def records_of(number: int) -> int:
    """Return the first record type of the table with this number in its class: it has two."""
    return MACHINE_TYPE_FIRST + 2 * number


def _field(kind: type, hint: Any, found: msgspec.structs.FieldInfo, *, is_key: bool) -> Field:
    options = ColumnOptions()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        options = next((one for one in extras if isinstance(one, ColumnOptions)), options)
    nullable = False
    if typing.get_origin(hint) in _UNIONS:
        inner = [one for one in typing.get_args(hint) if one is not type(None)]
        nullable = len(inner) < len(typing.get_args(hint))
        hint = inner[0] if len(inner) == 1 else hint
    default = None if is_key or found.default is msgspec.NODEFAULT else found.default
    column_type, items = _COLUMN_TYPES.get(hint), None
    if typing.get_origin(hint) is dict:
        column_type = FieldType.JSON
    elif typing.get_origin(hint) is list:
        items = _COLUMN_TYPES.get(typing.get_args(hint)[0])
        column_type = None if items is None else FieldType.LIST
    if column_type is None:
        raise InvalidDescriptionError(
            f"rows of {kind.__name__}: field {found.name!r} is {hint}, which is no type of a column: int, float, bool, "
            "str, bytes, Decimal, datetime, date, UUID, list[one of these], dict, or one of them | None"
        )
    return Field(
        found.name,
        column_type,
        nullable,
        default,
        options.was,
        options.dropped,
        options.precision,
        options.scale,
        items,
    )


def _only(name: str) -> Any:
    return lambda row: (getattr(row, name),)
