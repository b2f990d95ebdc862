"""SQL over HTTP, on the HTTP server of the replica's process: `POST /v1/sql`, JSON in, JSON out.

    {"sql": "SELECT name FROM item WHERE stock < :least", "parameters": {"least": 3}}
    {"statements": [{"sql": "UPDATE item SET stock = stock - 1 WHERE id = ?", "parameters": [1], "expected": 1}]}

One statement that only reads is a query; anything else is a transaction, done whole or not at all, by the leader,
wherever it is asked. Bytes are `{"base64": "…"}`, both ways; so is, as `{"float": "Infinity"}`, what JSON has not.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ledger.decoding import json_decoder
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute
from ledger.rights.principal import ClientAccess, Principal, Role, turns_name
from ledger.rights.table import Right, may
from rsm_spark.client.leader_links import LeaderLinks
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, ReadKind, at_least, bounded
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.sql.bounded_service import BoundedService
from rsm_spark.sql.denials import Refused, nobody_is_told, shown_reason
from rsm_spark.sql.feed.events import shown_value
from rsm_spark.sql.messages import (
    SqlFault,
    SqlQuery,
    SqlResult,
    SqlSlice,
    SqlStatement,
    SqlTransaction,
    decode_reply,
    encode,
)
from rsm_spark.sql.pg.faults import (
    CANCELLED,
    DENIED,
    OVERLOADED,
    TOO_LARGE,
    TOO_MANY,
    PgFault,
    fault_of,
    fault_of_error,
)
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.scopes import SQL_SCOPES
from rsm_spark.sql.statement_words import reads_only
from rsm_spark.sql.system_tables import sees_all
from rsm_spark.sql.table_rights import TableRights, rights_of
from rsm_spark.transport.reach import fault_of as reach_fault

BODY_BYTES_MAX: Final = 256 * 1024
REQUESTS_MAX: Final = 32
OWNER_REQUESTS_MAX: Final = 16
"""Requests that are answered at the same time, of all callers and of one; the HTTP server has 64 connections."""
_ANSWER_S: Final = 15.0
"""Less than the HTTP server's own limit: who hears nothing of a write hears that it may have been done."""
BAD_REQUEST: Final = "08P01"
ROUTE: Final = "POST /v1/sql"
_JSON: Final = "application/json"
_BIG: Final = 1 << 63


class SqlHttpStatement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement of a request.

    Attributes:
        sql: Of it.
        parameters: Values of ``?`` in order, or of ``:name`` by name.
        expected: Rows that it must change or return, else nothing is done.

    """

    sql: str
    parameters: list[Any] | dict[str, Any] = []
    expected: int | None = None


class SqlHttpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request: one statement, or several.

    Attributes:
        sql, parameters, expected: Of one.
        statements: Of several, which are one transaction.
        read: How fresh a query's state must be: "linearizable", "stale", or a number of ms that it may be old.
        at_least: Revision that a query must see, on the replica that is asked.

    """

    sql: str | None = None
    parameters: list[Any] | dict[str, Any] = []
    expected: int | None = None
    statements: list[SqlHttpStatement] = []
    read: str | int = "linearizable"
    at_least: int | None = None


class SqlHttpEdge:
    """See the module.

    Args:
        replica: Of the tables.
        reads: Of the replica.
        links: To the leader; closed with it.
        log: Name of the log.
        result_bytes_max: Of the rows of one answer.

    Attributes:
        on_refused: Told of statements that callers had no right to.

    """

    def __init__(self, replica: Replica, reads: SqlReads, links: LeaderLinks, log: str, result_bytes_max: int) -> None:
        self._replica = replica
        self._reads = reads
        self._links = links
        self._log = log
        self._result_bytes_max = result_bytes_max
        self._running: Counter[str] = Counter()
        self.on_refused: Refused = nobody_is_told

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is served."""
        return {ROUTE: ProbeRoute(self._answer, Right.STATE_READ, body_bytes_max=BODY_BYTES_MAX)}

    async def stop(self) -> None:
        """Give up what is under way."""
        await self._links.close()

    async def _answer(self, asked: ProbeRequest) -> ProbePage:
        place = 0
        try:
            results, revision = await self._done(asked)
            return ProbePage(200, msgspec.json.encode({"results": results, "revision": revision}) + b"\n", _JSON)
        except PgFault as error:
            fault = error
        except RsmError as error:
            fault, place = fault_of_error(error), getattr(error, "statement", 0)
        except _StatementFaultError as error:
            fault, place = fault_of(error.fault), error.fault.statement
        except asyncio.QueueFull:
            fault = PgFault(OVERLOADED, "too many reads wait: try again")
        if fault.code == DENIED:
            self.on_refused(asked.principal, ROUTE, asked.source, shown_reason(fault.text))
        return complaint(fault, place)

    async def _done(self, asked: ProbeRequest) -> tuple[list[dict[str, Any]], int]:
        principal = asked.principal
        owner = turns_name(principal, asked.source.rpartition(":")[0])
        if self._running[owner] >= OWNER_REQUESTS_MAX or self._running.total() >= REQUESTS_MAX:
            raise PgFault(TOO_MANY, f"too many requests are under way here, at most {OWNER_REQUESTS_MAX} of one caller")
        self._running[owner] += 1
        try:
            return await self._answered(asked, principal, owner)
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]

    async def _answered(
        self, asked: ProbeRequest, principal: Principal, owner: str
    ) -> tuple[list[dict[str, Any]], int]:
        fault = reach_fault(principal, self._log, SQL_SCOPES)
        if fault:
            raise PgFault(DENIED, fault)
        request = _decoded(asked.body)
        statements = [_statement(one) for one in _statements(request)]
        if len(statements) == 1 and statements[0].expected is None and reads_only(statements[0].sql):
            one = statements[0]
            caller = _HttpCaller(owner, sees_all(principal), rights_of(principal))
            result, revision = await self._read(SqlQuery(one.sql, one.parameters), _level(request), caller)
            return [_shown_result(result)], revision
        if not _may_write(principal):
            raise PgFault(DENIED, f"{principal} reads only")
        async with self._links.of(owner) as link:
            command = SqlTransaction(tuple(statements), is_brief=True)
            reply = await BoundedService(link, rights_of(principal)).execute(encode(command), timeout_s=_ANSWER_S)
        done = decode_reply(reply.payload)
        if done.fault is not None:
            raise _StatementFaultError(done.fault)
        return [_shown_result(result) for result in done.results], reply.revision

    async def _read(self, query: SqlQuery, level: Freshness, caller: _HttpCaller) -> tuple[SqlResult, int]:
        is_local = level.kind is not ReadKind.LINEARIZABLE or self._replica.role is ReplicaRole.LEADER
        if is_local:
            try:
                return await self._read_here(query, level, caller)
            except NotLeaderError:
                pass  # Another one leads since then.
        async with self._links.of(caller.owner) as link:
            client = BoundedService(link, caller.rights)
            reply = await client.query(encode(query), read=LINEARIZABLE, timeout_s=_ANSWER_S)
        found = decode_reply(reply.payload)
        if found.fault is not None:
            raise _StatementFaultError(found.fault)
        return found.results[0], reply.revision

    async def _read_here(self, query: SqlQuery, level: Freshness, caller: _HttpCaller) -> tuple[SqlResult, int]:
        owner, shows_all, rights = caller
        try:
            async with asyncio.timeout(_ANSWER_S):
                opened = await self._reads.rows(query, level, owner, is_shown_all=shows_all, rights=rights)
                try:
                    return await self._all(opened.slice, opened.name, caller), opened.revision
                except BaseException:
                    if opened.name:
                        self._reads.close_rows(opened.name, owner)
                    raise
        except TimeoutError:
            raise PgFault(CANCELLED, f"the read was not answered within {_ANSWER_S:g} s") from None

    async def _all(self, first: SqlSlice, name: bytes, caller: _HttpCaller) -> SqlResult:
        rows: list[tuple[Any, ...]] = []
        room, number, found = self._result_bytes_max, 0, first
        while True:
            if found.fault is not None:
                raise _StatementFaultError(found.fault)
            rows += found.rows
            room -= len(encode(found.rows))
            if room < 0:
                raise PgFault(
                    TOO_LARGE, f"the rows have more than {self._result_bytes_max} bytes: ask for fewer, with a LIMIT"
                )
            if found.is_last:
                return SqlResult(first.columns, tuple(rows))
            number += 1
            found = await self._reads.next_rows(name, number, caller.owner, caller.rights)


class _HttpCaller(NamedTuple):
    owner: str
    shows_all: bool
    rights: TableRights | None


class _StatementFaultError(Exception):
    """A statement failed.

    * `_StatementFaultError`   never leaves this module
    """

    def __init__(self, fault: SqlFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def _may_write(principal: Principal) -> bool:
    is_reader = principal.role is Role.CLIENT and principal.access is not ClientAccess.WRITE
    return may(principal, Right.STATE_WRITE) and not is_reader


def _decoded(body: bytes) -> SqlHttpRequest:
    try:
        return json_decoder(SqlHttpRequest).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PgFault(BAD_REQUEST, f'expected {{"sql": "…", "parameters": […]}}, or "statements": {error}') from None


def _statements(request: SqlHttpRequest) -> Sequence[SqlHttpStatement]:
    if (request.sql is None) == (not request.statements):
        raise PgFault(BAD_REQUEST, 'say "sql", or "statements", which has one at least')
    if request.sql is None:
        if request.parameters or request.expected is not None:
            raise PgFault(BAD_REQUEST, '"parameters" and "expected" stand in each of the "statements"')
        return request.statements
    return [SqlHttpStatement(request.sql, request.parameters, request.expected)]


def _statement(one: SqlHttpStatement) -> SqlStatement:
    values = one.parameters
    if isinstance(values, dict):
        return SqlStatement(one.sql, {name: _value(value) for name, value in values.items()}, one.expected)
    return SqlStatement(one.sql, tuple(map(_value, values)), one.expected)


def _value(value: Any) -> Any:
    """Return a value of JSON as one of SQLite.

    Raises:
        PgFault: It is none.

    """
    match value:
        case None | str() | float():
            return value
        case bool():
            return int(value)
        case int() if -_BIG <= value < _BIG:
            return value
        case {"base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise PgFault(BAD_REQUEST, f"a parameter is no base64: {text:.40}") from None
        case {"float": "Infinity" | "-Infinity" as text, **rest} if not rest:
            return float(text)
    shown = msgspec.json.encode(value).decode()
    raise PgFault(
        BAD_REQUEST, f'a parameter is a text, a number of 64 bits, true, false, null or {{"base64": "…"}}: {shown:.60}'
    )


def _shown_result(result: SqlResult) -> dict[str, Any]:
    return {
        "columns": [{"name": name, "type": kind} for name, kind in result.columns],
        "rows": [[shown_value(value) for value in row] for row in result.rows],
        "row_count": result.row_count,
        "last_rowid": result.last_rowid,
    }


def _level(request: SqlHttpRequest) -> Freshness:
    if request.at_least is not None:
        if request.at_least < 0:
            raise PgFault(BAD_REQUEST, "at_least: a revision is no negative number")
        return at_least(request.at_least)
    match request.read:
        case "linearizable":
            return LINEARIZABLE
        case "stale":
            return STALE
        case int() as ms if 0 < ms <= 1_000 * 86_400:
            return bounded(max_lag_ms=ms)
    raise PgFault(BAD_REQUEST, f'read: expected "linearizable", "stale" or a number of ms, not {request.read!r}')


_STATUSES: Final = (
    ("42501", 403), ("23", 409), ("P0002", 409), ("40001", 409), ("54", 413), ("57P03", 503), ("53", 503),
    ("08007", 504), ("57014", 408), ("08006", 503), ("XX", 500),
)  # fmt: skip
"""HTTP status by how a SQLSTATE begins; the others are 400."""


def complaint(fault: PgFault, statement: int) -> ProbePage:
    """Return the answer to what was refused, or has failed."""
    status = next((status for begin, status in _STATUSES if fault.code.startswith(begin)), 400)
    error = {"sqlstate": fault.code, "message": fault.text, "statement": statement}
    return ProbePage(status, msgspec.json.encode({"error": error}) + b"\n", _JSON)
