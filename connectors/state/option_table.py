"""Every option of the source `ledger_state`, as data for the documentation; some are those of `ledger`."""

from __future__ import annotations

from connectors.source.option_table import OPTIONS, STORAGE_OPTION_PREFIX, OptionInfo

_SHARED = (
    "metadataUri",
    "rsmRoot",
    "zkAuthFile",
    "zkTlsFile",
    "passwordFile",
    "passwordEnv",
    "logKeyFile",
    STORAGE_OPTION_PREFIX,
)
_ONE_OF_THREE = "At most one of the three `asOf…`; without any, the newest state."

STATE_OPTION_TABLE: tuple[OptionInfo, ...] = (
    OptionInfo("log", "a name", "-", "batch", "The replicated log whose state is asked for."),
    OptionInfo(
        "asOfRevision", "a revision, 0 and up", "-", "batch", f"The state right after this record. {_ONE_OF_THREE}"
    ),
    OptionInfo(
        "asOfTimestamp",
        "milliseconds since 1970, or a time like `2026-11-22T02:20:00Z`",
        "-",
        "batch",
        "The state after everything that was logged at or before this time.",
    ),
    OptionInfo(
        "asOfPosition", "ledger and entry like `17:1203`", "-", "batch", "The state right after this entry of the log."
    ),
    OptionInfo(
        "table",
        "a table of the machine",
        "all tables",
        "batch",
        "Rows of this table in columns of its own; without it, rows of all tables as bytes.",
    ),
    OptionInfo(
        "lake",
        "a folder or URI",
        "no snapshots: the log from its first record",
        "batch",
        "Where the snapshots of all logs lie: the nearest one before the point is where the state starts from.",
    ),
    OptionInfo(
        "maxTailBytes",
        "a size like `64m` or `1g`",
        "`128m`",
        "batch",
        "Payload of the log behind the snapshot that the driver folds at most; for more, `state_as_of` folds it on the "
        "executors.",
    ),
    *(option for option in OPTIONS if option.name in _SHARED),
)
"""All options, in the order in which a reader needs them."""
