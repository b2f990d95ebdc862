"""Log lines of this process on their way to a collector, as the JSON of a log has them.

What those who send write into the log is not sent: a collector that is away would have lines made of lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from ledger.logs import line_of
from ledger.telemetry.exporter import THREADS
from ledger.telemetry.trace_context import TraceContext
from ledger.telemetry.tracing import current_context, tracer

_LINE_WEIGHT = 200  # Of what is no text.


class LogLine(NamedTuple):
    """One line.

    Attributes:
        time_ns: When.
        level: Of Python, such as 30.
        level_name: The same as the log has it: "warning".
        logger: Part of the program.
        message: The sentence.
        fields: What stands beside it, plain values or small objects.
        context: Span in which it was written; None = in none that is told.
        weight: Of it in a queue, about as many bytes.

    """

    time_ns: int
    level: int
    level_name: str
    logger: str
    message: str
    fields: dict[str, Any]
    context: TraceContext | None
    weight: int


class LineHandler(logging.Handler):
    """Hands lines over to be sent.

    Args:
        offer: Takes them; must not block.

    """

    def __init__(self, offer: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._offer = offer

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a line over; nobody fails because of it."""
        if (record.threadName or "").startswith(THREADS):
            return
        try:
            self._offer(_line(record))
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def told_context() -> TraceContext | None:
    """Return the span in which a line is written; None = there is none that is told."""
    if tracer() is None:
        return None
    context = current_context()
    return context if context is not None and context.is_sampled else None


def context_fields() -> dict[str, str]:
    """Return the fields that name that span."""
    context = told_context()
    if context is None:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _line(record: logging.LogRecord) -> LogLine:
    found = line_of(record)
    message, level_name = found.pop("message"), found.pop("level")
    for name in ("time", "logger", *context_fields()):
        found.pop(name, None)
    weight = _LINE_WEIGHT + len(message) + sum(len(name) + len(str(value)) for name, value in found.items())
    return LogLine(
        int(record.created * 1e9), record.levelno, level_name, record.name, message, found, told_context(), weight
    )
