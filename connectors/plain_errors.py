"""Errors where Spark plans: one sentence, instead of that sentence behind the frames of two languages.

Spark plans queries of Python sources in processes of its own, and shows the whole trace of what they raise. It leaves
the trace out where a variable of that process says so. Such a process ends with its first error, so that nobody else's
traces are left out. In tasks, where functions of users run too, traces stay.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from connectors.errors import ConnectorError
from ledger.errors import LedgerError
from rsm_spark.errors import RsmError

_HIDE_VARIABLE = "SPARK_HIDE_TRACEBACK"
_Class = TypeVar("_Class", bound=type)


def tells_plainly(*methods: str) -> Callable[[_Class], _Class]:
    """Return a decorator of a class: what this project raises on purpose in these methods comes without a trace."""

    def decorate(cls: _Class) -> _Class:
        for name in methods:
            setattr(cls, name, _told(getattr(cls, name)))
        return cls

    return decorate


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (ConnectorError, LedgerError, RsmError):
            if _is_planner():
                os.environ[_HIDE_VARIABLE] = "1"
            raise

    return call


def _is_planner() -> bool:
    """Return whether this is a process of Spark's own; a driver's variables would go to all its processes."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
