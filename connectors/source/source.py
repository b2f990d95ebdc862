"""The data source `ledger`: what Spark finds by name.

Spark imports this module in a process of its own for every look-up and every plan: what only a reader needs is imported
where the reader is made.
"""

from __future__ import annotations

import msgspec
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.source.options import BadRecords, Rows, SourceOptions, parse_options
from connectors.source.row_plan import fixed_columns
from connectors.source.schema import RowColumn, check_table_schema, ddl_of, names_before, pick_columns

_SPARK_MIN = (4, 2)
_PARTITION_MAX = 2**31 - 1

if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _SPARK_MIN:
    raise ImportError(
        f"pyspark {pyspark.__version__} is too old: limits and Trigger.AvailableNow need Spark 4.2 for Python sources"
    )


class LedgerSource(DataSource):
    """Logs and ledgers as a source; options in `connectors.source.options`, columns in `connectors.source.schema`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ledger"

    def schema(self) -> str:
        """Return the columns. They follow from the options; those of rows=table from the log, which is looked at.

        Raises:
            OptionError: An option is wrong.
            NoSuchLogError: With rows=table: there is no such log.

        """
        options = parse_options(self.options, is_stream=None)
        columns = _columns(options)
        if columns is None:
            from connectors.source.described import described_columns  # noqa: PLC0415 - see the module

            columns = _picked(described_columns(options), options)
        return ddl_of(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from connectors.source.batch import batch_reader  # noqa: PLC0415 - see the module

        return batch_reader(_fixed(parse_options(self.options, is_stream=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from connectors.source.stream import LedgerStreamReader  # noqa: PLC0415 - see the module

        return LedgerStreamReader(_fixed(parse_options(self.options, is_stream=True), schema))


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
