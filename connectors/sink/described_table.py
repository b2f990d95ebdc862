"""Columns of the table that a query writes to: looked up when the query begins, before its first row."""

from __future__ import annotations

import asyncio

import msgspec

from connectors.errors import OptionError
from connectors.sink.options import RowKind, SinkOptions, TableColumn
from ledger.decoding import msgpack_decoder
from ledger.errors import UsageError
from rsm_spark.core.typed_rows import TABLES, TableShown
from rsm_spark.errors import RsmError

_COLUMNS = 'SELECT name, type, pk, "notnull", dflt_value, hidden FROM pragma_table_xinfo(?)'
_LOOK_S = 20.0


def with_table(options: SinkOptions) -> SinkOptions:
    """Return the options with the columns of their table; options of other kinds of rows as they are.

    Raises:
        OptionError: There is no such table, or the log is neither one of SQL tables nor of a service whose tables take
            rows.

    """
    if options.kind is not RowKind.TABLE or options.table_columns or options.table_fields:
        return options
    try:
        columns = asyncio.run(_columns(options))
    except (RsmError, UsageError, msgspec.MsgspecError) as error:  # UsageError: it is of another machine.
        tables = _service_tables(options)
        if tables is None:
            raise OptionError(
                f"sink ledger, as=table: log {options.log} does not tell the columns of table {options.table}, as SQL "
                f"tables and services with typed commands do: {error}. Rows of other services are written by their "
                "commands, as=commands"
            ) from error
        return _with_service_table(options, tables)
    if not columns:
        raise OptionError(f"sink ledger, as=table: log {options.log} has no table {options.table!r}")
    return msgspec.structs.replace(options, table_columns=columns)


def _with_service_table(options: SinkOptions, tables: list[TableShown]) -> SinkOptions:
    found = next((one for one in tables if one.name == options.table), None)
    if found is None:
        known = ", ".join(one.name for one in tables) or "none"
        raise OptionError(
            f"sink ledger, as=table: log {options.log} has no table {options.table!r}; its service has {known:.300}"
        )
    if not found.is_writable:
        raise OptionError(
            f"sink ledger, as=table: table {options.table!r} of log {options.log} takes no rows as they are: write "
            "commands, as=commands, or let its service declare it table(…, writable=True)"
        )
    return msgspec.structs.replace(options, table_fields=(*found.key, *found.columns), table_key_width=len(found.key))


def _service_tables(options: SinkOptions) -> list[TableShown] | None:
    """Return the tables of a service with typed commands; None = the log is of none that tells them."""
    try:
        return asyncio.run(_shown_tables(options))
    except (RsmError, msgspec.MsgspecError):
        return None


async def _shown_tables(options: SinkOptions) -> list[TableShown]:
    from rsm_spark.client.service_client import ServiceClient  # noqa: PLC0415 - other kinds of rows do without

    async with await ServiceClient.connect(
        options.log, options.metadata_uri, rsm_root=options.rsm_root, timeout_s=min(_LOOK_S, options.patience_s)
    ) as client:
        reply = await client.query(msgspec.msgpack.encode((TABLES, {})))
    (shown,) = msgpack_decoder(tuple[list[TableShown]]).decode(reply.payload)
    return shown


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
