"""The guide for those who come from Kafka's and Delta's sinks names options and columns that there are."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql.types import BinaryType, StructType

from connectors.sink.log_rows import LogCommands
from connectors.sink.option_table import SINK_OPTION_NAMES
from connectors.sink.options import parse_sink_options

TEXT = (Path(__file__).parents[4] / "docs" / "guides" / "from-kafka-and-delta-sinks.md").read_text()
_COLUMNS = {"key", "payload", "expected"}


def test_every_option_of_the_mapping_exists() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and " | " in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(rows) > 10
    named = {name for _, ours, _ in rows for name in re.findall(r"`(\w+)`", ours)} - _COLUMNS
    assert {"gateway", "log", "writer", "batch", "timeout"} <= named
    assert named <= set(SINK_OPTION_NAMES)


def test_the_options_and_columns_of_the_example_are_understood() -> None:
    given = dict(re.findall(r'\.option\("(\w+)", (.*?)\)', TEXT))
    values = {"GATEWAYS": "http://a:8090", "LOG": "visits", "CHECKPOINT": "/x"}
    options = parse_sink_options(
        {name: values.get(text, text.strip('"')) for name, text in given.items()}, is_stream=True
    )
    assert (options.log, options.writer) == ("visits", "visits-job")
    frame = StructType().add("key", BinaryType()).add("payload", BinaryType())
    assert LogCommands(options, frame).limits.chunk_rows
