"""The audit of one process: lines of one logger, which may go to a file of their own as JSON, and counted refusals.

A line has the fields of `AuditLine`, whatever process tells it. Refusals are counted by reason, and one of each kind is
told in a while: a stranger must not be able to fill a disk.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ledger.errors import UsageError
from ledger.logs import AUDIT_LOGGER, JsonLines

_SAMPLE_S = 10.0
_KINDS_MAX = 1_000
_lines = logging.getLogger(AUDIT_LOGGER)
_lines.setLevel(logging.INFO)  # Whatever the rest of the process tells.


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """Line of an audit file: who did what, from where, on what, and how it ended; "" = not known."""

    principal: str = ""
    role: str = ""
    source: str = ""
    action: str
    target: str = ""
    outcome: str


def tell(said: Mapping[str, object], **more: object) -> None:
    """Write a line.

    Args:
        said: The fields of `AuditLine`.
        more: Further fields; those that are None are left out.

    """
    extra = {**said, **{name: value for name, value in more.items() if value is not None}}
    who = f"{said['principal'] or '-'} ({said['role'] or '-'}) from {said['source'] or '-'}"
    _lines.info("%s: %s on %s: %s", who, said["action"], said["target"] or "-", said["outcome"], extra=extra)


class Refusals:
    """Refusals, counted, and one of each kind told in a while.

    Attributes:
        count: All of them since the process began.
        by_reason: The same by reason; reasons are few, and none is a stranger's to choose.

    """

    def __init__(self) -> None:
        self.count = 0
        self.by_reason: Counter[str] = Counter()
        # (action, principal) -> when it was last told, and how many were not since; the oldest told goes first.
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, said: Mapping[str, object], now_s: float, *, reason: str = "", **more: object) -> None:
        """Count a refusal; tell of it, or leave it out.

        Args:
            said: The fields of `AuditLine`.
            now_s: Monotonic time.
            reason: To count it by; "" = by nothing.
            more: Further fields of its line; beside them it tells the counts by reason.

        """
        self.count += 1
        if reason:
            self.by_reason[reason] += 1
        kind = (str(said["action"]), str(said["principal"]))
        told_s, left_out = self._told.get(kind, (float("-inf"), 0))
        if now_s - told_s < _SAMPLE_S:
            self._told[kind] = (told_s, left_out + 1)
            return
        self._told.pop(kind, None)
        if len(self._told) >= _KINDS_MAX:
            del self._told[next(iter(self._told))]
        self._told[kind] = (now_s, 0)
        tell(said, left_out=left_out or None, refusals=dict(self.by_reason) or None, **more)


class _AuditFile(logging.FileHandler):
    def close(self) -> None:
        """Close the file; nothing is written to it any more."""
        _lines.removeHandler(self)
        super().close()


def open_audit_file(path: str) -> logging.Handler:
    """Have every line of the audit written to a file too, as JSON; return what ends it by its `close`.

    Args:
        path: Is made with mode 0600, or continued.

    Raises:
        UsageError: It cannot be written.

    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = _AuditFile(Path(path), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--audit-file {path}: cannot write it: {error.strerror}") from None
    handler.setFormatter(JsonLines())
    _lines.addHandler(handler)
    return handler
