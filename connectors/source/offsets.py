"""Offsets as Spark keeps them: canonical JSON of the next position in each log or ledger.

Logs:     ``{"version": 1, "log": {"orders": {"ledger": 3, "entry": 7, "revision": 1234}}}``
Ledgers:  ``{"version": 1, "ledgers": {"17": 5, "18": 0}}``

Spark compares the text, so equal offsets must have equal text: keys stand in this order, logs and ledgers in ascending
order, and a position moves only when an entry has been passed. `entry` is the next entry, `revision` the next record:
it may lie inside that entry (``startingOffsets=latest-1000``). ``ledger`` is -1 for a log that has no ledger yet. The
end of a ledger and the begin of the next one are the same place; it is written as the end of the older one.

A log that is still in the snapshot that its query began with has ``{"snapshot": {"version": 12, "revision": 1000,
"row": 16384}}`` instead: version of the lake's table, revision of the state, next row of it. Connectors that know no
snapshots refuse such an offset, as they do one of several logs: the version need not be raised for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from connectors.errors import SparkOffsetError

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


class SnapshotOffset(NamedTuple):
    """Next row of the snapshot that a query of a log begins with.

    Attributes:
        version: Of the Delta table that holds the log's snapshots.
        revision: Of the last record in the state.
        row: Next row, counted over the snapshot's files in the order of their names; always the first of a row group.

    """

    version: int
    revision: int
    row: int


LogPosition: TypeAlias = LogOffset | SnapshotOffset
"""Position of a query in one log."""


def encode_log_offsets(positions: Mapping[str, LogPosition]) -> dict[str, Any]:
    """Return the dict that Spark writes as JSON.

    Args:
        positions: By log.

    """
    return {"version": OFFSET_VERSION, "log": {log: _encoded(positions[log]) for log in sorted(positions)}}


def _encoded(position: LogPosition) -> dict[str, Any]:
    if isinstance(position, SnapshotOffset):
        version, revision, row = position
        return {"snapshot": {"version": version, "revision": revision, "row": row}}
    ledger_id, entry_id, revision = position
    return {"ledger": ledger_id, "entry": entry_id, "revision": revision}


def decode_log_offsets(offset: Mapping[str, Any]) -> dict[str, LogPosition]:
    """Read an offset back: positions by log, in ascending order.

    Raises:
        SparkOffsetError: It is of another version, of ledgers, or no offset at all.

    """
    _check_version(offset)
    by_log = offset.get("log")
    if not isinstance(by_log, dict):
        raise SparkOffsetError(
            f"the checkpoint's offset is {_brief(offset)}, the query reads logs: use another checkpoint location"
        )
    return {log: _decoded(by_log[log], offset) for log in sorted(by_log)}


def _decoded(position: Any, offset: Mapping[str, Any]) -> LogPosition:
    found: LogPosition
    try:
        if "snapshot" in position:
            inner = position["snapshot"]
            found = SnapshotOffset(inner["version"], inner["revision"], inner["row"])
        else:
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
