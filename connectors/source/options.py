"""Options of the source, parsed: text in, one typed value out. Pure: nothing is read from disk or environment here.

What there is, with defaults and meanings, is data in `connectors.source.option_table`; starts and ends are parsed in
`connectors.source.bounds`, single values in `connectors.source.option_values`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from connectors.errors import OptionError
from connectors.source.bounds import EARLIEST, LATEST, Bound, BoundKind, StreamNames, parse_bounds
from connectors.source.entry_bounds import EntryBounds
from connectors.source.option_table import OPTION_NAMES, OPTIONS, STORAGE_OPTION_PREFIX
from connectors.source.option_values import (
    parse_choice,
    parse_columns,
    parse_count,
    parse_duration,
    parse_flag,
    parse_share,
    parse_size,
)
from rsm_spark.core.trimming import HOLD_BYTES, HOLD_MS

_BY_LOWER = {name.lower(): name for name in OPTION_NAMES if name != STORAGE_OPTION_PREFIX}
_STORAGE_LOWER = STORAGE_OPTION_PREFIX.lower()
_KAFKA_NAMES = {
    "subscribe": "log",
    "subscribepattern": "logPattern",
    "assign": "ledgers",
    "kafka.bootstrap.servers": "metadataUri",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "path": "log",
}
_LEDGER_ID_MAX = 2**63 - 1
_TRIGGER_DELAY_S = 900.0


class Rows(StrEnum):
    RAW = "raw"
    RECORDS = "records"
    KAFKA = "kafka"
    TABLE = "table"


class BadRecords(StrEnum):
    """Choices for a record that cannot be decoded."""

    FAIL = "fail"
    COLUMN = "column"


class TimestampStrategy(StrEnum):
    """Choices of the start if nothing was logged at or after a time."""

    ERROR = "error"
    LATEST = "latest"


class SourceOptions(msgspec.Struct, frozen=True):
    """All options of one query.

    Attributes:
        log: Name of the log, or "" with `log_pattern` or `ledger_ids`.
        ledger_ids: Ascending, without repeats; empty for logs.
        rows: What a row is.
        starting: Bound by log name or by ledger id in digits; with `log_pattern`, "" has that of all other logs.
        ending: The same, exclusive.
        log_pattern: A regular expression that matches whole names; "" = none.
        metadata_uri: None = environment or default.
        zk_auth_file: Path on the driver of the log-in for ZooKeeper; None = environment or none.
        zk_tls_file: Path on the driver of what names the certificates for ZooKeeper; None = environment or none.
        password_file: Path on the driver, or None.
        password_env: Name of an environment variable of the driver, or None.
        log_key_file: Path on the driver of the log's key file; None = seals are not checked.
        rsm_root: Where the logs are registered.
        table: With rows=table; "" = the machine's only table, or the one of its name.
        columns: To deliver; () = all.
        pushdown: Whether filters may leave out entries.
        include_headers: With rows=kafka.
        bad_records: What becomes of a record that cannot be decoded.
        finished_batches: Whether rows of a sink's batch are shown when it has ended only.
        timestamp_strategy: Where to start if nothing was logged at or after a time.
        lake: Where the snapshots of all logs lie, or None.
        storage_options: For `deltalake`, keys in lower case.
        fail_on_data_loss: Whether records that are gone end the query.
        offsets_per_trigger_max: Records or entries; None = no limit.
        bytes_per_trigger_max: Payload; None = no limit.
        offsets_per_trigger_min: Records or entries to wait for; None = none.
        trigger_delay_max_s: How long to wait for them.
        partition_count_min: None = by size only.
        consumer: Name under which the query holds its logs; "" = it does not.
        hold_ms: What the query has not read stays so long after it was written.
        hold_bytes: What the query has not read stays up to so many bytes.
        otlp_url: Of the collector that is told spans; "" = as the environment says.
        trace_rate: Share of the batches that are told; None = as the environment says.
        row_columns: Fields of the rows' columns (`schema.RowColumn`), as the source fixes them when a query starts;
            () = not yet. No option gives them.
        entry_bounds: What the query's filters ask of entries, as Spark hands them over; None = nothing. No option.

    """

    log: str
    ledger_ids: tuple[int, ...]
    rows: Rows
    starting: dict[str, Bound]
    ending: dict[str, Bound]
    log_pattern: str = ""
    metadata_uri: str | None = None
    zk_auth_file: str | None = None
    zk_tls_file: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    log_key_file: str | None = None
    rsm_root: str = "/rsm"
    table: str = ""
    columns: tuple[str, ...] = ()
    pushdown: bool = False
    include_headers: bool = False
    bad_records: BadRecords = BadRecords.FAIL
    finished_batches: bool = False
    timestamp_strategy: TimestampStrategy = TimestampStrategy.ERROR
    lake: str | None = None
    storage_options: dict[str, str] = {}
    fail_on_data_loss: bool = True
    offsets_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_s: float = _TRIGGER_DELAY_S
    partition_count_min: int | None = None
    consumer: str = ""
    hold_ms: int = HOLD_MS
    hold_bytes: int = HOLD_BYTES
    otlp_url: str = ""
    trace_rate: float | None = None
    row_columns: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    entry_bounds: EntryBounds | None = None

    def __repr__(self) -> str:
        """Leave out storage options: they may hold secrets."""
        subject = self.log or self.log_pattern or ",".join(map(str, self.ledger_ids))
        return f"SourceOptions({subject!r}, rows={str(self.rows)!r})"

    @property
    def streams(self) -> tuple[str, ...]:
        """The log's name, or the ledger ids in digits, ascending; () with a pattern, whose logs are not known here."""
        return (self.log,) if self.log else tuple(str(ledger_id) for ledger_id in self.ledger_ids)

    @property
    def is_logs(self) -> bool:
        """True if logs are read: offsets count records then, else entries."""
        return not self.ledger_ids


def parse_options(options: Mapping[str, str], *, is_stream: bool | None) -> SourceOptions:
    """Check and parse the options of a query.

    Args:
        options: As Spark hands them over; the case of names does not matter.
        is_stream: Whether the query is a stream: it has other defaults and limits than a batch. None = not known yet:
            what only one of them may have is let pass.

    Raises:
        OptionError: Names the option, what it had and what it may have.

    """
    given, storage_options = _known(options)
    _check_use(given, is_stream=is_stream)
    log, ledger_ids, streams = _subject(given)
    rows = _rows(given, streams)
    start = LATEST if is_stream else EARLIEST
    parsed = SourceOptions(
        log=log,
        ledger_ids=ledger_ids,
        rows=rows,
        starting=parse_bounds(given, "startingOffsets", "startingTimestamp", streams, start),
        ending=parse_bounds(given, "endingOffsets", "endingTimestamp", streams, LATEST),
        log_pattern=streams.pattern,
        metadata_uri=given.get("metadataUri") or None,
        zk_auth_file=given.get("zkAuthFile") or None,
        zk_tls_file=given.get("zkTlsFile") or None,
        password_file=given.get("passwordFile"),
        password_env=given.get("passwordEnv"),
        log_key_file=given.get("logKeyFile"),
        rsm_root=_root(given.get("rsmRoot", "/rsm")),
        table=given.get("table", "").strip(),
        columns=parse_columns(given, "columns"),
        pushdown=parse_flag(given, "pushdown", default=False),
        include_headers=parse_flag(given, "includeHeaders", default=False),
        bad_records=parse_choice(given, "badRecords", BadRecords.FAIL),
        finished_batches=parse_flag(given, "finishedBatches", default=False),
        timestamp_strategy=parse_choice(given, "startingOffsetsByTimestampStrategy", TimestampStrategy.ERROR),
        lake=given.get("lake", "").strip() or None,
        storage_options=storage_options,
        fail_on_data_loss=parse_flag(given, "failOnDataLoss", default=True),
        offsets_per_trigger_max=parse_count(given, "maxOffsetsPerTrigger"),
        bytes_per_trigger_max=parse_size(given, "maxBytesPerTrigger"),
        offsets_per_trigger_min=parse_count(given, "minOffsetsPerTrigger"),
        trigger_delay_max_s=parse_duration(given, "maxTriggerDelay", _TRIGGER_DELAY_S),
        partition_count_min=parse_count(given, "minPartitions"),
        consumer=given.get("consumer", "").strip(),
        hold_ms=round(parse_duration(given, "holdTime", HOLD_MS / 1000) * 1000),
        hold_bytes=parse_size(given, "holdBytes") or HOLD_BYTES,
        otlp_url=given.get("otlpUrl", "").strip(),
        trace_rate=parse_share(given, "traceRate"),
    )
    _check_together(parsed)
    return parsed


def _known(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options by their documented names, and the storage options by their keys."""
    given: dict[str, str] = {}
    storage: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        name = _BY_LOWER.get(lower)
        if name is not None:
            given[name] = value
        elif lower.startswith(_STORAGE_LOWER) and len(lower) > len(_STORAGE_LOWER):
            storage[lower.removeprefix(_STORAGE_LOWER)] = value
        else:
            raise OptionError(_unknown(key))
    return given, dict(sorted(storage.items()))


def _unknown(key: str) -> str:
    """Say what is wrong with a name; never the value, which may be a secret."""
    if key.lower() == "password":
        return (
            "option password is refused: an option's value stays in plans, histories and pickles; use passwordFile (a "
            "file of the driver) or passwordEnv (an environment variable of the driver)"
        )
    near = difflib.get_close_matches(key.lower(), list(_BY_LOWER), n=1, cutoff=0.5)
    meant = _KAFKA_NAMES.get(key.lower()) or (_BY_LOWER[near[0]] if near else None)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(OPTION_NAMES)}"
    return f"source ledger: unknown option {key}: {hint}"


def _check_use(given: Mapping[str, str], *, is_stream: bool | None) -> None:
    for option in OPTIONS:
        if option.name not in given or is_stream is None or option.applies == "both":
            continue
        if (option.applies == "stream") != is_stream:
            where = "spark.read" if is_stream else "spark.readStream"
            raise OptionError(f"option {option.name} only works with {where}: leave it out")
    if "passwordFile" in given and "passwordEnv" in given:
        raise OptionError("options passwordFile and passwordEnv are both set: give one of them")


def _subject(given: Mapping[str, str]) -> tuple[str, tuple[int, ...], StreamNames]:
    texts = {name: given.get(name, "").strip() for name in ("log", "logPattern", "ledgers")}
    named = [name for name, text in texts.items() if text]
    if len(named) != 1:
        found = f"set are {' and '.join(named)}" if named else "none of them is set"
        raise OptionError(f"source ledger: give exactly one of the options log, logPattern and ledgers: {found}")
    option, text = named[0], texts[named[0]]
    if option == "log":
        if "/" in text:
            raise OptionError(f"option log is {text!r}: a log's name has no slash")
        return text, (), StreamNames((text,), "", option)
    if option == "logPattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option logPattern is {text!r}: no regular expression: {error}") from error
        return "", (), StreamNames((), text, option)
    ids = [part.strip() for part in text.split(",")]
    for part in ids:
        if not (part.isascii() and part.isdigit() and int(part) <= _LEDGER_ID_MAX):
            raise OptionError(f"option ledgers is {text!r}: {part!r} is no ledger id; write it like 17,18")
    found_ids = tuple(sorted({int(part) for part in ids}))
    return "", found_ids, StreamNames(tuple(map(str, found_ids)), "", option)


def _rows(given: Mapping[str, str], streams: StreamNames) -> Rows:
    rows = parse_choice(given, "rows", Rows.RECORDS if streams.is_logs else Rows.RAW)
    if rows not in {Rows.RAW, Rows.KAFKA} and not streams.is_logs:
        raise OptionError(f"option rows={rows} needs a log: plain ledgers hold bytes only; use rows=raw or kafka")
    for name, needed in (("table", Rows.TABLE), ("includeHeaders", Rows.KAFKA)):
        if given.get(name, "").strip() not in {"", "false"} and rows != needed:
            raise OptionError(f"option {name} only works with rows={needed}: rows is {rows}")
    return rows


def _root(text: str) -> str:
    root = text.rstrip("/")
    if not root.startswith("/"):
        raise OptionError(f"option rsmRoot is {text!r}: it must be a path of the metadata store like /rsm")
    return root


def _check_together(options: SourceOptions) -> None:
    """Check what only shows in two options."""
    if options.finished_batches:
        if not options.is_logs or options.rows == Rows.RAW:
            raise OptionError("option finishedBatches needs records of a log: rows=records, table or kafka")
        if options.pushdown:
            raise OptionError("option finishedBatches does not go with pushdown: an end's mark has to be read")
    if options.consumer and not options.is_logs:
        raise OptionError("option consumer needs option log or logPattern: plain ledgers are not trimmed")
    limits = {"holdTime": options.hold_ms != HOLD_MS, "holdBytes": options.hold_bytes != HOLD_BYTES}
    for name, is_given in limits.items():
        if is_given and not options.consumer:
            raise OptionError(f"option {name} needs option consumer, the name under which the query holds the log")
    least, most = options.offsets_per_trigger_min, options.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger is {least}, maxOffsetsPerTrigger is {most}: the minimum may not be above the "
            "maximum"
        )
    if any(bound.kind == BoundKind.SNAPSHOT for bound in options.starting.values()):
        if options.lake is None:
            raise OptionError("option startingOffsets is snapshot: it needs option lake, the folder of the snapshots")
        if options.rows == Rows.RAW:
            raise OptionError(
                "option startingOffsets is snapshot: a snapshot has rows and no entries; use rows=records"
            )
