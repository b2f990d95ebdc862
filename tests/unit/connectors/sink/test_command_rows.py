"""Rows of a frame as commands of any machine, each followed by the next."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from connectors.errors import BadRowError, OptionError
from connectors.sink.command_rows import COMMAND_BYTES_MAX, CallCommands
from connectors.sink.marks import BatchName, call_marks
from connectors.sink.options import RowKind, SinkOptions
from rsm_spark.core.typed_calls import is_json_call, split_call
from rsm_spark.core.writer_marks import DIGEST_BYTES, MAGIC, digest_after

OPTIONS = SinkOptions("bank", RowKind.COMMANDS, "w")


def _commands(*names: str) -> CallCommands:
    return CallCommands(OPTIONS, StructType([StructField(name, StringType()) for name in names]))


def _items(commands: CallCommands, **columns: Any) -> list[bytes]:
    return [item for item, _ in commands.items(pa.RecordBatch.from_pydict(columns), 1)]


def test_bytes_are_sent_as_they_are() -> None:
    assert _items(_commands("command"), command=[b"\x91\x01", b"x"]) == [b"\x91\x01", b"x"]
    assert _items(_commands("command"), command=["ü"]) == ["ü".encode()]


def test_methods_are_calls_in_json() -> None:
    calls = _items(_commands("method", "arguments"), method=["transfer", "close"], arguments=['{"amount": 5}', None])
    assert [is_json_call(call) for call in calls] == [True, True]
    assert [split_call(call, is_json=True) for call in calls] == [
        ("transfer", msgspec.Raw(b'{"amount": 5}')),
        ("close", msgspec.Raw(b"{}")),
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"command": [b"a", None]}, "row 1 of partition 1, column command: it is null"),
        ({"command": [b""]}, "row 0 of partition 1, column command: it is empty"),
        ({"command": [MAGIC + b"x"]}, "it is no command"),
        ({"command": [bytes(COMMAND_BYTES_MAX + 1)]}, "are the most"),
        ({"method": [None], "arguments": ["{}"]}, "column method: it is null"),
        ({"method": ["m"], "arguments": ["{"]}, "column arguments .key 'm'.: '{' is no JSON"),
        ({"method": ["m"], "arguments": ["[1]"]}, "is no JSON object"),
    ],
    ids=range(7),
)
def test_a_bad_row_is_named_before_its_batch_is_handed_on(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRowError, match=words):
        _items(_commands(*columns), **columns)


def test_a_frame_of_other_columns_is_refused_before_its_first_row() -> None:
    with pytest.raises(OptionError, match="neither a column command"):
        _commands("key", "value")
    with pytest.raises(OptionError, match="there is no column colour"):
        _commands("command", "colour")
    with pytest.raises(OptionError, match="there is no column command"):
        _commands("command", "method")
    with pytest.raises(OptionError, match="column command is int"):
        CallCommands(OPTIONS, StructType([StructField("command", IntegerType())]))


def test_each_call_follows_the_one_before() -> None:
    name = BatchName("w", "c", "r", 5)
    first, second = call_marks(name, 3, 7, bytes(DIGEST_BYTES), [b"a", b"b"])
    assert [(mark.part, mark.chunk, mark.row_count, mark.is_call) for mark in (first, second)] == [
        (3, 7, 1, True),
        (3, 8, 1, True),
    ]
    assert second.digest == digest_after(bytes(DIGEST_BYTES), b"a")
