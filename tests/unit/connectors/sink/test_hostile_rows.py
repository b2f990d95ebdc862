"""Rows that cannot be written, of every kind: one short sentence that names row and column, before any row goes out."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from broker.machine import limits
from connectors.errors import BadRowError, OptionError
from connectors.sink import task_rows
from connectors.sink.commands import commands_of
from connectors.sink.options import RowKind, SinkOptions, TableColumn

_LARGE = 10 * 1024 * 1024
_WORDS_MAX = 700
_TABLE = (TableColumn("id", "INTEGER", 1), TableColumn("name", "TEXT", is_filled=True), TableColumn("n", "REAL"))
_STRUCT = StructType([StructField(f"f{number}", IntegerType()) for number in range(10_000)])


class _Kind(NamedTuple):
    """A kind of rows: a good row of it, its columns, and the column that a long value goes to."""

    kind: RowKind
    types: dict[str, DataType]
    row: dict[str, Any]
    long: str

    def commands(self, **more: DataType) -> Any:
        options = SinkOptions("log", self.kind, "w", table="t" if self.kind is RowKind.TABLE else "")
        if self.kind is RowKind.TABLE:
            options = SinkOptions("log", self.kind, "w", table="t", table_columns=_TABLE)
        fields = [StructField(name, kind) for name, kind in {**self.types, **more}.items()]
        return commands_of(options, StructType(fields))


_RESOURCES = MapType(StringType(), IntegerType())
_MAP = _Kind(RowKind.MAP, {"key": BinaryType(), "value": BinaryType()}, {"key": b"k", "value": b"v"}, "value")
_LOG = _Kind(RowKind.LOG, {"payload": BinaryType()}, {"payload": b"p"}, "payload")
_ROWS = _Kind(RowKind.TABLE, {"id": LongType(), "name": StringType()}, {"id": 1, "name": "a"}, "name")
_TASKS = _Kind(
    RowKind.TASKS,
    {"tenant": StringType(), "type": StringType(), "payload": BinaryType()},
    {"tenant": "t", "type": "x", "payload": b""},
    "payload",
)
_COMMANDS = _Kind(RowKind.COMMANDS, {"command": BinaryType()}, {"command": b"c"}, "command")
_CALLS = _Kind(
    RowKind.COMMANDS,
    {"method": StringType(), "arguments": StringType()},
    {"method": "m", "arguments": "{}"},
    "arguments",
)
_KINDS = [_MAP, _LOG, _ROWS, _TASKS, _COMMANDS, _CALLS]


def _said(kind: _Kind, bad: dict[str, Any], types: dict[str, DataType] | None = None) -> str:
    """Return what is said of a bad row behind two good ones; nothing of them was yielded."""
    commands = kind.commands(**(types or {}))
    rows = [kind.row, kind.row, {**kind.row, **bad}]
    names = list({**kind.types, **(types or {})})
    batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows])
    seen: list[Any] = []
    with pytest.raises(BadRowError) as refused:
        seen.extend(commands.items(batch, 4))
    assert seen == []
    said = str(refused.value)
    assert "row 2 of partition 4, column " in said
    assert len(said) < _WORDS_MAX
    assert "\n" not in said
    return said


@pytest.mark.parametrize("kind", _KINDS, ids=lambda one: f"{one.kind}-{one.long}")
def test_a_value_of_10_mb_is_told_by_row_and_column(kind: _Kind) -> None:
    value = "x" * _LARGE if isinstance(kind.types[kind.long], StringType) else b"x" * _LARGE
    if kind is _CALLS:
        value = '{"a": "%s"}' % ("x" * _LARGE)
    said = _said(kind, {kind.long: value})
    assert f"column {kind.long}" in said
    assert "10,485," in said or "bytes" in said


@pytest.mark.parametrize("kind", _KINDS, ids=lambda one: f"{one.kind}-{one.long}")
def test_a_null_where_there_must_be_a_value_is_told(kind: _Kind) -> None:
    needed = [name for name in kind.types if not (kind is _TASKS and name == "payload") and name != "arguments"]
    for name in needed:
        assert f"column {name}" in _said(kind, {name: None})


@pytest.mark.parametrize("kind", _KINDS, ids=lambda one: f"{one.kind}-{one.long}")
def test_wrong_types_and_10_000_columns_are_told_before_the_first_row_and_soon(kind: _Kind) -> None:
    for column in kind.types:
        with pytest.raises(OptionError, match=f"column {column} is struct") as refused:
            kind.commands(**{column: _STRUCT})
        assert len(str(refused.value)) < _WORDS_MAX
    wide = {f"column_{number:05}": StringType() for number in range(10_000)}
    began = time.process_time()
    with pytest.raises(OptionError, match="there is no column column_00000: known are") as unknown:
        kind.commands(**wide)
    options = SinkOptions("log", kind.kind, "w", table="t", table_columns=_TABLE if kind is _ROWS else ())
    missing = StructType([StructField(name, StringType()) for name in wide])
    with pytest.raises(OptionError, match="is missing|is neither|neither a column") as none:
        commands_of(options, missing)
    assert len(str(unknown.value)) < _WORDS_MAX
    assert len(str(none.value)) < _WORDS_MAX
    assert time.process_time() - began < 5
    with pytest.raises(OptionError) as long:
        kind.commands(**{"x" * _LARGE: StringType()})
    assert len(str(long.value)) < _WORDS_MAX


def test_a_table_of_2_000_columns_is_checked_soon_and_names_some() -> None:
    columns = tuple(TableColumn(f"c{number}", "TEXT", int(number == 0)) for number in range(2_000))
    options = SinkOptions("log", RowKind.TABLE, "w", table="t", table_columns=columns)
    fields = [StructField(f"c{number}", StringType()) for number in range(2_000)]
    began = time.process_time()
    commands_of(options, StructType(fields))
    with pytest.raises(OptionError, match="there is no column other") as refused:
        commands_of(options, StructType([*fields, StructField("other", StringType())]))
    assert len(str(refused.value)) < _WORDS_MAX
    with pytest.raises(OptionError, match="column c1999 is there more than once"):
        commands_of(options, StructType([*fields, fields[-1]]))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("column", "kind", "value", "said"),
    [
        ("retry", StringType(), "x" * _LARGE, "10,485,760 characters"),
        ("retry", StringType(), "[" * 4_000, "is no JSON"),
        ("retry", StringType(), "7", "is no JSON object"),
        ("resources", _RESOURCES, [(f"r{number}", 1) for number in range(10_000)], "10,000 resources"),
        ("resources", _RESOURCES, [("gpu", None)], "an amount is null"),
        ("resources", _RESOURCES, [("gpu", 0)], "amount 0"),
        ("resources", _RESOURCES, [("g" * _LARGE, 1)], "is no name of a resource"),
        ("slot", StringType(), "s" * _LARGE, "is no name"),
        ("tenant", StringType(), "t\x00", "is no name"),
        ("priority", LongType(), 2**62, "is not from"),
        ("group", LongType(), 0, "is not from"),
        ("ttl_ms", LongType(), 2**62, "is no time"),
        ("start_ms", LongType(), -1, "is no time"),
    ],
)
def test_what_the_broker_refuses_of_a_task_is_told_with_its_row(
    column: str, kind: DataType, value: Any, said: str
) -> None:
    commands = _TASKS.commands(**{column: kind})
    types: dict[str, pa.DataType] = {"tenant": pa.string(), "type": pa.string(), "payload": pa.binary()}
    arrow: dict[type[DataType], pa.DataType] = {
        StringType: pa.string(),
        LongType: pa.int64(),
        MapType: pa.map_(pa.string(), pa.int32()),
    }
    rows = [{**_TASKS.row, column: _TASKS.row.get(column)}, {**_TASKS.row, column: value}]
    rows[0][column] = rows[0][column] or None
    if column == "tenant":
        rows[0][column] = "t"
    schema = pa.schema({**types, column: arrow[type(kind)]})
    batch = pa.RecordBatch.from_pylist(rows, schema)
    if rows[0].get("resources", 1) is None:
        batch = pa.RecordBatch.from_pylist([{**rows[0], column: []}, rows[1]], schema)
    with pytest.raises(BadRowError, match=f"row 1 of partition 0, column {column}") as refused:
        list(commands.items(batch, 0))
    assert said in str(refused.value)
    assert len(str(refused.value)) < _WORDS_MAX


def test_deep_json_in_arguments_is_no_crash() -> None:
    assert "is no JSON" in _said(_CALLS, {"arguments": "[" * 1_000_000})


def test_two_columns_that_say_the_same_of_a_task_are_refused_by_row() -> None:
    for one, other in (("start_ms", "delay_ms"), ("deadline_ms", "ttl_ms")):
        commands = _TASKS.commands(**{one: LongType(), other: LongType()})
        rows = [{**_TASKS.row, one: 0, other: 5}, {**_TASKS.row, one: 7, other: 5}]
        with pytest.raises(BadRowError, match=f"row 1 of partition 0, column {one}: {other} is given too"):
            list(commands.items(pa.RecordBatch.from_pylist(rows), 0))


def test_bounds_of_tasks_are_those_of_the_broker() -> None:
    for name in ("PAYLOAD_BYTES_MAX", "NAME_BYTES_MAX", "RETRY_BYTES_MAX", "RESOURCES_MAX", "AMOUNT_MAX"):
        assert getattr(task_rows, name) == getattr(limits, name)
    for name in ("PRIORITY_MAX", "GROUP_MAX", "DURATION_MS_MAX", "TIME_MS_MAX"):
        assert getattr(task_rows, name) == getattr(limits, name)


def test_reals_that_no_number_is_are_written_as_they_are() -> None:
    """SQLite makes null of what is no number; the row is no bad one."""
    commands = _ROWS.commands(n=DoubleType())
    batch = pa.RecordBatch.from_pylist([{"id": 1, "name": "a", "n": float("nan")}])
    assert len(list(commands.items(batch, 0))) == 1
