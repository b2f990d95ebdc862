"""The guide for those who come from Kafka names options and columns that there are."""

from __future__ import annotations

import re
from pathlib import Path

from connectors.source.option_table import OPTION_NAMES
from connectors.source.options import parse_options
from connectors.source.schema import KAFKA_COLUMNS, KAFKA_HEADERS

TEXT = (Path(__file__).parents[4] / "docs" / "guides" / "from-kafka.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `")]


def test_every_option_of_the_mapping_exists() -> None:
    assert len(ROWS) > 10
    for theirs, ours, _ in ROWS:
        if ours == "-":
            continue
        named = re.findall(r"`([\w.]+)`", theirs if ours == "the same" else ours)
        assert named
        assert set(named) <= set(OPTION_NAMES), theirs


def test_the_columns_are_those_of_the_source() -> None:
    (listed,) = re.findall(r"the Kafka source's columns: (.*?) with `includeHeaders`", TEXT, re.DOTALL)
    assert re.findall(r"`(\w+)`", listed) == [column.name for column in (*KAFKA_COLUMNS, KAFKA_HEADERS)]


def test_the_options_of_the_example_are_understood() -> None:
    given = dict(re.findall(r'\.option\("(\w+)", (.*?)\)', TEXT))
    values = {"METADATA_URI": "zk+hierarchical://h:1/ledgers", "LOG": "orders"}
    options = parse_options({name: values.get(text, text.strip('"')) for name, text in given.items()}, is_stream=True)
    assert (options.log, options.rows) == ("orders", "kafka")
