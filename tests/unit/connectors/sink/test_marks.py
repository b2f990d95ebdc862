"""What a driver sends at the end of a batch."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from connectors.errors import OptionError
from connectors.sink.log_rows import LogCommands, rows_of
from connectors.sink.map_rows import MapCommands
from connectors.sink.marks import BatchName, PartMessage, begin_mark, end_marks, forget_mark
from connectors.sink.options import RowKind, SinkOptions
from rsm_spark.core.writer_marks import MarkKind, digest_of
from rsm_spark.map.commands import RowWrite, WriteRows
from rsm_spark.map.messages import decode_command

NAME = BatchName("w", "c", "r", 5, "old")
SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])
COMMANDS = MapCommands(SinkOptions("log", RowKind.MAP, "w"), SCHEMA)


def _kept(part: int, *keys: bytes, size: int = 10) -> PartMessage:
    kept = (COMMANDS.command([RowWrite(key, b"v") for key in keys]),) if keys else ()
    return PartMessage(NAME, part, len(keys), size, 0, kept, 0)


def test_parts_that_are_all_kept_are_one_command() -> None:
    (mark,) = end_marks([_kept(1, b"b"), _kept(0, b"a"), _kept(2)], COMMANDS)
    assert (mark.kind, mark.row_count, mark.takes_over_from) == (MarkKind.WHOLE, 2, "old")
    assert decode_command(mark.payload) == WriteRows([RowWrite(b"a", b"v"), RowWrite(b"b", b"v")])


def test_a_batch_without_rows_ends_too() -> None:
    (mark,) = end_marks([_kept(0)], COMMANDS)
    assert (mark.kind, mark.payload) == (MarkKind.WHOLE, b"")


def test_where_a_part_was_sent_the_others_are_chunks_and_the_end_names_all() -> None:
    sent = PartMessage(NAME, 0, 9_000, 900, 3, (), 0)
    chunk, end = end_marks([_kept(1, b"b"), sent, _kept(2)], COMMANDS)
    assert (chunk.kind, chunk.part, chunk.chunk, chunk.row_count) == (MarkKind.CHUNK, 1, 0, 1)
    assert chunk.digest == digest_of(chunk.payload)
    assert (end.kind, end.parts, end.row_count) == (MarkKind.END, ((0, 3), (1, 1)), 9_001)


def test_what_does_not_fit_one_command_is_sent_in_parts() -> None:
    too_large = [_kept(0, b"a", size=COMMANDS.limits.whole_bytes), _kept(1, b"b")]
    assert [mark.kind for mark in end_marks(too_large, COMMANDS)] == [MarkKind.CHUNK, MarkKind.CHUNK, MarkKind.END]
    too_many = [PartMessage(NAME, 0, COMMANDS.limits.whole_rows, 1, 0, _kept(0, b"a").kept, 0), _kept(1, b"b")]
    assert [mark.kind for mark in end_marks(too_many, COMMANDS)] == [MarkKind.CHUNK, MarkKind.CHUNK, MarkKind.END]


def test_rows_with_an_order_are_one_command_or_of_one_part() -> None:
    schema = StructType([StructField("payload", BinaryType()), StructField("txid", LongType())])
    commands = LogCommands(SinkOptions("log", RowKind.LOG, "w"), schema)

    def kept(part: int, *txids: int, size: int = 10) -> PartMessage:
        return PartMessage(
            NAME, part, len(txids), size, 0, (commands.command([(None, b"x", one) for one in txids]),), 0
        )

    (mark,) = end_marks([kept(0, 7, 9), kept(1, 8)], commands)
    assert (mark.kind, [row[2] for row in rows_of(mark.payload)]) == (MarkKind.WHOLE, [7, 8, 9])
    sent = PartMessage(NAME, 0, 20_000, 900, 4, (), 0)
    (end,) = end_marks([sent, PartMessage(NAME, 1, 0, 0, 0, (), 0)], commands)
    assert (end.kind, end.parts) == (MarkKind.END, ((0, 4),))
    for messages in ([sent, kept(1, 8)], [kept(0, 1, size=commands.limits.whole_bytes), kept(1, 8)]):
        with pytest.raises(OptionError, match="coalesce"):
            list(end_marks(messages, commands))


def test_messages_travel_as_spark_sends_them() -> None:
    message = _kept(0, b"a")
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301 - our own bytes


def test_a_passing_writer_begins_and_is_forgotten() -> None:
    name = NAME._replace(is_passing=True)
    assert (begin_mark(name).kind, begin_mark(name).is_passing) == (MarkKind.BEGIN, True)
    assert forget_mark(name).kind == MarkKind.FORGET
    (mark,) = end_marks([PartMessage(name, 0, 0, 0, 0, (), 0)], COMMANDS)
    assert mark.is_passing
