"""Logs of commands and processes: text for people, or one JSON object a line for machines.

Every process and every command sets its log up here. A record is its sentence, and fields besides it that `extra`
brings; `ledger.log_fields` has their names. Whatever text a record holds, it is bounded, shows no secret, and cannot
forge another line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from ledger.errors import UsageError
from ledger.shown_text import HIDDEN, harmless_json, one_line, shown

LOG_FORMATS = ("text", "json")
LOG_FORMAT_VARIABLE: Final = "RSM_LOG_FORMAT"
LOG_LEVEL_VARIABLE: Final = "RSM_LOG_LEVEL"
AUDIT_LOGGER: Final = "rsm.audit"
"""Of lines whose sentence says all that their fields say."""

MESSAGE_CHARS_MAX: Final = 8_192
VALUE_CHARS_MAX: Final = 2_048
TRACE_CHARS_MAX: Final = 32_768
FIELDS_MAX: Final = 40

_DEFAULT_LEVEL: Final = "warning"
# What every record has; anything else was put there by `extra` and is a field of its own.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET_NAMES: Final = ("token", "password", "secret", "authorization")
_PYTHONS: Final = logging.Formatter()
_fields_of_context: Callable[[], Mapping[str, str]] = dict


class JsonLines(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`, what `extra` brought, `error` and `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return harmless_json(msgspec.json.encode(line_of(record)).decode())


class TextLines(logging.Formatter):
    """One line a record: time (UTC), level, logger, sentence, fields; a trace follows it, each line of it indented.

    Args:
        is_brief: The sentence and its fields alone, for commands that people type.

    """

    def __init__(self, *, is_brief: bool = False) -> None:
        super().__init__()
        self._is_brief = is_brief

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        said = one_line(_message(record))
        head = "rsm: " if self._is_brief else f"{_time(record)} {record.levelname} {record.name}: "
        fields = {} if record.name == AUDIT_LOGGER else _fields(record)
        told = ", ".join(
            one_line(f"{name}={_as_text(value)}") for name, value in fields.items() if value not in ("", None)
        )
        trace = "".join(f"\n    {one_line(line)}" for line in _trace(record).splitlines())
        return f"{head}{said}{f' ({told})' if told else ''}{trace}"


def configure_logs(
    level: str, log_format: str = "text", stream: TextIO | None = None, *, is_brief: bool = False
) -> None:
    """Send the log of this process to standard error.

    Args:
        level: "debug", "info", "warning" or "error".
        log_format: One of `LOG_FORMATS`.
        stream: Another place for it.
        is_brief: See `TextLines`.

    Raises:
        UsageError: There is no such level or format.

    """
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise UsageError(f"--log-level {level!r}: use debug, info, warning or error")
    if log_format not in LOG_FORMATS:
        raise UsageError(f"--log-format {log_format!r}: use {' or '.join(LOG_FORMATS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(is_brief=is_brief))
    logging.basicConfig(level=levels[level.upper()], handlers=[handler], force=True)
    # It reports every lost connection at length; what that means is said by our own lines.
    logging.getLogger("kazoo").setLevel(max(levels[level.upper()], logging.WARNING))


def configure_command_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Send the log of a command to standard error as the environment says, unless somebody has set it up before.

    Raises:
        UsageError: The environment names no level or format.

    """
    if logging.getLogger().handlers:
        return
    level = environment.get(LOG_LEVEL_VARIABLE) or _DEFAULT_LEVEL
    log_format = environment.get(LOG_FORMAT_VARIABLE) or "text"
    try:
        configure_logs(level, log_format, is_brief=True)
    except UsageError as error:
        raise UsageError(f"environment ({LOG_LEVEL_VARIABLE}, {LOG_FORMAT_VARIABLE}): {error}") from None


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line says, as `JsonLines` has it."""
    line: dict[str, Any] = {
        "time": _time(record),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _encodable(_message(record)),
    }
    line.update(_fields(record))
    if trace := _trace(record):
        line["trace"] = _encodable(trace)
    return line


def add_fields_of_context(fields: Callable[[], Mapping[str, str]]) -> None:
    """Have each line say what it was written in; a second call takes the place of the first."""
    global _fields_of_context  # noqa: PLW0603 - one of a process, as its log is
    _fields_of_context = fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _message(record: logging.LogRecord) -> str:
    try:
        said = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a line that is put together wrongly is told nevertheless
        said = f"{record.msg} ({type(error).__name__}: its arguments do not fit)"
    return shown(said, MESSAGE_CHARS_MAX)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line was written in, what `extra` has brought, bounded, and the text of an error."""
    found: dict[str, Any] = dict(_fields_of_context())
    for name, value in vars(record).items():
        if name in _STANDARD or name == "trace":
            continue
        if len(found) >= FIELDS_MAX:
            break
        is_secret = any(word in name.lower() for word in _SECRET_NAMES)
        found[_encodable(name[:64])] = HIDDEN if is_secret else _plain(value)
    if record.exc_info and record.exc_info[0] is not None and "error" not in found:
        found["error"] = _plain(f"{record.exc_info[0].__name__}: {record.exc_info[1]}")
    return found


def _plain(value: object) -> Any:
    """Return a value as JSON knows it: numbers, text of a bounded length, or small objects as they are."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        try:
            encoded = msgspec.json.encode(value, enc_hook=str).decode()
            if len(encoded) <= VALUE_CHARS_MAX and shown(encoded, VALUE_CHARS_MAX) == encoded:
                return msgspec.Raw(encoded.encode()) if encoded[:1] in "{[" else msgspec.json.decode(encoded)
            value = encoded
        except Exception:  # noqa: BLE001 - a line is told whatever its fields are
            value = f"<{type(value).__name__}>"
    return _encodable(shown(value, VALUE_CHARS_MAX))


def _as_text(value: object) -> str:
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)


def _trace(record: logging.LogRecord) -> str:
    """Return the stack of an error, or the one that `extra` brought; of a long one its two ends."""
    trace = str(vars(record).get("trace", ""))
    if record.exc_info:
        trace = _PYTHONS.formatException(record.exc_info)
    if len(trace) > TRACE_CHARS_MAX:
        half = TRACE_CHARS_MAX // 2
        trace = f"{trace[:half]}\n… ({len(trace):,} characters)\n{trace[-half:]}"
    return shown(trace, 2 * TRACE_CHARS_MAX)


def _encodable(text: str) -> str:
    """Return text that UTF-8 knows: names of files may hold bytes that are none."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
