"""Tables of Spark's catalog that rows are written to."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from connectors.catalog_table import LONGEST_TEXT, DefinedColumn, query_options, table_schema
from connectors.errors import OptionError
from connectors.sink.defined_table import defined_schema, sink_options
from connectors.sink.format import LedgerFormat
from connectors.sink.options import RowKind
from connectors.sink.table_rows import declared_type


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"as": "map"}, "key string, value string"),
        ({"as": "map", "columns": "key, value, delete"}, "key string, value string, delete boolean"),
        ({"as": "map", "columns": "value,key,ttl_ms"}, "value string, key string, ttl_ms bigint"),
        ({"as": "tasks"}, "tenant string, type string, payload string"),
        (
            {"as": "tasks", "columns": "tenant,type,resources"},
            "tenant string, type string, resources map<string,bigint>",
        ),
        ({"as": "commands"}, "method string, arguments string"),
        ({"as": "commands", "columns": "command"}, "command string"),
        ({"as": "log", "gateway": "http://h:1", "writer": "w"}, "payload string, key string"),
    ],
)  # fmt: skip
def test_columns_are_those_that_a_row_needs_or_that_are_named(options: dict[str, str], columns: str) -> None:
    schema = defined_schema({"log": "totals", **options})
    told = ", ".join(f"{name} {kind}" for name, kind in _columns(schema))
    assert told == columns.replace("string", LONGEST_TEXT, 1), "one column is of a type that no frame has"
    of_table, _ = query_options({}, schema)
    assert of_table == {"log": "totals", **{key: value for key, value in options.items() if key != "columns"}}
    assert sink_options({"batch": "0"} if "writer" in options else {}, schema, is_stream=False).kind == options["as"]
    with pytest.raises(OptionError, match="is told neither option log nor as"):
        sink_options({}, StructType(), is_stream=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"as": "map", "columns": "key,valeu"}, "option columns names valeu: did you mean value"),
        ({"as": "map", "columns": "key,ttl_ms"}, "column value is missing"),
        ({"as": "maps"}, "option as is 'maps'"),
        ({"as": "map", "writer": "w", "batch": "7"}, "option batch belongs to a statement"),
        ({"as": "map", "writer": "w", "takeover": "x"}, "option takeOver belongs to a statement"),
        ({"as": "log"}, "option gateway is missing"),
    ],
)
def test_what_no_table_can_have_is_told_when_it_is_made(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        defined_schema({"log": "totals", **options})


def test_a_table_with_a_writer_wants_the_number_of_each_batch() -> None:
    schema = defined_schema({"log": "totals", "as": "map", "writer": "job-7"})
    with pytest.raises(OptionError, match="writer job-7 of this table remembers its batches by their numbers"):
        sink_options({}, schema, is_stream=False)
    assert sink_options({"batch": "7"}, schema, is_stream=False).batch == 7


def test_rows_that_were_read_from_a_table_are_not_written_back_by_its_options() -> None:
    read = table_schema([DefinedColumn("key", "binary"), DefinedColumn("value", "binary")], {"log": "orders"})
    with pytest.raises(OptionError, match="name the log to write to"):
        sink_options({"as": "map"}, read, is_stream=False)
    with pytest.raises(OptionError, match="is told neither option log nor as"):
        sink_options({}, read, is_stream=False)
    assert sink_options({"log": "totals", "as": "map"}, read, is_stream=False).log == "totals"


def test_a_table_to_write_to_is_not_read() -> None:
    schema = defined_schema({"log": "totals", "as": "map"})
    with pytest.raises(OptionError, match="this table is one to write to"):
        LedgerFormat({}).reader(schema)


def test_columns_of_a_query_are_selected() -> None:
    with pytest.raises(OptionError, match="option columns only works in CREATE TABLE: select what is to be written"):
        sink_options({"log": "totals", "as": RowKind.MAP, "columns": "key"}, StructType(), is_stream=False)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("BIGINT", "bigint"), ("VARCHAR(40)", "string"), ("NUMERIC(10, 2)", "decimal(10,2)"),
        ("NUMERIC", "decimal(38,18)"), ("DECIMAL(5)", "decimal(5,0)"), ("NUMERIC(60,4)", "decimal(38,4)"),
        ("TIMESTAMPTZ", "timestamp"), ("DATE", "date"), ("BOOLEAN", "boolean"), ("REAL", "double"), ("BLOB", "binary"),
        ("", "string"),
    ],
)  # fmt: skip
def test_a_column_of_an_sql_table_has_a_type_that_it_takes(declared: str, kind: str) -> None:
    assert declared_type(declared) == kind
