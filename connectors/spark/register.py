"""For Spark applications that ship this package by `--py-files`: their look-up by name does not see it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from connectors.spark.source import LedgerSource
from connectors.state.source import LedgerStateSource

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `.format("ledger")` and `.format("ledger_state")` known to a session, classic or of Spark Connect.

    Not needed where the package is installed.
    """
    for source in (LedgerSource, LedgerStateSource):
        spark.dataSource.register(source)
