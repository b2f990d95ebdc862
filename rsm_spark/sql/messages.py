"""Requests of SQL and their replies, as msgpack: payloads of commands and queries. Pure.

What belongs to an interactive transaction, or to a result in slices, begins with a number, and so is refused by
replicas that know of none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.errors import InvalidCommandError
from rsm_spark.sql.brief_results import BriefResult, pack, unpack

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
    """Statements of which all are done, or none: the payload of a command.

    Attributes:
        statements: In order.
        is_brief: The client reads `SqlReply.packed`. Leaders that do not know of it reply as to False.
        wants_row_ids: Of a brief reply: it tells the row id of each statement, not of the last one alone.

    """

    statements: tuple[SqlStatement, ...]
    is_brief: bool = False
    wants_row_ids: bool = True


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
            allowed. "denied": its client has no right to a table. "limit": it takes too long, or is too large.
            "expected": it changed another number of rows.
            "conflict": what an interactive transaction was told does not hold any more. "aborted": it is over.
        text: What was seen, and what to do.
        statement: Its place in the transaction, 0 first.

    """

    kind: str
    text: str
    statement: int = 0


class SqlReply(msgspec.Struct, frozen=True, array_like=True):
    """Reply to a transaction or a query: a result for each statement, or a fault and none.

    Attributes:
        results: Of each statement; of a brief reply, as it is sent, those that return rows.
        fault: Why nothing was done.
        packed: The others, see `rsm_spark.sql.brief_results`; empty = there are none. Only sent to who asks for it.

    """

    results: tuple[SqlResult, ...] = ()
    fault: SqlFault | None = None
    packed: bytes = b""


class SqlCommit(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Statements of an interactive transaction, and what its client was told of each: the payload of a command.

    Attributes:
        statements: In order.
        told: `told_of` the outcome of each.

    """

    statements: tuple[SqlStatement, ...]
    told: tuple[bytes, ...]


class SqlStart(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Begin an interactive transaction: the payload of a linearizable query.

    Attributes:
        transaction: 16 bytes, drawn by the client.

    """

    transaction: bytes


class SqlStep(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The next statements of an interactive transaction, up to the first that fails: the payload of a query.

    Attributes:
        number: 1, 2, …; the same number is the same step, and is answered the same way.

    """

    transaction: bytes
    number: int
    statements: tuple[SqlStatement, ...]


class SqlEnd(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Forget an interactive transaction: the payload of a query."""

    transaction: bytes


class SqlRowsQuery(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Read a result in slices: the payload of a query.

    Attributes:
        name: 16 bytes, drawn by the client.
        sql: Of one statement that only reads.
        parameters: See `SqlParameters`.

    """

    name: bytes
    sql: str
    parameters: tuple[Any, ...] | dict[str, Any] = ()


class SqlSliceRequest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The next slice of a result: the payload of a query.

    Attributes:
        name: As it was opened.
        number: 1, 2, … behind the first slice; the same number is the same slice, and is answered the same way.

    """

    name: bytes
    number: int


class SqlRowsEnd(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Forget a result that is read in slices: the payload of a query."""

    name: bytes


class SqlSlice(msgspec.Struct, frozen=True, array_like=True):
    """A part of a result; the reply to `SqlRowsQuery` and `SqlSliceRequest`.

    Attributes:
        columns: As of `SqlResult`; of the first slice alone.
        rows: In order.
        is_last: There are no more.
        fault: Why there are no more; None = there was none.

    """

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    is_last: bool = True
    fault: SqlFault | None = None


TransactionRequest = SqlStart | SqlStep | SqlEnd | SqlRowsQuery | SqlSliceRequest | SqlRowsEnd


class StepOutcome(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of one statement of an interactive transaction.

    Attributes:
        result: Of it; None = it failed.
        fault: Why it failed. The transaction goes on, unless the reply says that it is over.
        told: What a COMMIT says of it; empty: it depends on no table, and is left out there.

    """

    result: SqlResult | None
    fault: SqlFault | None = None
    told: bytes = b""


class SqlStepReply(msgspec.Struct, frozen=True, array_like=True):
    """Reply to what an interactive transaction asks.

    Attributes:
        outcomes: Of the statements, up to the first that failed.
        over: Why the transaction is over; None = it goes on.
        has_written: It has changed rows, or the schema, so far.

    """

    outcomes: tuple[StepOutcome, ...] = ()
    over: SqlFault | None = None
    has_written: bool = False


encode = msgspec.msgpack.Encoder().encode
_REQUESTS = msgspec.msgpack.Decoder(TransactionRequest)
_FIXARRAY = 0x90
_FIXINT_END = 0x80


def is_of_transaction(payload: bytes) -> bool:
    """Return whether a payload is a message of an interactive transaction or of a result in slices.

    It is an array that begins with a number.
    """
    return len(payload) > 1 and payload[0] & 0xF0 == _FIXARRAY and payload[1] < _FIXINT_END


def told_of(outcome: SqlResult | SqlFault) -> bytes:
    """Return 16 bytes that stand for an outcome: a COMMIT holds only if its statements have the same again."""
    if isinstance(outcome, SqlFault):
        outcome = msgspec.structs.replace(outcome, statement=0)
    return hashlib.blake2b(encode((isinstance(outcome, SqlFault), outcome)), digest_size=16).digest()


def decode_transaction_request(payload: bytes) -> TransactionRequest:
    """Read a query of an interactive transaction, or of a result in slices, back.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        request: TransactionRequest = _REQUESTS.decode(payload)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"this is no step of an SQL transaction, and no slice of a result: {error}") from None
    return request


def decode_commit(payload: bytes) -> SqlCommit:
    """Read a COMMIT back.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        commit = msgpack_decoder(SqlCommit).decode(payload)
    except msgspec.MsgspecError as error:
        raise InvalidCommandError(f"this is no COMMIT of an SQL transaction: {error}") from None
    if len(commit.statements) != len(commit.told):
        raise InvalidCommandError("this is no COMMIT of an SQL transaction: each statement has one outcome")
    return commit


def decode_step_reply(payload: bytes) -> SqlStepReply:
    """Read a reply back; fields that a later version added are passed over."""
    return msgpack_decoder(SqlStepReply).decode(payload)


def decode_slice(payload: bytes) -> SqlSlice:
    """Read a reply back; fields that a later version added are passed over."""
    return msgpack_decoder(SqlSlice).decode(payload)


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


def encode_results(results: Sequence[SqlResult], wanted: SqlTransaction | SqlCommit) -> bytes:
    """Return the reply to a transaction that was done, as its client can read it."""
    if not isinstance(wanted, SqlTransaction) or not wanted.is_brief or len(results) <= 1:
        return encode(SqlReply(tuple(results)))
    last = len(results) - 1
    brief = [
        None
        if one.columns
        else BriefResult(one.row_count, one.last_rowid if wanted.wants_row_ids or place == last else None)
        for place, one in enumerate(results)
    ]
    return encode(SqlReply(tuple(one for one in results if one.columns), None, pack(brief)))


def decode_reply(payload: bytes) -> SqlReply:
    """Read a reply back, with a result for each statement; fields that a later version added are passed over.

    Raises:
        ValueError: It is none.

    """
    reply = msgpack_decoder(SqlReply).decode(payload)
    if not reply.packed:
        return reply
    brief = unpack(reply.packed)
    if brief.count(None) != len(reply.results):
        raise ValueError("this is no reply of SQL: its results with rows are not those that its packed ones leave out")
    with_rows = iter(reply.results)
    results = (next(with_rows) if one is None else SqlResult((), (), *one) for one in brief)
    return SqlReply(tuple(results), reply.fault)
