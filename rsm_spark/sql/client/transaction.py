"""Interactive transactions of the client of SQL tables.

    async with shop.interactive() as sale:
        ((stock,),) = (await sale.execute("SELECT stock FROM item WHERE id = ?", (1,))).rows
        await sale.execute("UPDATE item SET stock = ? WHERE id = ?", (stock - 1, 1))

A transaction reads what stood when it began, and what it wrote itself. At its end the leader runs its statements again,
in one step, and keeps what they do if each has the outcome that this client was told. So it holds no locks: of two that
touch the same rows the first to commit succeeds, the other one hears `SqlConflictError` and begins again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable, Sequence
from typing import Protocol

from rsm_spark.client.service_client import Reply
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import RsmError
from rsm_spark.sql.client.statements import Statement, statement_of
from rsm_spark.sql.errors import SqlAbortedError, SqlError
from rsm_spark.sql.limits import STATEMENTS_MAX
from rsm_spark.sql.messages import (
    SqlCommit,
    SqlEnd,
    SqlFault,
    SqlParameters,
    SqlResult,
    SqlStart,
    SqlStatement,
    SqlStep,
    SqlStepReply,
    decode_reply,
    decode_step_reply,
    encode,
)

_STEP_STATEMENTS_MAX = 500
_STEP_BYTES_MAX = 256 * 1024
_COMMIT_BYTES_MAX = 3 * 1024 * 1024
_END_S = 2.0
_PAUSE_S = 0.005
_PAUSE_S_MAX = 0.5


def pause_s(attempt: int) -> float:
    """Return how long to wait after an attempt (1 = the first) that others were before: by chance, longer each time."""
    return random.uniform(0.0, min(_PAUSE_S_MAX, _PAUSE_S * 2 ** min(attempt, 10)))  # noqa: S311 - no secret


class TransactionService(Protocol):
    """Part of a client that a transaction needs; `ServiceClient` has it."""

    async def execute(self, command: bytes, *, timeout_s: float | None = None) -> Reply:
        """Execute a command, once."""
        ...

    async def query(self, query: bytes, *, read: Freshness | None = None, timeout_s: float | None = None) -> Reply:
        """Return the answer to a query."""
        ...


class InteractiveTransaction:
    """A transaction that is open; made by `SqlClient.begin`. Its statements are run one after the other.

    Args:
        service: Of the client.
        timeout_s: Time limit of each call; None = the client's.

    Attributes:
        revision: Of the state that it reads.
        has_written: It has changed something, so far.
        is_over: It was committed or rolled back, or has ended by itself.

    """

    def __init__(self, service: TransactionService, timeout_s: float | None = None) -> None:
        self.revision = 0
        self.has_written = False
        self.is_over = False
        self._service = service
        self._timeout_s = timeout_s
        self._name = os.urandom(16)
        self._number = 0
        self._statements: list[SqlStatement] = []
        self._told: list[bytes] = []
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._why_over = "the transaction has not begun"

    async def begin(self) -> None:
        """Have it begun; called once, by the client."""
        reply = await self._service.query(encode(SqlStart(self._name)), read=LINEARIZABLE, timeout_s=self._timeout_s)
        begun = decode_step_reply(reply.payload)
        if begun.over is not None:
            self.is_over = True
            raise SqlError.of(begun.over)
        self.revision = reply.revision

    async def execute(self, sql: str, parameters: SqlParameters = (), *, expected: int | None = None) -> SqlResult:
        """Run one statement; return its result.

        A statement that fails is undone, and the transaction goes on without it. SAVEPOINT, ROLLBACK TO and RELEASE are
        statements as any other.

        Args:
            sql: Of it.
            parameters: Values of ``?`` in order, or of ``:name`` by name.
            expected: Rows that it must change or return, else it fails.

        Raises:
            SqlError: It failed.
            SqlAbortedError: The transaction is over, and has done nothing.

        """
        (result,) = await self.execute_all([(sql, parameters, expected)])
        return result

    async def executemany(self, sql: str, many: Iterable[SqlParameters]) -> int:
        """Run a statement for each of many parameters; return how many rows it changed.

        Raises:
            SqlError: One failed: those before it are done.

        """
        results = await self.execute_all([(sql, one) for one in many])
        return sum(result.row_count for result in results)

    async def execute_all(self, statements: Sequence[Statement]) -> list[SqlResult]:
        """Run statements in order, in as few messages as they fit; return their results.

        Raises:
            SqlError: One failed: those before it are done. Its attribute `statement` says which.
            SqlAbortedError: The transaction is over, and has done nothing.

        """
        results: list[SqlResult] = []
        async with self._turn:
            for step in _steps([statement_of(one) for one in statements]):
                self._check_open()
                if len(self._statements) + len(step) > STATEMENTS_MAX:
                    raise SqlError(f"a transaction has at most {STATEMENTS_MAX} statements", kind="limit")
                results += self._take(step, await self._run(step), len(results))
        return results

    async def _run(self, step: Sequence[SqlStatement]) -> SqlStepReply:
        self._number += 1
        payload = encode(SqlStep(self._name, self._number, tuple(step)))
        try:
            reply = await self._service.query(payload, read=LINEARIZABLE, timeout_s=self._timeout_s)
        except BaseException:
            self._end("a statement of the transaction was not answered")
            raise
        return decode_step_reply(reply.payload)

    def _take(self, step: Sequence[SqlStatement], reply: SqlStepReply, before: int) -> list[SqlResult]:
        if reply.over is not None:
            self._end(reply.over.text)
            raise SqlError.of(reply.over)
        self.has_written = reply.has_written
        results: list[SqlResult] = []
        for statement, outcome in zip(step, reply.outcomes, strict=False):
            if outcome.told:
                self._statements.append(statement)
                self._told.append(outcome.told)
                self._bytes += _size_of(statement)
            if outcome.fault is not None:
                fault = outcome.fault
                raise SqlError.of(SqlFault(fault.kind, fault.text, before + len(results)))
            assert outcome.result is not None
            results.append(outcome.result)
        if self._bytes > _COMMIT_BYTES_MAX:
            self._end(f"the statements of a transaction have at most {_COMMIT_BYTES_MAX} bytes")
            raise SqlError(self._why_over, kind="limit")
        return results

    async def commit(self) -> int:
        """Keep what it did, once, and end it; return the revision.

        One that has changed nothing is at its end when it was at its beginning: `revision`.

        Raises:
            SqlConflictError: Another transaction has changed what it read or wrote: nothing was done.
            SqlAbortedError: It was over already: nothing was done.
            SqlError: What it changes is too much, or breaks a deferred constraint: nothing was done.
            OutcomeUnknownError: The time limit has passed: perhaps it was done.
            RsmError: See `rsm_spark.sql.client.client`.

        """
        async with self._turn:
            self._check_open()
            self._end("the transaction was committed")
            forgetting = asyncio.create_task(self._forget())
            try:
                if not self.has_written:
                    return self.revision
                payload = encode(SqlCommit(tuple(self._statements), tuple(self._told)))
                reply = await self._service.execute(payload, timeout_s=self._timeout_s)
            finally:
                await forgetting
            fault = decode_reply(reply.payload).fault
            if fault is not None:
                raise SqlError.of(fault)
            return reply.revision

    async def rollback(self) -> None:
        """Drop what it did, and end it; does nothing if it is over."""
        async with self._turn:
            if not self.is_over:
                self._end("the transaction was rolled back")
                await self._forget()

    async def _forget(self) -> None:
        """Have the replica forget it; if that cannot be said, it does so by itself."""
        try:
            await self._service.query(encode(SqlEnd(self._name)), read=LINEARIZABLE, timeout_s=_END_S)
        except RsmError:
            return

    def _end(self, why: str) -> None:
        self.is_over = True
        self._why_over = why

    def _check_open(self) -> None:
        if self.is_over:
            raise SqlAbortedError(f"the transaction is over: {self._why_over}", kind="aborted")


def _size_of(statement: SqlStatement) -> int:
    return len(encode(statement))


def _steps(statements: Sequence[SqlStatement]) -> Iterable[list[SqlStatement]]:
    """Split statements into messages."""
    step: list[SqlStatement] = []
    size = 0
    for statement in statements:
        own = _size_of(statement)
        if step and (len(step) >= _STEP_STATEMENTS_MAX or size + own > _STEP_BYTES_MAX):
            yield step
            step, size = [], 0
        step.append(statement)
        size += own
    if step:
        yield step
