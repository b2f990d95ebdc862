"""Every option of the source, as data: what the parser knows and what the documentation lists."""

from __future__ import annotations

from typing import NamedTuple

STORAGE_OPTION_PREFIX = "storageOption."
"""Prefix of the keys of `deltalake`'s storage options. Spark hands them over in lower case, which `deltalake` takes
as it takes upper case."""


class OptionInfo(NamedTuple):
    """One option.

    Attributes:
        name: In its documented case; Spark ignores the case. A name that ends with a dot begins many options.
        values: What it may be.
        default: What holds without it, in words.
        applies: `both`, `batch`, `stream`, or `CREATE TABLE`.
        meaning: One or two sentences.

    """

    name: str
    values: str
    default: str
    applies: str
    meaning: str


_WHAT = (
    OptionInfo(
        "log",
        "a name",
        "-",
        "both",
        "The replicated log to read. Exactly one of `log`, `logPattern` and `ledgers` is given. Offsets in the names "
        "of options count records.",
    ),
    OptionInfo(
        "logPattern",
        "a regular expression",
        "-",
        "both",
        "All logs whose whole name matches. A stream takes in logs that are made later, each from its first record on.",
    ),
    OptionInfo(
        "ledgers",
        "ids, separated by commas",
        "-",
        "both",
        "Plain ledgers. Offsets in the names of options count entries.",
    ),
    OptionInfo(
        "metadataUri",
        "`zk+hierarchical://host:port;host:port/ledgers`",
        "`$RSM_METADATA_URI`, else `zk+hierarchical://127.0.0.1:2181/ledgers`",
        "both",
        "Where the metadata store is.",
    ),
    OptionInfo(
        "zkAuthFile",
        "a path on the driver",
        "`$RSM_ZK_AUTH_FILE`, else no log-in",
        "both",
        "File whose one line, like `digest:user:secret`, is the log-in for ZooKeeper. Tasks need none.",
    ),
    OptionInfo(
        "zkTlsFile",
        "a path on the driver",
        "`$RSM_ZK_TLS_FILE`, else plain text",
        "both",
        "TOML file that names the certificates, `ca`, `cert`, `key`, for encrypted connections to ZooKeeper. Tasks "
        "need none.",
    ),
    OptionInfo(
        "passwordFile",
        "a path on the driver",
        "the empty password",
        "both",
        "File that holds the password of the ledgers. A password in an option is refused: plans and histories keep it.",
    ),
    OptionInfo(
        "passwordEnv",
        "a variable of the driver",
        "the empty password",
        "both",
        "Environment variable that holds the password of the ledgers, instead of `passwordFile`.",
    ),
    OptionInfo(
        "logKeyFile",
        "a path on the driver",
        "no key: seals are not checked",
        "both",
        "Key file of the log, mode 0600: every entry's seal is checked, one that is not the log's ends the query. "
        "Tasks get what checks seals, not the key. A file for readers needs no private keys.",
    ),
    OptionInfo("rsmRoot", "a path of the metadata store", "`/rsm`", "both", "Where the logs are registered."),
)

_ROWS = (
    OptionInfo(
        "rows",
        "`raw`, `records`, `kafka`, `table`",
        "`records` for logs, `raw` for `ledgers`",
        "both",
        "What a row is: an entry as stored; a record; a record in the columns of Spark's Kafka source; a record typed "
        "by the description that the log gives of itself.",
    ),
    OptionInfo(
        "table",
        "a table of the machine",
        "its only one, or the one of the machine's name",
        "both",
        "With `rows=table`: whose changes are read.",
    ),
    OptionInfo(
        "columns",
        "names, separated by commas",
        "all",
        "both",
        "Columns to deliver, in the order of the schema; the others are not decoded.",
    ),
    OptionInfo(
        "pushdown",
        "`true`, `false`",
        "`false`",
        "batch",
        "Filters on revision, time and position leave out entries. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`.",
    ),
    OptionInfo("includeHeaders", "`true`, `false`", "`false`", "both", "With `rows=kafka`: a column `headers`."),
    OptionInfo(
        "badRecords",
        "`fail`, `column`",
        "`fail`",
        "both",
        "What a record or an entry that cannot be decoded does: end the query, or become a row that tells why in an "
        "additional column `_error`.",
    ),
    OptionInfo(
        "finishedBatches",
        "`true`, `false`",
        "`false`",
        "both",
        "Of a plain or partitioned log: rows of a batch of the sink `as=log` are shown when the batch has ended, all "
        "of them where its end stands, in each partition by itself. Those of a batch that never ends are not shown.",
    ),
)

_WHERE = (
    OptionInfo(
        "startingOffsets",
        '`earliest`, `latest`, `latest-1000`, `snapshot`, or JSON by log or ledger like `{"orders": 1234}`',
        "`latest` for a stream, `earliest` for a batch",
        "both",
        "Where a new query starts; a restarted one goes on from its checkpoint. In JSON, -2 is the earliest and -1 the "
        'latest; a log has a revision or `{"ledger": 3, "entry": 7}`, a ledger its next entry. `snapshot` delivers '
        "the rows of the newest snapshot in `lake` whose tail is still there, then that tail.",
    ),
    OptionInfo(
        "startingTimestamp",
        'milliseconds since 1970, or JSON by log like `{"orders": 1790000000000}`',
        "-",
        "both",
        "Start with the first entry that was logged at or after this time; takes precedence over `startingOffsets`. "
        "Logs only.",
    ),
    OptionInfo(
        "startingOffsetsByTimestampStrategy",
        "`error`, `latest`",
        "`error`",
        "both",
        "What `startingTimestamp` does if nothing was logged at or after that time yet.",
    ),
    OptionInfo(
        "endingOffsets",
        "as `startingOffsets`, without `earliest` and `snapshot`",
        "`latest`",
        "batch",
        "Where the read ends, exclusive. Raw rows are rounded up to whole entries.",
    ),
    OptionInfo(
        "endingTimestamp",
        "as `startingTimestamp`",
        "-",
        "batch",
        "End before the first entry that was logged at or after this time (at the latest, if there is none); takes "
        "precedence over `endingOffsets`. Logs only.",
    ),
    OptionInfo(
        "lake",
        "a folder or URI",
        "-",
        "both",
        "Where the snapshots of `startingOffsets=snapshot` lie: the folder of all logs' snapshots.",
    ),
    OptionInfo(
        STORAGE_OPTION_PREFIX,
        "a storage option of `deltalake`",
        "what the environment says",
        "both",
        "Access to `lake`: `storageOption.aws_region`, … The executors get these values too.",
    ),
    OptionInfo(
        "failOnDataLoss",
        "`true`, `false`",
        "`true`",
        "both",
        "What happens when records that the query should read next were trimmed, or a ledger or log was deleted or "
        "made anew: end with an error that names the exact range, or go on at the first that is there and tell of the "
        "range in the query's progress and in the driver's log.",
    ),
)

_HOW_MUCH = (
    OptionInfo(
        "maxOffsetsPerTrigger",
        "a count",
        "no limit",
        "stream",
        "At most so many records (of logs) or entries (of ledgers) a micro-batch, rounded up to whole entries; several "
        "logs or ledgers share it by what each has waiting.",
    ),
    OptionInfo(
        "maxBytesPerTrigger",
        "a size like `64m` or `1g`",
        "no limit",
        "stream",
        "At most so many payload bytes a micro-batch, rounded up to whole entries. The smallest of all limits counts.",
    ),
    OptionInfo(
        "minOffsetsPerTrigger",
        "a count",
        "no minimum",
        "stream",
        "A micro-batch waits until so many records or entries are there, but not longer than `maxTriggerDelay`.",
    ),
    OptionInfo(
        "maxTriggerDelay",
        "a time like `30s` or `15m`",
        "`15m`",
        "stream",
        "With `minOffsetsPerTrigger`: how long a micro-batch is held back at most.",
    ),
    OptionInfo(
        "minPartitions",
        "a count",
        "by size, 32 MiB each",
        "both",
        "At least so many input partitions, if there are so many entries.",
    ),
)

_HOLD = (
    OptionInfo(
        "consumer",
        "a name",
        "nothing is held",
        "stream",
        "Hold the log under this name: what the query has not read is not trimmed, within `holdTime` and `holdBytes`, "
        "also while the query is down. Each query needs a name of its own. `rsm log info` shows who holds a log, "
        "`rsm log consumers remove` ends it; nothing else does, also not the end of the query.",
    ),
    OptionInfo(
        "holdTime",
        "a time like `12h` or `7d`",
        "`7d`",
        "stream",
        "With `consumer`: what was written longer ago is not held. The log's leader may allow less "
        "(`consumer_hold_s`).",
    ),
    OptionInfo(
        "holdBytes",
        "a size like `500m` or `10g`",
        "`64g`",
        "stream",
        "With `consumer`: no more than so many bytes, from the newest closed ledger back, are held. The log's leader "
        "may allow less (`consumer_hold_bytes`).",
    ),
)

_TRACES = (
    OptionInfo(
        "otlpUrl",
        "a URL like `http://127.0.0.1:4318`",
        "what RSM_OTLP_URL says on driver and executors",
        "both",
        "Send spans of each micro-batch to the collector at this address, by OTLP over HTTP. Driver and executors need "
        "the extra `otel`.",
    ),
    OptionInfo(
        "traceRate",
        "a share from 0 to 1",
        "what RSM_TRACE_RATE says, else `0.01`",
        "both",
        "Share of the micro-batches whose spans are sent. Source and sink of a query need the same.",
    ),
)

OPTIONS: tuple[OptionInfo, ...] = (*_WHAT, *_ROWS, *_WHERE, *_HOW_MUCH, *_HOLD, *_TRACES)
"""All options, in the order in which a reader needs them."""

OPTION_NAMES: tuple[str, ...] = tuple(option.name for option in OPTIONS)
"""Their names, in documented case; `storageOption.` begins many."""
