"""The data source `ledger`: what Spark finds by name."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.spark.batch import LedgerBatchReader
from connectors.spark.options import Rows, parse_options
from connectors.spark.schema import RAW_ARROW, RAW_DDL, RECORDS_ARROW, RECORDS_DDL
from connectors.spark.stream import LedgerStreamReader

__all__ = ["LedgerSource"]


class LedgerSource(DataSource):
    """Logs and ledgers as a source; options in `connectors.spark.options`, columns in `connectors.spark.schema`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ledger"

    def schema(self) -> str:
        """Return the columns, which follow from the options.

        Raises:
            OptionError: An option is wrong.

        """
        options = parse_options(self.options, is_stream=None)
        return RECORDS_DDL if options.rows == Rows.RECORDS else RAW_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        self._check_schema(schema)
        return LedgerBatchReader(parse_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        self._check_schema(schema)
        return LedgerStreamReader(parse_options(self.options, is_stream=True))

    def _check_schema(self, schema: StructType) -> None:
        # In Arrow's types, which need no session; whether a column may be null does not matter here.
        arrow = RECORDS_ARROW if self.schema() == RECORDS_DDL else RAW_ARROW
        own = from_arrow_schema(arrow)
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
            raise OptionError("source ledger has columns of its own: leave out .schema(…) and select what you need")
