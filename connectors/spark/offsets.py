"""Offsets as Spark keeps them: canonical JSON of the next position in each log or ledger.

A log:    ``{"version": 1, "log": {"orders": {"ledger": 3, "entry": 7, "revision": 1234}}}``
Ledgers:  ``{"version": 1, "ledgers": {"17": 5, "18": 0}}``

Spark compares the text, so equal offsets must have equal text: keys stand in this order, ledgers in ascending order,
and a position moves only when an entry has been passed. `entry` is the next entry, `revision` the next record: it may
lie inside that entry (``startingOffsets=latest-1000``). ``ledger`` is -1 for a log that has no ledger yet. The end of
a ledger and the begin of the next one are the same place; it is written as the end of the older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from connectors.errors import SparkOffsetError

__all__ = [
    "OFFSET_VERSION",
    "LogOffset",
    "decode_ledger_offsets",
    "decode_log_offset",
    "encode_ledger_offsets",
    "encode_log_offset",
]

OFFSET_VERSION = 1


class LogOffset(NamedTuple):
    """Next position in a log.

    Attributes:
        ledger_id: -1 before the log's first ledger.
        entry_id: Next entry to read.
        revision: Next record to deliver: at or after the entry's first. Offsets of a log are ordered by it, then by
            their place.

    """

    ledger_id: int
    entry_id: int
    revision: int


def encode_log_offset(log: str, offset: LogOffset) -> dict[str, Any]:
    """Return the dict that Spark writes as JSON."""
    ledger_id, entry_id, revision = offset
    return {
        "version": OFFSET_VERSION,
        "log": {log: {"ledger": ledger_id, "entry": entry_id, "revision": revision}},
    }


def decode_log_offset(log: str, offset: Mapping[str, Any]) -> LogOffset:
    """Read an offset back.

    Raises:
        SparkOffsetError: It is of another version, of another log, or no offset at all.

    """
    _check_version(offset)
    by_log = offset.get("log")
    if not isinstance(by_log, dict) or list(by_log) != [log]:
        raise SparkOffsetError(
            f"the checkpoint's offset is {_brief(offset)}, the query reads log {log}: use another checkpoint location"
        )
    position = by_log[log]
    try:
        found = LogOffset(position["ledger"], position["entry"], position["revision"])
    except (KeyError, TypeError) as error:
        raise SparkOffsetError(f"{_brief(offset)} is no offset of a log: {error!r}") from error
    if not all(type(number) is int for number in found):
        raise SparkOffsetError(f"{_brief(offset)} is no offset of a log: whole numbers are needed")
    return found


def encode_ledger_offsets(next_entries: Mapping[int, int]) -> dict[str, Any]:
    """Return the dict that Spark writes as JSON.

    Args:
        next_entries: Next entry by ledger id.

    """
    return {
        "version": OFFSET_VERSION,
        "ledgers": {str(ledger_id): next_entries[ledger_id] for ledger_id in sorted(next_entries)},
    }


def decode_ledger_offsets(offset: Mapping[str, Any]) -> dict[int, int]:
    """Read an offset back: next entry by ledger id, ascending.

    Raises:
        SparkOffsetError: It is of another version, of a log, or no offset at all.

    """
    _check_version(offset)
    by_ledger = offset.get("ledgers")
    if not isinstance(by_ledger, dict):
        raise SparkOffsetError(
            f"the checkpoint's offset is {_brief(offset)}, the query reads ledgers: use another checkpoint location"
        )
    found: dict[int, int] = {}
    for key in sorted(by_ledger, key=lambda text: (len(text), text)):
        entry_id = by_ledger[key]
        if not (key.isascii() and key.isdigit()) or type(entry_id) is not int:
            raise SparkOffsetError(f"{_brief(offset)} is no offset of ledgers")
        found[int(key)] = entry_id
    return found


def _check_version(offset: Mapping[str, Any]) -> None:
    version = offset.get("version")
    if version != OFFSET_VERSION:
        raise SparkOffsetError(
            f"the offset {_brief(offset)} has version {version!r}, this source reads {OFFSET_VERSION}: "
            "a newer version of the connector wrote it, or it is not an offset of source ledger"
        )


def _brief(offset: Mapping[str, Any]) -> str:
    text = str(dict(offset))
    return text if len(text) <= 200 else text[:200] + "…"
