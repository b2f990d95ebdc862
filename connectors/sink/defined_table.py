"""Tables of Spark's catalog that rows are written to: `CREATE TABLE … USING ledger OPTIONS (…, as 'map')`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from connectors.catalog_table import LONGEST_TEXT, DefinedColumn, query_options, table_schema
from connectors.errors import OptionError
from connectors.sink.columns import SinkColumn
from connectors.sink.command_rows import COMMAND_COLUMNS
from connectors.sink.commands import commands_of
from connectors.sink.described_table import with_table
from connectors.sink.log_rows import LOG_COLUMNS
from connectors.sink.map_rows import MAP_COLUMNS
from connectors.sink.options import RowKind, SinkOptions, parse_sink_options
from connectors.sink.service_rows import spark_type
from connectors.sink.table_rows import OPERATION, declared_type
from connectors.sink.task_rows import TASK_COLUMNS
from connectors.source.option_values import parse_columns

_COLUMNS_OPTION = "columns"
_OF_STATEMENTS = ("batch", "checkpoint", "takeOver")
# Strings are written as their UTF-8, and a binary value that is cast to one keeps its bytes.
_TYPES = ((StringType, "string"), (BooleanType, "boolean"), (LongType, "bigint"))
_RESOURCES = "map<string,bigint>"
_NO_OPTIONS = (
    "sink ledger is told neither option log nor as. A table of the catalog is written to where it was made with option "
    "as, and CREATE TABLE named no columns and no AS SELECT. Into one that has no column of texts, rows of the same "
    "names and types are written with its options again: INSERT INTO … WITH ('log' = …, 'as' = …)"
)
_KINDS: dict[RowKind, tuple[Mapping[str, SinkColumn], tuple[str, ...]]] = {
    RowKind.MAP: (MAP_COLUMNS, ("key", "value")),
    RowKind.TASKS: (TASK_COLUMNS, ("tenant", "type", "payload")),
    RowKind.COMMANDS: (COMMAND_COLUMNS, ("method", "arguments")),
    RowKind.LOG: (LOG_COLUMNS, ("payload", "key")),
}


def defined_schema(defined: Mapping[str, str]) -> StructType:
    """Return the schema of a table that `CREATE TABLE` makes.

    Args:
        defined: Its options, by names in lower case.

    Raises:
        OptionError: One is wrong, or belongs to a statement; or columns are left out that a row needs.

    """
    for name in _OF_STATEMENTS:
        if name.lower() in defined:
            raise OptionError(
                f"CREATE TABLE: option {name} belongs to a statement, since each has another: "
                f"INSERT INTO … WITH ('{name}' = …)"
            )
    kept = {name: value for name, value in defined.items() if name != _COLUMNS_OPTION}
    options = with_table(parse_sink_options(kept, is_stream=False))
    known, default = _columns_of(options)
    wanted = parse_columns(defined, _COLUMNS_OPTION) or default
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise OptionError(f"option columns names {name}: {hint}rows of as={options.kind} have {', '.join(known)}")
    commands_of(options, table_schema((DefinedColumn(name, known[name]) for name in wanted), kept))
    text = next((name for name in wanted if known[name] == "string"), None)
    columns = (DefinedColumn(name, LONGEST_TEXT if name == text else known[name]) for name in wanted)
    return table_schema(columns, kept)


def _columns_of(options: SinkOptions) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return all columns with their types, and the names of those that a table has unless it is told."""
    if options.table_fields:
        described = {one.name: spark_type(one) for one in options.table_fields}
        return {**described, OPERATION: "string"}, tuple(described)
    if options.kind is RowKind.TABLE:
        own = {one.name: declared_type(one.declared) for one in options.table_columns if not one.is_generated}
        return {**own, OPERATION: "string"}, tuple(own)
    columns, default = _KINDS[options.kind]
    return {name: _type_of(column) for name, column in columns.items()}, default


def _type_of(column: SinkColumn) -> str:
    return next((word for kind, word in _TYPES if kind in column.types), _RESOURCES)


def sink_options(given: Mapping[str, str], schema: StructType, *, is_stream: bool) -> SinkOptions:
    """Return the options of a query that writes: its own, and before them those of its table.

    Args:
        given: As Spark hands them over.
        schema: Of the rows.
        is_stream: Whether the query is a stream.

    Raises:
        OptionError: One is wrong or missing.

    """
    of_table, own = query_options(given, schema)
    if "as" not in of_table:
        of_table = {}  # The rows were read from a table: it is not the one to write to.
        if not own.keys() & {"log", "as"} and not is_stream:
            raise OptionError(_NO_OPTIONS)
    options = parse_sink_options(of_table | own, is_stream=is_stream)
    if of_table and options.writer and not is_stream and "batch" not in own:
        raise OptionError(
            f"writer {options.writer} of this table remembers its batches by their numbers: say which this one is, "
            "INSERT INTO … WITH ('batch' = '7'), another number for each"
        )
    return options
