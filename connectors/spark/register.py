"""For Spark applications that ship this package by `--py-files`: their look-up by name does not see it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from connectors.spark.source import LedgerSource
from connectors.state.source import LedgerStateSource

__all__ = ["register"]

# Where Spark 4.2 has the driver's side of a Python stream look for shipped files; it puts none there.
_STREAMS_FOLDER = "streaming_job"


def register(spark: SparkSession) -> None:
    """Make `.format("ledger")` and `.format("ledger_state")` known to a session, classic or of Spark Connect.

    Not needed where the package is installed.
    """
    for source in (LedgerSource, LedgerStateSource):
        spark.dataSource.register(source)
    if is_remote_only():  # a client of Spark Connect, whose driver is elsewhere
        return
    from pyspark import SparkContext, SparkFiles  # noqa: PLC0415 - see above

    context = SparkContext._active_spark_context
    if context is not None and context._python_includes:
        _show_files_to_streams(Path(SparkFiles.getRootDirectory()))


def _show_files_to_streams(folder: Path) -> None:
    """Let the driver's side of a stream import what was shipped: without, it finds no module of this package."""
    with contextlib.suppress(FileExistsError):
        (folder / _STREAMS_FOLDER).symlink_to(folder, target_is_directory=True)
