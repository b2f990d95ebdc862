"""The data source `ledger`: what Spark finds by name.

Spark imports this module in a process of its own for every look-up and every plan: what only a reader needs is imported
where the reader is made.
"""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.spark.options import Rows, parse_options
from connectors.spark.schema import RAW_DDL, RECORDS_DDL

__all__ = ["LedgerSource"]

_SPARK_MIN = (4, 2)

if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _SPARK_MIN:
    raise ImportError(
        f"pyspark {pyspark.__version__} is too old: limits and Trigger.AvailableNow need Spark 4.2 for Python sources"
    )


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
        from connectors.spark.batch import LedgerBatchReader  # noqa: PLC0415 - see the module

        self._check_schema(schema)
        return LedgerBatchReader(parse_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        from connectors.spark.stream import LedgerStreamReader  # noqa: PLC0415 - see the module

        self._check_schema(schema)
        return LedgerStreamReader(parse_options(self.options, is_stream=True))

    def _check_schema(self, schema: StructType) -> None:
        own = [column.rsplit(" ", 1) for column in self.schema().split(", ")]
        given = [[field.name, field.dataType.simpleString()] for field in schema]
        if given != own:
            raise OptionError("source ledger has columns of its own: leave out .schema(…) and select what you need")
