"""The data source `ledger_state`: what Spark finds by name. Kept light, as `connectors.source.source` is."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from connectors.catalog_table import DefinedColumn, defined_options, query_options, table_schema
from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.state.options import StateOptions, parse_state_options


@tells_plainly("schema", "reader")
class LedgerStateSource(DataSource):
    """The state of a log at a point of its past; batch only. Options in `connectors.state.options`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "ledger_state"

    def schema(self) -> StructType | str:
        """Return the columns: those of the table that is named, else rows as bytes.

        Of a table that is made in the catalog the schema carries the options too.

        Raises:
            OptionError: An option is wrong.
            RsmError: The table's columns cannot be known.

        """
        from connectors.state.rows import ddl_of  # noqa: PLC0415 - see the module

        defined = defined_options(self.options)
        columns = _columns(parse_state_options(self.options if defined is None else defined))
        if defined is None:
            return ddl_of(columns)
        return table_schema((DefinedColumn(name, kind) for name, kind in columns), defined)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader.

        Raises:
            OptionError: The caller gave columns of its own.

        """
        from connectors.state.reader import StateReader  # noqa: PLC0415 - see the module

        of_table, own = query_options(self.options, schema)
        options = parse_state_options(of_table | own)
        if [(field.name, field.dataType.simpleString()) for field in schema] != _columns(options):
            raise OptionError(
                "source ledger_state: the columns of this table are no longer those of its log: make it anew"
                if of_table
                else "source ledger_state: its columns follow from its options: leave out .schema(...)"
            )
        return StateReader(options)


def _columns(options: StateOptions) -> list[tuple[str, str]]:
    """Return names and types of the columns."""
    from connectors.source.access import DriverAccess  # noqa: PLC0415 - see the module
    from connectors.state.reader import find_state  # noqa: PLC0415
    from connectors.state.rows import ROW_COLUMNS, typed_table  # noqa: PLC0415

    if not options.table:
        return ROW_COLUMNS
    access = DriverAccess(options.source)
    try:
        return typed_table(find_state(options, access)[0].machine, options.table).columns
    finally:
        access.close()
