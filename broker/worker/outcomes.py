"""Ends of runs as the broker is told: results, errors, and what a worker did to them."""

from __future__ import annotations

import traceback
from typing import Any

from broker.machine.commands import EndedRun
from broker.machine.limits import ERROR_BYTES_MAX, RESULT_BYTES_MAX
from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.context import TaskError
from broker.worker.core.effects import StopReason

_FIRST_LINE_BYTES_MAX = 1024
_CUT = " […]"


def result_bytes(result: Any) -> bytes:
    """Return what a function has returned as bytes.

    Raises:
        TypeError: It is neither bytes nor str nor None.
        ValueError: It is too large.

    """
    if result is None:
        return b""
    if isinstance(result, str):
        result = result.encode()
    elif isinstance(result, bytearray | memoryview):
        result = bytes(result)
    elif not isinstance(result, bytes):
        raise TypeError(f"a task returns bytes, str or None, not {type(result).__name__}")
    if len(result) > RESULT_BYTES_MAX:
        raise ValueError(
            f"the result has {len(result):,} bytes, {RESULT_BYTES_MAX:,} are allowed: store it elsewhere and return "
            "where it is"
        )
    checked: bytes = result
    return checked


def finished(task_id: int, assignment_id: int, result: Any) -> EndedRun:
    """Return the end of a run that returned; it failed if what it returned cannot be told."""
    if result is None:
        return EndedRun(task_id, assignment_id, TaskStatus.FINISHED)
    try:
        return EndedRun(task_id, assignment_id, TaskStatus.FINISHED, result=result_bytes(result))
    except (TypeError, ValueError) as error:
        return failed(task_id, assignment_id, f"{type(error).__name__}: {error}")


def failed(task_id: int, assignment_id: int, error: BaseException | str) -> EndedRun:
    """Return the end of a run that raised, or failed for a reason in words."""
    text = cut_error(str(error)) if isinstance(error, str | TaskError) else error_text(error)
    return EndedRun(task_id, assignment_id, TaskStatus.ERROR, Outcome.FAILED, text)


def timed_out(task_id: int, assignment_id: int, timeout_ms: int, what: str) -> EndedRun:
    """Return the end of a run that took too long; `what` says what became of it."""
    text = f"TimedOut: the run took longer than {timeout_ms} ms; {what}"
    return EndedRun(task_id, assignment_id, TaskStatus.ERROR, Outcome.TIMED_OUT, cut_error(text))


def refused(task_id: int, assignment_id: int, why: str) -> EndedRun:
    """Return the end of a run that this worker cannot do."""
    return EndedRun(task_id, assignment_id, TaskStatus.ERROR, Outcome.REFUSED, cut_error(f"Refused: {why}"))


def stopped(task_id: int, assignment_id: int, reason: StopReason) -> EndedRun:
    """Return the end of a run that was stopped from outside."""
    if reason is StopReason.CANCELLED:
        return EndedRun(task_id, assignment_id, TaskStatus.CANCELLED, Outcome.CANCELLED)
    why = (
        "the worker had heard nothing from the broker for most of its lease"
        if reason is StopReason.LEASE
        else "the worker ended and waited no longer"
    )
    return EndedRun(task_id, assignment_id, TaskStatus.ERROR, Outcome.WORKER_DIED, f"WorkerDied: stopped: {why}")


def error_text(error: BaseException) -> str:
    """Return "Type: message" and the traceback, in `ERROR_BYTES_MAX`; of a long traceback its end."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - a user's class
        said = "(its text cannot be made)"
    first = _cut(f"{type(error).__name__}: {said}" if said else type(error).__name__, _FIRST_LINE_BYTES_MAX)
    try:
        # The frame of the executor that called says nothing to the user.
        trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
        lines = "".join(traceback.format_tb(trace)).rstrip()
    except Exception:  # noqa: BLE001 - sources that cannot be read
        lines = ""
    if not lines:
        return first
    room = ERROR_BYTES_MAX - len(first.encode()) - 1
    raw = lines.encode(errors="backslashreplace")
    if len(raw) > room:
        lines = "[…]" + raw[-(room - 5) :].decode(errors="ignore")
    return f"{first}\n{lines}"


def cut_error(text: str) -> str:
    """Return a text for people in `ERROR_BYTES_MAX`; what is cut says so."""
    return _cut(text, ERROR_BYTES_MAX)


def _cut(text: str, bytes_max: int) -> str:
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= bytes_max:
        return raw.decode()
    return raw[: bytes_max - len(_CUT.encode())].decode(errors="ignore") + _CUT
