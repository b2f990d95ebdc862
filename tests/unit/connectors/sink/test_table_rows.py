"""Rows of a frame as transactions of SQL, carried out on SQLite as the service would."""

from __future__ import annotations

import datetime as dt
import sqlite3
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from connectors.errors import BadRowError, OptionError
from connectors.sink.options import RowKind, SinkOptions, TableColumn
from connectors.sink.table_rows import TableCommands
from ledger.decoding import msgpack_decoder
from rsm_spark.sql.messages import SqlTransaction

ITEM = (
    TableColumn("id", "INTEGER", 1),
    TableColumn("name", "TEXT", is_filled=True),
    TableColumn("price", "NUMERIC"),
    TableColumn("at", "TIMESTAMPTZ"),
    TableColumn("day", "DATE"),
    TableColumn("is_new", "BOOLEAN"),
)


def _commands(columns: tuple[TableColumn, ...], **fields: Any) -> TableCommands:
    options = SinkOptions("shop", RowKind.TABLE, "w", table='it"em', table_columns=columns)
    return TableCommands(options, StructType([StructField(name, kind) for name, kind in fields.items()]))


def _batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows))


def _done(connection: sqlite3.Connection, command: bytes) -> None:
    for statement in msgpack_decoder(SqlTransaction).decode(command).statements:
        connection.execute(statement.sql, tuple(statement.parameters))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, "upsert", "delete"]), st.text(max_size=3))),
        max_size=5,
    )
)
def test_whatever_the_chunks_the_table_has_the_last_of_each_key(chunks: list[list[tuple[int, Any, str]]]) -> None:
    commands = _commands(ITEM[:2], id=IntegerType(), name=StringType(), _op=StringType())
    apart, together = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    wanted: dict[int, str] = {}
    made: list[bytes] = []
    for connection in (apart, together):
        connection.execute('CREATE TABLE "it""em" (id INTEGER PRIMARY KEY, name TEXT NOT NULL)')
    for chunk in chunks:
        types: list[tuple[str, pa.DataType]] = [("id", pa.int32()), ("name", pa.string()), ("_op", pa.string())]
        rows = [{"id": key, "name": name, "_op": operation} for key, operation, name in chunk]
        items = [item for item, _ in commands.items(pa.RecordBatch.from_pylist(rows, pa.schema(types)), 0)]
        made.append(commands.command(items))
        for key, operation, name in chunk:
            wanted.pop(key, None) if operation == "delete" else wanted.update({key: name})
        _done(apart, made[-1])
    _done(together, commands.joined(made))
    for connection in (apart, together):
        assert dict(connection.execute('SELECT id, name FROM "it""em"')) == wanted


def test_values_are_written_as_the_tables_clients_have_them() -> None:
    kinds = {name: StringType() for name in ("name", "price", "at", "day", "is_new")}
    with pytest.raises(OptionError, match="column price is string, it must be decimal or a number, since the table"):
        _commands(ITEM, id=IntegerType(), **kinds)
    commands = _commands(ITEM[:1] + ITEM[3:5], id=IntegerType(), at=StringType(), day=StringType())
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    ((_, values),) = (item for item, _ in commands.items(_batch({"id": 1, "at": at, "day": dt.date(2026, 1, 2)}), 0))
    assert values == (1, "2026-01-02 02:04:05+00:00", "2026-01-02")
    plain = _commands((TableColumn("price", ""), TableColumn("new", "")), price=DoubleType(), new=IntegerType())
    assert not plain.is_repeatable
    ((_, values),) = (item for item, _ in plain.items(_batch({"price": Decimal("1.50"), "new": True}), 0))
    assert values == ("1.50", 1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": None}, "row 1 of partition 0, column id: it is null: it is the table's key"),
        ({"name": None}, "column name .key .7,..: it is null: the table has it NOT NULL"),
        ({"_op": "remove"}, "column _op .*: 'remove' is no operation: upsert or delete"),
        ({"name": "x" * 10_000_000}, "column name .*: the row has 10,000,009 bytes"),
    ],
    ids=range(4),
)
def test_a_bad_row_is_named_before_its_batch_is_handed_on(row: dict[str, Any], words: str) -> None:
    commands = _commands(ITEM[:2], id=IntegerType(), name=StringType(), _op=StringType())
    good = {"id": 7, "name": "pen", "_op": "upsert"}
    with pytest.raises(BadRowError, match=words):
        next(commands.items(_batch(good, {**good, **row}), 0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": StringType()}, "column id is missing"),
        ({"id": IntegerType(), "colour": StringType()}, "there is no column colour: known are id, name"),
        ({"id": StringType(), "name": StringType()}, "column id is string, it must be an integer, since the table"),
        ({f"c{number}": StringType() for number in range(10_000)}, "column id is missing"),
    ],
    ids=range(4),
)
def test_a_frame_that_does_not_fit_is_refused_before_its_first_row(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        _commands(ITEM, **fields)
    assert len(str(refused.value)) < 1_000


def test_without_a_key_rows_are_only_added() -> None:
    with pytest.raises(OptionError, match="has no primary key: rows are only added"):
        _commands((TableColumn("name", "TEXT"),), name=StringType(), _op=StringType())
