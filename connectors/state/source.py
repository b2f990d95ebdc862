"""The data source `ledger_state`: what Spark finds by name. Kept light, as `connectors.source.source` is."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.state.options import StateOptions, parse_state_options


class LedgerStateSource(DataSource):
    """The state of a log at a point of its past; batch only. Options in `connectors.state.options`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ledger_state"

    def schema(self) -> str:
        """Return the columns: those of the table that is named, else rows as bytes.

        Raises:
            OptionError: An option is wrong.
            RsmError: The table's columns cannot be known.

        """
        from connectors.state.rows import ROWS_DDL  # noqa: PLC0415 - see the module

        options = self._parsed()
        return self._table_ddl(options) if options.table else ROWS_DDL

    def _parsed(self) -> StateOptions:
        return parse_state_options(self.options)

    @staticmethod
    def _table_ddl(options: StateOptions) -> str:
        from connectors.source.access import DriverAccess  # noqa: PLC0415 - see the module
        from connectors.state.reader import find_state  # noqa: PLC0415
        from connectors.state.rows import typed_table  # noqa: PLC0415

        access = DriverAccess(options.source)
        try:
            return typed_table(find_state(options, access)[0].machine, options.table).ddl
        finally:
            access.close()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader.

        Raises:
            OptionError: The caller gave columns of its own.

        """
        from connectors.state.reader import StateReader  # noqa: PLC0415 - see the module

        # Not parsed by Spark: there is no session in this process.
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        if given != self.schema().replace("`", ""):
            raise OptionError("source ledger_state: its columns follow from its options: leave out .schema(...)")
        return StateReader(self._parsed())
