"""Options of the source, parsed: text in, one typed value out. Pure: nothing is read from disk or environment here.

| option | default | meaning |
| --- | --- | --- |
| `metadataUri` | `$RSM_METADATA_URI`, else `zk+hierarchical://127.0.0.1:2181/ledgers` | where the metadata store is |
| `log` | - | name of a replicated log; or |
| `ledgers` | - | ledger ids, separated by commas; exactly one of the two |
| `rows` | `records` for `log`, `raw` for `ledgers` | `raw`: a row an entry; `records`: a row a record of a log |
| `startingOffsets` | stream `latest`, batch `earliest` | also `latest-<n>`, or JSON by log or ledger |
| `endingOffsets` | `latest` | batch only; also JSON by log or ledger (exclusive; raw rows: rounded up to entries) |
| `maxOffsetsPerTrigger` | no limit | stream only: records (`log`) or entries (`ledgers`), rounded up to whole entries |
| `minPartitions` | by size, 32 MiB each | at least so many input partitions, if there are so many entries |
| `passwordFile`, `passwordEnv` | empty password | where the ledgers' password is read from, on the driver only |
| `rsmRoot` | `/rsm` | where the logs are registered |

JSON offsets: ``{"orders": {"revision": 1234}}``, ``{"orders": {"ledger": 3, "entry": 7}}``, ``{"orders": "earliest"}``;
for ledgers ``{"17": 5, "18": "latest"}``. They apply to a new query only: a restarted one goes on from its checkpoint.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from connectors.errors import OptionError

__all__ = ["OPTION_NAMES", "Bound", "BoundKind", "Rows", "SourceOptions", "parse_options"]

OPTION_NAMES = (
    "metadataUri",
    "log",
    "ledgers",
    "rows",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "passwordFile",
    "passwordEnv",
    "rsmRoot",
)
"""Every option, in its documented case. Spark hands options over lower-cased."""

_BY_LOWER = {name.lower(): name for name in OPTION_NAMES}
_RELATIVE = "latest-"
_LEDGER_ID_MAX = 2**63 - 1


class Rows(StrEnum):
    """What a row is: an entry as stored, or a record of a log."""

    RAW = "raw"
    RECORDS = "records"


class BoundKind(StrEnum):
    """How a start or an end is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BEFORE_LATEST = "before_latest"
    REVISION = "revision"
    POSITION = "position"


class Bound(msgspec.Struct, frozen=True):
    """Where to start or to end.

    Attributes:
        kind: How it is given.
        count: Records (`log`) or entries (`ledgers`) before the latest, for BEFORE_LATEST.
        revision: Of the next record, for REVISION.
        ledger_id: For POSITION.
        entry_id: For POSITION: the next entry.

    """

    kind: BoundKind
    count: int = 0
    revision: int = 0
    ledger_id: int = -1
    entry_id: int = 0


EARLIEST = Bound(BoundKind.EARLIEST)
LATEST = Bound(BoundKind.LATEST)


class SourceOptions(msgspec.Struct, frozen=True):
    """All options of one query.

    Attributes:
        log: Name of the log, or "" with `ledger_ids`.
        ledger_ids: Ascending, without repeats; empty with `log`.
        rows: What a row is.
        starting: Bound by log name or by ledger id in digits.
        ending: The same, exclusive.
        metadata_uri: None = environment or default.
        offsets_per_trigger_max: None = no limit.
        partition_count_min: None = by size only.
        password_file: Path on the driver, or None.
        password_env: Name of an environment variable of the driver, or None.
        rsm_root: Where the logs are registered.

    """

    log: str
    ledger_ids: tuple[int, ...]
    rows: Rows
    starting: dict[str, Bound]
    ending: dict[str, Bound]
    metadata_uri: str | None = None
    offsets_per_trigger_max: int | None = None
    partition_count_min: int | None = None
    password_file: str | None = None
    password_env: str | None = None
    rsm_root: str = "/rsm"

    @property
    def streams(self) -> tuple[str, ...]:
        """Keys of `starting`, `ending` and of offsets: the log's name, or the ledger ids in digits, ascending."""
        return (self.log,) if self.log else tuple(str(ledger_id) for ledger_id in self.ledger_ids)


def parse_options(options: Mapping[str, str], *, is_stream: bool | None) -> SourceOptions:
    """Check and parse the options of a query.

    Args:
        options: As Spark hands them over; the case of names does not matter.
        is_stream: Whether the query is a stream: it has other defaults and limits than a batch. None = not known yet:
            what only one of them may have is let pass.

    Raises:
        OptionError: Names the option, what it had and what it may have.

    """
    given = _known(options)
    log, ledger_ids = _subject(given)
    rows = _rows(given, log)
    streams = (log,) if log else tuple(str(ledger_id) for ledger_id in ledger_ids)
    for name, allowed in (("endingOffsets", not is_stream), ("maxOffsetsPerTrigger", is_stream)):
        if name in given and is_stream is not None and not allowed:
            where = "spark.read" if is_stream else "spark.readStream"
            raise OptionError(f"option {name} only works with {where}: leave it out")
    if "passwordFile" in given and "passwordEnv" in given:
        raise OptionError("options passwordFile and passwordEnv are both set: give one of them")
    return SourceOptions(
        log=log,
        ledger_ids=ledger_ids,
        rows=rows,
        starting=_bounds(given, "startingOffsets", streams, LATEST if is_stream else EARLIEST, is_log=bool(log)),
        ending=_bounds(given, "endingOffsets", streams, LATEST, is_log=bool(log)),
        metadata_uri=given.get("metadataUri") or None,
        offsets_per_trigger_max=_count(given, "maxOffsetsPerTrigger"),
        partition_count_min=_count(given, "minPartitions"),
        password_file=given.get("passwordFile"),
        password_env=given.get("passwordEnv"),
        rsm_root=_root(given.get("rsmRoot", "/rsm")),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for key, value in options.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), list(_BY_LOWER), n=1, cutoff=0.5)
            hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"known are {', '.join(OPTION_NAMES)}"
            raise OptionError(f"source ledger: unknown option {key}: {hint}")
        given[name] = value
    return given


def _subject(given: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    log, ledgers = given.get("log", "").strip(), given.get("ledgers", "").strip()
    if bool(log) == bool(ledgers):
        found = "both are set" if log else "neither is set"
        raise OptionError(f"source ledger: give exactly one of the options log and ledgers: {found}")
    if "/" in log:
        raise OptionError(f"option log is {log!r}: a log's name has no slash")
    if log:
        return log, ()
    ids = [part.strip() for part in ledgers.split(",")]
    for text in ids:
        if not (text.isascii() and text.isdigit() and int(text) <= _LEDGER_ID_MAX):
            raise OptionError(f"option ledgers is {ledgers!r}: {text!r} is no ledger id; write it like 17,18")
    return "", tuple(sorted({int(text) for text in ids}))


def _rows(given: Mapping[str, str], log: str) -> Rows:
    text = given.get("rows")
    if text is None:
        return Rows.RECORDS if log else Rows.RAW
    if text.lower() not in {Rows.RAW, Rows.RECORDS}:
        raise OptionError(f"option rows is {text!r}: it may be raw or records")
    rows = Rows(text.lower())
    if rows == Rows.RECORDS and not log:
        raise OptionError("option rows=records needs a log: plain ledgers hold bytes only; use rows=raw")
    return rows


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise OptionError(f"option {name} is {text!r}: it must be a whole number of at least 1")
    return int(text)


def _root(text: str) -> str:
    root = text.rstrip("/")
    if not root.startswith("/"):
        raise OptionError(f"option rsmRoot is {text!r}: it must be a path of the metadata store like /rsm")
    return root


def _bounds(
    given: Mapping[str, str], name: str, streams: tuple[str, ...], default: Bound, *, is_log: bool
) -> dict[str, Bound]:
    text = given.get(name, "").strip()
    if not text:
        return dict.fromkeys(streams, default)
    if not text.startswith("{"):
        return dict.fromkeys(streams, _word(name, text))
    try:
        by_stream = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is no JSON: {error}") from error
    unknown = sorted(set(by_stream) - set(streams))
    missing = [stream for stream in streams if stream not in by_stream]
    if unknown or missing:
        kind = "log" if is_log else "ledgers"
        raise OptionError(
            f"option {name} must name exactly what option {kind} names: "
            + "; ".join(
                part
                for part in (
                    f"missing {', '.join(missing)}" if missing else "",
                    f"not asked for {', '.join(unknown)}" if unknown else "",
                )
                if part
            )
        )
    return {stream: _bound(name, stream, by_stream[stream], is_log=is_log) for stream in streams}


def _word(name: str, text: str) -> Bound:
    word = text.lower().replace(" ", "")
    if word == BoundKind.EARLIEST:
        return EARLIEST
    if word == BoundKind.LATEST:
        return LATEST
    digits = word.removeprefix(_RELATIVE)
    if word.startswith(_RELATIVE) and digits.isascii() and digits.isdigit():
        return Bound(BoundKind.BEFORE_LATEST, count=int(digits))
    raise OptionError(f"option {name} is {text!r}: it may be earliest, latest, latest-1000 or JSON by log or ledger")


def _bound(name: str, stream: str, value: Any, *, is_log: bool) -> Bound:
    if isinstance(value, str):
        return _word(name, value)
    if not is_log:
        if type(value) is int and value >= 0:
            return Bound(BoundKind.POSITION, ledger_id=int(stream), entry_id=value)
        raise OptionError(f'option {name}: ledger {stream} has {value!r}: write its next entry, like {{"{stream}": 5}}')
    if isinstance(value, dict) and all(type(number) is int and number >= -1 for number in value.values()):
        keys = set(value)
        if keys in ({"revision"}, {"ledger", "entry", "revision"}):
            # The revision says it all; ledger and entry come along when an offset of a checkpoint is pasted here.
            return Bound(BoundKind.REVISION, revision=max(1, value["revision"]))
        if keys == {"ledger", "entry"} and value["entry"] >= 0:
            return Bound(BoundKind.POSITION, ledger_id=value["ledger"], entry_id=value["entry"])
    raise OptionError(
        f"option {name}: log {stream} has {json.dumps(value)}: write "
        f'{{"{stream}": {{"revision": 1234}}}} or {{"{stream}": {{"ledger": 3, "entry": 7}}}}'
    )
