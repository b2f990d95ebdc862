"""Options of the sink, parsed: text in, one typed value out. Pure: nothing is read from disk or environment here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from connectors.errors import OptionError
from connectors.sink.option_table import SINK_OPTION_NAMES, SINK_OPTION_TABLE
from connectors.source.option_values import parse_choice, parse_duration, parse_share
from rsm_spark.core.machine import Field
from rsm_spark.core.writer_marks import NAME_CHARS_MAX

BATCH_CHECKPOINT = "batch"
"""Checkpoint of a batch that names none."""

_BY_LOWER = {name.lower(): name for name in SINK_OPTION_NAMES}
PATIENCE_S = 120.0
_BATCH_MAX = 1 << 62
_PREFIX_BYTES_MAX = 1024


class RowKind(StrEnum):
    """Kinds of rows."""

    MAP = "map"
    TASKS = "tasks"
    COMMANDS = "commands"
    TABLE = "table"
    LOG = "log"


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table that is written to.

    Attributes:
        name: Of it.
        declared: Its type, as the table declares it; "" = none.
        key_place: Its place in the primary key, from 1; 0 = it is no part of it.
        is_filled: It may not be null, and nothing stands for a missing value.
        is_generated: Its values are not written.

    """

    name: str
    declared: str
    key_place: int = 0
    is_filled: bool = False
    is_generated: bool = False


class SinkOptions(msgspec.Struct, frozen=True):
    """All options of one query.

    Attributes:
        log: Name of the log.
        kind: What the rows are.
        writer: Name under which the log remembers; "" = a passing one.
        batch: Number of the batch; of a batch query.
        checkpoint: What counts batches; of a batch query.
        take_over: Checkpoint whose place this one takes; "" = none.
        conflict_prefix: Of keys that keep what was in conflict; b"" = they are not kept.
        table: That is written to; "" = the rows are of no table.
        table_columns: Its columns, once they were looked up; of an SQL table.
        table_fields: The same of a service with typed commands, those of the key first.
        table_key_width: Of `table_fields`, how many are the key.
        gateways: URLs of gateways of the log, of a plain one; () = it is the log of a service.
        patience_s: How long a command is sent again.
        metadata_uri: None = environment or default.
        rsm_root: Where the logs are registered.
        otlp_url: Of the collector that is told spans; "" = as the environment says.
        trace_rate: Share of the batches that are told; None = as the environment says.

    """

    log: str
    kind: RowKind
    writer: str
    batch: int = 0
    checkpoint: str = BATCH_CHECKPOINT
    take_over: str = ""
    conflict_prefix: bytes = b""
    table: str = ""
    table_columns: tuple[TableColumn, ...] = ()
    table_fields: tuple[Field, ...] = ()
    table_key_width: int = 0
    gateways: tuple[str, ...] = ()
    patience_s: float = PATIENCE_S
    metadata_uri: str | None = None
    rsm_root: str = "/rsm"
    otlp_url: str = ""
    trace_rate: float | None = None


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Check and parse the options of a query that writes.

    Args:
        options: As Spark hands them over; the case of names does not matter.
        is_stream: Whether the query is a stream.

    Raises:
        OptionError: Names the option, what it had and what it may have.

    """
    given = _known(options, is_stream=is_stream)
    log = given.get("log", "")
    if not log or "/" in log:
        raise OptionError(f"sink ledger: option log is {log!r}: name the log to write to, without a slash")
    if "as" not in given:
        raise OptionError(f"sink ledger: option as is missing: it may be {', '.join(RowKind)}")
    kind = parse_choice(given, "as", RowKind.MAP)
    for name in ("writer", "checkpoint", "takeOver"):
        text = given.get(name, "")
        if len(text) > NAME_CHARS_MAX or (text and not text.isprintable()):
            raise OptionError(f"option {name} is {text[:40]!r}: it has up to {NAME_CHARS_MAX} printable characters")
    writer = given.get("writer", "")
    if is_stream and not writer:
        raise OptionError(
            "sink ledger: option writer is missing: a stream needs a name of its own, by which the log remembers which "
            "batches were applied"
        )
    gateways = tuple(url.strip() for url in given.get("gateway", "").split(",") if url.strip())
    if bool(gateways) != (kind is RowKind.LOG):
        raise OptionError(
            f"option gateway only works with as=log: as={kind} goes to the log's leader"
            if gateways
            else "sink ledger: option gateway is missing: as=log needs the URLs of gateways of logs (`rsm log serve`), "
            "with commas between them"
        )
    for name in ("batch", "checkpoint", "takeOver"):
        if given.get(name) and not writer:
            raise OptionError(f"option {name} needs option writer, the name under which the log remembers batches")
    prefix = given.get("conflictPrefix", "").encode()
    if len(prefix) > _PREFIX_BYTES_MAX:
        raise OptionError(f"option conflictPrefix has {len(prefix)} bytes: {_PREFIX_BYTES_MAX} are allowed")
    table = given.get("table", "")
    if bool(table) != (kind is RowKind.TABLE):
        raise OptionError(
            f"option table is {table!r}: as=table needs the name of a table, and as={kind} has none"
            if table
            else "sink ledger: option table is missing: as=table needs the name of the table to write to"
        )
    root = given.get("rsmRoot", "/rsm").rstrip("/")
    if not root.startswith("/"):
        raise OptionError(f"option rsmRoot is {root!r}: it must be a path of the metadata store like /rsm")
    return SinkOptions(
        log=log,
        kind=kind,
        writer=writer,
        batch=_batch(given),
        checkpoint=given.get("checkpoint") or BATCH_CHECKPOINT,
        take_over=given.get("takeOver", ""),
        conflict_prefix=prefix,
        table=table,
        gateways=gateways,
        patience_s=parse_duration(given, "timeout", PATIENCE_S),
        metadata_uri=given.get("metadataUri") or None,
        rsm_root=root,
        otlp_url=given.get("otlpUrl", "").strip(),
        trace_rate=parse_share(given, "traceRate"),
    )


def _known(options: Mapping[str, str], *, is_stream: bool) -> dict[str, str]:
    given: dict[str, str] = {}
    for key, value in options.items():
        name = _BY_LOWER.get(key.lower())
        if name is not None:
            given[name] = value.strip()
        elif not (is_stream and key.lower() in {"checkpointlocation", "path", "queryname"}):
            near = difflib.get_close_matches(key.lower(), list(_BY_LOWER), n=1, cutoff=0.5)
            hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"known are {', '.join(SINK_OPTION_NAMES)}"
            raise OptionError(f"sink ledger: unknown option {key}: {hint}")
    for option in SINK_OPTION_TABLE:
        if is_stream and option.applies == "batch" and option.name in given:
            raise OptionError(f"option {option.name} only works with df.write: a stream counts its batches itself")
        if option.applies == "CREATE TABLE" and option.name in given:
            raise OptionError(f"option {option.name} only works in CREATE TABLE: select what is to be written")
    return given


def _batch(given: Mapping[str, str]) -> int:
    text = given.get("batch", "0")
    if not (text.isascii() and text.isdigit()) or int(text) > _BATCH_MAX:
        raise OptionError(f"option batch is {text!r}: it must be a whole number from 0")
    return int(text)
