"""Tasks of type `spark_sql`: a statement in the session of whoever keeps the pool, under the tenants' limits.

    {"sql": "SELECT day, count(*) FROM flights WHERE origin = :origin GROUP BY day", "args": {"origin": "JFK"}}
    {"sql": "SELECT * FROM flights", "path": "/lake/copy", "format": "delta", "mode": "append"}

What runs it is a port: nothing here knows Spark.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from broker.machine.limits import RESULT_BYTES_MAX
from broker.worker.context import RunCancelledError, TaskContext, TaskError
from ledger.decoding import json_decoder

SPARK_SQL = "spark_sql"
ROWS_MAX = 100_000
"""Rows of a result: a larger one belongs into a table."""
_LOOK_S = 0.1
_CANCEL_AGAIN_S = 0.5


class StatementPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The payload of a task.

    Attributes:
        sql: One statement.
        args: Values of its `:names`, or of its question marks.
        limit: Rows of the result at most; more are left out, and the result says so.
        table: Write the rows to this table instead.
        path: Or to files at this place.
        format: Of what is written: "parquet", "delta", …; "" = as Spark is set.
        mode: What if something is there already.

    """

    sql: str
    args: dict[str, Any] | list[Any] | None = None
    limit: int = 1_000
    table: str = ""
    path: str = ""
    format: str = ""
    mode: Literal["error", "append", "overwrite", "ignore"] = "error"


class StatementRunner(Protocol):
    """Runs statements, on any thread."""

    def run(self, statement: StatementPayload, *, group: str, tenant: str, effect: str, result_bytes_max: int) -> bytes:
        """Run one and return its result as JSON.

        Args:
            statement: What.
            group: By which it can be cancelled.
            tenant: With whom it shares.
            effect: Names what it does: if that has been done already, it is not done again where that can be known.
            result_bytes_max: Of the result: rows beyond it are left out.

        Raises:
            Exception: It failed; see `words`.

        """
        ...

    def cancel(self, group: str) -> None:
        """Break off what runs under this group; may be called again and again."""
        ...

    def words(self, error: Exception) -> str:
        """Return what an error says, without traces."""
        ...


def read_statement(payload: bytes) -> StatementPayload:
    """Read a payload.

    Raises:
        TaskError: It is none.

    """
    try:
        statement = json_decoder(StatementPayload).decode(payload)
    except msgspec.MsgspecError as error:
        raise TaskError(f'spark_sql: the payload is no statement, such as {{"sql": "SELECT 1"}}: {error}') from None
    if not statement.sql.strip():
        raise TaskError("spark_sql: the statement is empty")
    if not 0 <= statement.limit <= ROWS_MAX:
        raise TaskError(
            f"spark_sql: limit {statement.limit}: expected 0 to {ROWS_MAX:,}; write larger results to a table"
        )
    if statement.table and statement.path:
        raise TaskError("spark_sql: rows go to a table or to a path, not to both")
    if statement.format and not (statement.table or statement.path):
        raise TaskError("spark_sql: a format belongs to a table or a path to write to")
    return statement


def statement_function(runner: StatementRunner, log: str) -> Callable[[TaskContext, bytes], bytes]:
    """Return the function that runs tasks of type `spark_sql`, for a thread executor.

    Args:
        runner: Runs the statements.
        log: Name of the broker's log: task ids are unique within it.

    """

    def run(context: TaskContext, payload: bytes) -> bytes:
        statement = read_statement(payload)
        group = f"{log}-task-{context.task_id}-{context.assignment_id}"
        digest = hashlib.sha256(payload).hexdigest()[:16]
        is_over = threading.Event()
        watch = threading.Thread(target=_watch, args=(runner, group, context, is_over), name=group, daemon=True)
        watch.start()
        try:
            return runner.run(
                statement,
                group=group,
                tenant=context.tenant,
                effect=f"{log}-task-{context.task_id}-{digest}",
                result_bytes_max=RESULT_BYTES_MAX,
            )
        except Exception as error:  # noqa: BLE001 - whatever it was, the task's owner is told in words
            if context.is_cancelled:
                raise RunCancelledError(group) from None
            raise TaskError(runner.words(error)) from None
        finally:
            is_over.set()
            watch.join()

    return run


def function_is_missing(context: TaskContext, payload: bytes) -> str:  # noqa: ARG001 - as each function of a task
    """Tell whoever submitted a task of type `spark_python` without a function what is missing.

    Raises:
        TaskError: Always.

    """
    raise TaskError(
        "spark_python: the task names no function: deploy its code (rsm task deploy), and submit with --code and --mode"
    )


def _watch(runner: StatementRunner, group: str, context: TaskContext, is_over: threading.Event) -> None:
    """Have a statement broken off once its run is to end, until it is: it may be between two of its jobs."""
    while not is_over.wait(_LOOK_S):
        if context.is_cancelled:
            break
    while not is_over.is_set():
        runner.cancel(group)
        is_over.wait(_CANCEL_AGAIN_S)
