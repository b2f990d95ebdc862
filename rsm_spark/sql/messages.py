"""Requests of SQL and their replies, as msgpack: payloads of commands and queries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.errors import InvalidCommandError

SqlValue = None | int | float | str | bytes
"""Values of SQLite: NULL, INTEGER, REAL, TEXT, BLOB."""

SqlParameters = Sequence[SqlValue] | Mapping[str, SqlValue]
"""Values of ``?`` in order, or of ``:name`` by name."""


class SqlStatement(msgspec.Struct, frozen=True, array_like=True):
    """One statement.

    Attributes:
        sql: Of it.
        parameters: See `SqlParameters`.
        expected: Rows that it must change or return, else the whole transaction is undone; None = any number.

    """

    sql: str
    parameters: tuple[Any, ...] | dict[str, Any] = ()
    expected: int | None = None


class SqlTransaction(msgspec.Struct, frozen=True, array_like=True):
    """Statements of which all are done, or none: the payload of a command."""

    statements: tuple[SqlStatement, ...]


class SqlQuery(msgspec.Struct, frozen=True, array_like=True):
    """One statement that only reads: the payload of a query."""

    sql: str
    parameters: tuple[Any, ...] | dict[str, Any] = ()


class SqlResult(msgspec.Struct, frozen=True, array_like=True):
    """Result of a statement.

    Attributes:
        columns: Name and declared type of each ("" = it has none); empty where the statement returns no rows.
        rows: In order.
        row_count: Rows that it changed itself: not by triggers or foreign keys.
        last_rowid: Of the row that the connection inserted last, if this statement changed any; else None.

    """

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    row_count: int = 0
    last_rowid: int | None = None


class SqlFault(msgspec.Struct, frozen=True, array_like=True):
    """Reason why nothing was done.

    Attributes:
        kind: "sql": the statement is wrong. "constraint": it breaks one. "refused": it cannot be replicated, or is not
            allowed. "limit": it takes too long, or is too large. "expected": it changed another number of rows.
        text: What was seen, and what to do.
        statement: Its place in the transaction, 0 first.

    """

    kind: str
    text: str
    statement: int = 0


class SqlReply(msgspec.Struct, frozen=True, array_like=True):
    """Reply to a transaction or a query: a result for each statement, or a fault and none."""

    results: tuple[SqlResult, ...] = ()
    fault: SqlFault | None = None


encode = msgspec.msgpack.Encoder().encode


def decode_transaction(payload: bytes) -> SqlTransaction:
    """Read a command back.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        return msgpack_decoder(SqlTransaction).decode(payload)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"this is no SQL transaction: {error}") from None


def decode_query(payload: bytes) -> SqlQuery:
    """Read a query back.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        return msgpack_decoder(SqlQuery).decode(payload)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"this is no SQL query: {error}") from None


def decode_reply(payload: bytes) -> SqlReply:
    """Read a reply back; fields that a later version added are passed over."""
    return msgpack_decoder(SqlReply).decode(payload)
