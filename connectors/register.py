"""For Spark applications that ship this package by `--py-files`: their look-up by name does not see it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from connectors.sink.format import LedgerFormat
from connectors.state.source import LedgerStateSource

if TYPE_CHECKING:
    # Where only Spark Connect is installed, there is none.
    from pyspark import SparkContext

__all__ = ["register"]

# Where Spark 4.2 has the driver's side of a Python stream look for shipped files; it puts none there.
_STREAMS_FOLDER = "streaming_job"


def register(spark: SparkSession) -> None:
    """Make `.format("ledger")` and `.format("ledger_state")` known to a session, classic or of Spark Connect.

    Not needed where the package is installed.
    """
    context = _context()
    wheel = next((path for path in Path(__file__).parents if path.suffix == ".whl"), None)
    if context is not None and wheel is not None:
        _ship(context, wheel)  # first: what is registered names the packages that there are then
    for source in (LedgerFormat, LedgerStateSource):
        spark.dataSource.register(source)
    if context is not None and context._python_includes:
        from pyspark import SparkFiles  # noqa: PLC0415 - not there in a client of Spark Connect

        _show_files_to_streams(Path(SparkFiles.getRootDirectory()))


def _context() -> SparkContext | None:
    if is_remote_only():  # a client of Spark Connect, whose driver is elsewhere
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - see above

    return SparkContext._active_spark_context


def _ship(context: SparkContext, wheel: Path) -> None:
    """Have executors import from a wheel too: Spark ships it as any file, and takes it for a package as `.zip` only."""
    package = Path(str(context._temp_dir)) / wheel.with_suffix(".zip").name
    if package.name not in (context._python_includes or ()):
        shutil.copyfile(wheel, package)
        context.addPyFile(str(package))


def _show_files_to_streams(folder: Path) -> None:
    """Let the driver's side of a stream import what was shipped: without, it finds no module of this package."""
    with contextlib.suppress(FileExistsError):
        (folder / _STREAMS_FOLDER).symlink_to(folder, target_is_directory=True)
