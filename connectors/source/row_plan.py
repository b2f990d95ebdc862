"""Plan of the rows that tasks make of entries: kind and columns, fixed when the query starts. Pure, and pickled."""

from __future__ import annotations

import msgspec

from connectors.source.options import BadRecords, Rows, SourceOptions
from connectors.source.schema import (
    KAFKA_COLUMNS,
    KAFKA_HEADERS,
    RAW_COLUMNS,
    RECORD_COLUMNS,
    RowColumn,
    pick_columns,
)


class RowPlan(msgspec.Struct, frozen=True):
    """Plan of a row.

    Attributes:
        rows: Kind of rows.
        columns: Their columns, in order, as the fields of `RowColumn`; what is not here is not decoded.
        table: Of the machine, for rows=table.
        keeps_bad: Whether what cannot be decoded becomes a row with its error, instead of ending the query.

    """

    rows: Rows
    columns: tuple[tuple[str, str, tuple[str, ...]], ...]
    table: str = ""
    keeps_bad: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns; for look-ups only."""
        return frozenset(name for name, _, _ in self.columns)


def fixed_columns(options: SourceOptions) -> tuple[RowColumn, ...] | None:
    """Return all columns that the options alone tell; None for rows=table, where the machine's description does."""
    match options.rows:
        case Rows.RAW:
            return RAW_COLUMNS
        case Rows.RECORDS:
            return RECORD_COLUMNS
        case Rows.KAFKA:
            return (*KAFKA_COLUMNS, KAFKA_HEADERS) if options.include_headers else KAFKA_COLUMNS
        case _:
            return None


def row_plan(options: SourceOptions) -> RowPlan:
    """Return the plan of a query.

    Raises:
        OptionError: `columns` names one that there is not.

    """
    keeps_bad = options.bad_records == BadRecords.COLUMN
    columns = options.row_columns
    if not columns:
        offered = fixed_columns(options)
        assert offered is not None, "the source fixes the columns of a table before anything is planned"
        columns = pick_columns(offered, options.columns, has_errors=keeps_bad)
    return RowPlan(options.rows, tuple((name, kind, was) for name, kind, was in columns), options.table, keeps_bad)
