"""Format of the processes' logs: text for people, or one JSON object a line for machines."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from ledger.errors import UsageError

LOG_FORMATS = ("text", "json")

# What every record has; anything else was put there by `extra` and is a field of its own.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`, what `extra` brought, `error` with its trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure_logs(level: str, log_format: str = "text", stream: TextIO | None = None) -> None:
    """Send the log of this process to standard error.

    Args:
        level: "debug", "info", "warning" or "error".
        log_format: One of `LOG_FORMATS`.
        stream: Another place for it.

    Raises:
        UsageError: There is no such level or format.

    """
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise UsageError(f"--log-level {level!r}: use debug, info, warning or error")
    if log_format not in LOG_FORMATS:
        raise UsageError(f"--log-format {log_format!r}: use {' or '.join(LOG_FORMATS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=levels[level.upper()], handlers=[handler], force=True)
    # It reports every lost connection at length; what that means is said by our own lines.
    logging.getLogger("kazoo").setLevel(max(levels[level.upper()], logging.WARNING))
