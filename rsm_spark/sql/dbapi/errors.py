"""Errors of the DB-API, and which of them stands for which of ours.

* `Warning`                     of the DB-API; never raised here
* `Error`                       of the DB-API
    * `InterfaceError`          the connection or cursor is closed, or used wrongly
    * `DatabaseError`
        * `DataError`           a value cannot be kept
        * `OperationalError`    a limit, or no leader, or an outcome that is not known
            * `RetryableTransactionError`  nothing was done: roll back, and run the transaction again
        * `IntegrityError`      a constraint
        * `InternalError`       never raised here
        * `ProgrammingError`    the statement is wrong
        * `NotSupportedError`   it cannot be replicated, or is not allowed
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.errors import LedgerError, UsageError
from rsm_spark.errors import RsmError
from rsm_spark.sql.errors import SqlError, SqlRetryableError


class Warning(Exception):  # noqa: A001, N818 - the DB-API's names
    """A warning of the DB-API."""


class Error(Exception):
    """Base of the errors of the DB-API. What lies beneath is its `__cause__`."""


class InterfaceError(Error):
    """The connection or the cursor is closed, or is used wrongly."""


class DatabaseError(Error):
    """Base of what concerns the tables."""


class DataError(DatabaseError):
    """A value is of a type that cannot be kept, or too large."""


class OperationalError(DatabaseError):
    """A limit, or no leader, or an outcome that is not known."""


class RetryableTransactionError(OperationalError):
    """The transaction has done nothing: roll back, and run it again."""


class IntegrityError(DatabaseError):
    """A statement breaks a constraint."""


class InternalError(DatabaseError):
    """Of the DB-API; never raised here."""


class ProgrammingError(DatabaseError):
    """A statement is wrong."""


class NotSupportedError(DatabaseError):
    """A statement cannot be replicated, or is not allowed."""


_BY_KIND: dict[str, type[DatabaseError]] = {
    "sql": ProgrammingError,
    "constraint": IntegrityError,
    "refused": NotSupportedError,
    "denied": ProgrammingError,
    "limit": OperationalError,
    "expected": OperationalError,
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise the DB-API's errors for ours."""
    try:
        yield
    except SqlRetryableError as error:
        raise RetryableTransactionError(str(error)) from error
    except SqlError as error:
        raise _BY_KIND.get(error.kind, DatabaseError)(str(error)) from error
    except UsageError as error:
        raise InterfaceError(str(error)) from error
    except (RsmError, LedgerError) as error:
        raise OperationalError(str(error)) from error
