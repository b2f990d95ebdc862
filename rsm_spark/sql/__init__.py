"""Replicated SQL tables: SQLite on each replica, changed rows in the log. See docs/sql.md."""

from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.client.blocking import BlockingInteractiveTransaction, BlockingSqlClient
from rsm_spark.sql.client.blocking_retry import retry
from rsm_spark.sql.client.client import SqlClient, SqlOutcome, SqlRows
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.errors import SqlAbortedError, SqlConflictError, SqlError, SqlRetryableError
from rsm_spark.sql.messages import SqlResult, SqlStatement

__all__ = [
    "BlockingInteractiveTransaction",
    "BlockingSqlClient",
    "Freshness",
    "InteractiveTransaction",
    "SqlAbortedError",
    "SqlClient",
    "SqlConflictError",
    "SqlError",
    "SqlOutcome",
    "SqlResult",
    "SqlRetryableError",
    "SqlRows",
    "SqlStatement",
    "retry",
]
