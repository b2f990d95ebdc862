"""The errors that a client of SQL tables is told.

* `SqlError`                        a statement failed; an `RsmError`
    * `SqlRetryableError`           an interactive transaction did nothing: begin it again
        * `SqlConflictError`        another transaction has changed what it read or wrote
        * `SqlAbortedError`         it is over: its time, or the replica that had it
"""

from __future__ import annotations

from rsm_spark.errors import RsmError
from rsm_spark.sql.messages import SqlFault


class SqlError(RsmError):
    """A statement failed, and with it its whole transaction: nothing was done.

    Attributes:
        kind: "sql": the statement is wrong. "constraint": it breaks one. "refused": it cannot be replicated, or is not
            allowed. "denied": the caller has no right to a table. "limit": it takes too long, or is too large.
            "expected": it changed another number of rows.
            "conflict", "aborted": see `SqlRetryableError`.
        statement: Its place in the transaction, 0 first.

    """

    def __init__(self, message: str, *, kind: str = "sql", statement: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.statement = statement

    @classmethod
    def of(cls, fault: SqlFault) -> SqlError:
        """Return the error of a fault."""
        return _BY_KIND.get(fault.kind, SqlError)(fault.text, kind=fault.kind, statement=fault.statement)


class SqlRetryableError(SqlError):
    """An interactive transaction did nothing; the same one, begun again, may succeed."""


class SqlConflictError(SqlRetryableError):
    """Another transaction has changed what an interactive transaction read or wrote, and was first."""


class SqlAbortedError(SqlRetryableError):
    """An interactive transaction is over: it was open or idle for too long, or the replica that had it is gone."""


_BY_KIND: dict[str, type[SqlError]] = {"conflict": SqlConflictError, "aborted": SqlAbortedError}
