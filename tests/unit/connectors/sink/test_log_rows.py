"""Rows as records of a plain log: columns, bounds, chunks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from connectors.errors import BadRowError, OptionError
from connectors.sink.log_rows import ROW_BYTES_MAX, LogCommands, rows_of
from connectors.sink.options import parse_sink_options

_OPTIONS = {"log": "visits", "as": "log", "gateway": "http://a:1, http://b:2", "writer": "job"}


_TYPES: dict[str, DataType] = {"string": StringType(), "binary": BinaryType(), "long": LongType()}


def _commands(schema: str) -> LogCommands:
    fields = [StructField(name, _TYPES[kind]) for name, kind in map(str.split, schema.split(","))]
    return LogCommands(parse_sink_options(_OPTIONS, is_stream=True), StructType(fields))


def test_rows_are_keys_and_payloads_in_order() -> None:
    commands = _commands("key string, payload binary")
    batch = pa.RecordBatch.from_pydict({"key": ["a", None], "payload": [b"1", b""]})
    rows = [row for row, _ in commands.items(batch, 0)]
    assert rows == [(b"a", b"1"), (None, b"")]
    command = commands.joined([commands.command(rows), commands.command(rows[:1])])
    assert [tuple(row) for row in rows_of(command)] == [*rows, rows[0]]
    assert rows_of(b"") == []
    bare = _commands("payload string")
    assert [row for row, _ in bare.items(pa.RecordBatch.from_pydict({"payload": ["é"]}), 0)] == [(None, "é".encode())]


def test_a_bad_row_is_named_and_none_of_its_batch_is_yielded() -> None:
    commands = _commands("payload binary")
    list(commands.items(pa.RecordBatch.from_pydict({"payload": [b"a", b"b"]}), 3))
    null = pa.RecordBatch.from_pydict({"payload": pa.array([b"c", None], pa.binary())})
    with pytest.raises(BadRowError, match="row 3 of partition 3, column payload: it is null"):
        next(commands.items(null, 3))
    large = pa.RecordBatch.from_pydict({"payload": [bytes(ROW_BYTES_MAX + 1)]})
    with pytest.raises(BadRowError, match="4,000,001 bytes"):
        next(commands.items(large, 0))


def test_what_a_log_needs_is_asked_for() -> None:
    assert parse_sink_options(_OPTIONS, is_stream=True).gateways == ("http://a:1", "http://b:2")
    for missing, is_stream in (("gateway", False), ("writer", True)):
        given = {name: value for name, value in _OPTIONS.items() if name != missing}
        with pytest.raises(OptionError, match=f"option {missing} is missing"):
            parse_sink_options(given, is_stream=is_stream)
    with pytest.raises(OptionError, match="option gateway only works with as=log"):
        parse_sink_options({**_OPTIONS, "as": "map"}, is_stream=True)
    with pytest.raises(OptionError, match="column payload is missing"):
        _commands("key binary")
    with pytest.raises(OptionError, match="there is no column txid"):
        _commands("payload binary, txid long")
