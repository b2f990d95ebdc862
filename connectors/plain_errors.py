"""Errors that Spark shows: one sentence, instead of that sentence behind the frames of two languages.

Spark runs Python sources and sinks in processes of its own, those that plan and those of tasks, and shows the whole
trace of what they raise. It leaves the trace out where a variable of that process says so. Such a process ends with its
first error, so that nobody else's traces are left out: functions of users run in other processes, and what they raise
reaches ours as the end of the input, not as an error.

Where the variable is there already, empty as well, it stays as it is: empty, it shows traces again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from connectors.errors import ConnectorError
from ledger.errors import LedgerError
from rsm_spark.errors import RsmError

_HIDE_VARIABLE = "SPARK_HIDE_TRACEBACK"
_OF_SPARK = ("pyspark.", "connectors.worker_daemon")
"""Beginnings of the names of modules that such processes are started with."""
_Class = TypeVar("_Class", bound=type)


def tells_plainly(*methods: str) -> Callable[[_Class], _Class]:
    """Return a decorator of a class: what this project raises on purpose in these methods comes without a trace.

    So does what the iterators raise that they return.
    """

    def decorate(cls: _Class) -> _Class:
        for name in methods:
            setattr(cls, name, told_plainly(getattr(cls, name)))
        return cls

    return decorate


def told_plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose errors of this project come without a trace; those of its iterator likewise."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _plainly():
            made = function(*args, **kwargs)
        return _each(made) if isinstance(made, Iterator) else made

    return call


def _each(items: Iterator[Any]) -> Iterator[Any]:
    with _plainly():
        yield from items


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    try:
        yield
    except (ConnectorError, LedgerError, RsmError):
        if _is_of_spark():
            os.environ.setdefault(_HIDE_VARIABLE, "1")
        raise


def _is_of_spark() -> bool:
    """Return whether this is a process of Spark's own; a driver's variables would go to all its processes."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_OF_SPARK)
