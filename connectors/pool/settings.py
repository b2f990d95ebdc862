"""Settings of a Spark session for work that never ends by itself."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from connectors.errors import OptionError
from connectors.session import spark_session

MAX_FAILURES = 100
"""Number of times that Spark runs a task of a lost executor again, before its job fails and the pool starts anew."""

_COPIES = (
    "speculation runs a second copy of a task that takes long, and a worker takes long: the two would drive each other "
    "out. Set spark.speculation=false"
)
_IDLE = "a worker says nothing to Spark while it works, and would be killed for it. Set it to false"
_REFUSED = {
    "spark.speculation": _COPIES,
    "spark.python.worker.killOnIdleTimeout": _IDLE,
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": _IDLE,
}


def pool_session(app: str, *, delta: bool = False, defaults: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session for a pool; what the user has set stays as it is.

    Args:
        app: Name of the application.
        delta: Whether statements read or write Delta tables.
        defaults: Settings besides, for what the user has not set.

    Raises:
        OptionError: A setting cannot go with a pool.
        SessionSetupError: Delta's JARs are missing.

    """
    spark = spark_session(
        app,
        delta=delta,
        # The second number is how often a task may fail: a local master looks at no setting for that.
        local=f"local[*,{MAX_FAILURES}]",
        defaults={
            "spark.task.maxFailures": str(MAX_FAILURES),
            # Statements of many tenants share what slots the workers leave.
            "spark.scheduler.mode": "FAIR",
            # Jobs that never end have no progress to show.
            "spark.ui.showConsoleProgress": "false",
            **(defaults or {}),
        },
    )
    check_pool_settings(dict(spark.sparkContext.getConf().getAll()))
    return spark


def check_pool_settings(settings: dict[str, str]) -> None:
    """Look at the settings of a session.

    Args:
        settings: All that are set.

    Raises:
        OptionError: One cannot go with a pool.

    """
    for name, why in _REFUSED.items():
        if settings.get(name, "false").strip().lower() == "true":
            raise OptionError(f"{name} is on: {why}")


def local_slots(spark: SparkSession) -> int | None:
    """Return how many tasks a session in this one process runs at once; None = it is a cluster's."""
    master = spark.sparkContext.master or ""
    return spark.sparkContext.defaultParallelism if master == "local" or master.startswith("local[") else None
