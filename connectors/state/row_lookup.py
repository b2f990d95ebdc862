"""Lookup join: rows of a frame beside those of an SQL table, or beside what a query of a typed service answers.

    with_names = orders.transform(table_lookup("shop", "item", key={"id": "item"}, columns={"name": "string"}))
    with_left = orders.transform(
        query_lookup("bank", "balance", arguments={"name": "customer"}, columns={"balance": "bigint"})
    )

As `map_lookup`: nothing is read but what is asked for, each key once an Arrow batch, as it is when that is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegralType,
    LongType,
    StringType,
    StructType,
)

from connectors.errors import OptionError
from connectors.plain_errors import told_plainly
from connectors.state.lookup_links import LookupLink, LookupOptions, LookupSource, lookup_source
from ledger.decoding import msgpack_decoder
from rsm_spark.core.typed_calls import refusal_text

if TYPE_CHECKING:
    # A client of Spark Connect has another class of this name.
    from pyspark.sql import DataFrame

KEYS_MAX = 500
"""Keys of one call, and calls that are under way at once."""

_Key = tuple[Any, ...]
_Values = Sequence[Any] | None
_Ask = Callable[[LookupLink, Sequence[_Key]], Sequence[_Values]]


class _Kind(NamedTuple):
    """Type of a column that is added: Spark's, Arrow's, and Python's."""

    spark: DataType
    arrow: pa.DataType
    python: type


_KINDS = {
    "string": _Kind(StringType(), pa.string(), str),
    "bigint": _Kind(LongType(), pa.int64(), int),
    "double": _Kind(DoubleType(), pa.float64(), float),
    "boolean": _Kind(BooleanType(), pa.bool_(), bool),
    "binary": _Kind(BinaryType(), pa.binary(), bytes),
}


def table_lookup(
    log: str,
    table: str,
    *,
    key: Mapping[str, str],
    columns: Mapping[str, str],
    **options: Unpack[LookupOptions],
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that gives a frame columns of an SQL table; the frame may be a stream.

    Args:
        log: Of the tables.
        table: Name of the table.
        key: Columns of the table, each with the column of the frame that it is compared with, as SQLite does it. They
            are its key, or have an index: else each call reads the table.
        columns: Columns of the table that are added, with their types: string, bigint, double, boolean, binary. They
            are null where the table has no such row.
        options: See `LookupOptions`.

    Raises:
        OptionError: An argument cannot be; when the function is called, the frame has no such columns, or has one of a
            name that is to be added; in a task, several rows have a key, or a value is not of its type.

    """
    source = lookup_source("sql", log, options)
    what = f"table {table} of log {log}"
    wanted = ", ".join(f"t.{_quoted(name)}" for name in columns)
    on = " AND ".join(f"t.{_quoted(name)} = k.column{place}" for place, name in enumerate(key, 2))

    def sql_of(keys: str) -> str:
        # In this order: each key is looked up, whatever SQLite knows of the table.
        return f"SELECT k.column1, {wanted} FROM (VALUES {keys}) k CROSS JOIN {_quoted(table)} t ON {on}"  # noqa: S608

    def ask(link: LookupLink, keys: Sequence[_Key]) -> Sequence[_Values]:
        return _rows(link, what, sql_of, keys)

    return _lookup(source, what, key, columns, ask)


def query_lookup(
    log: str,
    query: str,
    *,
    arguments: Mapping[str, str],
    columns: Mapping[str, str],
    **options: Unpack[LookupOptions],
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that gives a frame columns with the answers of a service; the frame may be a stream.

    A service shows of its tables what its queries show: this asks one of them for each key.

    Args:
        log: Of the service.
        query: Name of a typed query, "balance", or "bank.balance" of a part. It returns a row, which is a class or a
            `dict`, or one value, or None.
        arguments: Of the query, with the column of the frame that each is taken from.
        columns: Fields of the row that are added, with their types: string, bigint, double, boolean or binary; of one
            value the name that it gets. They are null where the query returns None.
        options: See `LookupOptions`.

    Raises:
        OptionError: As of `table_lookup`; in a task, the query raises, or its row has no such field.

    """
    source = lookup_source("service", log, options)
    what = f"query {query} of log {log}"

    def ask(link: LookupLink, keys: Sequence[_Key]) -> Sequence[_Values]:
        calls = [msgspec.msgpack.encode((query, dict(zip(arguments, one, strict=True)))) for one in keys]
        return [
            _answered(what, one, reply, tuple(columns))
            for one, reply in zip(keys, link.run(_answers(link.client, calls)), strict=True)
        ]

    return _lookup(source, what, arguments, columns, ask)


def _lookup(
    source: LookupSource, what: str, key: Mapping[str, str], columns: Mapping[str, str], ask: _Ask
) -> Callable[[DataFrame], DataFrame]:
    if not source.log or not key or not columns:
        raise OptionError(
            f"lookup in {what}: log is {source.log!r}, key {dict(key)}, columns {dict(columns)}: name all"
        )
    for name, kind in columns.items():
        if kind not in _KINDS:
            raise OptionError(f"lookup in {what}: column {name} is {kind!r}: it may be {', '.join(_KINDS)}")
    kinds, asked_by = dict(columns), tuple(key.values())

    def joined(frame: DataFrame) -> DataFrame:
        schema = _joined_schema(frame.schema, what, asked_by, kinds)

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield _with_columns(batch, LookupLink.of_process(source), what, asked_by, kinds, ask)

        return frame.mapInArrow(told_plainly(look), schema)

    return joined


def _joined_schema(schema: StructType, what: str, asked_by: Sequence[str], kinds: Mapping[str, str]) -> StructType:
    for name in asked_by:
        is_one = schema.names.count(name) == 1
        if not is_one or not isinstance(schema[name].dataType, BinaryType | StringType | IntegralType):
            raise OptionError(
                f"lookup in {what}: the keys are in one column {name!r}, binary, string or a whole number; the frame "
                f"has {schema.simpleString()}"
            )
    wider = StructType([*schema.fields])
    for name, kind in kinds.items():
        if name in schema.names:
            raise OptionError(f"lookup in {what}: the frame has a column {name} already: rename one of the two")
        wider = wider.add(name, _KINDS[kind].spark)
    return wider


def _with_columns(
    batch: pa.RecordBatch,
    link: LookupLink,
    what: str,
    asked_by: Sequence[str],
    kinds: Mapping[str, str],
    ask: _Ask,
) -> pa.RecordBatch:
    keys: list[_Key] = list(zip(*(batch.column(name).to_pylist() for name in asked_by), strict=True))
    asked = list(dict.fromkeys(one for one in keys if None not in one))
    found: dict[_Key, _Values] = {}
    for begin in range(0, len(asked), KEYS_MAX):
        some = asked[begin : begin + KEYS_MAX]
        found.update(zip(some, ask(link, some), strict=True))
    rows = [found.get(one) for one in keys]
    for place, (name, kind) in enumerate(kinds.items()):
        values = [None if row is None else _typed(row[place], what, name, kind) for row in rows]
        batch = batch.append_column(pa.field(name, _KINDS[kind].arrow), pa.array(values, _KINDS[kind].arrow))
    return batch


def _typed(value: Any, what: str, name: str, kind: str) -> Any:
    """Return a value of a column's type.

    Raises:
        OptionError: It is of another one.

    """
    python = _KINDS[kind].python
    if value is None or type(value) is python:
        return value
    if type(value) is int and (python is float or (python is bool and value in (0, 1))):
        return python(value)
    raise OptionError(f"lookup in {what}: column {name} is to be {kind}, and holds {value!r:.80}: name another type")


def _quoted(name: str) -> str:
    """Return a name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _rows(link: LookupLink, what: str, sql_of: Callable[[str], str], keys: Sequence[_Key]) -> list[_Values]:
    """Return the row of each key of an SQL table; in more calls where the rows are too many bytes for one."""
    from rsm_spark.sql import SqlError  # noqa: PLC0415 - other lookups do without

    values = ", ".join(f"({place}, {', '.join('?' * len(one))})" for place, one in enumerate(keys))
    try:
        rows = link.run(link.client.query(sql_of(values), tuple(value for one in keys for value in one))).rows
    except SqlError as error:
        if error.kind != "limit" or len(keys) == 1:
            raise
        half = len(keys) // 2
        return _rows(link, what, sql_of, keys[:half]) + _rows(link, what, sql_of, keys[half:])
    found: list[_Values] = [None] * len(keys)
    for place, *row in rows:
        if found[place] is not None:
            raise OptionError(
                f"lookup in {what}: several rows have the key {keys[place]!r:.80}: name all of its columns"
            )
        found[place] = row
    return found


async def _answers(service: Any, calls: Sequence[bytes]) -> list[bytes]:
    """Return the answers to queries that travel together."""
    return [reply.payload for reply in await asyncio.gather(*map(service.query, calls))]


def _answered(what: str, key: _Key, reply: bytes, names: Sequence[str]) -> _Values:
    """Return the values of a query's answer.

    Raises:
        OptionError: It is an error, or has not these fields.

    """
    refusal = refusal_text(reply)
    if refusal:
        raise OptionError(f"lookup in {what}: key {key!r:.80}: {refusal}")
    (value,) = msgpack_decoder(tuple[Any]).decode(reply)
    if isinstance(value, dict):
        missing = [name for name in names if name not in value]
        if missing:
            raise OptionError(f"lookup in {what}: its row has no field {missing[0]}, it has {', '.join(value):.300}")
        return [value[name] for name in names]
    if value is not None and len(names) > 1:
        raise OptionError(f"lookup in {what}: it returns one value, {len(names)} columns are to be added")
    return None if value is None else [value]
