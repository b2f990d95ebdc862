"""Options of the sink: what is wrong is told before anything is written."""

from __future__ import annotations

import pytest

from connectors.errors import OptionError
from connectors.sink.option_table import SINK_OPTION_NAMES
from connectors.sink.options import RowKind, SinkOptions, parse_sink_options

GOOD = {"log": "orders", "as": "map", "writer": "job-7"}


def test_options_are_read_whatever_their_case() -> None:
    options = {
        "LOG": "orders",
        "as": "map",
        "Writer": "job-7",
        "takeover": "old",
        "CONFLICTPREFIX": "c/",
        "timeout": "5m",
        "metadataUri": "zk+hierarchical://h:1/ledgers",
        "rsmRoot": "/other/",
        "checkpointLocation": "/somewhere",
    }
    wanted = SinkOptions(
        log="orders", kind=RowKind.MAP, writer="job-7", take_over="old", conflict_prefix=b"c/", patience_s=300.0,
        metadata_uri="zk+hierarchical://h:1/ledgers", rsm_root="/other",
    )  # fmt: skip
    assert parse_sink_options(options, is_stream=True) == wanted


def test_a_batch_needs_no_writer_and_may_be_numbered() -> None:
    assert parse_sink_options({"log": "o", "as": "map"}, is_stream=False).writer == ""
    numbered = parse_sink_options({**GOOD, "batch": "12", "checkpoint": "q"}, is_stream=False)
    assert (numbered.batch, numbered.checkpoint) == (12, "q")


@pytest.mark.parametrize(
    ("changes", "is_stream", "words"),
    [
        ({"log": ""}, True, "option log is ''"),
        ({"log": "a/b"}, True, "without a slash"),
        ({"as": "rows"}, True, "option as is 'rows'"),
        ({"as": "table"}, True, "option table is missing"),
        ({"table": "item"}, True, "as=map has none"),
        ({"writer": ""}, True, "option writer is missing"),
        ({"writer": "x" * 201}, False, "option writer"),
        ({"takeOver": "a\nb"}, False, "option takeOver"),
        ({"batch": "1"}, True, "option batch only works with df.write"),
        ({"batch": "-1"}, False, "option batch is '-1'"),
        ({"batch": "1", "writer": ""}, False, "option batch needs option writer"),
        ({"wirter": "x"}, True, "unknown option wirter: did you mean writer"),
        ({"checkpointLocation": "/x"}, False, "unknown option checkpointLocation"),
        ({"timeout": "5"}, True, "option timeout"),
        ({"rsmRoot": "rsm"}, True, "option rsmRoot"),
        ({"conflictPrefix": "x" * 1025}, True, "option conflictPrefix"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], is_stream: bool, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_sink_options({**GOOD, **changes}, is_stream=is_stream)


def test_as_must_be_said() -> None:
    with pytest.raises(OptionError, match="option as is missing"):
        parse_sink_options({"log": "o"}, is_stream=False)


def test_each_option_is_known_by_its_name() -> None:
    assert len(set(SINK_OPTION_NAMES)) == len(SINK_OPTION_NAMES)
