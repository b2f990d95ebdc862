"""Calls of a function on Spark's executors that take as long as they like: each is one task of a job of its own.

Jobs of one task, because then each ends, fails and is cancelled by itself. There is no barrier: nothing waits for all.
A task whose executor is lost is run again by Spark, and is told which attempt it is.

The function is named by a text and imported on the executor. What Spark carries there besides is a few lines by value,
so that no module of the driver's but the function's own package has to be found there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from connectors.error_text import spoken_error

if TYPE_CHECKING:
    # Whoever launches has loaded both.
    import pyarrow as pa
    from pyspark.sql import SparkSession


_LOGGER = logging.getLogger(__name__)
_SCHEMA = "error string"


class SparkLauncher:
    """See the module.

    Args:
        spark: A session with a context of its own: not one of Spark Connect.
        entry: "module:function", called as function(text, attempt, folder) -> error text, "" for none; `folder` is
            where Spark keeps files that were shipped.
        name: Of the whole, for Spark's pages and for groups of jobs.

    """

    def __init__(self, spark: SparkSession, entry: str, name: str) -> None:
        self._spark = spark
        self._entry = entry
        self._name = name
        self._lock = threading.Lock()
        self._cancelled: set[str] = set()

    def launch(self, index: int, launch: int, spec_text: str, on_over: Callable[[int, int, str], None]) -> None:
        """Begin a call.

        Args:
            index: For people: which of the calls this is.
            launch: Together with `index` names the call.
            spec_text: What the function gets.
            on_over: Called once, on another thread, with index, launch, and what it returned or why it failed.

        """
        threading.Thread(
            target=self._run, args=(index, launch, spec_text, on_over), name=f"{self._name}-{index}", daemon=True
        ).start()

    def cancel(self, index: int, launch: int) -> None:
        """End a call by force. Spark's task is over soon; its Python process may live on for some seconds."""
        group = self._group(index, launch)
        with self._lock:
            self._cancelled.add(group)  # Its job may not have begun yet.
        threading.Thread(target=self._cancel, args=(group,), name=f"cancel-{group}", daemon=True).start()

    def _cancel(self, group: str) -> None:
        try:
            self._spark.sparkContext.cancelJobGroup(group)
        except Exception as error:  # noqa: BLE001 - the context is gone, and the job with it
            _LOGGER.debug("cannot cancel %s: %s", group, error)

    def _group(self, index: int, launch: int) -> str:
        return f"{self._name}-{index}-{launch}"

    def _run(self, index: int, launch: int, spec_text: str, on_over: Callable[[int, int, str], None]) -> None:
        group = self._group(index, launch)
        try:
            error = self._collect(group, index, spec_text)
        except Exception as failure:  # noqa: BLE001 - whatever Spark says is told
            error = spoken_error(failure) or type(failure).__name__
        finally:
            with self._lock:
                was_cancelled = group in self._cancelled
                self._cancelled.discard(group)
        on_over(index, launch, "it was cancelled" if was_cancelled else error)

    def _collect(self, group: str, index: int, spec_text: str) -> str:
        context = self._spark.sparkContext
        context.setJobGroup(group, f"{self._name}-{index}", interruptOnCancel=False)
        # Tasks that never end are not to stand in the way of others that are shorter.
        context.setLocalProperty("spark.scheduler.pool", self._name)
        rows = self._spark.range(index, index + 1, 1, 1).mapInArrow(_carried(self._entry, spec_text), _SCHEMA)
        with self._lock:
            if group in self._cancelled:
                return ""
        (row,) = rows.collect()
        return str(row["error"])


def _carried(entry: str, spec_text: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what each task runs: nested, so that it is pickled by value, and names nothing of this module."""

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib  # noqa: PLC0415 - on the executor
        import sys  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415
        from pyspark import SparkFiles, TaskContext  # noqa: PLC0415

        for _ in batches:
            pass
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        module, _, name = entry.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except ImportError as error:
            said = (
                f"{sys.executable} on the executor has no {module}: {error}. Install rsm-spark there, or ship its "
                "wheel with --py-files"
            )
        else:
            said = function(spec_text, attempt, SparkFiles.getRootDirectory())
        yield pa.RecordBatch.from_pydict({"error": [said]})

    return call
