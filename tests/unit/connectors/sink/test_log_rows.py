"""Rows as records of a plain log: columns, bounds, chunks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from connectors.errors import BadRowError, OptionError
from connectors.sink.log_rows import ROW_BYTES_MAX, LogCommands, behind_the_log, first_by_txid, rows_of
from connectors.sink.options import parse_sink_options
from rsm_spark.core.plain_log import TransactionIdError

_OPTIONS = {"log": "visits", "as": "log", "gateway": "http://a:1, http://b:2", "writer": "job"}


_TYPES: dict[str, DataType] = {"string": StringType(), "binary": BinaryType(), "long": LongType()}


def _commands(schema: str) -> LogCommands:
    fields = [StructField(name, _TYPES[kind]) for name, kind in map(str.split, schema.split(","))]
    return LogCommands(parse_sink_options(_OPTIONS, is_stream=True), StructType(fields))


def test_rows_are_keys_and_payloads_in_order() -> None:
    commands = _commands("key string, payload binary")
    batch = pa.RecordBatch.from_pydict({"key": ["a", None], "payload": [b"1", b""]})
    rows = [row for row, _ in commands.items(batch, 0)]
    assert rows == [(b"a", b"1", None), (None, b"", None)]
    command = commands.joined([commands.command(rows), commands.command(rows[:1])])
    assert [tuple(row) for row in rows_of(command)] == [*rows, rows[0]]
    assert rows_of(b"") == []
    bare = _commands("payload string")
    assert [row for row, _ in bare.items(pa.RecordBatch.from_pydict({"payload": ["é"]}), 0)] == [
        (None, "é".encode(), None)
    ]


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
    with pytest.raises(OptionError, match="column txid is string, it must be int or bigint"):
        _commands("payload binary, txid string")


def _txids(*txids: int | None) -> pa.RecordBatch:
    payloads = [b"%d" % number for number in range(len(txids))]
    return pa.RecordBatch.from_pydict({"payload": payloads, "txid": pa.array(txids, pa.int64())})


def test_rows_have_transaction_ids_that_do_not_fall_along_their_part() -> None:
    commands = _commands("payload binary, txid long")
    assert commands.is_ordered
    assert not _commands("payload binary").is_ordered
    rows = [row for row, _ in commands.items(_txids(3, 3, 8), 0)]
    assert [row[2] for row in rows] == [3, 3, 8]
    for batch, said in (
        (_txids(8, 7), "row 4 of partition 0, column txid: 7 is below 8, that of the row before"),
        (_txids(None), "row 3 of partition 0, column txid: it is null"),
        (_txids(-1), "row 3 of partition 0, column txid: -1: transaction ids are numbers from 0"),
    ):
        with pytest.raises(BadRowError, match=said):
            next(commands.items(batch, 0))
    assert [row[2] for row, _ in commands.items(_txids(1), 1)] == [1], "each part has an order of its own"


def test_parts_of_a_small_batch_are_put_in_order_and_the_first_row_is_known() -> None:
    commands = _commands("payload binary, txid long")
    parts = [
        (0, [commands.command([(None, b"a", 5), (None, b"b", 9)])]),
        (1, [commands.command([(None, b"c", 7)]), commands.command([(b"k", b"d", 2), (None, b"e", 9)])]),
    ]
    joined = rows_of(commands.joined([command for _, some in parts for command in some]))
    assert [bytes(row[1]) for row in joined] == [b"d", b"a", b"c", b"b", b"e"]
    part, row, command = first_by_txid(parts)
    error = behind_the_log(part, row, command, TransactionIdError("log visits: it must be 4"))
    assert str(error).startswith(
        "row 1 of partition 1, column txid (key b'k'): 2 is below what the log has already (log"
    )
