"""Tasks of a session: what a session of PostgreSQL's protocol has to have done for it, before it goes on. Pure.

A session is a generator: it yields one of these, and gets what is said below.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.messages import SqlResult, SqlSlice, SqlStatement, SqlValue
from rsm_spark.sql.table_rights import TableRights


class PgCaller(NamedTuple):
    """Client of a session.

    Attributes:
        turns_as: As it takes turns with others.
        rights: Tables that it has; None = all.

    """

    turns_as: str
    rights: TableRights | None


class TranslateQuery(msgspec.Struct, frozen=True):
    """A text of statements to cut and to spell as SQLite does; answered with a tuple of `PgStatement`."""

    sql: str


class ReadRows(msgspec.Struct, frozen=True):
    """A query; answered with `RowsRead`.

    Attributes:
        sql: Of it.
        values: Of its parameters.
        level: How fresh the state must be.
        is_system: It asks PostgreSQL's catalog.
        user: Who asks that.
        settings: Of the session that asks that.
        is_shown_all: System tables of the log tell it who the others are.
        may_write: Who asks may.

    """

    sql: str
    values: tuple[SqlValue, ...]
    level: Freshness
    is_system: bool = False
    user: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    is_shown_all: bool = False
    may_write: bool = True


class RowsLeft(Protocol):
    """Rest of a result, of which there is more than was read."""

    async def next(self) -> SqlSlice:
        """Read the next rows."""
        ...

    async def close(self) -> None:
        """Read no more of them."""
        ...


class RowsRead(NamedTuple):
    """Answer to `ReadRows`.

    Attributes:
        result: The rows, or the first of them.
        revision: That they show.
        left: Where the others are; None = there are no more.

    """

    result: SqlResult
    revision: int
    left: RowsLeft | None = None


class ReadSlice(msgspec.Struct, frozen=True):
    """More rows of a result; answered with `SqlSlice`, which has no fault.

    Attributes:
        left: Of the answer to `ReadRows`.

    """

    left: RowsLeft


class DescribeRows(msgspec.Struct, frozen=True):
    """A statement whose columns are asked for; answered with (name, declared type) of each, if it has any."""

    sql: str
    is_system: bool = False


class RunWrites(msgspec.Struct, frozen=True):
    """Statements of which all are done, or none; answered with `WritesDone`."""

    statements: tuple[SqlStatement, ...]


class WritesDone(NamedTuple):
    """Answer to `RunWrites`: a result for each statement, and the revision after them."""

    results: tuple[SqlResult, ...]
    revision: int


class StartTransaction(msgspec.Struct, frozen=True):
    """An interactive transaction to begin; answered with None."""


class RunStep(msgspec.Struct, frozen=True):
    """Statements to run in the transaction that is open; answered with a `SqlResult` for each."""

    statements: tuple[SqlStatement, ...]


class EndTransaction(msgspec.Struct, frozen=True):
    """The open transaction is to end; answered with the revision after it, 0 = it is dropped.

    Attributes:
        is_kept: It is to be committed.

    """

    is_kept: bool


class SendAnswers(msgspec.Struct, frozen=True):
    """All that was said so far is to be sent; answered, with None, once the client has taken most of it."""


PgTask = (
    TranslateQuery
    | ReadRows
    | ReadSlice
    | DescribeRows
    | RunWrites
    | StartTransaction
    | RunStep
    | EndTransaction
    | SendAnswers
)
TaskAnswer = Any
