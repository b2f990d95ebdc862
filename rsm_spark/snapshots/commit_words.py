"""Words of Delta tables that are made of a log, for `DESCRIBE DETAIL` and `DESCRIBE HISTORY`.

Those of commits have the same keys in every table.
"""

from __future__ import annotations

import msgspec

USER_METADATA = "userMetadata"
"""Key of these words in the metadata of a commit, as Spark has it."""


def table_words(what: str, log: str, log_id: str) -> str:
    """Return the description of a table.

    Args:
        what: It is, such as "table map".
        log: Name of the log, when the table is made.
        log_id: Its uuid, 32 hex digits.

    """
    return f"{what} of log {log} (id {log_id}); the history says revision and prefix hash of each version"


def commit_words(
    *,
    log: str,
    log_id: str,
    revision: int,
    ledger_id: int,
    entry_id: int,
    prefix_hash: str,
    table: str = "",
    **more: object,
) -> str:
    """Return what a commit says of itself, as JSON.

    Args:
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        revision: Last record that is in the table.
        ledger_id: Ledger of that record's entry; -1 = none, or not known.
        entry_id: That entry.
        prefix_hash: SHA-256 of that entry, hex; "" = not known.
        table: Table of the machine; "" = it is of none.
        more: What else there is to say.

    """
    said: dict[str, object] = {"table": table} if table else {}
    said |= {
        "log": log, "log_id": log_id, "revision": revision, "ledger_id": ledger_id, "entry_id": entry_id,
        "prefix_hash": prefix_hash, **more,
    }  # fmt: skip
    return msgspec.json.encode(said).decode()
