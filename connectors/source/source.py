"""The data source `ledger`: what Spark finds by name.

Spark imports this module in a process of its own for every look-up and every plan: what only a reader needs is imported
where the reader is made.
"""

from __future__ import annotations

from functools import partial

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from connectors.catalog_table import DefinedColumn, defined_options, query_options, table_schema
from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.source.option_table import OPTIONS
from connectors.source.options import BadRecords, Rows, SourceOptions, parse_options
from connectors.source.row_plan import fixed_columns
from connectors.source.schema import RowColumn, check_table_schema, comment_of, ddl_of, names_before, pick_columns

# Spark 4.2 tells Python sources limits, and where a micro-batch begins; 4.0 and 4.1 do not.
HAS_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
_PARTITION_MAX = 2**31 - 1
_NO_OPTIONS = (
    "source ledger is told no option: give exactly one of the options log, logPattern and ledgers. A table of the "
    "catalog keeps its options where CREATE TABLE names no columns, and no AS SELECT: make it anew so"
)


@tells_plainly("schema", "reader", "streamReader")
class LedgerSource(DataSource):
    """Logs and ledgers as a source; options in `connectors.source.options`, columns in `connectors.source.schema`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ledger"

    def schema(self) -> StructType | str:
        """Return the columns. They follow from the options; those of rows=table from the log, which is looked at.

        Of a table that is made in the catalog the schema carries the options too.

        Raises:
            OptionError: An option is wrong.
            NoSuchLogError: With rows=table: there is no such log.

        """
        defined = defined_options(self.options)
        options = parse_options(self.options if defined is None else defined, is_stream=None)
        columns = _columns(options)
        if columns is None:
            from connectors.source.described import described_columns  # noqa: PLC0415 - see the module

            columns = _picked(described_columns(options), options)
        if defined is None:
            return ddl_of(columns)
        return table_schema((DefinedColumn(one.name, one.type, comment_of(one.was)) for one in columns), defined)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from connectors.source.batch import batch_reader  # noqa: PLC0415 - see the module

        return batch_reader(_fixed(self._parsed(schema, is_stream=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        if not HAS_LIMITS:
            from connectors.source.whole_stream import WholeStreamReader  # noqa: PLC0415 - see the module

            return WholeStreamReader(partial(self._stream_options, schema))
        from connectors.source.stream import LedgerStreamReader  # noqa: PLC0415 - see the module

        return LedgerStreamReader(self._stream_options(schema))

    def _stream_options(self, schema: StructType) -> SourceOptions:
        return _fixed(self._parsed(schema, is_stream=True), schema)

    def _parsed(self, schema: StructType, *, is_stream: bool) -> SourceOptions:
        """Return the options of a query: its own, and before them those of its table."""
        of_table, own = query_options(self.options, schema)
        if "as" in of_table:
            raise OptionError(
                f"this table is one to write to (as={of_table['as']}): what its log holds is read by another table, "
                "USING ledger without option as, or USING ledger_state"
            )
        if not of_table and not own:
            raise OptionError(_NO_OPTIONS)
        # A table is read by batches and by streams: each leaves to the other what only that one may have.
        others = {one.name.lower() for one in OPTIONS if one.applies == ("batch" if is_stream else "stream")}
        return parse_options({key: of_table[key] for key in of_table.keys() - others} | own, is_stream=is_stream)


def _columns(options: SourceOptions) -> tuple[RowColumn, ...] | None:
    """Return the columns that the options tell; None if only the log does."""
    if options.rows == Rows.KAFKA and any(ledger_id > _PARTITION_MAX for ledger_id in options.ledger_ids):
        raise OptionError(
            f"option rows=kafka: ledger {options.ledger_ids[-1]} does not fit column partition, which is an int as in "
            "Spark's Kafka source; use rows=raw"
        )
    columns = fixed_columns(options)
    return None if columns is None else _picked(columns, options)


def _picked(columns: tuple[RowColumn, ...], options: SourceOptions) -> tuple[RowColumn, ...]:
    return pick_columns(columns, options.columns, has_errors=options.bad_records == BadRecords.COLUMN)


def _fixed(options: SourceOptions, schema: StructType) -> SourceOptions:
    """Return the options with the columns of the query, which do not change while it runs.

    Raises:
        OptionError: They are not ours.

    """
    given = tuple(
        RowColumn(field.name, field.dataType.simpleString(), names_before(field.metadata.get("comment")))
        for field in schema
    )
    own = _columns(options)
    if own is None:
        check_table_schema(given)
    elif given != own:
        raise OptionError("source ledger has columns of its own: leave out .schema(…) and select what you need")
    return msgspec.structs.replace(options, row_columns=given)
