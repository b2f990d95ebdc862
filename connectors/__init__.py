"""The ledger and the replicated log as a Spark source, and Delta tables that follow a log."""

from __future__ import annotations

from typing import Final

from rsm_spark.own_packages import check_own_packages

__all__ = ["RSM_SPARK"]

RSM_SPARK: Final = True
"""Tells this package from a user's folder of the same name."""

check_own_packages("ledger", "rsm_spark")
