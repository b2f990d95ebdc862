"""Bounds of a query, as its options give them. Pure: what a bound means in a log is found out later.

JSON names logs or ledgers: ``{"orders": 1234}``, ``{"orders": {"ledger": 3, "entry": 7}}``, ``{"orders": "earliest"}``;
of a partitioned log its partitions, all or some: ``{"clicks.p3": 1234}``; for ledgers ``{"17": 5, "18": "latest"}``. As
in Kafka's source -2 is the earliest and -1 the latest. With `log` and `ledgers` it names each of them; with
`logPattern`, and of partitions, those that it does not name begin and end where a query does by default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from connectors.errors import OptionError
from rsm_spark.core.partition_layout import split_partition_log

_RELATIVE = "latest-"
_EARLIEST_NUMBER, _LATEST_NUMBER = -2, -1
_NUMBER_MAX = 2**63 - 1


class BoundKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    BEFORE_LATEST = "before_latest"
    REVISION = "revision"
    POSITION = "position"
    TIMESTAMP = "timestamp"
    SNAPSHOT = "snapshot"


class Bound(msgspec.Struct, frozen=True):
    """Bound of a query: its start or its end.

    Attributes:
        kind: How it is given.
        count: Records (of logs) or entries (of ledgers) before the latest, for BEFORE_LATEST.
        revision: Of the next record, for REVISION.
        ledger_id: For POSITION.
        entry_id: For POSITION: the next entry.
        timestamp_ms: Since 1970, for TIMESTAMP: the first entry that was logged at or after it.

    """

    kind: BoundKind
    count: int = 0
    revision: int = 0
    ledger_id: int = -1
    entry_id: int = 0
    timestamp_ms: int = 0


EARLIEST = Bound(BoundKind.EARLIEST)
LATEST = Bound(BoundKind.LATEST)
SNAPSHOT = Bound(BoundKind.SNAPSHOT)


class StreamNames(msgspec.Struct, frozen=True):
    """Names of the logs or ledgers of a query.

    Attributes:
        names: The log's name, or ids of ledgers in digits; empty with a pattern.
        pattern: "" = none.
        option: Which option names them.

    """

    names: tuple[str, ...]
    pattern: str
    option: str

    @property
    def is_logs(self) -> bool:
        """True if they are logs, whose entries have revisions and times."""
        return self.option != "ledgers"


def parse_bounds(
    given: Mapping[str, str], offsets: str, timestamps: str, streams: StreamNames, default: Bound
) -> dict[str, Bound]:
    """Read the options that say where a query starts, or where it ends.

    Args:
        given: Options by their documented names.
        offsets: `startingOffsets` or `endingOffsets`.
        timestamps: `startingTimestamp` or `endingTimestamp`: it takes precedence.
        streams: What may be named.
        default: Without any of them.

    Returns:
        By log name or ledger id in digits. With a pattern, "" has what holds for all logs that are not named; with a
        log whose partitions are named, its own name has what holds for the other ones.

    Raises:
        OptionError: A value means nothing, or names something else than the query reads.

    """
    name = timestamps if given.get(timestamps, "").strip() else offsets
    text = given.get(name, "").strip()
    if name == timestamps and not streams.is_logs:
        raise OptionError(f"option {name} needs a log: entries of plain ledgers carry no time; use {offsets}")
    keys = streams.names or ("",)
    if not text:
        return dict.fromkeys(keys, default)
    if not text.startswith("{"):
        return dict.fromkeys(keys, _instant(name, text) if name == timestamps else _word(name, text, streams))
    by_stream = _json(name, text, streams)
    read = _instant_of if name == timestamps else _bound
    found = {stream: read(name, stream, by_stream[stream], streams) for stream in sorted(by_stream)}
    if streams.pattern:
        return {"": default, **found}
    return {key: found.get(key, default) for key in (*keys, *(stream for stream in found if stream not in keys))}


def _json(name: str, text: str, streams: StreamNames) -> dict[str, Any]:
    try:
        by_stream: dict[str, Any] = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise OptionError(f"option {name} is no JSON: {error}") from error
    if streams.pattern:
        matches = re.compile(streams.pattern).fullmatch
        missing, unknown = [], sorted(stream for stream in by_stream if not matches(stream))
        must = "may only name logs that option logPattern matches"
    else:
        parts_of = {stream for stream in by_stream if streams.is_logs and _whole(stream) in streams.names}
        missing = [] if parts_of else [stream for stream in streams.names if stream not in by_stream]
        unknown = sorted(set(by_stream) - set(streams.names) - parts_of)
        must = f"must name exactly what option {streams.option} names"
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"not asked for {', '.join(unknown)}"] if unknown else []
    if parts:
        raise OptionError(f"option {name} {must}: {'; '.join(parts)}")
    return by_stream


def _whole(log: str) -> str:
    """Return the log whose partition a log is by its name; "" = none."""
    split = split_partition_log(log)
    return "" if split is None else split[0]


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _word(name: str, text: str, streams: StreamNames) -> Bound:
    is_start = name.startswith("starting")
    word = text.lower().replace(" ", "")
    if word == BoundKind.LATEST:
        return LATEST
    if word == BoundKind.EARLIEST and is_start:
        return EARLIEST
    if word == BoundKind.SNAPSHOT and is_start:
        if not streams.is_logs:
            raise OptionError(f"option {name} is snapshot: plain ledgers have none; it needs a log")
        return SNAPSHOT
    digits = word.removeprefix(_RELATIVE)
    if word.startswith(_RELATIVE) and digits.isascii() and digits.isdigit() and int(digits) <= _NUMBER_MAX:
        return Bound(BoundKind.BEFORE_LATEST, count=int(digits))
    words = "earliest, latest, latest-1000, snapshot" if is_start else "latest, latest-1000"
    raise OptionError(f"option {name} is {text!r}: it may be {words} or JSON by log or ledger")


def _bound(name: str, stream: str, value: Any, streams: StreamNames) -> Bound:
    if isinstance(value, str):
        return _word(name, value, streams)
    if value == _EARLIEST_NUMBER and type(value) is int:
        return _word(name, BoundKind.EARLIEST.value, streams)
    if value == _LATEST_NUMBER and type(value) is int:
        return LATEST
    if not streams.is_logs:
        if type(value) is int and 0 <= value <= _NUMBER_MAX:
            return Bound(BoundKind.POSITION, ledger_id=int(stream), entry_id=value)
        raise OptionError(
            f"option {name}: ledger {stream} has {json.dumps(value)}: write its next entry, like "
            f"{{{json.dumps(stream)}: 5}}, -2 for the earliest or -1 for the latest"
        )
    found = _log_bound(value)
    if found is None:
        key = json.dumps(stream)
        raise OptionError(
            f"option {name}: log {stream} has {json.dumps(value)}: write its next revision, like {{{key}: 1234}} or "
            f'{{{key}: {{"revision": 1234}}}}, {{{key}: {{"ledger": 3, "entry": 7}}}}, or -2 for the earliest, -1 for '
            "the latest"
        )
    return found


def _log_bound(value: Any) -> Bound | None:
    if type(value) is int and 0 <= value <= _NUMBER_MAX:
        return Bound(BoundKind.REVISION, revision=max(1, value))
    if not isinstance(value, dict):
        return None
    if not all(type(number) is int and -1 <= number <= _NUMBER_MAX for number in value.values()):
        return None
    keys = set(value)
    if keys in ({"revision"}, {"ledger", "entry", "revision"}):
        # The revision says it all; ledger and entry come along when an offset of a checkpoint is pasted here.
        return Bound(BoundKind.REVISION, revision=max(1, value["revision"]))
    if keys == {"ledger", "entry"} and value["ledger"] >= 0 and value["entry"] >= 0:
        return Bound(BoundKind.POSITION, ledger_id=value["ledger"], entry_id=value["entry"])
    return None


def _instant(name: str, text: str) -> Bound:
    if not (text.isascii() and text.isdigit() and int(text) <= _NUMBER_MAX):
        raise OptionError(
            f"option {name} is {text!r}: write milliseconds since 1970, like 1790000000000, or JSON by log"
        )
    return Bound(BoundKind.TIMESTAMP, timestamp_ms=int(text))


def _instant_of(name: str, stream: str, value: Any, _streams: StreamNames) -> Bound:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise OptionError(
            f"option {name}: log {stream} has {json.dumps(value)}: write milliseconds since 1970, like "
            f"{{{json.dumps(stream)}: 1790000000000}}"
        )
    return Bound(BoundKind.TIMESTAMP, timestamp_ms=value)
