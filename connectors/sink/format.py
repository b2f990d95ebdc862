"""The format `ledger`, to read and to write: what Spark finds by name. Kept light, as `connectors.source.source` is."""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from connectors.catalog_table import defined_options
from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.source.source import HAS_LIMITS, LedgerSource


@tells_plainly("schema", "writer", "streamWriter")
class LedgerFormat(LedgerSource):
    """Logs and ledgers as a source, and logs as a sink; options of the sink in `connectors.sink.options`."""

    def schema(self) -> StructType | str:
        """Return the columns; see `LedgerSource.schema`. Of a table to write to, those of its rows."""
        defined = defined_options(self.options)
        if defined is None or "as" not in defined:
            return super().schema()
        from connectors.sink.defined_table import defined_schema  # noqa: PLC0415 - see the module

        return defined_schema(defined)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch; options in `connectors.sink.options`.

        Raises:
            OptionError: An option or a column is wrong.

        """
        _check_spark()
        from connectors.sink.defined_table import sink_options  # noqa: PLC0415 - see the module
        from connectors.sink.writer import LedgerBatchWriter  # noqa: PLC0415

        if overwrite:
            raise OptionError("sink ledger: mode overwrite is refused, a log keeps what it has: use mode append")
        return LedgerBatchWriter(sink_options(self.options, schema, is_stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a stream.

        Raises:
            OptionError: An option or a column is wrong.

        """
        _check_spark()
        from connectors.sink.defined_table import sink_options  # noqa: PLC0415 - see the module
        from connectors.sink.writer import LedgerStreamWriter  # noqa: PLC0415

        if overwrite:
            raise OptionError(
                "sink ledger: output mode complete is refused, a log keeps what it has: use append or update"
            )
        return LedgerStreamWriter(sink_options(self.options, schema, is_stream=True), schema)


def _check_spark() -> None:
    if not HAS_LIMITS:
        raise OptionError(f"sink ledger: Spark 4.2 is needed to write, this is {pyspark.__version__}; 4.0 and 4.1 read")
