"""Replicated SQL tables: SQLite on each replica, changed rows in the log. See docs/sql.md."""

from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.client.blocking import BlockingSqlClient
from rsm_spark.sql.client.client import SqlClient, SqlOutcome, SqlRows
from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.messages import SqlResult, SqlStatement

__all__ = [
    "BlockingSqlClient",
    "Freshness",
    "SqlClient",
    "SqlError",
    "SqlOutcome",
    "SqlResult",
    "SqlRows",
    "SqlStatement",
]
