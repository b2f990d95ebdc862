"""The error that a client of SQL tables is told.

* `SqlError`   a statement failed; an `RsmError`
"""

from __future__ import annotations

from rsm_spark.errors import RsmError
from rsm_spark.sql.messages import SqlFault


class SqlError(RsmError):
    """A statement failed, and with it its whole transaction: nothing was done.

    Attributes:
        kind: "sql": the statement is wrong. "constraint": it breaks one. "refused": it cannot be replicated, or is not
            allowed. "limit": it takes too long, or is too large. "expected": it changed another number of rows.
        statement: Its place in the transaction, 0 first.

    """

    def __init__(self, message: str, *, kind: str = "sql", statement: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.statement = statement

    @classmethod
    def of(cls, fault: SqlFault) -> SqlError:
        """Return the error of a fault."""
        return cls(fault.text, kind=fault.kind, statement=fault.statement)
