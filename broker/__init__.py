"""The multi-tenant task broker: a replicated state machine that gives tasks to workers, fairly and as promised."""

from __future__ import annotations

from rsm_spark.own_packages import check_own_packages

check_own_packages("ledger", "rsm_spark")
