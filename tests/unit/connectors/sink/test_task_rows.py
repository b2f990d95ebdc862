"""Rows of a frame as the broker's commands, in its own bytes; a bad row is named before its batch is handed on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from broker.machine.commands import SubmitForTenants, SubmitTasks, TaskSpec
from broker.machine.limits import NAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from broker.machine.messages import decode_command, encode
from broker.machine.replies import Refusal, Refused, TasksSubmitted
from connectors.errors import BadRowError, OptionError
from connectors.sink import task_rows
from connectors.sink.options import RowKind, SinkOptions
from connectors.sink.task_rows import TaskCommands

OPTIONS = SinkOptions("tasks", RowKind.TASKS, "w")
TEXT = StringType()
RESOURCES = pa.map_(pa.string(), pa.int32())


def _commands(*names: str) -> TaskCommands:
    return TaskCommands(OPTIONS, StructType([StructField(name, TEXT) for name in ("tenant", "type", *names)]))


def _batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows))


def test_bounds_are_the_brokers() -> None:
    assert (task_rows.PAYLOAD_BYTES_MAX, task_rows.NAME_BYTES_MAX) == (PAYLOAD_BYTES_MAX, NAME_BYTES_MAX)


def test_rows_become_submits_of_their_tenants_in_order() -> None:
    commands = _commands()
    batch = pa.RecordBatch.from_pydict({
        "tenant": ["a", "b", "a"], "type": ["mail"] * 3, "payload": ["ü", "", None], "priority": [7, None, 1],
        "at_most_once": [True, None, False], "ttl_ms": [None, 9, 0], "slot": [None, "s", ""],
        "resources": pa.array([[("gpu", 2)], None, []], RESOURCES),
    })  # fmt: skip
    items = [item for item, _ in commands.items(batch, 0)]
    first = SubmitTasks("a", [TaskSpec("mail", "ü".encode(), True, None, 7, resources={"gpu": 2})])
    second = SubmitTasks("b", [TaskSpec("mail", slot="s", ttl_ms=9)])
    third = SubmitTasks("a", [TaskSpec("mail", priority=1)])
    assert decode_command(commands.command(items[:2])) == SubmitForTenants([first, second])
    joined = decode_command(commands.joined([commands.command(items[:2]), commands.command(items[2:])]))
    assert joined == SubmitForTenants([SubmitTasks("a", first.tasks + third.tasks), second])


def test_replies_are_understood() -> None:
    commands = _commands()
    assert commands.conflict_count(encode(TasksSubmitted(5, 7, [(1, 3)])), 9) == 2
    assert commands.conflict_count(b"", 9) == 0
    assert commands.is_busy(encode(Refused(Refusal.QUEUE_FULL, "wait")))
    assert not commands.is_busy(encode(Refused(Refusal.INVALID, "no")))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"tenant": None}, "row 2 of partition 4, column tenant: it is null"),
        ({"tenant": ""}, "column tenant: '' is no name"),
        ({"type": None}, "column type: it is null"),
        ({"type": "a\nb"}, "column type: .* is no name"),
        ({"slot": "x" * (NAME_BYTES_MAX + 1)}, "column slot: .* is no name"),
        ({"payload": bytes(10_000_000)}, "column payload: a payload of 10,000,000 bytes"),
        ({"ttl_ms": -1}, "column ttl_ms: -1 is no time"),
    ],
    ids=range(7),
)
def test_a_bad_row_is_named_and_nothing_of_its_batch_is_handed_on(row: dict[str, Any], words: str) -> None:
    commands = _commands()
    good = {"tenant": "a", "type": "mail", "payload": b"", "slot": "", "ttl_ms": 0}
    assert len(list(commands.items(_batch(good, good), 4))) == 2
    with pytest.raises(BadRowError, match=words):
        next(commands.items(_batch({**good, **row}), 4))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tenant": TEXT}, "column type is missing"),
        ({"tenant": TEXT, "type": TEXT, "colour": TEXT}, "there is no column colour"),
        ({"tenant": TEXT, "type": IntegerType()}, "column type is int, it must be string"),
        ({"tenant": TEXT, "type": TEXT, "priority": TEXT}, "column priority is string, it must be int"),
        ({"tenant": TEXT, "type": TEXT, "resources": MapType(TEXT, TEXT)}, "it must be map<string,int>"),
        ({f"c{number}": LongType() for number in range(10_000)}, "column tenant is missing"),
    ],
    ids=range(6),
)
def test_a_frame_of_other_columns_is_refused_before_its_first_row(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        TaskCommands(OPTIONS, StructType([StructField(name, kind) for name, kind in fields.items()]))
    assert len(str(refused.value)) < 1_000
