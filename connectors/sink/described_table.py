"""Columns of the table that a query writes to: looked up when the query begins, before its first row."""

from __future__ import annotations

import asyncio

import msgspec

from connectors.errors import OptionError
from connectors.sink.options import RowKind, SinkOptions, TableColumn
from rsm_spark.errors import RsmError

_COLUMNS = 'SELECT name, type, pk, "notnull", dflt_value, hidden FROM pragma_table_xinfo(?)'
_LOOK_S = 20.0


def with_table(options: SinkOptions) -> SinkOptions:
    """Return the options with the columns of their table; options of other kinds of rows as they are.

    Raises:
        OptionError: There is no such table, or the log is not one of SQL tables.

    """
    if options.kind is not RowKind.TABLE or options.table_columns:
        return options
    try:
        columns = asyncio.run(_columns(options))
    except (RsmError, msgspec.MsgspecError) as error:
        raise OptionError(
            f"sink ledger, as=table: log {options.log} does not tell the columns of table {options.table}, as SQL "
            f"tables do: {error}. Rows of other services are written by their commands, as=commands"
        ) from error
    if not columns:
        raise OptionError(f"sink ledger, as=table: log {options.log} has no table {options.table!r}")
    return msgspec.structs.replace(options, table_columns=columns)


async def _columns(options: SinkOptions) -> tuple[TableColumn, ...]:
    from rsm_spark.sql.client.client import SqlClient  # noqa: PLC0415 - other kinds of rows do without

    async with await SqlClient.connect(
        options.log, options.metadata_uri, rsm_root=options.rsm_root, timeout_s=min(_LOOK_S, options.patience_s)
    ) as client:
        found = await client.query(_COLUMNS, (options.table,))
    return tuple(
        TableColumn(
            str(name), str(kind), int(str(key_place)), is_filled=bool(is_filled) and default is None,
            is_generated=bool(hidden),
        )
        for name, kind, key_place, is_filled, default, hidden in found.rows
    )  # fmt: skip
