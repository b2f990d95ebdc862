"""Options of a table of Spark's catalog: told once, kept in its schema, handed back by each query."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from connectors.catalog_table import DefinedColumn, defined_options, query_options, table_schema
from connectors.errors import OptionError
from connectors.sink.format import LedgerFormat
from connectors.source.schema import KAFKA_COLUMNS, KAFKA_HEADERS, RAW_COLUMNS, RECORD_COLUMNS, names_before
from connectors.state.source import LedgerStateSource

_OF_SPARK = {"provider": "ledger", "owner": "ann", "is_managed_location": "true", "a.property": "x"}


def _made(**options: str) -> dict[str, str]:
    """Return what Spark tells a source when a table is made."""
    return {**_OF_SPARK, **options, **{f"option.{key}": value for key, value in options.items()}}


def _stored(schema: StructType | str) -> StructType:
    """Return a schema as the catalog gives it back."""
    assert isinstance(schema, StructType)
    return StructType.fromJson(schema.jsonValue())


def test_only_options_of_the_table_are_taken() -> None:
    assert defined_options({"log": "orders", "startingOffsets": "earliest"}) is None
    assert defined_options({"owner": "ann"}) is None, "an unknown option of a query"
    assert defined_options(_OF_SPARK) == {}
    assert defined_options(_made(log="orders", startingoffsets="earliest")) == {
        "log": "orders", "startingoffsets": "earliest",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [("storageoption.aws_secret_access_key", "hidden"), ("lake", "s3://ann:hidden@bucket/lake")],
)
def test_a_secret_is_refused_without_telling_it(key: str, value: str) -> None:
    with pytest.raises(OptionError, match=rf"CREATE TABLE: option {key} holds a secret") as raised:
        defined_options(_made(log="orders", **{key: value}))
    assert "hidden" not in str(raised.value)


def test_every_type_of_a_column_is_kept() -> None:
    kinds = ["binary", "bigint", "int", "double", "boolean", "string", "date", "timestamp", "decimal(10,2)"]
    kinds += ["array<decimal(3,1)>", "map<string,binary>", KAFKA_HEADERS.type]
    schema = _stored(table_schema((DefinedColumn(f"c{n}", kind) for n, kind in enumerate(kinds)), {"log": "x"}))
    assert [field.dataType.simpleString() for field in schema] == kinds


def test_a_query_is_told_what_its_table_was_made_with() -> None:
    schema = _stored(table_schema([DefinedColumn("a", "int", 'was ["b"]'), DefinedColumn("c", "int")], {"log": "x"}))
    assert names_before(schema[0].metadata["comment"]) == ("b",)
    assert query_options({}, schema) == ({"log": "x"}, {})
    assert query_options({"endingOffsets": "5"}, schema) == ({"log": "x"}, {"endingoffsets": "5"})
    # Metadata go with columns into frames that are none of the table.
    assert query_options({"LOG": "y", "as": "map"}, schema) == ({}, {"log": "y", "as": "map"})
    assert query_options({"log": "x"}, StructType()) == ({}, {"log": "x"})


@pytest.mark.parametrize(
    ("rows", "columns"),
    [("raw", RAW_COLUMNS), ("records", RECORD_COLUMNS), ("kafka", KAFKA_COLUMNS)],
)
def test_a_table_of_the_source_is_read_in_batches_and_streams(rows: str, columns: tuple[object, ...]) -> None:
    made = _made(log="orders", rows=rows, maxoffsetspertrigger="5", endingoffsets="latest")
    schema = _stored(LedgerFormat(made).schema())
    assert [(field.name, field.dataType.simpleString(), ()) for field in schema] == list(columns)
    source = LedgerFormat({})
    batch = source._parsed(schema, is_stream=False)
    stream = LedgerFormat({"startingoffsets": "earliest"})._parsed(schema, is_stream=True)
    assert (batch.log, batch.offsets_per_trigger_max) == ("orders", None)
    assert (stream.log, stream.offsets_per_trigger_max) == ("orders", 5)
    assert source.reader(schema) is not None
    assert source.streamReader(schema) is not None


def test_a_table_that_kept_no_options_says_how_to_make_it() -> None:
    schema = StructType().add("key", "binary")
    for query in (LedgerFormat({}).reader, LedgerFormat({}).streamReader):
        with pytest.raises(OptionError, match="keeps its options where CREATE TABLE names no columns"):
            query(schema)


def test_a_wrong_option_is_told_when_the_table_is_made() -> None:
    with pytest.raises(OptionError, match="unknown option startingofset: did you mean startingOffsets"):
        LedgerFormat(_made(log="orders", startingofset="earliest")).schema()
    with pytest.raises(OptionError, match="none of them is set"):
        LedgerFormat(_OF_SPARK).schema()
    with pytest.raises(OptionError, match="option log is missing"):
        LedgerStateSource(_OF_SPARK).schema()


def test_a_table_of_the_state_has_its_options_too() -> None:
    schema = _stored(LedgerStateSource(_made(log="orders", asofrevision="7")).schema())
    assert schema.names == ["table_name", "key", "row", "revision"]
    assert LedgerStateSource({}).reader(schema) is not None
    with pytest.raises(OptionError, match="no longer those of its log: make it anew"):
        LedgerStateSource({}).reader(StructType(schema.fields[:3]))
