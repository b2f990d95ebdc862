"""Session of Spark Connect for one run of a task, in the process that runs it: see `connectors.pool.connect_server`."""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from connectors.pool.connect_server import ADDRESS_VARIABLE, TOKEN_VARIABLE, session_user

# Spark takes a process whose main module has no file for one of its own tests, and ends it where it finds no Spark.
vars(sys.modules["__main__"]).setdefault("__file__", __file__)

from pyspark.sql.connect.session import SparkSession  # noqa: E402 - see above


class RunContext(Protocol):
    """Context of a run, as far as its session needs it."""

    @property
    def task_id(self) -> int: ...

    @property
    def assignment_id(self) -> int: ...

    @property
    def is_cancelled(self) -> bool: ...

    @property
    def cancelled(self) -> threading.Event:
        """Set when the run is to end."""
        ...


@contextmanager
def given_session(context: RunContext) -> Iterator[dict[str, Any]]:
    """Give a function `spark`, a session of its own, for as long as it runs; if it is to end, what it computes ends."""
    user, address = session_user(context.task_id, context.assignment_id), os.environ[ADDRESS_VARIABLE]
    digest = hmac.digest(os.environ[TOKEN_VARIABLE].encode(), user.encode(), hashlib.sha256)
    session = uuid.UUID(bytes=digest[:16], version=4)
    spark: Any = SparkSession.builder.remote(f"sc://{address}/;user_id={user};session_id={session}").create()
    # Files that a session adds are its own. Not so for all sessions: workers need those that the driver was given.
    spark.conf.set("spark.sql.artifact.isolation.enabled", "true")
    spark.conf.set("spark.sql.artifact.isolation.alwaysApplyClassloader", "true")
    watch = threading.Thread(target=_interrupt, args=(spark, context), name=user, daemon=True)
    watch.start()
    try:
        yield {"spark": spark}
    finally:
        context.cancelled.set()  # Of a run that is over nobody asks it; the thread waits for it.
        watch.join()
        spark.stop()


def _interrupt(spark: Any, context: RunContext) -> None:
    """Break off what a session computes, once its run is to end."""
    context.cancelled.wait()
    if context.is_cancelled:
        spark.interruptAll()
