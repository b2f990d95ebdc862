"""Columns of a frame that is to be written: checked by name and type before the first row, read as Python values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from connectors.errors import BadRowError, OptionError

BYTES = (BinaryType, StringType)
INTEGERS = (ShortType, IntegerType, LongType)
_NAMED_MAX = 20
_NAME_CHARS_MAX = 100


class SinkColumn(NamedTuple):
    """Column that a kind of rows has.

    Attributes:
        types: Of Spark.
        words: The same for people.
        is_needed: The frame must have it.

    """

    types: tuple[type[DataType], ...]
    words: str
    is_needed: bool = False

    @classmethod
    def of_bytes(cls, *, is_needed: bool = False) -> SinkColumn:
        """Return one of bytes, or of texts as their UTF-8."""
        return cls(BYTES, "binary or string", is_needed)

    @classmethod
    def of_text(cls, *, is_needed: bool = False) -> SinkColumn:
        return cls((StringType,), "string", is_needed)

    @classmethod
    def of_integers(cls) -> SinkColumn:
        return cls(INTEGERS, "int or bigint")

    @classmethod
    def of_flags(cls) -> SinkColumn:
        return cls((BooleanType,), "boolean")


def check_columns(kind: str, schema: StructType, columns: Mapping[str, SinkColumn]) -> None:
    """Check the columns of a frame.

    Args:
        kind: Of the rows, as the option `as` has it.
        schema: Of the frame.
        columns: All that rows of this kind have.

    Raises:
        OptionError: One is missing, of another type, there twice, or none of these.

    """
    names = schema.names
    counts = Counter(names)
    missing = [name for name, column in columns.items() if column.is_needed and name not in counts]
    if missing:
        needed = [name for name, column in columns.items() if column.is_needed]
        rest = [name for name, column in columns.items() if not column.is_needed]
        raise OptionError(
            f"sink ledger, as={kind}: column {missing[0]} is missing: the frame has {_listed(names)}; needed: "
            f"{_listed(needed)}; optional: {_listed(rest)}"
        )
    twice = [name for name in columns if counts[name] > 1]
    if twice:
        raise OptionError(
            f"sink ledger, as={kind}: column {twice[0]} is there more than once: select what is to be written"
        )
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            raise OptionError(
                f"sink ledger, as={kind}: there is no column {field.name:.{_NAME_CHARS_MAX}}: known are "
                f"{_listed(list(columns))}; select what is to be written"
            )
        if not isinstance(field.dataType, column.types):
            found = field.dataType.simpleString()
            raise OptionError(
                f"sink ledger, as={kind}: column {field.name} is {found:.{_NAME_CHARS_MAX}}, it must be "
                f"{column.words}: cast it"
            )


def _listed(names: Sequence[str]) -> str:
    """Return names for an error: some of them, if they are many or long."""
    more = ", …" if len(names) > _NAMED_MAX else ""
    return ", ".join(f"{name:.{_NAME_CHARS_MAX}}" for name in names[:_NAMED_MAX]) + more


def values_of(column: pa.Array[Any], *, as_bytes: bool = False) -> list[Any]:
    """Return a column as Python values; `as_bytes`: texts as their UTF-8 bytes."""
    kind = column.type
    if as_bytes and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        column = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    listed: list[Any] = column.to_pylist()
    return listed


def bad_row(part: int, row: int, column: str, fault: str, key: Sequence[Any] | bytes | None = None) -> BadRowError:
    """Return the error for a row that cannot be written.

    Args:
        part: Number of its partition.
        row: Its number there, from 0.
        column: With the fault.
        fault: In words.
        key: Of the row, if it has one.

    """
    of_key = "" if key is None else f" (key {key!r:.70})"
    return BadRowError(
        f"row {row} of partition {part}, column {column}{of_key}: {fault}. Nothing of this row was written, and its "
        "batch is not ended"
    )
