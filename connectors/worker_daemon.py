"""The process that Spark forks its Python workers from, with what they would import loaded before.

    spark-submit --conf spark.python.daemon.module=connectors.worker_daemon …

Spark's own daemon loads nothing, so that each new worker imports Spark's modules, Arrow and those of this project anew
before its first row. Here workers find them in memory that they share. `connectors.session` sets it where the tasks'
interpreter is sure to have this package; where it has not, no worker starts at all.

Nothing that is loaded here may leave a thread of Python's behind: a fork takes none along. Those of Arrow's allocator,
and of numpy where it has more than one core, have handlers of their own for forks.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

PRELOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "connectors.sink.format",
    "connectors.source.batch",
    "connectors.source.inputs",
    "connectors.source.stream",
)
"""Modules that functions of Spark's sources name when they are unpickled; the rest comes with them."""


def preload() -> None:
    """Load the modules; one that cannot be loaded here is told by the worker that wants it."""
    for name in PRELOADED:
        with contextlib.suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()  # Else the first collection of each worker writes to all of that memory, and has it copied.


if __name__ == "__main__":
    preload()
    manager()
